"""The denoising loss ‖D(x0 + σ·eps; σ) − x0‖² per pixel."""

from torch import Tensor

from .._typing import Float


def squared_errors(denoised: Float[Tensor, "b *shape"], x0: Float[Tensor, "b *shape"]) -> Float[Tensor, "b"]:
    """‖D − x0‖² per pixel, one number per image."""
    return (denoised - x0).square().flatten(1).mean(1)
