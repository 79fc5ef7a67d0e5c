"""The noisy inputs of a measure, and the outputs of denoisers there.

Input i is x_i(σ) = x0_{i mod u} + σ·eps_i, with u images and eps_i draw i of the seed's noise, the same at every σ.
Inputs are made in float64 on the CPU and then rounded, so that every denoiser measured with one seed is given the same
numbers. Inputs that share an image are not independent: they are averaged, and the image is the unit of every interval.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from .._typing import Float, Int
from ..denoisers.protocol import Denoiser, call, in_batches, placement
from ..errors import ConfigError, DataError
from ..images import content_hash, dequantize
from ..noise import draw_noise
from ..progress import track
from .curve import Conditions

T = TypeVar("T")

DEFAULT_COUNT = 100

Outputs: TypeAlias = Callable[[Tensor, float, Tensor | None], tuple[Tensor, Tensor]]
"""Two outputs to compare, each (b, d), at inputs x, noise level σ and labels."""


class NoisyInputs:
    """`count` noisy inputs made of u images, each image used in turn.

    Args:
        images: the clean images in the order of use, (u, *shape), uint8 or float.
        labels: their labels, (u,), or None.
        count: number of inputs, at least 1; beyond u the images return with fresh noise.
        seed: seed of the noise.
        stream: which of the seed's streams of noise.
    """

    def __init__(self, images: Tensor, labels: Tensor | None, count: int, seed: int, stream: str = "noise") -> None:
        self.count = count
        self.seed = seed
        self._images = images[:count]
        self._labels = None if labels is None else labels[:count].cpu()
        shape = tuple(images.shape[1:])

        def draw(start: int, stop: int) -> Tensor:
            return draw_noise(seed, torch.arange(start, stop), shape, stream=stream).double()

        # All inputs often fit one batch, whose noise is then drawn once for all noise levels.
        self._draw = lru_cache(maxsize=1)(draw)

    def at(self, sigma: float, start: int, stop: int) -> Float[Tensor, "b *shape"]:
        """Inputs `start` … `stop` − 1 at one noise level, in float64 on the CPU."""
        clean = self._images[self._units(start, stop).to(self._images.device)]
        return dequantize(clean, torch.float64).cpu() + sigma * self._draw(start, stop)

    def labels(self, start: int, stop: int) -> Int[Tensor, "b"] | None:
        """Labels of inputs `start` … `stop` − 1."""
        return None if self._labels is None else self._labels[self._units(start, stop)]

    def totals(self, values: Float[Tensor, "count *d"]) -> Float[Tensor, "u *d"]:
        """Sums within images of a value, or vector, of each input."""
        totals = torch.zeros(len(self._images), *values.shape[1:], dtype=values.dtype)
        return totals.index_add_(0, self._units(0, self.count), values)

    def averages(self, values: Float[Tensor, "count"]) -> Float[Tensor, "u"]:
        """Means within images of a value of each input."""
        return self.totals(values) / self.totals(torch.ones_like(values))

    def conditions(self, metric: str) -> Conditions:
        """What to pair curves by."""
        return Conditions(metric, "images", self.seed, self.count, self.digest())

    def digest(self) -> str:
        """Names the images and labels; uint8 images and the same images in float32 have one digest."""
        digest = hashlib.sha256()
        for chunk in self._images.split(1024):
            digest.update(content_hash(dequantize(chunk)).encode())
        digest.update(repr(None if self._labels is None else self._labels.tolist()).encode())
        return digest.hexdigest()[:16]

    def _units(self, start: int, stop: int) -> Int[Tensor, "b"]:
        return torch.arange(start, stop) % len(self._images)


@dataclass(frozen=True)
class PlacedDenoiser:
    """A denoiser with the device and dtype it is called in; its outputs come back to the CPU, checked to be finite.

    Attributes:
        denoiser: the denoiser.
        device: where to call it.
        dtype: what to round its inputs to.
        name: what to call it in errors.
    """

    denoiser: Denoiser
    device: torch.device
    dtype: torch.dtype
    name: str = "the denoiser"

    @classmethod
    def of(
        cls,
        denoiser: Denoiser,
        images: Tensor,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        name: str = "the denoiser",
    ) -> "PlacedDenoiser":
        """A denoiser where its parameters are, or the images (see `placement`)."""
        return cls(denoiser, *placement(denoiser, images, device, dtype), name)

    def __call__(self, x: Tensor, sigma: float, labels: Tensor | None) -> Float[Tensor, "b d"]:
        """The outputs at inputs x, (b, *shape), as vectors."""
        denoised = call(self.denoiser, x.to(self.device, self.dtype), sigma, labels)
        if not bool(denoised.isfinite().all()):
            broken = int((~denoised.isfinite()).sum())
            raise DataError(
                f"{self.name} must return finite values; at sigma = {sigma:g} {broken} of {denoised.numel()} are NaN "
                f"or infinite (inputs in {self.dtype}). Leave that noise level out, or call it with a wider dtype."
            )
        return denoised.flatten(1).cpu()


def sweep(
    work: Callable[[float, int, int], T],
    sigmas: Float[Tensor, "s"],
    count: int,
    batch_size: int | None,
    progress: bool,
) -> Iterator[list[T]]:
    """`work(sigma, start, stop)` over batches that cover 0 … count, at every noise level."""
    for sigma in track(sigmas.tolist(), total=len(sigmas), label="noise levels", enabled=progress):
        yield list(in_batches(partial(work, sigma), count, batch_size))


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")


def check_count(count: int | None, default: int) -> int:
    """`count`, or the default for None, checked to be at least 1."""
    if count is not None and count < 1:
        raise ConfigError(f"count, the number of noisy inputs or pairs, must be at least 1; got {count}.")
    return default if count is None else count
