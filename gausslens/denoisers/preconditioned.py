"""A network as a denoiser: D(x, σ) = c_skip(σ)·x + c_out(σ)·F(c_in(σ)·x, c_noise(σ)).

| kind | c_skip | c_out | c_in | c_noise |
|---|---|---|---|---|
| edm | σ_d²/(σ²+σ_d²) | σσ_d/√(σ²+σ_d²) | 1/√(σ²+σ_d²) | ln(σ)/4 |
| vp | 1 | −σ | 1/√(σ²+1) | 999·t(σ), with σ(t)² = exp(9.95t² + 0.1t) − 1 |
| ve | 1 | σ | 1 | ln(σ/2) |
| none | 0 | 1 | 1 | ln(σ)/4 |

With "none" the noise label is scaled as EDM's, since embeddings cannot resolve raw levels of 0.002 … 80.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._typing import Float, Sigma
from ..errors import check_choice, require
from .protocol import check_classes, check_input, expand_sigma
from .schedules import VP

_VP = VP(time_scale=999)
_LEAST_TIME = 1e-5  # of the VP process in training
_VE_RANGE = (0.02, 100.0)


class Coefficients(NamedTuple):
    """c_skip, c_out, c_in and c_noise at given noise levels, each of their shape."""

    skip: Tensor
    out: Tensor
    input: Tensor
    noise: Tensor


class Preconditioned(nn.Module):
    """D(x, σ) = c_skip(σ)·x + c_out(σ)·F(c_in(σ)·x, c_noise(σ)).

    Coefficients are computed in float32, or float64 for float64 images, whatever the network's precision.

    Args:
        network: F(x, noise), F(x, noise, labels) or F(x, noise, labels, augment), as `gausslens.nn.build_network` makes
            them, with the result in x's shape.
        kind: "edm", "vp", "ve", or "none", where the network is the denoiser.
        sigma_data: standard deviation σ_d of the data's pixels; used by "edm".

    Raises:
        ConfigError: if the kind is unknown or `sigma_data` is not positive.

    Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364, Table 1.
    """

    def __init__(self, network: nn.Module, kind: str = "edm", sigma_data: float = 0.5) -> None:
        super().__init__()
        check_choice("kind", kind, ("edm", "vp", "ve", "none"))
        require(
            0 < sigma_data < math.inf,
            f"sigma_data must be positive and finite; got {sigma_data}. Images in [-1, 1] have 0.5.",
        )
        self.network, self.kind, self.sigma_data = network, kind, sigma_data

    def forward(self, x: Tensor, sigma: Sigma, labels: Any = None, augment: Tensor | None = None) -> Tensor:
        """Estimate x0 from x = x0 + σ·eps, in x's dtype; see `Denoiser`. `augment` (b, k) is for networks that take it.

        In training mode the values of levels and labels are not checked, since every step would wait for the GPU's queue.

        Raises:
            DataError: if x or the labels do not fit the network.
        """
        known = getattr(self.network, "shape", None)
        check_input(x, known or (tuple(x.shape[1:]) if isinstance(x, Tensor) else ()))
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.training and isinstance(sigma, Tensor) and sigma.shape == x.shape[:1]:
            levels = sigma.to(wide)
        else:
            levels = expand_sigma(sigma, wide)
        skip, out, scale, noise = self.coefficients(levels)
        dtype = next((p.dtype for p in self.network.parameters() if p.is_floating_point()), wide.dtype)
        if labels is not None:
            labels = check_classes(labels, x, getattr(self.network, "classes", 0), look=not self.training)
        conditions = [labels, augment]
        while conditions and conditions[-1] is None:
            conditions.pop()  # a network without labels need not have the argument
        predicted: Tensor = self.network(scaled(scale, wide).to(dtype), noise.to(dtype), *conditions)
        return (scaled(skip, wide) + scaled(out, predicted.to(wide.dtype))).to(x.dtype)

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The least and the greatest noise level at which networks of this kind are trained; all for "edm" and "none"."""
        if self.kind == "vp":
            low, high = _VP.level(torch.tensor([_LEAST_TIME, 1.0], dtype=torch.float64)).tolist()
            return low, high
        return _VE_RANGE if self.kind == "ve" else (0.0, math.inf)

    def coefficients(self, sigma: Float[Tensor, "*levels"]) -> Coefficients:
        """c_skip, c_out, c_in and c_noise, in the dtype of `sigma`."""
        one = torch.ones_like(sigma)
        if self.kind == "edm":
            variance = sigma**2 + self.sigma_data**2
            return Coefficients(
                skip=self.sigma_data**2 / variance,
                out=sigma * self.sigma_data * variance.rsqrt(),
                input=variance.rsqrt(),
                noise=sigma.log() / 4,
            )
        if self.kind == "vp":
            return Coefficients(skip=one, out=-sigma, input=(sigma**2 + 1).rsqrt(), noise=_VP.time(sigma))
        if self.kind == "ve":
            return Coefficients(skip=one, out=sigma, input=one, noise=(sigma / 2).log())
        return Coefficients(skip=0 * one, out=one, input=one, noise=sigma.log() / 4)

    def loss_weight(self, sigma: Float[Tensor, "*levels"]) -> Float[Tensor, "*levels"]:
        """λ(σ), the weight of ‖D(x, σ) − x0‖² in training: 1/c_out², which makes the initial loss equal at all levels.

        For "edm" this is (σ²+σ_d²)/(σσ_d)², for "vp" and "ve" 1/σ², and for "none" 1.
        """
        return self.coefficients(sigma).out ** -2


def scaled(values: Float[Tensor, "b"], x: Tensor) -> Tensor:
    """A batch, each image times its number, in the batch's dtype."""
    return values.to(x.dtype).reshape(-1, *(1,) * (x.ndim - 1)) * x
