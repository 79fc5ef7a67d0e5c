"""Linear denoisers: at each of a few noise levels an affine map D(x; σ) = Wx + b, distilled from another denoiser.

Two fits come from one distillation. The *unshrunk* one is plain least squares; every comparison with a Gaussian uses it,
through `weight` and `bias`. The *prediction* fit is shrunk toward the Gaussian denoiser by as much as cross-validation
asks for; it predicts better from few calls, and it is what runs when the linear denoiser is called. Shrinkage assumes
what the comparison would test, so the two are never mixed.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Float
from ..atomic_files import load_tensors, save_tensors
from ..errors import CheckpointError, ConfigError
from ..precision import float32_products
from .maps import AffineMaps, Fit
from .protocol import check_input, expand_sigma

_KIND = "gausslens.linear"
_PER_LEVEL = ("sigmas", "fvu", "fvu_floor", "fvu_held_out", "weight_error_floor", "shrinkage", "truncation")
# Levels are told apart by ratio; a level that went through bfloat16 is still the same level.
_SAME_LEVEL = 2**-8


class LinearDenoiser(nn.Module):
    """A denoiser that is affine in x at each of its noise levels; made by `distill`.

    Attributes:
        sigmas: the noise levels, (s,).
        shape: the shape of one image.
        calls: network calls spent on each level.
        fvu: fraction of the denoiser's variance left unexplained by the prediction fit, out of sample, (s,). Judged by fits
            to half of the calls, it is too high below about ten calls a dimension.
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
        maps: AffineMaps,
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
        self.sigmas = sigmas
        self.shape = shape
        self.maps = maps
        self.calls = calls
        self.fvu = fvu
        self.fvu_floor = fvu_floor
        self.fvu_held_out = fvu_held_out
        self.weight_error = weight_error
        self.weight_error_floor = weight_error_floor
        self.shrinkage = shrinkage
        self.truncation = truncation
        self.history = history or []

    @property
    def dim(self) -> int:
        """The dimension d of one image."""
        return int(torch.Size(self.shape).numel())

    @property
    def has_unshrunk(self) -> bool:
        """Whether there were calls enough for an unshrunk fit at all, 2d + 2."""
        return self.maps.has("unshrunk")

    @property
    def enough_calls(self) -> bool:
        """Whether the unshrunk fit rests on at least ten calls a dimension, as a comparison with a Gaussian should."""
        return self.calls >= 10 * self.dim

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Wx + b of the prediction fit at the level(s) sigma.

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels out of `sigmas`, a number or (b,).

        Returns:
            The denoised images, (b, *shape), in x's dtype.

        Raises:
            ConfigError: if a level is none of `sigmas`.
        """
        return self._apply_fit("prediction", x, sigma)

    def unshrunk(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Wx + b of the unshrunk fit: a denoiser to compare with Gaussians, called as this one.

        Raises:
            ConfigError: if a level is none of `sigmas`, or there were too few calls for an unshrunk fit.
        """
        self._unshrunk()
        return self._apply_fit("unshrunk", x, sigma)

    def weight(self, sigma: float | Tensor) -> Float[Tensor, "d d"]:
        """The matrix W of the unshrunk fit.

        Args:
            sigma: one noise level out of `sigmas`.

        Returns:
            W, (d, d).

        Raises:
            ConfigError: if the level is none of `sigmas`, or there were too few calls for an unshrunk fit.
        """
        return self._unshrunk().weight("unshrunk", self._index(sigma)).clone()

    def bias(self, sigma: float | Tensor) -> Float[Tensor, "d"]:
        """The vector b of the unshrunk fit.

        Args:
            sigma: one noise level out of `sigmas`.

        Returns:
            The bias, (d,).

        Raises:
            ConfigError: if the level is none of `sigmas`, or there were too few calls for an unshrunk fit.
        """
        return self._unshrunk().bias("unshrunk", self._index(sigma)).clone()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a safetensors file, whole or not at all."""
        tensors = {f"weight_error.{name}": error for name, error in self.weight_error.items()}
        tensors |= {name: getattr(self, name) for name in _PER_LEVEL if getattr(self, name) is not None}
        save_tensors(
            path, tensors | self.state_dict(), kind=_KIND, shape=self.shape, calls=self.calls, history=self.history
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LinearDenoiser":
        """Read what `save` wrote.

        Args:
            path: the safetensors file.

        Returns:
            The linear denoiser, on the CPU.

        Raises:
            CheckpointError: if the file is missing, truncated or of another kind.
        """
        tensors, metadata = load_tensors(path, kind=_KIND)
        groups: dict[str, dict[str, Any]] = {"": {}, "maps": {}, "weight_error": {}}
        try:
            for name, tensor in tensors.items():
                group, _, member = name.rpartition(".")
                groups[group][member] = tensor
            return cls(
                shape=tuple(metadata["shape"]),
                maps=AffineMaps(groups["maps"]),
                calls=metadata["calls"],
                weight_error=groups["weight_error"],
                history=metadata["history"],
                **groups[""],
            )
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path} does not hold a linear denoiser this version can read ({error}). Distill and save again."
            ) from error

    def extra_repr(self) -> str:
        """What `repr` shows beside the maps."""
        levels = ", ".join(f"{sigma:g}" for sigma in self.sigmas.tolist())
        return f"shape={self.shape}, calls={self.calls}, sigmas=[{levels}]"

    def _apply_fit(self, fit: Fit, x: Tensor, sigma: float | Tensor) -> Tensor:
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        rows = x.flatten(1).to(self.maps.dtype)
        denoised = torch.empty_like(rows)
        with float32_products(x.device):
            for level in levels.unique().tolist():
                here = levels == level
                denoised[here] = self.maps(rows[here], fit, self._index(level))
        return denoised.to(x.dtype).reshape(x.shape)

    def _unshrunk(self) -> AffineMaps:
        if not self.has_unshrunk:
            raise ConfigError(
                f"an unshrunk fit in d = {self.dim} dimensions needs at least 2d + 2 = {2 * self.dim + 2} calls a noise "
                f"level, and 10d = {10 * self.dim} to be compared with a Gaussian; this one had {self.calls}. Distill "
                "with more calls."
            )
        return self.maps

    def _index(self, sigma: float | Tensor) -> int:
        distance = (self.sigmas.log() - torch.as_tensor(sigma).double().cpu().log()).abs()
        if not float(distance.min()) <= _SAME_LEVEL:  # so that NaN, of a level below 0, is none of them
            levels = ", ".join(f"{level:g}" for level in self.sigmas.tolist())
            raise ConfigError(
                f"this linear denoiser was fitted at sigma = {levels}; got {float(sigma):g}. Use one of them."
            )
        return int(distance.argmin())
