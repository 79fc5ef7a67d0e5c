"""A softmax over tiles of images, added up one tile at a time."""

import math

import torch
from torch import Tensor, nn

from .._typing import Float
from .fused import fold, fused, some_above
from .tiles import ImageTile


class RunningSoftmax:
    """Softmax sums over tiles, relative to the largest logit so far; without a mean, also of squared weights."""

    def __init__(self, x: Float[Tensor, "b d"], *, with_mean: bool) -> None:
        self.top = x.new_full((len(x), 1), -math.inf, dtype=torch.float64)  # the largest logit so far
        self.total = torch.zeros_like(self.top)  # Σ exp(logit − top), (b, 1)
        self.squares = torch.zeros_like(self.top)  # Σ exp(logit − top)², (b, 1); kept without a mean
        self.best = torch.zeros_like(self.top, dtype=torch.long)[:, 0]  # whose it is; kept without a mean
        self.overflow = torch.zeros((), dtype=torch.bool, device=x.device)  # whether room for a pair was missing
        self._sum = torch.zeros_like(x, dtype=torch.float64) if with_mean else None

    @property
    def mean(self) -> Float[Tensor, "b d"]:
        """Σ w_i y_i."""
        assert self._sum is not None, "made without a mean"
        return self._sum / self.total

    def add(
        self,
        logits: Float[Tensor, "b t"],
        tile_top: Float[Tensor, "b 1"],
        tile: ImageTile,
        start: int,
        negligible: float,
        *,
        dense: bool,
    ) -> None:
        """Take in a tile whose first image has index `start` and whose largest logits are `tile_top`.

        Images whose weight is below `negligible` for all queries are not worth a product, unless `dense` says that it
        is not worth looking for them.
        """
        if self._sum is None:
            tile_top = logits.amax(1, keepdim=True)
            weights = (logits - tile_top).exp()
            self.best = torch.where((tile_top > self.top)[:, 0], logits.argmax(1) + start, self.best)
            top = torch.maximum(self.top, tile_top)
            fade, share = (self.top - top).exp(), (tile_top - top).exp()
            self.total = self.total * fade + weights.sum(1, keepdim=True) * share
            self.squares = self.squares * fade**2 + weights.square().sum(1, keepdim=True) * share**2
            self.top = top
            return
        if not dense:
            least = torch.maximum(self.top, tile_top) + math.log(negligible)
            columns = fused(some_above, logits.detach(), least).nonzero()[:, 0]
            if not len(columns):
                return
            if 2 * len(columns) <= logits.shape[1]:
                # Fast products want sizes in eights: the first image fills them up, without weight.
                logits = nn.functional.pad(logits[:, columns], (0, -len(columns) % 8), value=-math.inf)
                tile = tile.at(nn.functional.pad(columns, (0, -len(columns) % 8)))
        # The result does not depend on `top`, so no derivative passes through it.
        sums, weighted = tile.softmax_sums(logits, tile_top)
        self._sum, self.total, self.top = fused(fold, self._sum, self.total, self.top, weighted, sums, tile_top)
