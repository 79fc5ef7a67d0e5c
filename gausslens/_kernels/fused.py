"""Elementwise steps that a GPU does in one pass over memory when they are compiled together.

`fused` compiles each function once, on first use for large tensors on a GPU, which takes a few seconds. Where torch.compile
does not work, and inside `uncompiled`, functions run as they are written, somewhat slower.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor

# Digits of whole numbers |q| ≤ 127: a rest of at most ½ times this is the next one.
BASE = 254.0
# Lifts numbers in [0, 1] out of the subnormal numbers of half precision, whose largest number is 65504.
LIFT = 32768.0
# Below this many numbers the passes over memory that compiling saves are not worth its start.
_LARGE = 1 << 20


def fused(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), the first of which is a large tensor, compiled where that pays and works."""
    first = arguments[0]
    if first.is_cuda and first.numel() >= _LARGE and _compiling.get() and function not in _UNCOMPILABLE:
        try:
            return _compiled(function)(*arguments)
        except Exception:  # a compiler can fail in any way (none installed, unknown GPU); the plain function cannot
            _UNCOMPILABLE.add(function)
    return function(*arguments)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, nothing is compiled: for work of fewer calls than would earn it back."""
    before = _compiling.set(False)
    try:
        yield
    finally:
        _compiling.reset(before)


_compiling = ContextVar("compiling", default=True)
_UNCOMPILABLE: set[Callable[..., Any]] = set()
_compiled = cache(torch.compile)


def describe_queries(
    rows: Tensor, variance: Tensor, anchor: Tensor, largest_norm: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of queries x (b, d): Σ_j x_j, the logit (x·a − ½‖a‖²)/σ² of an anchor a, and ε√(‖x‖²+L²)L/σ², all float64 (b, 1).

    The last measures the rounding of float32 products with images of norm up to L.
    """
    x, a = rows.double(), anchor.double()
    level = (((x - a) * a).sum(1, keepdim=True) + a.square().sum() / 2) / variance
    norms = (x.square().sum(1, keepdim=True) + largest_norm.square()).sqrt()
    scale = torch.finfo(torch.float32).eps * norms * largest_norm / variance
    return x.sum(1, keepdim=True), level, scale


def split_digits(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Whole numbers |q| ≤ 127, (count, b, n), and scales s, (b, 1), such that rows = s(q₀ + q₁/BASE + q₂/BASE² + …)."""
    scale = rows.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    whole = torch.empty(count, *rows.shape, dtype=torch.int8, device=rows.device)
    rest = rows.double() / scale
    for digit in whole:
        nearest = rest.round()
        digit.copy_(nearest)
        rest.sub_(nearest).mul_(BASE)
    return whole, scale


def combine_digits(
    whole: Tensor, scale: Tensor, row_sums: Tensor, variance: Tensor, level: Tensor, half_squares: Tensor
) -> tuple[Tensor, Tensor]:
    """(x·y − ½‖y‖²)/σ² − level, and its row maxima, from the products w (k, b, t) of the digits of x with y's p − 128.

    With y = ((p − 128) + ½)/127.5, x·y = (scale·(w₀ + w₁/BASE + w₂/BASE² + …) + ½Σx)/127.5.
    """
    total = whole[-1].double()
    for more_significant in reversed(whole[:-1].unbind()):
        total = total / BASE + more_significant
    logits = ((total * scale + row_sums / 2) / 127.5 - half_squares) / variance - level
    return logits, logits.amax(1, keepdim=True)


def visible_blocks(
    logits: Tensor, top: Tensor, scale: Tensor, margin: float, dim: int, block: int, others: Tensor, others_top: Tensor
) -> tuple[Tensor, Tensor]:
    """Above which logit rounding could be seen in the answer, (b, 1), and which blocks of images have one, (b, t/block).

    Rounding moves logit i by some δ_i, never by more than slack = dim·scale, which moves the answer by Σ w_i δ_i (y_i − D).
    Leaving alone the images of weight below w costs about δ√w, so w = (tolerance/δ)² = (margin/scale)².
    """
    slack = scale * dim
    highest = torch.maximum(others_top, top - slack)  # at most the true one
    total = (logits - highest - slack).float().exp().sum(1, keepdim=True) + others * (others_top - highest).exp()
    least = highest - slack + 2 * (margin / scale).log() + total.clamp_min(1).log()
    return least, (logits > least).unflatten(1, (-1, block)).any(2)


def pair_products(images: Tensor, rows: Tensor, anchor: Tensor) -> Tensor:
    """(x−a)·(y−a) − ½‖y−a‖² of pairs of rows x and images y, both (k, d), in float64, (k,)."""
    a = anchor.double()
    y = images - a
    return ((rows.double() - a - y / 2) * y).sum(1)


def weigh_in_halves(logits: Tensor, top: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Half-precision numbers, each (b, t), that add up to LIFT·w for w = exp(logits − top), and the row sums of w."""
    weights = (logits - top).float().exp()
    lifted = weights * LIFT
    # Cut to 11 bits by hand: a compiler may skip a rounding to half precision that is undone at once.
    high = (lifted.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return high.half(), (lifted - high).half(), weights.sum(1, keepdim=True)


def center_in_half(pixels: Tensor) -> Tensor:
    """p − 128 in half precision, of uint8 pixels p."""
    return (pixels.to(torch.int16) - 128).half()


def fold(
    weighted: Tensor, total: Tensor, top: Tensor, more_weighted: Tensor, more: Tensor, more_top: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax sums Σ w y (b, d) and Σ w (b, 1), relative to `top`, with those of more images, relative to `more_top`."""
    highest = torch.maximum(top, more_top)
    fade, share = (top - highest).exp(), (more_top - highest).exp()
    return weighted * fade + more_weighted * share, total * fade + more * share, highest


def some_above(logits: Tensor, bound: Tensor) -> Tensor:
    """For which columns (t,) some logit is not below its row's bound; NaN is not."""
    return (~(logits <= bound)).any(0)
