"""Shrinking a fitted matrix toward a Gaussian's, block by block, by as much as two halves of the calls disagree.

Let W_G = U diag(g) Uᵀ with g descending, and write the departure from it in principal coordinates, with inputs of unit
variance: A = Uᵀ(W − W_G)U diag(s), s_k² the variance of the k-th coordinate of x. How a denoiser departs from its Gaussian
is concentrated on leading coordinates, while the noise of a fit is spread over all d². So entries are grouped in blocks
(leading × leading, leading × trailing, …), and each block B is multiplied by

    c_B = Σ_B A₁A₂ / Σ_B A²,  clipped to [0, 1],

with A₁, A₂ from two halves and A from all calls. The noises of the halves are independent, so the numerator estimates the
signal's energy and the denominator that of signal and noise: c_B is the factor that minimises the error of the block.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .._typing import Float
from .regression import Affine, Sums

# Blocks begin at 0, 2, 4, 6, 8 and then at each 1.5 times the one before.
_FIRST_EDGES = (0, 2, 4, 6, 8)
_GROWTH = 1.5


@dataclass(frozen=True, eq=False)
class BlockShrinkage:
    """Factors on the departure of a matrix from `toward`, in principal coordinates.

    Attributes:
        toward: the matrix W_G, (d, d).
        basis: its eigenvectors U, by descending eigenvalue, (d, d).
        scales: standard deviations s of the inputs' principal coordinates, (d,).
        factors: c for every entry, (d, d).
    """

    toward: Float[Tensor, "d d"]
    basis: Float[Tensor, "d d"]
    scales: Float[Tensor, "d"]
    factors: Float[Tensor, "d d"]

    def __call__(self, fit: Affine, sums: Sums) -> Affine:
        """The shrunk fit, with the intercept that suits the inputs of `sums`."""
        departure = _departure(fit, self.toward, self.basis, self.scales) * self.factors / self.scales
        return sums.with_intercept(self.toward + self.basis @ departure @ self.basis.T)


def agree_by_block(
    first: Affine,
    second: Affine,
    both: Affine,
    toward: Float[Tensor, "d d"],
    basis: Float[Tensor, "d d"],
    sums: Sums,
) -> BlockShrinkage:
    """The factors that the agreement of two halves calls for."""
    variances = ((sums.xx @ basis) * basis).sum(0) / sums.count
    scales = variances.clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    departures = [_departure(fit, toward, basis, scales) for fit in (first, second, both)]
    blocks = _membership(len(toward), basis)
    shared = blocks.T @ (departures[0] * departures[1]) @ blocks
    energy = blocks.T @ departures[2].square() @ blocks
    factors = torch.where(energy > 0, shared / energy, 0.0).clamp(0, 1)
    return BlockShrinkage(toward, basis, scales, blocks @ factors @ blocks.T)


def _departure(
    fit: Affine, toward: Float[Tensor, "d d"], basis: Float[Tensor, "d d"], scales: Float[Tensor, "d"]
) -> Float[Tensor, "d d"]:
    return basis.T @ (fit.weight - toward) @ basis * scales


def _membership(dim: int, like: Tensor) -> Float[Tensor, "d m"]:
    """Which block each coordinate is in, as columns of zeros and ones."""
    edges = [edge for edge in _FIRST_EDGES if edge < dim]
    while edges[-1] < dim:
        edges.append(min(dim, max(edges[-1] + 2, int(edges[-1] * _GROWTH))))
    membership = like.new_zeros(dim, len(edges) - 1)
    for block, (start, stop) in enumerate(pairwise(edges)):
        membership[start:stop, block] = 1
    return membership
