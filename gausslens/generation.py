"""Generate any number of images from a denoiser. Image i depends on the seed and on i alone."""

import math
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
    """Sample images and round them to uint8.

    Latent i is draw i of the seed's stream "latents", so `count` and `batch` change an image by rounding errors only.
    """
    parts = []
    size = math.ceil(count / math.ceil(count / batch))
    options: dict[str, Any] = {"steps": steps, "solver": solver, "device": device, "dtype": dtype, "batch_size": size}
    with progress_bar(float(count), unit="images", label="sampling", enabled=progress) as show:
        for start in range(0, count, size):
            indices = torch.arange(start, start + size)
            latents = draw_noise(seed, indices, shape, stream="latents")
            classes = None if labels is None else labels[indices % count]
            samples = sample(denoiser, latents, labels=classes, **options)
            parts.append(quantize(samples)[: count - start].cpu())
            show(float(min(start + size, count)), "")
    return torch.cat(parts)
