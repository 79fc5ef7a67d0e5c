"""The alignment of a linear denoiser's matrix W with the principal components of a set of images.

The Wiener filter W_G = U diag(λ/(λ+σ²)) Uᵀ is symmetric, its singular vectors are the principal components and its
singular values their gains (Figures 4 and 14 of arXiv:2410.24060). The overlap of leading subspaces ‖U_W[:k]ᵀ U[:k]‖²_F / k
is 1 for equal subspaces and k/d for unrelated ones. Singular vectors of nearly equal singular values are determined only up
to a rotation among themselves. Subspaces that end where values are well separated are determined, so judge overlaps there.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._typing import Bool, Float
from ..denoisers.gaussian import GaussianDenoiser
from ..denoisers.linear import leading_basis
from ..denoisers.moments import Moments
from ..errors import DataError, require

# Dimensions up to which all singular vectors are computed. Beyond, subspace iteration finds the leading k and some spare
# ones; the error of the j-th is (s_{k+spare}/s_j)^(2·iterations).
_WHOLE, _SPARE, _ITERATIONS = 4096, 50, 12
# Neighbouring singular values with a smaller relative difference do not separate subspaces.
_GAP = 0.01


@dataclass(frozen=True, eq=False)
class Alignment:
    """The comparison of a linear map with the Wiener filter of given moments, at one noise level.

    Attributes:
        sigma: the noise level.
        correlation: |U_Wᵀ U|, left singular vectors of W against principal components, (k, k).
        singular_values: the largest singular values of W, (k,).
        gaussian_singular_values: those of the Wiener filter, the gains λ/(λ+σ²), (k,).
        left: left singular vectors of W, (d, k).
        overlap: overlap(j) of the leading j-dimensional subspaces, j = 1 … k, (k,).
        chance: overlap(j) of unrelated subspaces, j/d, (k,).
        ceiling: overlap(j) of the principal subspaces of two halves of the images, (k,); None without halves.
        separated: whether the j-th gain and the next are distinct enough to judge the overlap at j, (k,).
        weight_error: ‖W − W_G‖_F/‖W_G‖_F.
        asymmetry: ‖W − Wᵀ‖_F/‖W‖_F.
    """

    sigma: float
    correlation: Float[Tensor, "k k"]
    singular_values: Float[Tensor, "k"]
    gaussian_singular_values: Float[Tensor, "k"]
    left: Float[Tensor, "d k"]
    overlap: Float[Tensor, "k"]
    chance: Float[Tensor, "k"]
    ceiling: Tensor | None
    separated: Bool[Tensor, "k"]
    weight_error: float
    asymmetry: float


def alignment(
    linear: Any, moments: Moments, sigma: float, k: int = 100, *, halves: tuple[Moments, Moments] | None = None
) -> Alignment:
    """Compare a linear denoiser's matrix at one noise level with the Gaussian of given moments.

    Args:
        linear: the distilled map, of which the unshrunk `weight(sigma)`, (d, d), is used. A `GaussianDenoiser`, or
            any other object with such a method, can serve as control.
        moments: mean and spectrum of the images to compare with.
        sigma: a noise level of `linear`.
        k: number of leading singular vectors, lowered to the rank of `moments` if that is smaller.
        halves: moments of two disjoint halves of the images; their overlap is the most that can be expected.

    Returns:
        The comparison.

    Raises:
        ConfigError: if `k` is below 1.
        DataError: if the sizes of `linear` and `moments` differ.

    >>> import torch
    >>> moments = Moments.fit(torch.rand(60, 1, 4, 4).double() * 2 - 1)
    >>> result = alignment(GaussianDenoiser(moments), moments, sigma=0.5, k=5)
    >>> bool(result.overlap.min() > 1 - 1e-9), result.weight_error < 1e-9
    (True, True)
    """
    require(k >= 1, f"k, the number of singular vectors, must be at least 1; got {k}.")
    weight = linear.weight(sigma).double()
    require(
        len(weight) == moments.dim,
        f"the linear denoiser acts on {len(weight)} dimensions, the moments have {moments.dim}.",
        DataError,
    )
    gaussian = GaussianDenoiser(moments).to(weight.device)
    k = min(k, len(moments.eigvals))
    left, singular_values = _leading(weight, k)
    components = gaussian.eigvecs[:, :k]
    gains, _ = gaussian.gains(sigma)
    following = torch.cat([gains[1 : k + 1], gains.new_zeros(max(0, k + 1 - len(gains)))])
    reference = gaussian.weight(sigma)
    return Alignment(
        sigma=float(sigma),
        correlation=(left.T @ components).abs(),
        singular_values=singular_values,
        gaussian_singular_values=gains[:k],
        left=left,
        overlap=subspace_overlap(left, components),
        chance=torch.arange(1, k + 1, dtype=torch.float64, device=weight.device) / moments.dim,
        ceiling=None if halves is None else _half_split_ceiling(halves, k).to(weight.device),
        separated=gains[:k] - following > _GAP * gains[:k],
        weight_error=float((weight - reference).norm() / reference.norm()),
        asymmetry=float((weight - weight.T).norm() / weight.norm()),
    )


def _leading(weight: Float[Tensor, "d d"], k: int) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k"]]:
    """The k leading left singular vectors and singular values, as eigenvectors of W Wᵀ or of its projection."""
    basis = None if len(weight) <= _WHOLE else leading_basis(weight, k + max(_SPARE, k // 2), _ITERATIONS)
    rows = weight if basis is None else basis.T @ weight
    squares, vectors = torch.linalg.eigh(rows @ rows.T)
    left = vectors.flip(1)[:, :k]
    return left if basis is None else basis @ left, squares.flip(0)[:k].clamp_min(0).sqrt()


def subspace_overlap(a: Float[Tensor, "d k"], b: Float[Tensor, "d k"]) -> Float[Tensor, "k"]:
    """‖a[:, :j]ᵀ b[:, :j]‖²_F / j for j = 1 … k, of orthonormal columns."""
    squares = (a.T @ b).square()
    within = squares.cumsum(0).cumsum(1).diagonal()
    return within / torch.arange(1, len(squares) + 1, dtype=squares.dtype, device=squares.device)


def _half_split_ceiling(halves: tuple[Moments, Moments], k: int) -> Float[Tensor, "k"]:
    """The overlap of the halves' principal subspaces; NaN beyond the smaller rank."""
    common = min(k, *(len(half.eigvals) for half in halves))
    ceiling = halves[0].mean.new_full((k,), float("nan"))
    ceiling[:common] = subspace_overlap(*(half.eigvecs[:, :common] for half in halves))
    return ceiling
