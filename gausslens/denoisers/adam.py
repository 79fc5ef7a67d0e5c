"""The published way to distil: an affine map trained by Adam, kept to reproduce Figures 4, 14 and 22.

Recipe of arXiv:2410.24060 (Algorithm 1 and the released settings): W = b = 0 at the start, inputs divided by √d, mean
squared error, batches of 256 images in order with fresh noise, 100 epochs, Adam with its default betas and a constant
learning rate per noise level. The closed form reaches lower errors with a fraction of the calls and needs no such choice.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from .._typing import Float
from .regression import Affine

BATCH = 256
EPOCHS = 100
# The learning rates published for one network (DDPM++ on faces), by the lower end of the range of σ.
_LEARNING_RATES = ((4.0, 5e-5), (0.4, 5e-4), (0.1, 5e-3), (0.0, 5e-2))


def published_learning_rate(sigma: float) -> float:
    """The learning rate of the published list for this noise level."""
    return next(rate for lowest, rate in _LEARNING_RATES if sigma >= lowest)


def fit_adam(
    epochs: Iterable[Iterable[tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]]],
    gaussian_weight: Float[Tensor, "d d"],
    learning_rate: float,
) -> tuple[Affine, list[dict[str, float]]]:
    """Train W and b on batches of inputs and targets."""
    scale = len(gaussian_weight) ** -0.5
    weight = torch.zeros_like(gaussian_weight, requires_grad=True)
    bias = gaussian_weight.new_zeros(len(gaussian_weight), requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=learning_rate)
    history: list[dict[str, float]] = []
    for epoch, batches in enumerate(epochs, start=1):
        losses = []
        for x, target in batches:
            with torch.enable_grad():
                output = x.to(weight.dtype).mul(scale) @ weight.T + bias
                loss = torch.nn.functional.mse_loss(output, target.to(weight.dtype))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        effective = weight.detach() * scale
        history.append(
            {
                "epoch": float(epoch),
                "loss": float(torch.stack(losses).mean()),
                "weight_error": float((effective - gaussian_weight).norm() / gaussian_weight.norm()),
                "asymmetry": float((effective - effective.T).norm() / effective.norm()),
            }
        )
    return Affine(weight.detach() * scale, bias.detach()), history
