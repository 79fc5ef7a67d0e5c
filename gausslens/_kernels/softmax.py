"""The softmax over tiles of images: logits in float64, the repair of fast ones whose rounding shows, and sums over tiles."""

import math

import torch
from torch import Tensor, nn

from .._typing import Float, Int
from .fused import fold, fused, pair_products, some_above, visible_blocks
from .tiles import ImageTile, Logits, Queries, kind_of

# Where few images have all the weight, those whose logit is further below the largest have none.
_NEAR = 40
# Most images in a block that is searched for logits to compute again.
_BLOCK = 64
# Float64 numbers in the pairs recomputed at a time, and the share of pairs past which the whole product is cheaper.
_PAIR_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 23}
_MANY_PAIRS = {"cpu": 1 / 32, "cuda": 1 / 256}
# Float64 numbers in the pairs that are added up again pairwise, at most.
_SHARPENED_NUMBERS = 1 << 22
# Error of the answer, relative to the spread of the images, that float32 products may cause; well inside what is promised.
TOLERANCE = {"cpu": 2e-7, "cuda": 5e-6}


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

        Images whose weight is below `negligible` for all queries are left out. With `dense`, they are not searched for.
        """
        if self._sum is None:
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


def exact_logits(queries: Queries, tile: ImageTile) -> Logits:
    """The logits of a tile in float64."""
    parts = []
    for _, values in tile.parts():
        images = values - queries.anchor.double()
        parts.append(queries.shifted @ images.T - images.square().sum(1) / 2)
    logits = _sharpen(torch.cat(parts, 1).div_(queries.variance), queries, tile)
    return logits, logits.detach().amax(1, keepdim=True)


def _exact_pairs(
    queries: Queries, tile: ImageTile, query: Int[Tensor, "k"], image: Int[Tensor, "k"]
) -> Float[Tensor, "k"]:
    """The logits of given pairs of query and image in float64, added up pairwise."""
    products = []
    at_a_time = _pairs_at_a_time(queries)
    for some_queries, some_images in zip(query.split(at_a_time), image.split(at_a_time), strict=True):
        values = tile.values(some_images)
        products.append(fused(pair_products, values, queries.rows[some_queries], queries.anchor))
    return torch.cat(products) / queries.variance[query, 0]


def _pairs_at_a_time(queries: Queries) -> int:
    return max(1, _PAIR_NUMBERS[kind_of(queries.rows)] // queries.rows.shape[1])


def _sharpen(logits: Float[Tensor, "b t"], queries: Queries, tile: ImageTile) -> Float[Tensor, "b t"]:
    """Float64 logits with those near the largest, if not many, added up pairwise: worth a digit at σ = 1e-3."""
    values = logits.detach()
    near = (values > values.amax(1, keepdim=True) - _NEAR).nonzero(as_tuple=True)
    if len(near[0]) * queries.rows.shape[1] > _SHARPENED_NUMBERS:
        return logits
    return logits.index_put(near, _exact_pairs(queries, tile, *near))


def repair(
    logits: Float[Tensor, "b t"],
    top: Float[Tensor, "b 1"],
    queries: Queries,
    tile: ImageTile,
    softmax: RunningSoftmax,
    room: int | None,
) -> Logits:
    """Fast logits, with those whose rounding could be seen in the answer computed again in float64.

    They are searched for in blocks of images, since few blocks have one. `room` is a fixed number of blocks and of pairs to
    compute again; places that are left over repeat the first pair, which changes nothing.
    """
    x, kind, scale = queries.rows, kind_of(queries.rows), queries.constants.scale
    block = math.gcd(logits.shape[1], _BLOCK)
    margin = TOLERANCE[kind] / tile.rounding
    others = softmax.total.detach(), softmax.top
    least, blocks = fused(visible_blocks, logits.detach(), top, scale, margin, x.shape[1], block, *others)
    (block_query, block_index), n_blocks = _find(blocks, room)
    candidates = logits.detach().unflatten(1, (-1, block))[block_query, block_index]
    is_block = torch.arange(len(block_query), device=x.device) < n_blocks
    (which, offset), n_pairs = _find((candidates > least[block_query]) & is_block[:, None], room)
    query, image = block_query[which], block_index[which] * block + offset
    if room is not None:
        softmax.overflow |= (n_blocks > room) | (n_pairs > room)
    elif len(query) > max(_pairs_at_a_time(queries), _MANY_PAIRS[kind] * logits.numel()):
        return exact_logits(queries, tile)
    exact = _exact_pairs(queries, tile, query, image)
    # In place where no derivative needs what was there.
    put = torch.Tensor.index_put if queries.differentiable else torch.Tensor.index_put_
    repaired = put(logits, (query, image), exact)
    # Fast maxima may be tens above the true ones where images are flat and σ is small: every weight would vanish.
    return repaired, repaired.detach().amax(1, keepdim=True)


def _find(mask: Tensor, room: int | None) -> tuple[tuple[Tensor, ...], Tensor | int]:
    """Where a mask of two axes is true, and in how many places; with `room`, as many places, filled up with the first."""
    if room is None:
        places = mask.nonzero()
        return places.unbind(1), len(places)
    return torch.nonzero_static(mask, size=room, fill_value=0).unbind(1), mask.sum()
