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

# Float32 numbers that a tile may occupy by default, converted images and logits together (256 MiB).
_TILE_NUMBERS = 1 << 26
_QUERIES_AT_A_TIME = 512
# N images of weight below exp(−20)/N are together 2e-9 of the answer.
_NEGLIGIBLE = math.exp(-20)
# Pairs recomputed at a time, in float64 numbers (64 MiB); past one pair in 16 the whole product in float64 is cheaper.
_PAIR_NUMBERS = 1 << 23
_MANY_PAIRS = 1 / 16
_SUM = 256
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
        tile_size = self.tile_size or max(256, _TILE_NUMBERS // (x.shape[1] + 4 * len(x)))
        with float32_products(x.device):
            for start in range(0, self.count, tile_size):
                tile = _Tile(self.images[start : start + tile_size].to(x.device), work)
                if work == torch.float64:
                    logits = self._exact_logits(x, tile, variance)
                else:
                    logits = (
                        tile.products(x).sub_(self._half_squares[start : start + tile_size].to(x)).div_(variance.to(x))
                    )
                    logits = self._repair(logits, x, tile, variance, softmax)
                softmax.add(logits, tile, start, negligible=_NEGLIGIBLE / self.count)
        return softmax

    def _repair(
        self,
        logits: Float[Tensor, "b t"],
        x: Float[Tensor, "b d"],
        tile: "_Tile",
        variance: Float[Tensor, "b 1"],
        softmax: "_RunningSoftmax",
    ) -> Float[Tensor, "b t"]:
        """Float32 logits with those computed again in float64 whose rounding could be seen in the answer.

        Rounding moves logit i by some δ_i, never by more than `slack` = d ε‖x‖‖y‖/σ², which moves the answer by
        Σ w_i δ_i (y_i − D). Leaving alone the images of weight below t costs about δ√t, so t = (tolerance/δ)². Measured on
        CIFAR-10, δ is .02 to .03 of ε‖x‖‖y‖/σ² in the root mean square where many images share the weight.
        """
        scale = _EPS * x.norm(dim=1, keepdim=True).double() * self._largest_norm / variance
        rounding, slack = scale / 8, scale * x.shape[1]
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
        self, x: Float[Tensor, "b d"], tile: "_Tile", variance: Float[Tensor, "b 1"]
    ) -> Float[Tensor, "b t"]:
        """(x·y − ½‖y‖²)/σ² in float64, by products around the anchor a: x·y − ½‖y‖² = x'·y' − ½‖y'‖² + x·a − ½‖a‖²."""
        queries, constant = self._around_anchor(x)
        images = tile.values() - self.anchor.double()
        return (queries @ images.T - images.square().sum(1) / 2 + constant) / variance

    def _exact_pairs(
        self,
        x: Float[Tensor, "b d"],
        tile: "_Tile",
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
        squares: Σ exp(logit − top)², (b,).
        best: the index of the largest logit, (b,).
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

    def add(self, logits: Float[Tensor, "b t"], tile: "_Tile", start: int, negligible: float) -> None:
        """Take in a tile whose first image has index `start`; weights below `negligible` are not worth a product."""
        tile_top, where = logits.max(1, keepdim=True)
        self.best = torch.where(tile_top[:, 0] > self.top[:, 0], where[:, 0] + start, self.best)
        top = torch.maximum(self.top, tile_top.double())
        fade = (self.top - top).exp()[:, 0]
        weights = (logits - top.to(logits)).exp_()
        self.total = self.total * fade + weights.sum(1, dtype=torch.float64)
        self.squares = self.squares * fade**2 + weights.square().sum(1, dtype=torch.float64)
        self.top = top
        if self._sum is not None:
            columns = (weights.amax(0) > negligible).nonzero()[:, 0]
            self._sum *= fade[:, None]
            if 2 * len(columns) > weights.shape[1]:
                self._sum += tile.weighted_sum(weights)
            elif len(columns):
                self._sum += tile.at(columns).weighted_sum(weights[:, columns])


class _Tile:
    """Some images on the device of the queries, and the two float32 products taken with them.

    uint8 pixels enter the products as p − 127.5, which every float format here holds exactly; the scale 1/127.5 is put
    on the small factor. On a GPU they are bfloat16 (as p − 128), and the other factor is split into three
    bfloat16 parts that hold its 24 bits: float32 accuracy at the speed of the matrix units.
    """

    def __init__(self, stored: Tensor, dtype: torch.dtype) -> None:
        self.stored = stored
        self._dtype = dtype
        self._whole: Tensor | None = None
        self._is_bytes = stored.dtype == torch.uint8
        self._in_parts = self._is_bytes and stored.is_cuda and dtype == torch.float32

    def at(self, columns: Int[Tensor, "k"]) -> "_Tile":
        """Only some of the images."""
        part = _Tile(self.stored[columns], self._dtype)
        if self._whole is not None:
            part._whole = self._whole[columns]
        return part

    def values(self, columns: Int[Tensor, "k"] | None = None) -> Float[Tensor, "t d"]:
        """The images as they are defined, dequantised in the dtype of the queries, in float64."""
        return dequantize(self.stored if columns is None else self.stored[columns], self._dtype).double()

    def products(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b t"]:
        """x·y."""
        if self._is_bytes:
            x = x / 127.5
        if self._in_parts:
            return _product_in_parts(x, self._pixels().T) + x.sum(1, keepdim=True) / 2
        return x @ self._pixels().T

    def weighted_sum(self, weights: Float[Tensor, "b t"]) -> Float[Tensor, "b d"]:
        """Σ_i w_i y_i, added up in float64; in float64 throughout if the weights are exact."""
        if self._in_parts:
            weights = weights.float() / 127.5
            return _product_in_parts(weights, self._pixels()) + weights.sum(1, keepdim=True) / 2
        pixels = self._pixels()
        sums = weights.new_zeros(len(weights), pixels.shape[1], dtype=torch.float64)
        # A long float32 sum of similar images drifts by a few ε√t: add short ones.
        for some_weights, some_pixels in zip(weights.split(_SUM, 1), pixels.split(_SUM), strict=True):
            sums += some_weights.to(pixels.dtype) @ some_pixels
        return sums / 127.5 if self._is_bytes else sums

    def _pixels(self) -> Tensor:
        if self._whole is None:
            if self._in_parts:
                self._whole = self.stored.to(torch.bfloat16) - 128
            elif self._is_bytes:
                self._whole = torch.sub(self.stored, torch.tensor(127.5, dtype=self._dtype, device=self.stored.device))
            else:
                self._whole = self.stored.to(self._dtype)
        return self._whole


def _product_in_parts(a: Float[Tensor, "m k"], b: Float[Tensor, "k n"]) -> Float[Tensor, "m n"]:
    """a @ b for float32 a and bfloat16 b on a GPU, to float32 accuracy."""
    parts, rest = [], a
    for _ in range(3):
        parts.append(rest.to(torch.bfloat16))
        rest = rest - parts[-1]
    return torch.mm(torch.cat(parts), b, out_dtype=torch.float32).view(3, len(a), -1).sum(0)


def _check_content(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    stored = state.get(f"{prefix}content")
    if stored is not None and not torch.equal(stored.cpu(), module.content.cpu()):
        raise CheckpointError(
            "this state_dict belongs to a multi-delta denoiser of other images (their content hashes differ). "
            "Build the denoiser from the same images, in the same order and dtype."
        )
