"""Three ways to compare two outputs a, b of a denoiser, each defined for every finite a and b.

All take batches of vectors in float64 and return one number per row. Where a denominator vanishes the limit depends on
how one gets there, so it is settled here: two zero outputs agree, and a zero against anything else does not at all.
"""

import math

import torch
from torch import Tensor

from .._typing import Float


def root_mean_square(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    """‖a − b‖/√d."""
    return _norm(a - b) / math.sqrt(a.shape[1])


def norm_ratio(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    """‖a − b‖/‖a‖, the first argument in the denominator; for a = 0 it is 0 if b = 0 and 1 otherwise.

    >>> norm_ratio(torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 5.0]]))
    tensor([0., 1.])
    """
    distance, size = _norm(a - b), _norm(a)
    # With a = 0 the distance is ‖b‖, the larger of the two norms.
    return distance / size.where(size > 0, distance.where(distance > 0, 1))


def cosine(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    """⟨a, b⟩/(‖a‖·‖b‖) in [-1, 1]; 1 if both are zero and 0 if one is.

    >>> cosine(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, -2.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    tensor([ 1.,  0., -1.])
    """
    size_a, size_b = _norm(a)[:, None], _norm(b)[:, None]
    # Unit vectors first: the product of two tiny norms would underflow.
    angle = (a / size_a.where(size_a > 0, 1) * (b / size_b.where(size_b > 0, 1))).sum(1).clamp(-1, 1)
    return angle.masked_fill((size_a + size_b == 0)[:, 0], 1)


def _norm(a: Float[Tensor, "b d"]) -> Float[Tensor, "b"]:
    norm: Tensor = torch.linalg.vector_norm(a, dim=1)
    return norm
