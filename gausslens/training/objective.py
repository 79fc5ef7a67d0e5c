"""What training minimises: the weighted denoising error over noise levels.

    E[λ(σ)·‖D(x0 + σ·eps; σ) − x0‖²],   Eq. (52) of arXiv:2410.24060,

per pixel. For the preconditionings "edm" and "none", ln σ ~ N(level_mean, level_spread²), which is N(−1.2, 1.2²) in the
paper. For "ve" and "vp" the noise levels are those of their papers. A network for one noise level minimises the plain
error.
"""

import contextlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

from .._typing import Float
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from ..denoisers.protocol import eval_mode, in_batches
from ..denoisers.schedules import VP
from ..images import dequantize
from ..measures.sweep import squared_errors
from ..noise import draw_noise

# Images at once: few, since the memory of a recorded training step stays reserved beside them.
_AT_ONCE = 64


def noise_levels(config: TrainConfig, normals: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Noise levels to train on, from standard normal numbers.

    Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364, Table 1.
    """
    if config.sigma is not None:
        return torch.full_like(normals, config.sigma)
    if config.preconditioning == "ve":  # ln σ is uniform between ln 0.02 and ln 100
        return torch.exp(math.log(0.02) + torch.special.ndtr(normals) * math.log(100 / 0.02))
    if config.preconditioning == "vp":  # t is uniform between 10⁻⁵ and 1
        t = 1e-5 + (1 - 1e-5) * torch.special.ndtr(normals)
        return VP().level(t)
    return torch.exp(config.recipe.level_mean + config.recipe.level_spread * normals)


def weighted_errors(
    config: TrainConfig, denoiser: Preconditioned, denoised: Tensor, x0: Tensor, sigma: Float[Tensor, "b"]
) -> Float[Tensor, "b"]:
    """λ(σ)·‖D − x0‖² per pixel, one number per image; λ is that of the preconditioning, or 1 for one noise level."""
    weights = torch.ones_like(sigma) if config.sigma is not None else denoiser.loss_weight(sigma)
    return weights * squared_errors(denoised.float(), x0)


def denoising_losses(
    denoiser: Preconditioned,
    images: Tensor,
    config: TrainConfig,
    *,
    labels: Tensor | None = None,
    arithmetic: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Float[Tensor, "n"]:
    """The objective on other images, with one noise level and one noise per image, to compare snapshots and runs with.

    Image i meets the same noise level and the same noise in every call, so differences between snapshots are the
    network's.
    """
    device = next(denoiser.parameters()).device

    def losses(start: int, stop: int) -> Tensor:
        draws = torch.arange(start, stop)
        sigma = noise_levels(config, draw_noise(0, draws, (), stream="validation levels")).to(device)
        eps = draw_noise(0, draws, tuple(images.shape[1:]), stream="validation noise").to(device)
        x0 = dequantize(images[start:stop].to(device))
        with arithmetic():
            denoised = denoiser(
                x0 + sigma[:, None, None, None] * eps, sigma, None if labels is None else labels[start:stop].to(device)
            )
        return weighted_errors(config, denoiser, denoised, x0, sigma).cpu()

    with eval_mode(denoiser):
        return torch.cat(list(in_batches(losses, len(images), _AT_ONCE)))
