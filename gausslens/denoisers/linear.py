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
from ..errors import CheckpointError, ConfigError
from ..storage import load_tensors, save_tensors
from .protocol import check_input, expand_sigma

_KIND = "gausslens.linear"
# Levels are told apart by ratio; a float32 copy of a level is the same level.
_SAME_LEVEL = 1e-4


class AffineMaps(nn.Module):
    """Affine maps W_i x + b_i, i < s, with W_i = weights_i or W_i = base_i + left_i right_iᵀ.

    The second form is for large d: base_i = U diag(g_i) Uᵀ + floor_i (I − U Uᵀ) is a Gaussian denoiser's matrix, whose U
    all levels share, and the rest is of low rank.

    Args:
        buffers: `biases` (s, d) and either `weights` (s, d, d) or `left`, `right` (s, d, q), `eigvecs` (d, r), `gains` (s, r)
            and `floor_gains` (s,).
    """

    def __init__(self, buffers: dict[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def weight(self, index: int) -> Float[Tensor, "d d"]:
        """W_i."""
        if hasattr(self, "weights"):
            return self._buffer("weights")[index]
        eigvecs, gains, floor = (
            self._buffer("eigvecs"),
            self._buffer("gains")[index],
            self._buffer("floor_gains")[index],
        )
        weight = (eigvecs * (gains - floor)) @ eigvecs.T + self._buffer("left")[index] @ self._buffer("right")[index].T
        weight.diagonal().add_(floor)
        return weight

    def bias(self, index: int) -> Float[Tensor, "d"]:
        """b_i."""
        return self._buffer("biases")[index]

    def forward(self, x: Float[Tensor, "b d"], index: int) -> Float[Tensor, "b d"]:
        """W_i x + b_i."""
        if hasattr(self, "weights"):
            return torch.addmm(self.bias(index), x, self._buffer("weights")[index].T)
        eigvecs, gains, floor = (
            self._buffer("eigvecs"),
            self._buffer("gains")[index],
            self._buffer("floor_gains")[index],
        )
        gaussian = floor * x + ((gains - floor) * (x @ eigvecs)) @ eigvecs.T
        return gaussian + (x @ self._buffer("right")[index]) @ self._buffer("left")[index].T + self.bias(index)

    def _buffer(self, name: str) -> Tensor:
        return self.get_buffer(name)


class LinearDenoiser(nn.Module):
    """A denoiser that is affine in x at each of its noise levels; made by `distill`.

    Attributes:
        sigmas: the noise levels, (s,).
        calls: network calls spent on each level.
        fvu: fraction of the denoiser's variance left unexplained by the prediction fit, out of sample, (s,).
        fvu_floor: the part of `fvu` that is due to the finite number of calls, (s,).
        fvu_held_out: the same fraction on held-out images, (s,); None without them.
        weight_error: ‖W − W_G‖_F/‖W_G‖_F of the unshrunk fit by set of images: "distillation" and, where given, "train"
            and "held_out", each (s,). NaN where there were too few calls for an unshrunk fit.
        weight_error_floor: the part of `weight_error` (in squares) that is due to the finite number of calls, (s,).
        shrinkage: how far the prediction fit was shrunk, from 0 (least squares) to 1 (the Gaussian), (s,).
        truncation: relative Frobenius error of the stored low-rank form of the unshrunk W, (s,); 0 where W is stored full.
        history: for `method="adam"`, per level a list of one record an epoch; else empty.
    """

    sigmas: Tensor

    def __init__(
        self,
        sigmas: Float[Tensor, "s"],
        shape: tuple[int, ...],
        unshrunk: AffineMaps | None,
        prediction: AffineMaps,
        *,
        calls: int,
        fvu: Float[Tensor, "s"],
        fvu_floor: Float[Tensor, "s"],
        weight_error: dict[str, Tensor],
        weight_error_floor: Float[Tensor, "s"],
        shrinkage: Float[Tensor, "s"],
        truncation: Float[Tensor, "s"],
        fvu_held_out: Tensor | None = None,
        history: list[list[dict[str, float]]] | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self._unshrunk = unshrunk
        self._prediction = prediction
        self.sigmas = sigmas
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
        """
        check_input(x, self.shape)
        levels = expand_sigma(sigma, x)
        rows = x.flatten(1).to(self._prediction.bias(0).dtype)
        denoised = torch.empty_like(rows)
        for level in levels.unique().tolist():
            here = levels == level
            denoised[here] = self._prediction(rows[here], self._index(level))
        return denoised.to(x.dtype).reshape(x.shape)

    def weight(self, sigma: float) -> Float[Tensor, "d d"]:
        """W of the unshrunk fit at a level."""
        return self._comparison().weight(self._index(sigma))

    def bias(self, sigma: float) -> Float[Tensor, "d"]:
        """b of the unshrunk fit at a level."""
        return self._comparison().bias(self._index(sigma))

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
        groups: dict[str, dict[str, Tensor]] = {"_unshrunk": {}, "_prediction": {}, "weight_error": {}}
        single: dict[str, Any] = {}
        for name, tensor in tensors.items():
            group, _, rest = name.partition(".")
            if rest and group in groups:
                groups[group][rest] = tensor
            else:
                single[name] = tensor
        try:
            return cls(
                single.pop("sigmas"),
                tuple(metadata["shape"]),
                AffineMaps(groups["_unshrunk"]) if groups["_unshrunk"] else None,
                AffineMaps(groups["_prediction"]),
                calls=metadata["calls"],
                weight_error=groups["weight_error"],
                history=metadata["history"],
                **single,
            )
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not hold a linear denoiser this version can read ({error}).") from error

    def _comparison(self) -> AffineMaps:
        if self._unshrunk is None:
            raise ConfigError(
                f"an unshrunk fit in {self.dim} dimensions needs more than {self.dim + 1} calls a noise level, and "
                f"{10 * self.dim} to be compared with a Gaussian; this one had {self.calls}. Distill with more calls."
            )
        return self._unshrunk

    def _index(self, sigma: float | Tensor) -> int:
        distance = (self.sigmas.double().log() - torch.as_tensor(sigma).double().log().cpu()).abs()
        if float(distance.min()) > _SAME_LEVEL:
            levels = ", ".join(f"{level:g}" for level in self.sigmas.tolist())
            raise ConfigError(
                f"this linear denoiser was fitted at sigma = {levels}; got {float(sigma):g}. Use one of them."
            )
        return int(distance.argmin())


_PER_LEVEL = ("sigmas", "fvu", "fvu_floor", "fvu_held_out", "weight_error_floor", "shrinkage", "truncation")
