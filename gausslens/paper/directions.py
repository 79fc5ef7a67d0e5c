"""Directions in the space of images, as pictures: zero is grey, the largest entry white or black."""

import torch
from torch import Tensor

from .._typing import Float
from ..images import quantize


def as_pictures(directions: Float[Tensor, "d k"], shape: tuple[int, ...]) -> Tensor:
    """Columns as uint8 images, (k, *shape), each scaled by its largest entry."""
    rows = directions.T.cpu()
    return quantize((rows / rows.abs().amax(1, keepdim=True).clamp_min(1e-30)).reshape(-1, *shape))


def signed_like(directions: Float[Tensor, "... d k"], others: Float[Tensor, "d k"]) -> Float[Tensor, "... d k"]:
    """Columns with the signs that agree with those of `others`: the signs of singular vectors are arbitrary."""
    return directions * torch.where((directions * others).sum(-2, keepdim=True) < 0, -1.0, 1.0)
