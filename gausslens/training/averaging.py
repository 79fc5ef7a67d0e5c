"""The moving average of the weights, corrected for its start.

    θ̄ ← β·θ̄ + (1 − β)·θ,   β = 2^(−batch/h),   h = min(ema_kimg·1000, 5 % of the images so far).

The half-life h grows with the run, and the first step copies the weights: a short run's average is of its own late
weights, never of the initial ones.
"""

import copy
from typing import Generic, TypeVar

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

M = TypeVar("M", bound=nn.Module)

_SHARE = 0.05


class WeightAverage(Generic[M]):
    """A copy `module` of a module, in eval mode, whose parameters follow the module's; buffers are copied."""

    def __init__(self, module: M, half_life: float) -> None:
        self.module: M = copy.deepcopy(module).eval().requires_grad_(False)
        self.half_life = half_life
        self._followed, self._average = list(module.parameters()), list(self.module.parameters())
        self._buffers = list(zip(self.module.buffers(), module.buffers(), strict=True))

    @torch.no_grad()
    def update(self, images: int, batch: int) -> None:
        """Take in the weights after a step; both are counts of images."""
        half_life = min(self.half_life, _SHARE * images)
        decay = 0.5 ** (batch / half_life) if images > batch and half_life > 0 else 0.0
        get_ema_multi_avg_fn(decay)(self._average, self._followed, None)
        for copied, buffer in self._buffers:
            copied.copy_(buffer)
