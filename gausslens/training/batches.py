"""The training stream: which image, noise level and noise each step sees.

Image k of the stream, k = step·batch + position, is entry k mod N of a permutation of the N training images drawn for
epoch ⌊k/N⌋; its noise level and its noise are draws k. So the stream is a function of the seed and k alone: the same on
every device and number of processes, and after every resume. On a GPU the draws of the next steps are made ahead in
threads, and the images lie on the device where they fit.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._typing import Float, Int
from ..config import TrainConfig
from ..images import dequantize, select
from ..noise import draw_noise, draw_order
from .augmentation import N_DRAWS, augment
from .objective import noise_levels

_CHUNK_NUMBERS = 1 << 17  # small images are drawn for several steps at once, since each draw has a fixed cost
_RESIDENT_BYTES = 4 << 30
_DRAWN_AHEAD = 4


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The images of a run."""

    images: Tensor  # uint8, (n, c, h, w); a memory map stays one if it is large
    labels: Tensor | None  # integers (n,), or None for a network without labels
    train: Tensor  # which images to train on
    held_out: Tensor  # which images no training set touches
    groups: Tensor | None = None  # which images belong together, (n,)

    def rows(self, chosen: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Some images with their labels and groups."""
        images, labels, groups = select(chosen, self.images, self.labels, self.groups)
        return images, labels, groups


class Batch(NamedTuple):
    """What one step of one process sees."""

    x0: Tensor  # clean images, (b, c, h, w), float32
    sigma: Tensor  # noise levels, (b,)
    eps: Tensor  # standard normal noise, (b, c, h, w)
    labels: Tensor | None  # integers (b,)
    augment: Tensor | None  # the augmentation inputs, (b, 9)


class BatchStream:
    """The batches of one process, which has an equal part of each, for any range of steps of a resolved config."""

    def __init__(
        self, data: TrainingData, config: TrainConfig, device: torch.device, process: int = 0, processes: int = 1
    ) -> None:
        self.config, self.device = config, device
        self.batch = config.recipe.batch
        self.n_local = self.batch // processes
        self.offset = process * self.n_local
        self.shape = tuple(data.images.shape[1:])
        self.train, self.n_train = data.train, len(data.train)
        self.resident = self.n_train * data.images[0].numel() <= _RESIDENT_BYTES
        self.images = data.images[data.train].to(device) if self.resident else data.images
        self.labels = None if data.labels is None else data.labels[data.train].to(device)

    def batches(self, first: int, last: int) -> Generator[Batch, None, None]:
        """The batches of steps first … last − 1, in order."""
        per_chunk = max(1, _CHUNK_NUMBERS // (self.n_local * math.prod(self.shape)))
        ranges = (range(start, min(start + per_chunk, last)) for start in range(first, last, per_chunk))
        ahead = _DRAWN_AHEAD if self.device.type == "cuda" else 0
        for chunk in _ahead(self._draw, ranges, ahead):
            moved = [None if part is None else part.to(self.device, non_blocking=True) for part in chunk]
            by_step = (repeat(None) if part is None else part.split(self.n_local) for part in moved)
            for parts in zip(*by_step, strict=False):
                yield self._assemble(*parts)

    def noise_levels(self, step: int) -> Float[Tensor, "b"]:
        """The noise levels of a step, on the CPU."""
        levels: Tensor = self._draw(range(step, step + 1))[1]
        return levels

    def _draw(self, steps: range) -> tuple[Any, ...]:
        """Image indices, noise levels, noise, augmentation numbers and images (if not on the device) of some steps."""
        seed = self.config.seed
        starts = torch.tensor(steps) * self.batch + self.offset
        counters = (starts[:, None] + torch.arange(self.n_local)).flatten()
        chosen = self._choose(counters)
        sigma = noise_levels(self.config, draw_noise(seed, counters, (), stream="training levels"))
        eps = draw_noise(seed, counters, self.shape, stream="training noise")
        numbers = draw_noise(seed, counters, (N_DRAWS,), stream="augmentation") if self.config.augment else None
        pixels = None if self.resident else self.images[self.train[chosen % self.n_train]]
        parts = (chosen, sigma, eps, numbers, pixels)
        pinned = self.device.type == "cuda"
        return tuple(part.pin_memory() if pinned and part is not None else part for part in parts)

    def _choose(self, counters: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """Which training image each counter is; from `n_train` on, they are mirror images."""
        n = self.n_train * (2 if self.config.flip else 1)
        epochs = counters // n
        chosen = torch.empty_like(counters)
        for epoch in epochs.unique().tolist():
            here = epochs == epoch
            chosen[here] = _epoch_order(self.config.seed, epoch, n)[counters[here] % n]
        return chosen

    def _assemble(
        self, chosen: Tensor, sigma: Tensor, eps: Tensor, numbers: Tensor | None, pixels: Tensor | None
    ) -> Batch:
        index = chosen % self.n_train if self.config.flip else chosen
        x0 = dequantize(self.images[index] if pixels is None else pixels)
        if self.config.flip:
            x0 = torch.where((chosen >= self.n_train)[:, None, None, None], x0.flip(3), x0)
        inputs = None
        if numbers is not None:
            x0, inputs = augment(x0, numbers, self.config.augment)
        return Batch(x0, sigma, eps, None if self.labels is None else self.labels[index], inputs)


@lru_cache(maxsize=8)
def _epoch_order(seed: int, epoch: int, n: int) -> Int[Tensor, "n"]:
    return draw_order(seed, n, stream=f"epoch {epoch}")


def _ahead(work: Callable[[Any], Any], items: Iterable[Any], depth: int) -> Iterator[Any]:
    """`work` over the items in order, in threads if `depth` of the results are to be made before they are asked for."""
    if depth == 0:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(2, thread_name_prefix="draws")
    try:
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
