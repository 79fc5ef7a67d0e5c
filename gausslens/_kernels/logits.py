"""Logits of queries and images in float64, and the repair of fast ones whose rounding could be seen in the answer."""

import math
from functools import cached_property

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._typing import Float, Int
from .fused import blocks_seen, describe_queries, fused, pair_products
from .softmax import RunningSoftmax
from .tiles import Digits, ImageTile, kind_of

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


class Queries:
    """Noisy images x as rows, and what is needed for their logits.

    Logits are measured from that of an anchor a, a typical image, so that data with a large offset keep their digits:

        (x·y − ½‖y‖²)/σ² − (x·a − ½‖a‖²)/σ² = ((x−a)·(y−a) − ½‖y−a‖²)/σ²

    `rows` are x in float32 or float64, `variance` is σ² in float64, (b, 1).
    """

    def __init__(
        self,
        x: Float[Tensor, "b d"],
        sigma: Float[Tensor, "b"],
        anchor: Float[Tensor, "d"],
        largest_norm: Float[Tensor, ""],
    ) -> None:
        self.rows = x if x.dtype == torch.float64 else x.float()
        self.sigma = sigma
        self.anchor = anchor.to(x.device)
        self._largest_norm = largest_norm.to(x.device)
        self.variance = sigma.double()[:, None].square()
        is_dual = any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in (x, sigma))
        self.differentiable = is_dual or (torch.is_grad_enabled() and (x.requires_grad or sigma.requires_grad))

    @property
    def row_sums(self) -> Float[Tensor, "b 1"]:
        """Σ_j x_j in float64."""
        return self._description[0]

    @property
    def level(self) -> Float[Tensor, "b 1"]:
        """The anchor's logit (x·a − ½‖a‖²)/σ² in float64."""
        return self._description[1]

    @property
    def scale(self) -> Float[Tensor, "b 1"]:
        """ε√(‖x‖²+‖y‖²)‖y‖/σ² for the largest ‖y‖, by which the rounding of float32 logits is measured."""
        return self._description[2]

    @cached_property
    @torch.no_grad()
    def _description(self) -> tuple[Tensor, Tensor, Tensor]:
        # The same for all images, so no derivative of the answer passes through it.
        arguments = self.rows.detach(), self.variance.detach(), self.anchor, self._largest_norm
        row_sums, level, scale = fused(describe_queries, *arguments)
        return row_sums, level, scale

    @cached_property
    def shifted(self) -> Float[Tensor, "b d"]:
        """x − a in float64."""
        return self.rows.double() - self.anchor.double()

    @cached_property
    def _digits(self) -> Digits:
        return Digits(self.rows)

    def digits(self) -> Digits:
        """The rows as digits for integer products, written once, when first needed."""
        return self._digits


def exact_logits(queries: Queries, tile: ImageTile) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]:
    """The logits of all images of a tile in float64, and the largest of each query."""
    parts = []
    for _, values in tile.parts():
        images = values - queries.anchor.double()
        parts.append(queries.shifted @ images.T - images.square().sum(1) / 2)
    logits = _sharpened(torch.cat(parts, 1).div_(queries.variance), queries, tile)
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


def _sharpened(logits: Float[Tensor, "b t"], queries: Queries, tile: ImageTile) -> Float[Tensor, "b t"]:
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
        blocks_seen, logits.detach(), top, queries.scale, margin, x.shape[1], block, softmax.total.detach(), softmax.top
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
    # A top that is too high by rounding does no harm, unlike one that is too low.
    highest = top[:, 0].scatter_reduce(0, query, exact.detach(), "amax")
    return put(logits, (query, image), exact), highest[:, None]


def _find(mask: Tensor, room: int | None) -> tuple[tuple[Tensor, ...], Tensor | int]:
    """Where a mask of two axes is true, and in how many places; with `room`, as many places, filled up with the first."""
    if room is None:
        places = mask.nonzero()
        return places.unbind(1), len(places)
    return torch.nonzero_static(mask, size=room, fill_value=0).unbind(1), mask.sum()
