"""What training minimises: the weighted denoising error over noise levels.

    E[λ(σ)·‖D(x0 + σ·eps; σ) − x0‖²],   Eq. (52) of arXiv:2410.24060,

per pixel, with ln σ ~ N(level_mean, level_spread²), which is N(−1.2, 1.2²) in the paper, and λ(σ) = (σ² + σ_d²)/(σσ_d)²
for the EDM preconditioning. The baselines "ve" and "vp" keep the levels they were published with: ln σ uniform between
ln 0.02 and ln 100, and σ² = exp(½·19.9t² + 0.1t) − 1 with t uniform in (10⁻⁵, 1). A network for one noise level minimises
the plain error there.
"""

import math

import torch
from torch import Tensor

from .._typing import Float
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned


def noise_levels(config: TrainConfig, normals: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Noise levels to train on, from standard normal numbers.

    Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364, Table 1.
    """
    if config.sigma is not None:
        return torch.full_like(normals, config.sigma)
    if config.preconditioning == "ve":
        levels: Tensor = (math.log(0.02) + torch.special.ndtr(normals) * math.log(100 / 0.02)).exp()
    elif config.preconditioning == "vp":
        t = 1e-5 + (1 - 1e-5) * torch.special.ndtr(normals)
        levels = (0.5 * 19.9 * t.square() + 0.1 * t).expm1().sqrt()
    else:
        levels = (config.recipe.level_mean + config.recipe.level_spread * normals).exp()
    return levels


def loss_weights(config: TrainConfig, denoiser: Preconditioned, sigma: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    """λ(σ), (b,): that of the preconditioning, or 1 for a network of one noise level."""
    return torch.ones_like(sigma) if config.sigma is not None else denoiser.loss_weight(sigma)


def squared_errors(denoised: Float[Tensor, "b *shape"], x0: Float[Tensor, "b *shape"]) -> Float[Tensor, "b"]:
    """‖D − x0‖² per pixel, one number per image."""
    return (denoised.float() - x0).square().flatten(1).mean(1)
