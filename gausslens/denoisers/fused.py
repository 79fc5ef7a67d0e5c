"""Elementwise steps that a GPU does in one pass over memory when they are compiled together.

Each function means what it says and runs as it is; `fused` compiles it once, on first use for large tensors on a GPU, where
torch.compile works (a few seconds). Where it does not, the function simply runs as written, somewhat slower.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

# Digits of whole numbers |q| ≤ 127: a rest of at most ½ times this is the next one.
BASE = 254.0
# Lifts numbers in [0, 1] out of the subnormal numbers of half precision, whose largest number is 65504.
LIFT = 32768.0
# Below this many numbers a kernel's launch costs more than its passes over memory.
_LARGE = 1 << 22


def fused(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """function(*tensors), compiled where that pays and works."""
    if tensors[0].is_cuda and tensors[0].numel() >= _LARGE and function not in _UNCOMPILABLE:
        try:
            return _compiled(function)(*tensors)
        except Exception:  # a compiler can fail in any way (none installed, unknown GPU); the plain function cannot
            _UNCOMPILABLE.add(function)
    return function(*tensors)


_UNCOMPILABLE: set[Callable[..., Any]] = set()


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function)


def combine_digits(whole: Tensor, scale: Tensor, offset: Tensor, slope: Tensor, intercepts: Tensor) -> Tensor:
    """scale·(w₀ + w₁/BASE + w₂/BASE²) + offset + slope·intercepts, of whole numbers w (3, b, t)."""
    total = whole[0] + (whole[1] + whole[2].float() / BASE) / BASE
    return total * scale + offset + slope * intercepts


def weigh(logits: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """exp(logits − top), and its sums over the rows."""
    weights = (logits - top).exp()
    return weights, weights.sum(1)


def in_two_halves(numbers: Tensor) -> Tensor:
    """LIFT·numbers as a sum of two half-precision numbers, stacked in front."""
    lifted = numbers.float() * LIFT
    # Cut to 11 bits by hand: a compiler may skip a rounding to half precision that is undone at once.
    high = (lifted.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return torch.stack([high.half(), (lifted - high).half()])


def centred_half(pixels: Tensor) -> Tensor:
    """p − 128 in half precision, of uint8 pixels p."""
    return (pixels.to(torch.int16) - 128).half()
