"""How the affine maps of a linear denoiser are kept: whole or, where d is large, as a Gaussian's plus low rank.

    W = W                                        d² numbers a map
    W = U diag(g) Uᵀ + L Rᵀ                      2 d q numbers a map, and the principal components U once for all

The Gaussian part g = λ/(λ+σ²) is exact; only the difference from it is cut to rank q, and how much that changes W is
measured. Each noise level has up to two maps, of the *unshrunk* and of the *prediction* fit.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from .._typing import Float
from ..noise import generator
from .gaussian import GaussianDenoiser
from .regression import Affine

Fit: TypeAlias = Literal["unshrunk", "prediction"]

# Above this dimension maps are kept as a Gaussian's plus factors of this rank, unless asked otherwise.
_FULL_DIM = 4096
_STORED_RANK = 256


class AffineMaps(nn.Module):
    """The maps W x + b of each fit and noise level.

    Args:
        buffers: for each fit, `<fit>_biases` (s, d) and either `<fit>_weights` (s, d, d) or `<fit>_left` and
            `<fit>_right` (s, d, q); with factors also `eigvecs` (d, r) and `gains` (s, r).
    """

    def __init__(self, buffers: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)
        self._full = "eigvecs" not in buffers

    @property
    def dtype(self) -> torch.dtype:
        """In which dtype the maps are kept and applied."""
        return self.get_buffer("prediction_biases").dtype

    def has(self, fit: Fit) -> bool:
        """Whether there are maps of this fit."""
        return hasattr(self, f"{fit}_biases")

    def weight(self, fit: Fit, level: int) -> Float[Tensor, "d d"]:
        """W of a fit at noise level number `level`."""
        if self._full:
            return self.get_buffer(f"{fit}_weights")[level]
        eigvecs, gains, left, right = self._factors(fit, level)
        return (eigvecs * gains) @ eigvecs.T + left @ right.T

    def bias(self, fit: Fit, level: int) -> Float[Tensor, "d"]:
        """The vector b of a fit at noise level number `level`."""
        return self.get_buffer(f"{fit}_biases")[level]

    def forward(self, x: Float[Tensor, "b d"], fit: Fit, level: int) -> Float[Tensor, "b d"]:
        """W x + b of a fit at noise level number `level`."""
        if self._full:
            return torch.addmm(self.bias(fit, level), x, self.weight(fit, level).T)
        eigvecs, gains, left, right = self._factors(fit, level)
        return (x @ eigvecs * gains) @ eigvecs.T + (x @ right) @ left.T + self.bias(fit, level)

    def _factors(
        self, fit: Fit, level: int
    ) -> tuple[Float[Tensor, "d r"], Float[Tensor, "r"], Float[Tensor, "d q"], Float[Tensor, "d q"]]:
        """U, g, L and R."""
        gains, left, right = (self.get_buffer(name)[level] for name in ("gains", f"{fit}_left", f"{fit}_right"))
        return self.get_buffer("eigvecs"), gains, left, right


class MapCollector:
    """Makes `AffineMaps` level by level, so that what is not kept need not stay in memory.

    Args:
        gaussian: the Gaussian denoiser that fits are near, of moments without a floor.
        full: whether to keep whole matrices; None does so up to d = 4096.
        dtype: of what is kept.
    """

    def __init__(self, gaussian: GaussianDenoiser, full: bool | None, dtype: torch.dtype) -> None:
        self._gaussian, self._dtype = gaussian, dtype
        self._full = len(gaussian.mean) <= _FULL_DIM if full is None else full
        self._levels: dict[str, list[Tensor]] = {}

    def add(self, sigma: float, unshrunk: Affine | None, prediction: Affine) -> float:
        """Take in one level."""
        lost = self._keep("prediction", prediction, sigma)
        if unshrunk is not None:
            lost = self._keep("unshrunk", unshrunk, sigma)
        if not self._full:
            gains, _ = self._gaussian.gains(sigma)
            self._append(gains=gains)
        return lost

    def collect(self) -> AffineMaps:
        """All maps taken in."""
        buffers = {name: torch.stack(tensors) for name, tensors in self._levels.items()}
        if not self._full:
            buffers["eigvecs"] = self._gaussian.eigvecs.to(self._dtype)
        return AffineMaps(buffers)

    def _keep(self, fit: Fit, affine: Affine, sigma: float) -> float:
        if self._full:
            self._append(**{f"{fit}_weights": affine.weight, f"{fit}_biases": affine.bias})
            return 0.0
        rest = affine.weight.double() - self._gaussian.weight(sigma)
        left, right = _low_rank(rest, _STORED_RANK)
        self._append(**{f"{fit}_left": left, f"{fit}_right": right, f"{fit}_biases": affine.bias})
        return float((rest - left @ right.T).norm() / affine.weight.norm())

    def _append(self, **parts: Tensor) -> None:
        for name, tensor in parts.items():
            self._levels.setdefault(name, []).append(tensor.to(self._dtype))


def _low_rank(matrix: Float[Tensor, "d d"], rank: int) -> tuple[Float[Tensor, "d q"], Float[Tensor, "d q"]]:
    """Factors L Rᵀ of about the best approximation of given rank, by subspace iteration."""
    basis = leading_basis(matrix, rank, iterations=4)
    return basis, matrix.T @ basis


def leading_basis(matrix: Float[Tensor, "d d"], width: int, iterations: int) -> Float[Tensor, "d q"]:
    """About the span of as many leading left singular vectors, by subspace iteration from fixed probes."""
    probes = torch.randn(len(matrix), min(width, len(matrix)), generator=generator(0, "low rank"), dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(matrix @ probes.to(matrix)).Q
    for _ in range(iterations):
        basis, _ = torch.linalg.qr(matrix @ (matrix.T @ basis))
    return basis
