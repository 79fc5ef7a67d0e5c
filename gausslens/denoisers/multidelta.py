"""The multi-delta denoiser: the exact posterior mean when x0 is one of N images y_i, each with probability 1/N.

    D(x; σ) = Σ_i w_i y_i,  w = softmax_i(−‖x − y_i‖² / 2σ²)                                  Eq. (5) of arXiv:2410.24060

over *all* images: keeping nearest neighbours, subsampling, or normalising batch by batch gives answers that are wrong
by 4 to 140 %. Images are visited in tiles with a running softmax over logits (x·y_i − ½‖y_i‖²)/σ², since ‖x‖² cancels.
In float32 that product loses digits when σ is small or images are nearly equal, so every pair of query and image whose
rounding could be seen in the answer is computed again in float64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._kernels.cuda_graphs import Replay, try_capture
from .._kernels.softmax import TOLERANCE, RunningSoftmax, exact_logits, repair
from .._kernels.tiles import ImageTile, Queries, kind_of
from .._typing import Float, Images, Sigma
from ..errors import CheckpointError, require
from ..images import Bounds, by_class, content_hash, dequantize, gather
from ..precision import float32_products
from .composite import PerClassDenoiser
from .protocol import check_input, expand_sigma

# Bytes that a tile may take by default, one for each pixel and 20 for each logit (its digits' products and itself): on a CPU
# few enough that passes over them are cheap; on a GPU, a recording and a tile together take under 1 GiB.
_TILE_BYTES = {"cpu": 1 << 27, "cuda": 200_000_000}
_RECORDED_TILE_BYTES = 670_000_000
# Queries answered together, and the most numbers in them.
_MOST_QUERIES = 512
_QUERY_NUMBERS = 1 << 23
# N images of weight below this times ε/N are together less than rounding.
_NEGLIGIBLE = 1 / 64
# Pairs of each query that a recording has room to compute again; what needs more is done step by step.
_PAIRS_PER_QUERY = 4
# Up to this many multiplications float64 throughout takes little time.
_SMALL_PROBLEM = 1 << 31


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
    """The exact posterior mean over a set of images: the perfect memoriser, and the reference for "this model copies".

    It is exact to 1e-6 of the image norm on a CPU (1e-5 on a GPU) for float32 queries, and to rounding for float64
    ones, whatever the tile size. Images are kept as they are (uint8, or a memory map on disk) and converted tile by
    tile; they are not part of the `state_dict`, which holds their content hash instead and refuses to be loaded over
    other images.

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
        self, images: Images, *, tile_size: int | None = None, resident: bool = False, bounds: Bounds = (-1.0, 1.0)
    ) -> None:
        super().__init__()
        require(
            tile_size is None or tile_size >= 1,
            f"tile_size must be at least 1, or None for one that fits in memory; got {tile_size}.",
        )
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
        """
        classes = by_class(images, labels, options.get("bounds", (-1.0, 1.0)))
        return PerClassDenoiser({label: cls(own, **options) for label, own in classes})

    def forward(self, x: Tensor, sigma: Sigma) -> Tensor:
        """The posterior mean, Eq. (5), of noisy images (b, *shape), in x's dtype; see `Denoiser`."""
        means = [self._mean(queries).to(x.dtype) for queries in self._queries(x, sigma)]
        return (means[0] if len(means) == 1 else torch.cat(means)).reshape(x.shape)

    @torch.no_grad()
    def posterior(self, x: Tensor, sigma: Sigma) -> Posterior:
        """How the posterior of each noisy image (b, *shape) is spread over the training images; see `Denoiser`."""
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

    def _queries(self, x: Tensor, sigma: Sigma) -> Iterator[Queries]:
        """Noisy images x with their noise levels, some at a time."""
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        at_a_time = max(1, min(_MOST_QUERIES, _QUERY_NUMBERS // self.images.shape[1]))
        for rows, level in zip(x.flatten(1).split(at_a_time), levels.split(at_a_time), strict=True):
            yield Queries(rows, level, self.anchor, self._largest_norm)

    def _mean(self, queries: Queries) -> Float[Tensor, "b d"]:
        """The posterior mean; for images on a GPU, replayed when as many queries come again."""
        replay, shape = self._replay, queries.rows.shape
        is_static = queries.rows.is_cuda and self.images.is_cuda and not queries.differentiable
        if is_static and not self._is_small(queries) and (replay is None or len(queries.rows) > replay.shapes[0][0]):
            if self._asked == shape:
                self._replay = replay = None
                torch.cuda.empty_cache()  # a recording has memory of its own, which it needs now
                self._mean_and_overflow(queries.rows, queries.sigma)
                self._replay = replay = try_capture(self._mean_and_overflow, queries.rows, queries.sigma)
            self._asked = None if self._asked == shape else shape
        if is_static and replay is not None and replay.shapes[0] == shape:
            mean, overflow = replay(queries.rows, queries.sigma)
            if not bool(overflow):
                return mean.clone()
        return self._visit(queries, with_mean=True).mean

    @torch.no_grad()
    def _mean_and_overflow(self, rows: Float[Tensor, "b d"], sigma: Float[Tensor, "b"]) -> tuple[Tensor, Tensor]:
        """The posterior mean, and whether it is wrong because there was no room for all pairs to compute again."""
        queries = Queries(rows, sigma, self.anchor, self._largest_norm)
        softmax = self._visit(queries, with_mean=True, room=_PAIRS_PER_QUERY * len(rows))
        return softmax.mean.to(rows.dtype), softmax.overflow

    def _is_small(self, queries: Queries) -> bool:
        return queries.rows.dtype == torch.float64 or queries.rows.numel() * self.count <= _SMALL_PROBLEM

    def _visit(self, queries: Queries, *, with_mean: bool, room: int | None = None) -> RunningSoftmax:
        """The softmax over all images, tile by tile."""
        x = queries.rows
        softmax = RunningSoftmax(x, with_mean=with_mean)
        tile_bytes = _RECORDED_TILE_BYTES if room else _TILE_BYTES[kind_of(x)]
        tile_size = self.tile_size or self._affordable_tile(x, tile_bytes)
        exactly = self._is_small(queries)
        negligible = _NEGLIGIBLE * torch.finfo(x.dtype).eps / self.count
        largest_scale = 0.0 if exactly or room else float(queries.constants.scale.max())
        with float32_products(x.device):
            for start in range(0, self.count, tile_size):
                stored = self.images[start : start + tile_size].to(x.device)
                tile = ImageTile(stored, x.dtype, whole_numbers=not exactly and not queries.differentiable)
                dense = room is not None
                if exactly or not tile.has_fast_logits:
                    logits, top = exact_logits(queries, tile)
                else:
                    half_squares = self._half_squares[start : start + tile_size].to(x.device)
                    logits, top = tile.logits(queries, half_squares)
                    is_spread = not room and largest_scale * tile.rounding <= TOLERANCE[kind_of(x)]
                    if not is_spread:
                        logits, top = repair(logits, top, queries, tile, softmax, room)
                    dense = dense or is_spread
                softmax.add(logits, top, tile, start, negligible, dense=dense)
        return softmax

    def _affordable_tile(self, x: Float[Tensor, "b d"], tile_bytes: int) -> int:
        """Images per tile such that tile and logits take so many bytes; tiles of equal size, in whole blocks of 64."""
        most = max(64, tile_bytes * 4 // x.element_size() // (x.shape[1] + 20 * len(x)))
        n_tiles = -(-self.count // most)
        return -(-self.count // (64 * n_tiles)) * 64


def _check_content(module: MultiDeltaDenoiser, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    stored = state.get(f"{prefix}content")
    if stored is not None and not torch.equal(stored.cpu(), module.content.cpu()):
        raise CheckpointError(
            "this state_dict belongs to a multi-delta denoiser of other images (their content hashes differ). "
            "Build the denoiser from the same images, in the same order and dtype."
        )
