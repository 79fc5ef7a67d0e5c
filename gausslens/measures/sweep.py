"""The noisy inputs of a measure, the outputs of denoisers there, and three ways to compare two outputs.

Input i is x_i(σ) = x0_{i mod u} + σ·eps_i, with u images and eps_i draw i of the seed's noise, the same at every σ.
Inputs are made in float64 on the CPU and then rounded, so that every denoiser measured with one seed gets the same
numbers. Inputs that share an image are not independent: they are averaged, and the image is the unit of every interval.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from .._typing import Float, Int
from ..denoisers.protocol import Denoiser, call, check_finite, in_batches
from ..errors import require
from ..images import content_hash, dequantize
from ..noise import draw_noise
from ..progress import track
from .curve import Conditions, Curve

DEFAULT_COUNT = 100


class NoisyInputs:
    """`count` noisy inputs from images (u, *shape), used in turn; beyond u an image is used again, with fresh noise."""

    def __init__(self, images: Tensor, labels: Tensor | None, count: int, seed: int, stream: str = "noise") -> None:
        self.count, self.seed = count, seed
        self._images = images[:count]
        self._labels = None if labels is None else labels[:count].cpu()
        self._unit = torch.arange(count) % len(self._images)  # the image of each input
        shape = tuple(images.shape[1:])

        def draw(start: int, stop: int) -> Tensor:
            return draw_noise(seed, torch.arange(start, stop), shape, stream=stream).double()

        # All inputs often fit one batch, whose noise is then drawn once for all noise levels.
        self._draw = lru_cache(maxsize=1)(draw)

    def at(self, sigma: float, start: int, stop: int) -> Float[Tensor, "b *shape"]:
        """Inputs `start` … `stop` − 1 at one noise level, in float64 on the CPU."""
        clean = self._images[self._unit[start:stop].to(self._images.device)]
        return dequantize(clean, torch.float64).cpu() + sigma * self._draw(start, stop)

    def labels(self, start: int, stop: int) -> Int[Tensor, "b"] | None:
        """Labels of inputs `start` … `stop` − 1."""
        return None if self._labels is None else self._labels[self._unit[start:stop]]

    def totals(self, values: Float[Tensor, "count *d"]) -> Float[Tensor, "u *d"]:
        """The sums over the inputs of each image, of a value or vector of each input."""
        totals = torch.zeros(len(self._images), *values.shape[1:], dtype=values.dtype)
        return totals.index_add_(0, self._unit, values)

    def averages(self, values: Float[Tensor, "count"]) -> Float[Tensor, "u"]:
        """The means over the inputs of each image, of a value of each input."""
        return self.totals(values) / self.totals(torch.ones_like(values))

    def digest(self) -> str:
        """A hash of the images and labels; uint8 images and the same images in float32 have the same digest."""
        digest = hashlib.sha256()
        for chunk in self._images.split(1024):
            digest.update(content_hash(dequantize(chunk)).encode())
        digest.update(repr(None if self._labels is None else self._labels.tolist()).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class PlacedDenoiser:
    """A denoiser with the device and dtype it is called in; its outputs are checked to be finite and moved to the CPU."""

    denoiser: Denoiser
    device: torch.device
    dtype: torch.dtype
    name: str = "the denoiser"  # in errors

    def __call__(self, x: Tensor, sigma: float, labels: Tensor | None) -> Float[Tensor, "b d"]:
        """The outputs at inputs x, (b, *shape), as vectors."""
        denoised = call(self.denoiser, x.to(self.device, self.dtype), sigma, labels)
        check_finite(denoised, sigma, self.dtype, self.name)
        return denoised.flatten(1).cpu()


@dataclass(frozen=True)
class Sweep:
    """Noisy inputs, given in batches at every noise level."""

    inputs: NoisyInputs
    sigmas: Float[Tensor, "s"]
    batch_size: int | None
    progress: bool

    def collect(self, work: Callable[[float, int, int], tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
        """`work(sigma, start, stop)` for all inputs, at every noise level."""
        for sigma in track(self.sigmas.tolist(), label="noise levels", enabled=self.progress):
            parts = in_batches(partial(work, sigma), self.inputs.count, self.batch_size)
            yield tuple(map(torch.cat, zip(*parts, strict=True)))

    def curve(
        self, score: Callable[[float, int, int], Tensor], conditions: Conditions, span: tuple[float, float]
    ) -> Curve:
        """The curve of a number for each input, `score(sigma, start, stop)`."""
        scores = self.collect(lambda *batch: (score(*batch),))
        rows = [self.inputs.averages(values) for (values,) in scores]
        return Curve.of_means(self.sigmas, torch.stack(rows), conditions, span)


# Comparisons take batches of vectors in float64 and return one number per row. Where a denominator vanishes there is no
# limit, so values are set by convention: two zeros agree, and a zero and anything else do not agree at all.


def squared_errors(a: Float[Tensor, "b *shape"], b: Float[Tensor, "b *shape"]) -> Float[Tensor, "b"]:
    """‖a − b‖²/d; of D(x0 + σ·eps; σ) and x0 the denoising loss."""
    return (a - b).square().flatten(1).mean(1)


def root_mean_square(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    """‖a − b‖/√d."""
    return _norm(a - b) / math.sqrt(a.shape[1])


def norm_ratio(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    """‖a − b‖/‖a‖, the first argument in the denominator; for a = 0 it is 0 if b = 0 and 1 otherwise.

    >>> norm_ratio(torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 5.0]]))
    tensor([0., 1.])
    """
    distance, size = _norm(a - b), _norm(a)
    # With a = 0 the distance is ‖b‖, the larger of the two norms.
    return distance / size.where(size > 0, distance.where(distance > 0, 1))


def cosine(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    """⟨a, b⟩/(‖a‖·‖b‖) in [-1, 1]; 1 if both are zero and 0 if one is.

    >>> cosine(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, -2.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    tensor([ 1.,  0., -1.])
    """
    size_a, size_b = _norm(a)[:, None], _norm(b)[:, None]
    # Unit vectors first: the product of two tiny norms would underflow.
    angle = (a / size_a.where(size_a > 0, 1) * (b / size_b.where(size_b > 0, 1))).sum(1).clamp(-1, 1)
    return angle.masked_fill((size_a + size_b == 0)[:, 0], 1)


def _norm(a: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    norm: Tensor = torch.linalg.vector_norm(a, dim=1)
    return norm


def check_count(count: int | None, default: int) -> int:
    """`count`, or the default for None, checked to be at least 1."""
    require(
        count is None or count >= 1, f"count, the number of noisy inputs or pairs, must be at least 1; got {count}."
    )
    return default if count is None else count
