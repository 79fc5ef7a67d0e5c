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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._typing import Float, Images, Int
from ..errors import CheckpointError
from ..images import Bounds, check_labels, content_hash, dequantize, gather
from ..precision import float32_products
from .conditional import PerClassDenoiser
from .protocol import check_input, expand_sigma
from .tiles import ImageTile

# Float32 numbers that a tile may occupy by default, converted images and logits together (about 700 MiB).
_TILE_NUMBERS = 180_000_000
_QUERIES_AT_A_TIME = 512
# N images of weight below exp(−20)/N are together 2e-9 of the answer.
_NEGLIGIBLE = math.exp(-20)
# Pairs recomputed at a time, in float64 numbers (64 MiB); past one pair in 16 the whole product in float64 is cheaper.
_PAIR_NUMBERS = 1 << 23
_MANY_PAIRS = 1 / 16
_EPS = torch.finfo(torch.float32).eps
# Error of the answer, relative to the spread of the images, that float32 products may cause; well inside what is promised.
_TOLERANCE = {"cpu": 2e-7, "cuda": 5e-6}


class Posterior(NamedTuple):
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
        pixels = gather(images, bounds=bounds)
        self.shape = tuple(pixels.shape[1:])
        self.count = len(pixels)
        self.tile_size = tile_size
        self.resident = resident
        self.images = pixels.flatten(1)
        self._half_squares = torch.cat(
            [dequantize(tile).double().square().sum(1) / 2 for tile in self.images.split(1024)]
        )
        self._largest_norm = float((2 * self._half_squares.max()).sqrt())
        dtype = torch.float64 if pixels.dtype == torch.float64 else torch.float32
        # Products in float64 are taken around a typical image, so that data with a large offset keep their digits.
        self.register_buffer("anchor", dequantize(self.images[:256], torch.float64).mean(0).to(dtype), persistent=False)
        self.register_buffer("content", torch.frombuffer(bytearray.fromhex(content_hash(pixels)), dtype=torch.uint8))
        self.register_load_state_dict_pre_hook(_check_content)

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

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """The posterior mean, Eq. (5).

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels above 0, a number or (b,).

        Returns:
            The denoised images, (b, *shape), in x's dtype.
        """
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        means = [
            self._visit(rows, level, with_mean=True).mean
            for rows, level in zip(
                x.flatten(1).split(_QUERIES_AT_A_TIME), levels.split(_QUERIES_AT_A_TIME), strict=True
            )
        ]
        return (
            torch.cat([mean for mean in means if mean is not None]).to(x.dtype).reshape(x.shape) if means else x.clone()
        )

    def posterior(self, x: Tensor, sigma: float | Tensor) -> Posterior:
        """How the posterior of each noisy image is spread over the training images.

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels above 0, a number or (b,).

        Returns:
            Effective number of images, index of the likeliest and its weight, each (b,).
        """
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        parts = [
            self._visit(rows, level, with_mean=False)
            for rows, level in zip(
                x.flatten(1).split(_QUERIES_AT_A_TIME), levels.split(_QUERIES_AT_A_TIME), strict=True
            )
        ]
        return Posterior(
            torch.cat([part.total.square() / part.squares for part in parts]),
            torch.cat([part.best for part in parts]),
            torch.cat([1 / part.total for part in parts]),
        )

    def _apply(self, function: Any, recurse: bool = True) -> "MultiDeltaDenoiser":
        """Follow `.to(device)` with the images when resident; their dtype never changes."""
        super()._apply(function, recurse)
        if self.resident and self.anchor.device != self.images.device:
            self.images = self.images.to(self.anchor.device)
        self._half_squares = self._half_squares.to(self.anchor.device)
        return self

    def _visit(self, x: Float[Tensor, "b d"], sigma: Float[Tensor, "b"], *, with_mean: bool) -> "_RunningSoftmax":
        """The softmax over all images for rows x, tile by tile."""
        work = x.dtype if x.dtype == torch.float64 else torch.float32
        x, variance = x.to(work), sigma.to(x.device, torch.float64)[:, None].square()
        softmax = _RunningSoftmax(x, with_mean=with_mean)
        tile_size = self.tile_size or self._affordable_tile(x)
        with float32_products(x.device):
            for start in range(0, self.count, tile_size):
                tile = ImageTile(self.images[start : start + tile_size].to(x.device), work)
                if work == torch.float64:
                    logits = self._exact_logits(x, tile, variance)
                else:
                    half_squares = self._half_squares[start : start + tile_size].to(x)
                    logits = tile.products(x / variance.to(x)).addr_(-1 / variance[:, 0].to(x), half_squares)
                    logits = self._repair(logits, x, tile, variance, softmax)
                softmax.add(logits, tile, start, negligible=_NEGLIGIBLE / self.count)
        return softmax

    def _affordable_tile(self, x: Float[Tensor, "b d"]) -> int:
        """Images per tile such that tile and logits fit the budget; tiles of equal size, in whole blocks of 64."""
        most = max(64, _TILE_NUMBERS // (x.shape[1] + 8 * len(x)))
        n_tiles = -(-self.count // most)
        return -(-self.count // (64 * n_tiles)) * 64

    def _repair(
        self,
        logits: Float[Tensor, "b t"],
        x: Float[Tensor, "b d"],
        tile: ImageTile,
        variance: Float[Tensor, "b 1"],
        softmax: "_RunningSoftmax",
    ) -> Float[Tensor, "b t"]:
        """Float32 logits with those computed again in float64 whose rounding could be seen in the answer.

        Rounding moves logit i by some δ_i, never by more than `slack` = d ε‖x‖‖y‖/σ², which moves the answer by
        Σ w_i δ_i (y_i − D). Leaving alone the images of weight below t costs about δ√t, so t = (tolerance/δ)².
        """
        scale = _EPS * x.norm(dim=1, keepdim=True).double() * self._largest_norm / variance
        rounding, slack = scale * tile.rounding, scale * x.shape[1]
        if bool((rounding <= _TOLERANCE[x.device.type]).all()):
            return logits
        top = torch.maximum(softmax.top, logits.amax(1, keepdim=True).double() - slack)  # at most the true maximum
        total = (logits - (top + slack).to(x)).exp_().sum(1, keepdim=True, dtype=torch.float64)
        total += softmax.total[:, None] * (softmax.top - top).exp()
        threshold = 2 * (_TOLERANCE[x.device.type] / rounding).log() + total.clamp_min(1).log()
        visible = logits > (top - slack + threshold).to(x)
        n_visible = int(visible.sum())
        if n_visible > _MANY_PAIRS * visible.numel():
            return self._exact_logits(x, tile, variance)
        if n_visible:
            logits = logits.double()
            for query, image in zip(
                *(i.split(max(1, _PAIR_NUMBERS // x.shape[1])) for i in visible.nonzero(as_tuple=True)), strict=True
            ):
                logits[query, image] = self._exact_pairs(x, tile, variance, query, image)
        return logits

    def _exact_logits(
        self, x: Float[Tensor, "b d"], tile: ImageTile, variance: Float[Tensor, "b 1"]
    ) -> Float[Tensor, "b t"]:
        """(x·y − ½‖y‖²)/σ² in float64, by products around the anchor a: x·y − ½‖y‖² = x'·y' − ½‖y'‖² + x·a − ½‖a‖²."""
        queries, constant = self._around_anchor(x)
        images = tile.values() - self.anchor.double()
        return (queries @ images.T - images.square().sum(1) / 2 + constant) / variance

    def _exact_pairs(
        self,
        x: Float[Tensor, "b d"],
        tile: ImageTile,
        variance: Float[Tensor, "b 1"],
        query: Int[Tensor, "k"],
        image: Int[Tensor, "k"],
    ) -> Float[Tensor, "k"]:
        """The same for given pairs of query and image."""
        queries, constant = self._around_anchor(x)
        images = tile.values(image) - self.anchor.double()
        products = torch.einsum("kd,kd->k", queries[query] - images / 2, images)
        return (products + constant[query, 0]) / variance[query, 0]

    def _around_anchor(self, x: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b 1"]]:
        anchor = self.anchor.double()
        queries = x.double() - anchor
        return queries, (queries @ anchor + anchor @ anchor / 2)[:, None]


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
    def mean(self) -> Tensor | None:
        """Σ w_i y_i, (b, d)."""
        return None if self._sum is None else self._sum / self.total[:, None]

    def add(self, logits: Float[Tensor, "b t"], tile: ImageTile, start: int, negligible: float) -> None:
        """Take in a tile whose first image has index `start`; weights below `negligible` are not worth a product."""
        top = torch.maximum(self.top, logits.amax(1, keepdim=True).double())
        fade = (self.top - top).exp()[:, 0]
        if self._sum is None:
            is_new = (top > self.top)[:, 0]
            self.best = torch.where(is_new, logits.argmax(1) + start, self.best)
        weights = (logits - top.to(logits)).exp_()
        self.total = self.total * fade + weights.sum(1, dtype=torch.float64)
        self.top = top
        if self._sum is None:
            self.squares = self.squares * fade**2 + weights.square().sum(1, dtype=torch.float64)
            return
        columns = (weights.amax(0) > negligible).nonzero()[:, 0]
        self._sum *= fade[:, None]
        if 2 * len(columns) > weights.shape[1]:
            self._sum += tile.weighted_sum(weights)
        elif len(columns):
            self._sum += tile.at(columns).weighted_sum(weights[:, columns])


def _check_content(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    stored = state.get(f"{prefix}content")
    if stored is not None and not torch.equal(stored.cpu(), module.content.cpu()):
        raise CheckpointError(
            "this state_dict belongs to a multi-delta denoiser of other images (their content hashes differ). "
            "Build the denoiser from the same images, in the same order and dtype."
        )
