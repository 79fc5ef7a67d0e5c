"""Networks that predict something other than the clean image, as denoisers.

A network that was trained on x_t = a·x0 + s·eps (see `schedules`) receives a·x and the time of σ. Its prediction
becomes D(x, σ), the estimate of x0:

| function | predicts | D(x, σ) |
|---|---|---|
| `from_x0` | x0 | F |
| `from_eps` | eps | x − σ·F |
| `from_v` | v = a·eps − s·x0 | (x − σ·F/a)/(1 + σ²) |
| `from_flow` | u = dx_t/dt = a′·x0 + s′·eps | (1 + σ·a_σ/a)·x − σ·F/(a·dσ/dt), a_σ = da/dσ |

On the linear flow u = eps − x0 (or x0 − eps, with the images at time 1) and the last line is D = a·x − s·F. All four are
exact: a network's best predictions of any kind, under squared error, give one and the same D.
"""

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from .._typing import Float, Sigma
from ..denoisers.preconditioned import scaled
from ..denoisers.protocol import check_classes, check_input, check_output, check_sigma_range, expand_sigma, may_look
from ..denoisers.schedules import Schedule, as_schedule, signal
from ..errors import ConfigError
from .model import declared_shape

Target: TypeAlias = Literal["x0", "eps", "v", "flow"]

_TOLERANCE = 2**-8  # of the ends of the range, which may have gone through bfloat16


class Converted(nn.Module):
    """D(x, σ) from a network F(a·x, t) or F(a·x, t, labels) that predicts x0, eps, v or the flow.

    Coefficients are computed in float64. The network is called in the dtype of its parameters, with the time (b,) in that
    dtype but at least float32, or in int64 for whole steps; its attributes `shape` and `classes`, if it has them, say what
    to expect of x and of labels. Outside `sigma_range`, which the schedule reaches, it was never trained, and a call raises.
    """

    def __init__(self, network: Any, target: Target, schedule: Schedule) -> None:
        super().__init__()
        if not callable(network):
            raise ConfigError(f"expected a network F(x, t), a function or module; got {type(network).__name__}.")
        self.network, self.target, self.schedule = network, target, schedule
        self.sigma_range = schedule.sigma_range
        if target == "flow":
            schedule.rate(torch.ones(1, dtype=torch.float64))  # raises now rather than at the first call

    def forward(self, x: Tensor, sigma: Sigma, labels: Any = None) -> Tensor:
        """Estimate x0 from x = x0 + σ·eps, (b, c, h, w), at noise levels within `sigma_range`, in x's dtype."""
        shape, classes = declared_shape(self.network)
        check_input(x, shape or (tuple(x.shape[1:]) if isinstance(x, Tensor) else ()))
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        levels = expand_sigma(sigma, wide).double()
        if may_look(levels):
            advice = "Stay within denoiser.sigma_range, as karras_sigmas(n, sigma_min, sigma_max) can."
            check_sigma_range(levels, self.sigma_range, _TOLERANCE, advice)
        scale = signal(self.schedule.scaling, levels)
        time = self.schedule.time(levels)
        parameters = self.network.parameters() if isinstance(self.network, nn.Module) else ()
        dtype = next((p.dtype for p in parameters if p.is_floating_point()), wide.dtype)
        predicted = self.network(
            scaled(scale, wide).to(dtype),
            time.to(torch.promote_types(dtype, torch.float32)) if time.is_floating_point() else time,
            *([] if labels is None else [check_classes(labels, x, classes)]),
        )
        keep, take = self._weights(levels, scale)
        prediction = check_output(predicted, x, "a network").to(wide.dtype)
        return (scaled(keep, wide) + scaled(take, prediction)).to(x.dtype)

    def _weights(self, sigma: Float[Tensor, "b"], scale: Float[Tensor, "b"]) -> tuple[Tensor, Tensor]:
        """D = keep·x + take·F."""
        if self.target == "x0":
            return torch.zeros_like(sigma), torch.ones_like(sigma)
        if self.target == "eps":
            return torch.ones_like(sigma), -sigma
        if self.target == "v":
            return 1 / (1 + sigma**2), -sigma / (scale * (1 + sigma**2))
        # 1 + σ·a_σ/a is a², 1 and a on the three scalings.
        keep = {"vp": scale**2, "ve": scale, "flow": scale}[self.schedule.scaling]
        return keep, -sigma / (scale * self.schedule.rate(sigma))


def from_eps(network: Any, schedule: Any = "vp") -> Converted:
    """The denoiser of a network that predicts the noise: D(x, σ) = x − σ·F(a·x, t).

    Args:
        network: F(x_t, t) or F(x_t, t, labels), a function or module.
        schedule: what it was trained with: "vp", "ve" or "flow", or one of `gausslens.denoisers.schedules`, for instance
            `Discrete.from_alphas(ᾱ)` for a DDPM.

    Returns:
        The denoiser.

    The noise that a single image x0 = 0 explains is x_t/s, and its denoiser answers 0:

    >>> denoiser = from_eps(lambda x, t: x / t.reshape(-1, 1, 1, 1), "ve")
    >>> float(denoiser(torch.randn(4, 1, 8, 8), 0.5).abs().max())
    0.0
    """
    return Converted(network, "eps", as_schedule(schedule))


def from_v(network: Any, schedule: Any = "vp") -> Converted:
    """The denoiser of a network that predicts v = a·eps − s·x0: D(x, σ) = (x − σ·F(a·x, t)/a)/(1 + σ²).

    Arguments are those of `from_eps`. Reference: Salimans, Ho (2022), arXiv:2202.00512, App. D.
    """
    return Converted(network, "v", as_schedule(schedule))


def from_x0(network: Any, schedule: Any = "vp") -> Converted:
    """The denoiser of a network that predicts the clean image: D(x, σ) = F(a·x, t); arguments are those of `from_eps`."""
    return Converted(network, "x0", as_schedule(schedule))


def from_flow(network: Any, schedule: Any = "flow") -> Converted:
    """The denoiser of a network that predicts the velocity u = dx_t/dt: on the linear flow D(x, σ) = x_t − t·F(x_t, t).

    Arguments are those of `from_eps`; the schedule is `LinearFlow(data_at=1)` where images are at time 1. The velocity is
    the derivative by t in [0, 1], whatever scale of time the network receives. Discrete vp and ve schedules, whose
    time has no speed, raise a ConfigError.
    """
    return Converted(network, "flow", as_schedule(schedule))
