"""Generate any number of images from a denoiser. Image i depends on the seed and on i alone."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .denoisers.protocol import Denoiser
from .images import quantize
from .noise import draw_noise
from .progress import progress_bar
from .sampling import sample

BATCH = 256


def best_device(*, cpu: bool = False) -> torch.device:
    """The CUDA device if there is one, unless `cpu`; else the CPU, since other accelerators lack float64."""
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")


def generate(
    denoiser: Denoiser,
    shape: tuple[int, ...],
    count: int,
    *,
    solver: str = "heun",
    steps: int = 18,
    seed: int = 0,
    labels: Tensor | None = None,
    batch: int = BATCH,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    progress: bool = False,
) -> Tensor:
    """Sample images, with the labels in turn, and round them to uint8.

    Latent i is draw i of the seed's stream "latents", so `count` and `batch` change an image by rounding errors only.
    """
    turns = None if labels is None else labels[torch.arange(count) % len(labels)]
    how: dict[str, Any] = {"size": math.ceil(count / math.ceil(count / batch)), "seed": seed, "progress": progress}
    how |= {"solver": solver, "steps": steps, "device": device, "dtype": dtype}
    return sample_range(denoiser, shape, range(count), turns, **how)


def sample_range(
    denoiser: Denoiser,
    shape: tuple[int, ...],
    draws: range,
    labels: Tensor | None,
    *,
    size: int,
    seed: int,
    finish: Callable[[Tensor], Tensor] = quantize,
    progress: bool = False,
    **options: Any,
) -> Tensor:
    """The samples of some latents, each batch `finish`ed and moved to the CPU; `options` are those of `sample`.

    All batches have one size, for which a GPU's work is recorded; the images too many are cut off.
    """
    parts = []
    with progress_bar(float(len(draws)), unit="images", label="sampling", enabled=progress) as show:
        for start in draws[::size]:
            indices = torch.arange(start, start + size)
            latents = draw_noise(seed, indices, shape, stream="latents")
            classes = None if labels is None else labels[indices % len(labels)]
            parts.append(finish(sample(denoiser, latents, labels=classes, batch_size=size, **options)).cpu())
            show(float(min(start + size, draws.stop) - draws.start), "")
    return torch.cat(parts)[: len(draws)]
