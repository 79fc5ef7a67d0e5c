"""The denoising loss on images that are not being trained on, to compare snapshots and runs with.

Image i meets the same noise level and the same noise in every call, so differences between snapshots are the
network's.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from .._typing import Float
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from ..denoisers.protocol import eval_mode, in_batches
from ..images import dequantize
from ..noise import draw_noise
from .objective import loss_weights, noise_levels, squared_errors

# Images at once: few, since the memory of a recorded training step stays reserved beside them.
_AT_ONCE = 64


def denoising_losses(
    denoiser: Preconditioned,
    images: Tensor,
    config: TrainConfig,
    *,
    labels: Tensor | None = None,
    arithmetic: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Float[Tensor, "n"]:
    """λ(σ)·‖D(x0 + σ·eps; σ) − x0‖² per pixel, with one noise level and one noise per image."""
    device = next(denoiser.parameters()).device

    def losses(start: int, stop: int) -> Tensor:
        draws = torch.arange(start, stop)
        sigma = noise_levels(config, draw_noise(0, draws, (), stream="validation levels")).to(device)
        eps = draw_noise(0, draws, tuple(images.shape[1:]), stream="validation noise").to(device)
        x0 = dequantize(images[start:stop].to(device))
        told = () if labels is None else (labels[start:stop].to(device),)
        with arithmetic():
            denoised = denoiser(x0 + sigma[:, None, None, None] * eps, sigma, *told)
        return (loss_weights(config, denoiser, sigma) * squared_errors(denoised, x0)).cpu()

    with eval_mode(denoiser):
        return torch.cat(list(in_batches(losses, len(images), _AT_ONCE)))
