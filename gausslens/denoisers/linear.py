"""Linear denoisers: at each of a few noise levels an affine map D(x; σ) = Wx + b, distilled from another denoiser.

Two fits come from one distillation. The *unshrunk* one is plain least squares; every comparison with a Gaussian uses it,
through `weight` and `bias`. The *prediction* fit is shrunk toward the Gaussian denoiser by an amount that cross-validation
chooses. It predicts better from few calls, and calling the linear denoiser uses it. Shrinkage assumes what a comparison
with a Gaussian would test, so the two are never mixed.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from .._typing import Float
from ..atomic_files import load_tensors, save_tensors
from ..errors import CheckpointError, require, reraise_as
from ..noise import generator
from ..precision import float32_products
from .composite import denoise_by, level_index
from .gaussian import GaussianDenoiser
from .protocol import check_input, expand_sigma
from .regression import Affine

_KIND = "gausslens.linear"
_PER_LEVEL = ("sigmas", "fvu", "fvu_floor", "fvu_held_out", "weight_error_floor", "shrinkage", "truncation")

# Above this dimension maps are kept as a Gaussian's plus factors of this rank, unless asked otherwise.
_FULL_DIM = 4096
_STORED_RANK = 256

Fit: TypeAlias = Literal["unshrunk", "prediction"]


class LinearDenoiser(nn.Module):
    """A denoiser that is affine in x at each of its noise levels; made by `distill`.

    Attributes:
        sigmas: the noise levels, (s,).
        shape: the shape of one image.
        calls: network calls spent on each level.
        fvu: fraction of the denoiser's variance left unexplained by the prediction fit, out of sample, (s,). It is
            measured on fits to half of the calls, and so is too high below about ten calls a dimension.
        fvu_floor: the part of `fvu` that is due to the finite number of calls, (s,); `fvu` − `fvu_floor` is about what no
            affine map explains.
        fvu_held_out: the fraction left unexplained on held-out images, (s,); None without them.
        weight_error: ‖W − W_G‖_F/‖W_G‖_F of the unshrunk fit by set of images: "distillation" and, where given, "train"
            and "held_out", each (s,). NaN with fewer than 2d + 2 calls, too few for an unshrunk fit, and if W_G = 0.
        weight_error_floor: the part of `weight_error` that is due to the finite number of calls, (s,): squares add. NaN
            with fewer than 4d + 4 calls.
        shrinkage: how far the prediction fit was shrunk, from 0 (least squares) to 1 (the Gaussian), (s,).
        truncation: ‖W − stored W‖_F/‖W‖_F of the unshrunk fit (if there is none, of the prediction fit) due to its low-rank
            form, (s,); 0 where W is stored whole. The numbers above are of the maps before truncation.
        history: for `method="adam"`, for each level a list of one record an epoch; else empty.
    """

    def __init__(
        self,
        sigmas: Float[Tensor, "s"],
        shape: tuple[int, ...],
        maps: "AffineMaps",
        *,
        calls: int,
        fvu: Float[Tensor, "s"],
        fvu_floor: Float[Tensor, "s"],
        weight_error: dict[str, Tensor],
        weight_error_floor: Float[Tensor, "s"],
        shrinkage: Float[Tensor, "s"],
        truncation: Float[Tensor, "s"],
        fvu_held_out: Float[Tensor, "s"] | None = None,
        history: list[list[dict[str, float]]] | None = None,
    ) -> None:
        super().__init__()
        self.sigmas, self.shape, self.maps, self.calls = sigmas, shape, maps, calls
        self.fvu, self.fvu_floor, self.fvu_held_out = fvu, fvu_floor, fvu_held_out
        self.weight_error, self.weight_error_floor = weight_error, weight_error_floor
        self.shrinkage, self.truncation, self.history = shrinkage, truncation, history or []

    @property
    def dim(self) -> int:
        """The dimension d of one image."""
        return int(torch.Size(self.shape).numel())

    @property
    def has_unshrunk(self) -> bool:
        """Whether there were enough calls for an unshrunk fit, 2d + 2."""
        return hasattr(self.maps, "unshrunk_biases")

    @property
    def enough_calls(self) -> bool:
        """Whether there were at least ten calls a dimension, as a comparison with a Gaussian needs."""
        return self.calls >= 10 * self.dim

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Wx + b of the prediction fit at the level(s) sigma, in x's dtype; see `Denoiser`.

        Raises:
            ConfigError: if a level is not among `sigmas`.
        """
        return self._apply_fit("prediction", x, sigma)

    def unshrunk(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Wx + b of the unshrunk fit: a denoiser to compare with Gaussians, called as this one.

        Raises:
            ConfigError: if a level is not among `sigmas`, or there were too few calls for an unshrunk fit.
        """
        return self._apply_fit("unshrunk", x, sigma)

    def weight(self, sigma: float | Tensor) -> Float[Tensor, "d d"]:
        """The matrix W of the unshrunk fit at one of its noise levels.

        Raises:
            ConfigError: if the level is not among `sigmas`, or there were too few calls for an unshrunk fit.
        """
        return self.maps.weight("unshrunk", self._level("unshrunk", sigma)).clone()

    def bias(self, sigma: float | Tensor) -> Float[Tensor, "d"]:
        """The vector b of the unshrunk fit at one of its noise levels.

        Raises:
            ConfigError: if the level is not among `sigmas`, or there were too few calls for an unshrunk fit.
        """
        return self.maps.bias("unshrunk", self._level("unshrunk", sigma)).clone()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a safetensors file, atomically."""
        tensors = {f"weight_error.{name}": error for name, error in self.weight_error.items()}
        tensors |= {name: getattr(self, name) for name in _PER_LEVEL if getattr(self, name) is not None}
        save_tensors(
            path, tensors | self.state_dict(), kind=_KIND, shape=self.shape, calls=self.calls, history=self.history
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LinearDenoiser":
        """Read what `save` wrote, on the CPU.

        Raises:
            CheckpointError: if the file is missing, truncated or of another kind.
        """
        tensors, metadata = load_tensors(path, kind=_KIND)
        groups: dict[str, dict[str, Any]] = {"": {}, "maps": {}, "weight_error": {}}
        what, errors = f"{path} does not hold a linear denoiser this version can read", (KeyError, TypeError)
        with reraise_as(CheckpointError, what, "Distill and save again.", errors):
            for name, tensor in tensors.items():
                group, _, member = name.rpartition(".")
                groups[group][member] = tensor
            settings: dict[str, Any] = {**groups[""], **metadata, "shape": tuple(metadata["shape"])}
            return cls(maps=AffineMaps(groups["maps"]), weight_error=groups["weight_error"], **settings)

    def extra_repr(self) -> str:
        """What `repr` shows in addition to the maps."""
        levels = ", ".join(f"{sigma:g}" for sigma in self.sigmas.tolist())
        return f"shape={self.shape}, calls={self.calls}, sigmas=[{levels}]"

    def _apply_fit(self, fit: Fit, x: Tensor, sigma: float | Tensor) -> Tensor:
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        rows = x.flatten(1).to(self.maps.get_buffer("prediction_biases").dtype)
        with float32_products(x.device):
            denoised = denoise_by(levels, rows, levels, lambda level: partial(self.maps, fit, self._level(fit, level)))
        return denoised.to(x.dtype).reshape(x.shape)

    def _level(self, fit: Fit, sigma: float | Tensor) -> int:
        """The index of a noise level of a fit; raises if there is no such fit or level."""
        require(
            fit == "prediction" or self.has_unshrunk,
            f"an unshrunk fit in d = {self.dim} dimensions needs at least 2d + 2 = {2 * self.dim + 2} calls a noise "
            f"level, and 10d = {10 * self.dim} to be compared with a Gaussian; this one had {self.calls}. Distill "
            "with more calls.",
        )
        return level_index(float(sigma), self.sigmas.tolist())


class AffineMaps(nn.Module):
    """The maps W x + b of each fit and noise level, kept whole or, where d is large, as a Gaussian's plus low rank.

        W = W                                        d² numbers a map
        W = U diag(g) Uᵀ + L Rᵀ                      2 d q numbers a map, and the principal components U once for all

    The Gaussian part g = λ/(λ+σ²) is exact; only the difference from it is cut to rank q. For each fit there are buffers
    `<fit>_biases` (s, d) and either `<fit>_weights` (s, d, d) or `<fit>_left` and `<fit>_right` (s, d, q); with factors also
    `eigvecs` (d, r) and `gains` (s, r).
    """

    def __init__(self, buffers: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)
        self._full = "eigvecs" not in buffers

    def weight(self, fit: Fit, level: int) -> Float[Tensor, "d d"]:
        """W of a fit at noise level number `level`."""
        if self._full:
            return self.get_buffer(f"{fit}_weights")[level]
        eigvecs, gains, left, right = self._factors(fit, level)
        return (eigvecs * gains) @ eigvecs.T + left @ right.T

    def bias(self, fit: Fit, level: int) -> Float[Tensor, "d"]:
        """The vector b of a fit at noise level number `level`."""
        return self.get_buffer(f"{fit}_biases")[level]

    def forward(self, fit: Fit, level: int, x: Float[Tensor, "b d"], _: Tensor) -> Float[Tensor, "b d"]:
        """W x + b of a fit at noise level number `level`."""
        if self._full:
            return torch.addmm(self.bias(fit, level), x, self.weight(fit, level).T)
        eigvecs, gains, left, right = self._factors(fit, level)
        return (x @ eigvecs * gains) @ eigvecs.T + (x @ right) @ left.T + self.bias(fit, level)

    def _factors(
        self, fit: Fit, level: int
    ) -> tuple[Float[Tensor, "d r"], Float[Tensor, "r"], Float[Tensor, "d q"], Float[Tensor, "d q"]]:
        gains, left, right = (self.get_buffer(name)[level] for name in ("gains", f"{fit}_left", f"{fit}_right"))
        return self.get_buffer("eigvecs"), gains, left, right


def level_maps(
    gaussian: GaussianDenoiser,
    sigma: float,
    prediction: Affine,
    unshrunk: Affine | None,
    full: bool | None,
    dtype: torch.dtype,
) -> tuple[dict[str, Tensor], float]:
    """What `AffineMaps` keeps of the fits at one noise level, and `LinearDenoiser.truncation` there.

    `gaussian` is what the fits are near, of moments without a floor; with `full` None, matrices are whole up to d = 4096.
    """
    whole = len(gaussian.mean) <= _FULL_DIM if full is None else full
    kept = {} if whole else {"gains": gaussian.gains(sigma)[0]}
    lost = 0.0
    for name, fit in (("prediction", prediction), ("unshrunk", unshrunk)):
        if fit is None:
            continue
        kept[f"{name}_biases"] = fit.bias
        if whole:
            kept[f"{name}_weights"] = fit.weight
            continue
        rest = fit.weight.double() - gaussian.weight(sigma)
        left = leading_basis(rest, _STORED_RANK, iterations=4)
        right = rest.T @ left
        kept |= {f"{name}_left": left, f"{name}_right": right}
        lost = float((rest - left @ right.T).norm() / fit.weight.norm())
    return {name: tensor.to(dtype) for name, tensor in kept.items()}, lost


def stack_maps(levels: list[dict[str, Tensor]], gaussian: GaussianDenoiser) -> AffineMaps:
    """The maps of all noise levels."""
    buffers = {name: torch.stack([level[name] for level in levels]) for name in levels[0]}
    if "gains" in buffers:
        buffers["eigvecs"] = gaussian.eigvecs.to(buffers["gains"].dtype)
    return AffineMaps(buffers)


def leading_basis(matrix: Float[Tensor, "d d"], width: int, iterations: int) -> Float[Tensor, "d q"]:
    """About the span of as many leading left singular vectors, by subspace iteration from fixed probes."""
    probes = torch.randn(len(matrix), min(width, len(matrix)), generator=generator(0, "low rank"), dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(matrix @ probes.to(matrix)).Q
    for _ in range(iterations):
        basis, _ = torch.linalg.qr(matrix @ (matrix.T @ basis))
    return basis
