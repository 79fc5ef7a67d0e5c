"""Logits of queries and images in float64, and the repair of fast ones whose rounding could be seen in the answer."""

import math

import torch
from torch import Tensor

from .._typing import Float, Int
from .fused import fused, pair_products, visible_blocks
from .queries import Queries, kind_of
from .softmax import RunningSoftmax
from .tiles import ImageTile

# Where few images have all the weight, those whose logit is further below the largest have none.
_NEAR = 40
# Images that are looked at together, at most, for logits to compute again.
_BLOCK = 64
# Float64 numbers in the pairs recomputed at a time, and the share of pairs past which the whole product is cheaper.
_PAIR_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 23}
_MANY_PAIRS = {"cpu": 1 / 32, "cuda": 1 / 256}
# Float64 numbers in the pairs that are added up again pairwise, at most.
_SHARPENED_NUMBERS = 1 << 22
# Error of the answer, relative to the spread of the images, that float32 products may cause; well inside what is promised.
TOLERANCE = {"cpu": 2e-7, "cuda": 5e-6}


def exact_logits(queries: Queries, tile: ImageTile) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]:
    """The logits of all images of a tile in float64, and the largest of each query."""
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
) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]:
    """Fast logits with those computed again in float64 whose rounding could be seen in the answer, and their maxima.

    Those are found block by block of images, since few blocks have one. With `room`, a number of blocks and of pairs,
    what is not used of it is filled up with the first pair, which may be computed again as often as one likes.
    """
    x, kind = queries.rows, kind_of(queries.rows)
    block = math.gcd(logits.shape[1], _BLOCK)
    margin = TOLERANCE[kind] / tile.rounding
    least, blocks = fused(
        visible_blocks,
        logits.detach(),
        top,
        queries.constants.scale,
        margin,
        x.shape[1],
        block,
        softmax.total.detach(),
        softmax.top,
    )
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
