"""The multi-delta denoiser: the exact posterior mean when the data law is the training set itself.

Model: x0 is one of N images y_i, each with probability 1/N. Then

    D(x; σ) = Σ_i w_i y_i,  w = softmax_i(−‖x − y_i‖² / 2σ²)                                  Eq. (5) of arXiv:2410.24060

over *all* images: keeping nearest neighbours, subsampling, or normalising batch by batch gives answers that are wrong by
4 to 140 %. This is the perfect memoriser, and the reference for "this model copies".

The images are visited in tiles with a running softmax over logits (x·y_i − ½‖y_i‖²)/σ², since ‖x‖² cancels. In float32
that product loses digits when σ is small or images are nearly equal, so every pair of query and image whose rounding could
be seen in the answer is computed again in float64. The result is exact to 1e-6 of the image norm on a CPU (1e-5 on a GPU)
for float32 queries, and to rounding for float64 ones, whatever the tile size.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from .._typing import Float, Images, Int, Sigma
from ..errors import CheckpointError, ConfigError
from ..images import Bounds, check_labels, content_hash, dequantize, gather
from ..precision import float32_products
from ..replay import Replay, recorded
from .conditional import PerClassDenoiser
from .fused import blocks_seen, describe_queries, fold, fused, pair_products, some_above
from .protocol import check_input, expand_sigma
from .tiles import Digits, ImageTile, kind_of

# Bytes that a tile may take by default, one for each pixel and 20 for each logit (its digits' products and itself): on a CPU
# few enough that passes over them are cheap; on a GPU, what a recording keeps and a tile beside it are under 1 GiB.
_TILE_BYTES = {"cpu": 1 << 27, "cuda": 200_000_000}
_RECORDED_TILE_BYTES = 670_000_000
# Queries answered together, and the most numbers in them.
_MOST_QUERIES = 512
_QUERY_NUMBERS = 1 << 23
# N images of weight below this times ε/N are together less than rounding.
_NEGLIGIBLE = 1 / 64
# Where few images have all the weight, those whose logit is further below the largest have none.
_NEAR = 40
# Images that are looked at together, at most, for logits to compute again.
_BLOCK = 64
# Pairs of each query that a recording has room to compute again; what needs more is done step by step.
_PAIRS_PER_QUERY = 4
# Up to this many multiplications float64 throughout takes no time to speak of.
_SMALL_PROBLEM = 1 << 31
# Float64 numbers in the pairs recomputed at a time, and the share of pairs past which the whole product is cheaper.
_PAIR_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 23}
_MANY_PAIRS = {"cpu": 1 / 32, "cuda": 1 / 256}
# Float64 numbers in the pairs that are added up again pairwise, at most.
_SHARPENED_NUMBERS = 1 << 22
# Error of the answer, relative to the spread of the images, that float32 products may cause; well inside what is promised.
_TOLERANCE = {"cpu": 2e-7, "cuda": 5e-6}


@dataclass(frozen=True, eq=False)
class Posterior:
    """How a noisy image's posterior is spread over the training images.

    Attributes:
        effective_count: 1/Σw², the effective number of images, from 1 (collapsed on one) to N, (b,).
        index: the training image of largest weight, (b,).
        weight: that weight, (b,).
    """

    effective_count: Tensor
    index: Tensor
    weight: Tensor


class MultiDeltaDenoiser(nn.Module):
    """The exact posterior mean over a set of images.

    Images are kept as they are (uint8, or a memory map on disk) and converted tile by tile; they are not part of the
    `state_dict`, which holds their content hash instead and refuses to be loaded over other images.

    Args:
        images: the training images, (n, c, h, w); sources without random access are read into memory.
        tile_size: images per tile; None chooses one that needs at most 256 MiB.
        resident: move the images themselves along with `.to(device)`, instead of tile by tile at every call.
        bounds: admissible float values; None for other units.

    >>> import torch
    >>> images = torch.randint(0, 256, (20, 1, 4, 4), dtype=torch.uint8)
    >>> denoiser = MultiDeltaDenoiser(images)
    >>> near = images[3:4] / 127.5 - 1 + 0.01
    >>> bool((denoiser(near, 0.01) - (images[3:4] / 127.5 - 1)).abs().max() < 1e-6)
    True
    >>> denoiser.posterior(near, 0.01).index.item()
    3
    """

    anchor: Tensor
    content: Tensor

    def __init__(
        self,
        images: Images,
        *,
        tile_size: int | None = None,
        resident: bool = False,
        bounds: Bounds = (-1.0, 1.0),
    ) -> None:
        super().__init__()
        if tile_size is not None and tile_size < 1:
            raise ConfigError(f"tile_size must be at least 1, or None for one that fits in memory; got {tile_size}.")
        pixels = gather(images, bounds=bounds)
        self.shape = tuple(pixels.shape[1:])
        self.count = len(pixels)
        self.tile_size = tile_size
        self.resident = resident
        self.images = pixels.flatten(1)
        parts = ImageTile(self.images, torch.float32).parts()
        self._half_squares = torch.cat([values.square().sum(1) / 2 for _, values in parts])
        self._largest_norm = (2 * self._half_squares.max()).sqrt()
        dtype = torch.float64 if pixels.dtype == torch.float64 else torch.float32
        # Products in float64 are taken around a typical image, so that data with a large offset keep their digits.
        self.register_buffer("anchor", dequantize(self.images[:256], torch.float64).mean(0).to(dtype), persistent=False)
        self._replay: Replay | None = None
        self._asked: torch.Size | None = None
        self.register_buffer("content", torch.frombuffer(bytearray.fromhex(content_hash(pixels)), dtype=torch.uint8))
        self.register_load_state_dict_pre_hook(_check_content)  # type: ignore[no-untyped-call]

    @classmethod
    def per_class(cls, images: Images, labels: Any, **options: Any) -> PerClassDenoiser:
        """One multi-delta denoiser per class, called as D(x, σ, labels).

        Args:
            images: any source of images.
            labels: one integer per image, (n,).
            **options: passed to the constructor.

        Returns:
            The conditional denoiser.
        """
        pixels = gather(images, bounds=options.get("bounds", (-1.0, 1.0)))
        classes = check_labels(labels, len(pixels)).to(pixels.device)
        return PerClassDenoiser({k: cls(pixels[classes == k], **options) for k in classes.unique().tolist()})

    def forward(self, x: Tensor, sigma: Sigma) -> Tensor:
        """The posterior mean, Eq. (5).

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels above 0, a number or (b,).

        Returns:
            The denoised images, (b, *shape), in x's dtype.
        """
        means = [self._mean(queries).to(x.dtype) for queries in self._queries(x, sigma)]
        return (means[0] if len(means) == 1 else torch.cat(means)).reshape(x.shape)

    @torch.no_grad()
    def posterior(self, x: Tensor, sigma: Sigma) -> Posterior:
        """How the posterior of each noisy image is spread over the training images.

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels above 0, a number or (b,).

        Returns:
            Effective number of images, index of the likeliest and its weight, each (b,).
        """
        parts = [self._visit(queries, with_mean=False) for queries in self._queries(x, sigma)]
        return Posterior(
            torch.cat([part.total.square() / part.squares for part in parts])[:, 0],
            torch.cat([part.best for part in parts]),
            torch.cat([1 / part.total for part in parts])[:, 0],
        )

    def _apply(self, function: Any, recurse: bool = True) -> "MultiDeltaDenoiser":
        """Follow `.to(device)` with the images when resident; their dtype never changes."""
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        if self.resident and self.anchor.device != self.images.device:
            self.images = self.images.to(self.anchor.device)
        self._half_squares = self._half_squares.to(self.anchor.device)
        self._largest_norm = self._largest_norm.to(self.anchor.device)
        self._replay = self._asked = None
        return self

    def _queries(self, x: Tensor, sigma: Sigma) -> Iterator["_Queries"]:
        """Noisy images x with their noise levels, some at a time.

        Yields:
            The next ones.
        """
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        at_a_time = max(1, min(_MOST_QUERIES, _QUERY_NUMBERS // self.images.shape[1]))
        for rows, level in zip(x.flatten(1).split(at_a_time), levels.split(at_a_time), strict=True):
            yield _Queries(rows, level, self.anchor, self._largest_norm)

    def _mean(self, queries: "_Queries") -> Float[Tensor, "b d"]:
        """The posterior mean; for images on a GPU, replayed when as many queries come again."""
        replay, shape = self._replay, queries.rows.shape
        is_static = queries.rows.is_cuda and self.images.is_cuda and not queries.differentiable
        if is_static and not self._is_small(queries) and (replay is None or len(queries.rows) > replay.shapes[0][0]):
            if self._asked == shape:
                self._replay = replay = None
                torch.cuda.empty_cache()  # a recording has memory of its own, which it needs now
                self._mean_and_overflow(queries.rows, queries.sigma)
                self._replay = replay = recorded(self._mean_and_overflow, queries.rows, queries.sigma)
            self._asked = None if self._asked == shape else shape
        if is_static and replay is not None and replay.shapes[0] == shape:
            mean, overflow = replay(queries.rows, queries.sigma)
            if not bool(overflow):
                return mean.clone()
        return self._visit(queries, with_mean=True).mean

    @torch.no_grad()
    def _mean_and_overflow(self, rows: Float[Tensor, "b d"], sigma: Float[Tensor, "b"]) -> tuple[Tensor, Tensor]:
        """The posterior mean, and whether it is wrong for want of room: more pairs had to be computed again."""
        queries = _Queries(rows, sigma, self.anchor, self._largest_norm)
        softmax = self._visit(queries, with_mean=True, room=_PAIRS_PER_QUERY * len(rows))
        return softmax.mean.to(rows.dtype), softmax.overflow

    def _is_small(self, queries: "_Queries") -> bool:
        return queries.rows.dtype == torch.float64 or queries.rows.numel() * self.count <= _SMALL_PROBLEM

    def _visit(self, queries: "_Queries", *, with_mean: bool, room: int | None = None) -> "_RunningSoftmax":
        """The softmax over all images, tile by tile.

        Args:
            queries: whose softmax.
            with_mean: whether the images are added up too.
            room: the most pairs to compute again; given, no step depends on the numbers.

        Returns:
            The softmax.
        """
        x = queries.rows
        softmax = _RunningSoftmax(x, with_mean=with_mean)
        tile_bytes = _RECORDED_TILE_BYTES if room else _TILE_BYTES[kind_of(x)]
        tile_size = self.tile_size or self._affordable_tile(x, tile_bytes)
        exactly = self._is_small(queries)
        negligible = _NEGLIGIBLE * torch.finfo(x.dtype).eps / self.count
        largest_scale = 0.0 if exactly or room else _Later(queries.scale.max())
        with float32_products(x.device):
            for start in range(0, self.count, tile_size):
                stored = self.images[start : start + tile_size].to(x.device)
                tile = ImageTile(stored, x.dtype, whole_numbers=not exactly and not queries.differentiable)
                dense = room is not None
                if exactly or not tile.has_fast_logits:
                    logits, top = _exact_logits(queries, tile)
                else:
                    half_squares = self._half_squares[start : start + tile_size].to(x.device)
                    logits, top = tile.logits(
                        x, queries.digits, queries.row_sums, queries.variance, queries.level, half_squares
                    )
                    is_spread = not room and float(largest_scale) * tile.rounding <= _TOLERANCE[kind_of(x)]
                    if not is_spread:
                        logits, top = _repair(logits, top, queries, tile, softmax, room)
                    # Spread over many images, or not to be looked at.
                    dense = dense or is_spread
                softmax.add(logits, top, tile, start, negligible, dense=dense)
        return softmax

    def _affordable_tile(self, x: Float[Tensor, "b d"], tile_bytes: int) -> int:
        """Images per tile such that tile and logits take so many bytes; tiles of equal size, in whole blocks of 64."""
        most = max(64, tile_bytes * 4 // x.element_size() // (x.shape[1] + 20 * len(x)))
        n_tiles = -(-self.count // most)
        return -(-self.count // (64 * n_tiles)) * 64


class _Queries:
    """Noisy images x as rows, and what is needed for their logits.

    Logits are measured from that of an anchor a, a typical image, so that data with a large offset keep their digits:

        (x·y − ½‖y‖²)/σ² − (x·a − ½‖a‖²)/σ² = ((x−a)·(y−a) − ½‖y−a‖²)/σ²

    Attributes:
        rows: x in float32 or float64, (b, d).
        sigma: σ, (b,).
        anchor: a, (d,).
        differentiable: whether derivatives are followed.
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
        is_dual = forward_ad.unpack_dual(x).tangent is not None
        self.differentiable = is_dual or (torch.is_grad_enabled() and x.requires_grad)

    @cached_property
    def variance(self) -> Float[Tensor, "b 1"]:
        """σ² in float64."""
        return self.sigma.double()[:, None].square()

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


class _Later:
    """A number that a GPU is still computing, read without waiting for what is queued after it."""

    def __init__(self, value: Float[Tensor, ""]) -> None:
        self._value, self._ready = value, None
        if value.is_cuda:
            self._value = torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record()

    def __float__(self) -> float:
        if self._ready is not None:
            self._ready.synchronize()
        return float(self._value)


def _exact_logits(queries: _Queries, tile: ImageTile) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]:
    """The logits of all images of a tile in float64, and the largest of each query."""
    parts = []
    for _, values in tile.parts():
        images = values - queries.anchor.double()
        parts.append(queries.shifted @ images.T - images.square().sum(1) / 2)
    logits = _sharpened(torch.cat(parts, 1).div_(queries.variance), queries, tile)
    return logits, logits.detach().amax(1, keepdim=True)


def _exact_pairs(
    queries: _Queries, tile: ImageTile, query: Int[Tensor, "k"], image: Int[Tensor, "k"]
) -> Float[Tensor, "k"]:
    """The logits of given pairs of query and image in float64, added up pairwise."""
    products = []
    at_a_time = _pairs_at_a_time(queries)
    for some_queries, some_images in zip(query.split(at_a_time), image.split(at_a_time), strict=True):
        values = tile.values(some_images)
        products.append(fused(pair_products, values, queries.rows[some_queries], queries.anchor))
    return torch.cat(products) / queries.variance[query, 0]


def _pairs_at_a_time(queries: _Queries) -> int:
    return max(1, _PAIR_NUMBERS[kind_of(queries.rows)] // queries.rows.shape[1])


def _sharpened(logits: Float[Tensor, "b t"], queries: _Queries, tile: ImageTile) -> Float[Tensor, "b t"]:
    """Float64 logits with those near the largest, if not many, added up pairwise: worth a digit at σ = 1e-3."""
    values = logits.detach()
    near = (values > values.amax(1, keepdim=True) - _NEAR).nonzero(as_tuple=True)
    if len(near[0]) * queries.rows.shape[1] > _SHARPENED_NUMBERS:
        return logits
    return logits.index_put(near, _exact_pairs(queries, tile, *near))


def _repair(
    logits: Float[Tensor, "b t"],
    top: Float[Tensor, "b 1"],
    queries: _Queries,
    tile: ImageTile,
    softmax: "_RunningSoftmax",
    room: int | None,
) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]:
    """Fast logits with those computed again in float64 whose rounding could be seen in the answer, and their maxima.

    Those are found block by block of images, since few blocks have one. With `room`, a number of blocks and of pairs, what
    is not used of it is filled up with the first pair, which may be computed again as often as one likes.
    """
    x, kind = queries.rows, kind_of(queries.rows)
    block = math.gcd(logits.shape[1], _BLOCK)
    margin = _TOLERANCE[kind] / tile.rounding
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
        return _exact_logits(queries, tile)
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


class _RunningSoftmax:
    """Softmax sums over tiles, relative to the largest logit so far.

    Attributes:
        top: the largest logit so far, (b, 1).
        total: Σ exp(logit − top), (b, 1).
        squares: Σ exp(logit − top)², (b, 1); kept without a mean.
        best: the index of the largest logit, (b,); kept without a mean.
        overflow: whether a pair was left wrong for want of room, ().
    """

    def __init__(self, x: Float[Tensor, "b d"], *, with_mean: bool) -> None:
        self.top = x.new_full((len(x), 1), -math.inf, dtype=torch.float64)
        self.total = torch.zeros_like(self.top)
        self.squares = torch.zeros_like(self.top)
        self.best = torch.zeros_like(self.top, dtype=torch.long)[:, 0]
        self.overflow = torch.zeros((), dtype=torch.bool, device=x.device)
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

        Images whose weight is below `negligible` for all queries are not worth a product, unless `dense` says that it is
        not worth looking for them.
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


def _check_content(module: MultiDeltaDenoiser, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    stored = state.get(f"{prefix}content")
    if stored is not None and not torch.equal(stored.cpu(), module.content.cpu()):
        raise CheckpointError(
            "this state_dict belongs to a multi-delta denoiser of other images (their content hashes differ). "
            "Build the denoiser from the same images, in the same order and dtype."
        )
