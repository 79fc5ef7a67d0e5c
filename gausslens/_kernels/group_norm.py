"""The operations between a network's convolutions, in few passes over a GPU's memory, for calls that are not compiled.

    m, v   mean and variance of x + a over a group of channels and all pixels
    y      silu((x + a − m)/√(v + ε)·weight + bias):   one pass to read x, one to read x and write y
    z      s·(p + q) + bias:                            one pass to read p and q and write z

As single operations of torch these are six passes, several of them slow because they mix number formats.
"""

import math
from functools import cache

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import triton_programs as programs

_ROWS, _COLUMNS = 32, 128
_NARROW = (torch.float32, torch.bfloat16, torch.float16)


def usable(x: Tensor) -> bool:
    """Whether these kernels can process x: on a GPU, channels last, without derivatives and outside a compiler."""
    return (
        x.is_cuda
        and not torch.compiler.is_compiling()
        and not torch.is_grad_enabled()
        and forward_ad.unpack_dual(x).tangent is None
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and x.dtype in _NARROW
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.numel() > 0
        and _works()
    )


def normalize(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, epsilon: float, offset: Tensor | None, *, activate: bool
) -> Tensor:
    """Group normalisation of x, or of x plus an offset for every channel, and SiLU if asked for."""
    images, channels, pixels = x.shape[0], x.shape[1], x.shape[2] * x.shape[3]
    mean, variance, center, scale = torch.empty(4, images, channels, device=x.device, dtype=torch.float32)
    y = torch.empty_like(x)
    added = mean if offset is None else offset.float().contiguous()
    size, columns = channels // groups, math.ceil(channels / _COLUMNS)
    block = {"ROWS": _ROWS, "COLUMNS": _COLUMNS}
    with torch.cuda.device_of(x):  # Triton asks which GPU is the current one, not where tensors are
        programs.moments[(images, columns)](x, mean, variance, pixels, channels, **block)
        programs.affine[(images,)](
            *(mean, variance, added, weight, center, scale, groups, size, epsilon),
            MOVED=offset is not None,
            GROUPS=_next_power_of_two(groups),
            SIZE=_next_power_of_two(size),
        )
        grid = (images, math.ceil(pixels / _ROWS), columns)
        programs.apply_affine[grid](x, center, scale, bias, y, pixels, channels, ACTIVATE=activate, **block)
    return y


def add_scaled(p: Tensor, q: Tensor, bias: Tensor, scale: float) -> Tensor:
    """scale·(p + q) + bias."""
    z = torch.empty_like(p)
    rows, channels = p.numel() // p.shape[1], p.shape[1]
    grid = (math.ceil(rows / _ROWS), math.ceil(channels / _COLUMNS))
    with torch.cuda.device_of(p):
        programs.add_scaled[grid](p, q, bias, z, rows, channels, scale, ROWS=_ROWS, COLUMNS=_COLUMNS)
    return z


def _next_power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


@cache
def _works() -> bool:
    """Whether kernels can be built here, which also takes a C compiler."""
    if not programs.AVAILABLE:
        return False
    x, one = torch.ones(1, 2, 1, 1, device="cuda"), torch.ones(2, device="cuda")
    try:
        normalize(x, one, one, 1, 1e-5, one[None], activate=True)
    except Exception:  # a compiler can fail in any way, and there is another way to the same numbers
        return False
    return True
