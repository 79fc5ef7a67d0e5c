"""Geometric augmentation that the network is told about, so that it does not leak into samples.

Each of six transformations happens to an image with the same probability: a flip along either axis, a scaling, a
rotation, a stretching along one direction and a translation. They are combined into one affine map, applied with
bilinear interpolation and reflection at the border, and their parameters are given to the network as nine inputs,
which are all 0 for an image left as it is. When measuring and sampling, the inputs are 0.

Reference: Karras, Aittala, Laine, Hellsten, Lehtinen, Aila (2020), arXiv:2006.06676; Jun et al. (2020).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .._typing import Float
from ..config import AUGMENT_INPUTS

N_DRAWS = 13
"""Standard normal numbers per image: one each that decides whether, and seven parameters."""

_SCALE = 0.2  # standard deviation of the binary logarithm of a factor
_SHIFT = 0.125  # standard deviation of a translation, as a fraction of the image


def augment(
    x0: Float[Tensor, "b c h w"], normals: Float[Tensor, "b 13"], probability: float
) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b 9"]]:
    """Transform images at random."""
    happens = (torch.special.ndtr(normals[:, :6]) < probability).to(x0.dtype)
    flip_x, flip_y, scaled, rotated, stretched, moved = happens.unbind(1)
    strength, direction = normals[:, 6:10], math.pi * torch.special.ndtr(normals[:, 10])
    log_scale = scaled * strength[:, 0] * _SCALE
    angle = rotated * math.pi * (2 * torch.special.ndtr(strength[:, 1]) - 1)
    log_stretch = stretched * strength[:, 2] * _SCALE
    shift = moved[:, None] * normals[:, 11:13]

    matrix = torch.diag_embed(torch.stack([1 - 2 * flip_x, 1 - 2 * flip_y], 1))
    matrix = _rotation(angle) @ matrix * log_scale.exp2()[:, None, None]
    turn = _rotation(direction)
    factors = torch.stack([log_stretch.exp2(), (-log_stretch).exp2()], 1)
    matrix = turn @ torch.diag_embed(factors) @ turn.mT @ matrix

    # grid_sample asks where each output pixel comes from, in coordinates from -1 to 1 along either axis.
    back = torch.linalg.inv(matrix)
    back[:, 0, 1] *= x0.shape[2] / x0.shape[3]
    back[:, 1, 0] *= x0.shape[3] / x0.shape[2]
    offset = -(back @ (2 * _SHIFT * shift)[:, :, None])
    grid = F.affine_grid(torch.cat([back, offset], 2), list(x0.shape), align_corners=False)
    transformed = F.grid_sample(x0, grid, mode="bilinear", padding_mode="reflection", align_corners=False)

    untouched = (happens.sum(1) == 0)[:, None, None, None]
    parts = [flip_x, flip_y, log_scale / _SCALE, angle.cos() - 1, angle.sin()]
    parts += [log_stretch / _SCALE * (2 * direction).cos(), log_stretch / _SCALE * (2 * direction).sin()]
    inputs = torch.cat([torch.stack(parts, 1), shift], 1)
    assert inputs.shape[1] == AUGMENT_INPUTS
    return torch.where(untouched, x0, transformed), inputs


def _rotation(angle: Float[Tensor, "b"]) -> Float[Tensor, "b 2 2"]:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
