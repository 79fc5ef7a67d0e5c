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
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from .._typing import Float, Images, Int, Sigma
from ..errors import CheckpointError, ConfigError
from ..images import Bounds, check_labels, content_hash, dequantize, gather
from ..precision import float32_products
from .conditional import PerClassDenoiser
from .fused import fused, weigh
from .protocol import check_input, expand_sigma
from .tiles import CPU_DIGITS, Digits, ImageTile

# Numbers that a tile may have by default, images and eight times its logits: on a GPU under 1 GiB, as few of them live at
# once, on a CPU few enough that passes over them are cheap.
_TILE_NUMBERS = {"cpu": 1 << 26, "cuda": 360_000_000}
# Queries answered together, and the most numbers in them.
_MOST_QUERIES = 512
_QUERY_NUMBERS = 1 << 23
# N images of weight below this times ε/N are together less than rounding.
_NEGLIGIBLE = 1 / 64
# Where few images have all the weight, those whose logit is further below the largest have none.
_NEAR = 40
# Up to this many multiplications float64 throughout takes no time to speak of.
_SMALL_PROBLEM = 1 << 31
# Float64 numbers in the pairs recomputed at a time, and the share of pairs past which the whole product is cheaper.
_PAIR_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 23}
_MANY_PAIRS = {"cpu": 1 / 32, "cuda": 1 / 256}
# Float64 numbers in the pairs that are added up again pairwise, at most.
_SHARPENED_NUMBERS = 1 << 25
_EPS = torch.finfo(torch.float32).eps
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
        self._largest_norm = float((2 * self._half_squares.max()).sqrt())
        dtype = torch.float64 if pixels.dtype == torch.float64 else torch.float32
        # Products in float64 are taken around a typical image, so that data with a large offset keep their digits.
        self.register_buffer("anchor", dequantize(self.images[:256], torch.float64).mean(0).to(dtype), persistent=False)
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
        means = [part.mean for part in self._answers(x, sigma, with_mean=True)]
        return torch.cat(means).to(x.dtype).reshape(x.shape)

    @torch.no_grad()
    def posterior(self, x: Tensor, sigma: Sigma) -> Posterior:
        """How the posterior of each noisy image is spread over the training images.

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels above 0, a number or (b,).

        Returns:
            Effective number of images, index of the likeliest and its weight, each (b,).
        """
        parts = list(self._answers(x, sigma, with_mean=False))
        return Posterior(
            torch.cat([part.total.square() / part.squares for part in parts]),
            torch.cat([part.best for part in parts]),
            torch.cat([1 / part.total for part in parts]),
        )

    def _apply(self, function: Any, recurse: bool = True) -> "MultiDeltaDenoiser":
        """Follow `.to(device)` with the images when resident; their dtype never changes."""
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        if self.resident and self.anchor.device != self.images.device:
            self.images = self.images.to(self.anchor.device)
        self._half_squares = self._half_squares.to(self.anchor.device)
        return self

    def _answers(self, x: Tensor, sigma: Sigma, *, with_mean: bool) -> Iterator["_RunningSoftmax"]:
        """The softmax over all images for noisy images x, some at a time.

        Yields:
            The softmax of the next images of x.
        """
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        at_a_time = max(1, min(_MOST_QUERIES, _QUERY_NUMBERS // self.images.shape[1]))
        for rows, level in zip(x.flatten(1).split(at_a_time), levels.split(at_a_time), strict=True):
            yield self._visit(_Queries(rows, level, self.anchor), with_mean=with_mean)

    def _visit(self, queries: "_Queries", *, with_mean: bool) -> "_RunningSoftmax":
        """The softmax over all images, tile by tile."""
        x = queries.rows
        softmax = _RunningSoftmax(x, with_mean=with_mean)
        tile_size = self.tile_size or self._affordable_tile(x)
        exactly = x.dtype == torch.float64 or x.numel() * self.count <= _SMALL_PROBLEM
        negligible = _NEGLIGIBLE * torch.finfo(x.dtype).eps / self.count
        scale = self._rounding_scale(queries)
        # Asked before the products are queued: the answer of a GPU is then there at once.
        largest_scale = 0.0 if exactly or not len(x) else float(scale.max())
        with float32_products(x.device):
            for start in range(0, self.count, tile_size):
                stored = self.images[start : start + tile_size].to(x.device)
                tile = ImageTile(stored, x.dtype, whole_numbers=not exactly and not queries.differentiable)
                origin = None
                if exactly or not tile.has_fast_logits:
                    logits = _sharpened(_exact_logits(queries, tile), queries, tile)
                else:
                    half_squares = self._half_squares[start : start + tile_size].to(x.device)
                    logits = tile.logits(x, queries.digits, queries.variance, queries.level, half_squares)
                    if not largest_scale * tile.rounding <= _TOLERANCE[x.device.type]:
                        logits, origin = self._repair(logits, queries, tile, softmax, scale)
                softmax.add(logits, origin, tile, start, negligible)
        return softmax

    def _rounding_scale(self, queries: "_Queries") -> Float[Tensor, "b 1"]:
        """ε√(‖x‖²+‖y‖²)‖y‖/σ², by which the rounding of float32 logits is measured."""
        norms: Tensor = torch.linalg.vector_norm(queries.rows.detach(), dim=1, keepdim=True, dtype=torch.float64)
        return _EPS * (norms.square() + self._largest_norm**2).sqrt() * self._largest_norm / queries.variance

    def _affordable_tile(self, x: Float[Tensor, "b d"]) -> int:
        """Images per tile such that tile and logits fit the budget; tiles of equal size, in whole blocks of 64."""
        most = max(64, _TILE_NUMBERS[x.device.type] * 4 // x.element_size() // (x.shape[1] + 8 * len(x)))
        n_tiles = -(-self.count // most)
        return -(-self.count // (64 * n_tiles)) * 64

    def _repair(
        self,
        logits: Float[Tensor, "b t"],
        queries: "_Queries",
        tile: ImageTile,
        softmax: "_RunningSoftmax",
        scale: Float[Tensor, "b 1"],
    ) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]:
        """Fast logits with those computed again in float64 whose rounding could be seen in the answer.

        What is returned is relative to an origin (b, 1) near the largest logit, which leaves float32 its digits where they
        count. Rounding moves logit i by some δ_i, never by more than `slack` = d · scale, which moves the answer by
        Σ w_i δ_i (y_i − D). Leaving alone the images of weight below t costs about δ√t, so t = (tolerance/δ)².
        """
        x, tolerance = queries.rows, _TOLERANCE[queries.rows.device.type]
        rounding, slack = scale * tile.rounding, scale * x.shape[1]
        values = logits.detach()
        top = torch.maximum(softmax.top, values.amax(1, keepdim=True).double() - slack)  # at most the true one
        total = (values - (top + slack).to(logits)).exp_().sum(1, keepdim=True, dtype=torch.float64)
        total += softmax.total[:, None].detach() * (softmax.top - top).exp()
        threshold = 2 * (tolerance / rounding).log() + total.clamp_min(1).log()
        visible = values > (top - slack + threshold).to(logits)
        if int(visible.sum()) > max(_pairs_at_a_time(queries), _MANY_PAIRS[x.device.type] * visible.numel()):
            exact = _sharpened(_exact_logits(queries, tile), queries, tile)
            origin = exact.detach().amax(1, keepdim=True)
            return (exact - origin).to(x), origin
        query, image = visible.nonzero(as_tuple=True)
        exact = _exact_pairs(queries, tile, query, image)
        origin = top[:, 0].scatter_reduce(0, query, exact.detach(), "amax")[:, None]
        logits = (logits - origin.to(logits)).sub_((origin - origin.to(logits)).to(logits))
        return logits.index_put((query, image), (exact - origin[query, 0]).to(logits)), origin


class _Queries:
    """Noisy images x as rows, and what is needed for their logits.

    Logits are measured from that of an anchor a, a typical image, so that data with a large offset keep their digits:

        (x·y − ½‖y‖²)/σ² − (x·a − ½‖a‖²)/σ² = ((x−a)·(y−a) − ½‖y−a‖²)/σ²

    Attributes:
        rows: x in float32 or float64, (b, d).
        variance: σ² in float64, (b, 1).
        anchor: a in float64, (d,).
        shifted: x − a in float64, (b, d).
        level: (x·a − ½‖a‖²)/σ² rounded to the dtype of the rows, (b, 1).
        level_rest: what rounding took from `level`, in float64, (b, 1).
        differentiable: whether derivatives are followed.
    """

    def __init__(self, x: Float[Tensor, "b d"], sigma: Float[Tensor, "b"], anchor: Float[Tensor, "d"]) -> None:
        self.rows = x if x.dtype == torch.float64 else x.float()
        self.variance = sigma.double()[:, None].square()
        self.anchor = anchor.to(x.device, torch.float64)
        self.shifted = self.rows.double() - self.anchor
        level = (self.shifted @ self.anchor + self.anchor @ self.anchor / 2)[:, None] / self.variance
        self.level = level.to(self.rows)
        self.level_rest = level - self.level.double()
        self._digits: Digits | None = None
        is_dual = forward_ad.unpack_dual(x).tangent is not None
        self.differentiable = is_dual or (torch.is_grad_enabled() and x.requires_grad)

    def digits(self) -> Digits:
        """The rows as digits for a CPU's integer products, written once."""
        if self._digits is None:
            self._digits = Digits(self.rows, CPU_DIGITS)
        return self._digits


def _exact_logits(queries: _Queries, tile: ImageTile) -> Float[Tensor, "b t"]:
    """The logits of all images of a tile in float64."""
    parts = []
    for _, values in tile.parts():
        images = values - queries.anchor
        parts.append(queries.shifted @ images.T - images.square().sum(1) / 2)
    return torch.cat(parts, 1).div_(queries.variance).add_(queries.level_rest)


def _exact_pairs(
    queries: _Queries, tile: ImageTile, query: Int[Tensor, "k"], image: Int[Tensor, "k"]
) -> Float[Tensor, "k"]:
    """The logits of given pairs of query and image in float64, added up pairwise."""
    products = []
    at_a_time = _pairs_at_a_time(queries)
    for some_queries, some_images in zip(query.split(at_a_time), image.split(at_a_time), strict=True):
        images = tile.values(some_images) - queries.anchor
        products.append(((queries.shifted[some_queries] - images / 2) * images).sum(1))
    return torch.cat(products) / queries.variance[query, 0] + queries.level_rest[query, 0]


def _pairs_at_a_time(queries: _Queries) -> int:
    return max(1, _PAIR_NUMBERS[queries.rows.device.type] // queries.rows.shape[1])


def _sharpened(logits: Float[Tensor, "b t"], queries: _Queries, tile: ImageTile) -> Float[Tensor, "b t"]:
    """Float64 logits with those near the largest, if not many, added up pairwise: worth a digit at σ = 1e-3."""
    values = logits.detach()
    near = (values > values.amax(1, keepdim=True) - _NEAR).nonzero(as_tuple=True)
    if len(near[0]) * queries.rows.shape[1] > _SHARPENED_NUMBERS:
        return logits
    return logits.index_put(near, _exact_pairs(queries, tile, *near))


class _RunningSoftmax:
    """Softmax sums over tiles, relative to the largest logit so far.

    Attributes:
        top: the largest logit so far, (b, 1).
        total: Σ exp(logit − top), (b,).
        squares: Σ exp(logit − top)², (b,); kept without a mean.
        best: the index of the largest logit, (b,); kept without a mean.
    """

    def __init__(self, x: Float[Tensor, "b d"], *, with_mean: bool) -> None:
        self.top = x.new_full((len(x), 1), -math.inf, dtype=torch.float64)
        self.total = x.new_zeros(len(x), dtype=torch.float64)
        self.squares = torch.zeros_like(self.total)
        self.best = torch.zeros_like(self.total, dtype=torch.long)
        self._sum = torch.zeros_like(x, dtype=torch.float64) if with_mean else None

    @property
    def mean(self) -> Float[Tensor, "b d"]:
        """Σ w_i y_i."""
        assert self._sum is not None, "made without a mean"
        return self._sum / self.total[:, None]

    def add(
        self,
        logits: Float[Tensor, "b t"],
        origin: Float[Tensor, "b 1"] | None,
        tile: ImageTile,
        start: int,
        negligible: float,
    ) -> None:
        """Take in a tile whose first image has index `start` and whose logits are relative to `origin`.

        Images whose weight is below `negligible` for all queries are not worth a product.
        """
        # The result does not depend on `top`, so no derivative need pass through it.
        values = logits.detach()
        tile_top = values.amax(1, keepdim=True)
        absolute_top = tile_top.double() if origin is None else tile_top.double() + origin
        top = torch.maximum(self.top, absolute_top)
        fade = (self.top - top).exp()[:, 0]
        if self._sum is None:
            is_new = (top > self.top)[:, 0]
            self.best = torch.where(is_new, values.argmax(1) + start, self.best)
        # Weights are relative to the tile's own maximum, which float32 holds exactly, and are put on the common scale after.
        weights, sums = fused(weigh, logits, tile_top)
        share = (absolute_top - top).exp()[:, 0]
        self.total = self.total * fade + sums.double() * share
        self.top = top
        if self._sum is None:
            self.squares = self.squares * fade**2 + weights.square().sum(1, dtype=torch.float64) * share**2
            return
        self._sum *= fade[:, None]
        if origin is None and weights.is_cuda:
            # Logits that needed no repair are spread over many images; looking which ones would make the CPU wait.
            self._sum += tile.weighted_sum(weights) * share[:, None]
            return
        # NaN, from a query with NaN, matters to no other query.
        columns = (~(weights.detach() * share[:, None].to(weights) <= negligible).all(0)).nonzero()[:, 0]
        if 2 * len(columns) > weights.shape[1]:
            self._sum += tile.weighted_sum(weights) * share[:, None]
        elif len(columns):
            self._sum += tile.at(columns).weighted_sum(weights[:, columns]) * share[:, None]


def _check_content(module: MultiDeltaDenoiser, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    stored = state.get(f"{prefix}content")
    if stored is not None and not torch.equal(stored.cpu(), module.content.cpu()):
        raise CheckpointError(
            "this state_dict belongs to a multi-delta denoiser of other images (their content hashes differ). "
            "Build the denoiser from the same images, in the same order and dtype."
        )
