"""Noise schedules x_t = a(t)·x0 + s(t)·eps of other people's networks, as functions of the noise level σ = s/a.

Dividing by a(t) gives x_t/a = x0 + σ·eps, so a schedule consists of two things. Its scaling is a as a function of σ:

    variance preserving  a = 1/√(1 + σ²)           variance exploding  a = 1           linear flow  a = 1/(1 + σ)

Its clock is the time t(σ) that the network takes as input. `rate` is dσ/dt, for networks that predict the derivative of
x_t by t. Levels and times are float64, (b,). `sigma_range` has the smallest and the largest σ of the schedule.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from .._typing import Float
from ..errors import ConfigError, check_choice, require
from ..images import content_hash


@dataclass(frozen=True)
class VP:
    """The variance-preserving diffusion in continuous time: σ(t)² = exp((β_max − β_min)t²/2 + β_min·t) − 1, t in [0, 1].

    Attributes:
        beta_min: β at t = 0, positive.
        beta_max: β at t = 1, above `beta_min`.
        time_scale: the network's input is time_scale·t; 999 for networks that count the steps of the discrete process.

    Reference: Song, Sohl-Dickstein, Kingma, Kumar, Ermon, Poole (2021), arXiv:2011.13456, Eq. (32).
    """

    scaling: ClassVar[str] = "vp"
    beta_min: float | int = 0.1
    beta_max: float | int = 20.0
    time_scale: float | int = 1.0

    def __post_init__(self) -> None:
        require(
            0 < self.beta_min < self.beta_max < math.inf,
            f"expected 0 < beta_min < beta_max; got {self.beta_min} and {self.beta_max}.",
        )

    @property
    def sigma_range(self) -> tuple[float, float]:
        """From t = 0 to t = 1."""
        return 0.0, float(self.level(torch.ones((), dtype=torch.float64)))

    def level(self, time: Float[Tensor, "*times"]) -> Float[Tensor, "*times"]:
        """σ(t), the inverse of `clock`."""
        return ((self.beta_max - self.beta_min) * time.square() / 2 + self.beta_min * time).expm1().sqrt()

    def time(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """time_scale·t(σ), (b,)."""
        return self.time_scale * self.clock(sigma)

    def clock(self, sigma: Float[Tensor, "*levels"]) -> Float[Tensor, "*levels"]:
        """t(σ), in the dtype of σ."""
        slope = self.beta_max - self.beta_min
        # Rounded step by step as in the networks published with it: Fourier features of 999·t magnify what differs.
        return ((self.beta_min**2 + 2 * slope * (1 + sigma**2).log()).sqrt() - self.beta_min) / slope

    def rate(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """dσ/dt = (1 + σ²)·β(t)/(2σ), (b,)."""
        beta = self.beta_min + (self.beta_max - self.beta_min) * self.clock(sigma)
        return (1 + sigma**2) * beta / (2 * sigma)


@dataclass(frozen=True)
class VE:
    """Variance exploding: x = x0 + σ·eps as it is.

    Attributes:
        sigma_min: σ at t = 0 of the geometric clock σ(t) = σ_min·(σ_max/σ_min)^t; None: the network's input is σ itself.
        sigma_max: σ at t = 1 of that clock; None if `sigma_min` is.

    Reference: Song, Sohl-Dickstein, Kingma, Kumar, Ermon, Poole (2021), arXiv:2011.13456, Eq. (31).
    """

    scaling: ClassVar[str] = "ve"
    sigma_min: float | int | None = None
    sigma_max: float | int | None = None

    def __post_init__(self) -> None:
        low, high = self.sigma_min, self.sigma_max
        if not (low is None and high is None) and (low is None or high is None or not 0 < low < high < math.inf):
            raise ConfigError(f"expected 0 < sigma_min < sigma_max, or neither of them; got {low} and {high}.")

    @property
    def sigma_range(self) -> tuple[float, float]:
        """From `sigma_min` to `sigma_max`, or all levels."""
        return float(self.sigma_min or 0), float(self.sigma_max or math.inf)

    def time(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """σ, or t of the geometric clock, (b,)."""
        return sigma if self.sigma_min is None else (sigma / self.sigma_min).log() / self._log_ratio

    def rate(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """1, or σ·ln(σ_max/σ_min) of the geometric clock, (b,)."""
        return torch.ones_like(sigma) if self.sigma_min is None else sigma * self._log_ratio

    @property
    def _log_ratio(self) -> float:
        low, high = self.sigma_range
        return math.log(high / low)


@dataclass(frozen=True)
class LinearFlow:
    """The straight line between image and noise: x_t = (1 − t)·x0 + t·eps, or with the images at 1, t·x0 + (1 − t)·eps.

    Attributes:
        data_at: the time of the clean images, 0 or 1.
        time_scale: the network's input is time_scale·t; often 1000.

    Reference: Liu, Gong, Liu (2022), arXiv:2209.03003; Lipman, Chen, Ben-Hamu, Nickel, Le (2022), arXiv:2210.02747.
    """

    scaling: ClassVar[str] = "flow"
    data_at: int = 0
    time_scale: float | int = 1.0

    def __post_init__(self) -> None:
        require(self.data_at in (0, 1), f"data_at must be 0 or 1, the time of the clean images; got {self.data_at!r}.")

    @property
    def sigma_range(self) -> tuple[float, float]:
        """All levels: σ = t/(1 − t)."""
        return 0.0, math.inf

    def time(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """time_scale·σ/(1 + σ), or with the images at 1, time_scale/(1 + σ), (b,)."""
        return self.time_scale * (1 if self.data_at else sigma) / (1 + sigma)

    def rate(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """±(1 + σ)², (b,)."""
        return (1 + sigma) ** 2 * (-1 if self.data_at else 1)


class Discrete:
    """A table of noise levels: at step i = 0 … n − 1 the network's input is i.

    Between two levels the input is the fraction that is linear in ln σ, as networks with sinusoidal embeddings take it.
    With `rounded` it is the nearest step, as an integer, for networks that look steps up in a table.

    Args:
        sigmas: the levels σ_i, (n,), n ≥ 2, positive and strictly ascending; from ᾱ by `Discrete.from_alphas`.
        scaling: "vp", "ve" or "flow".
        rounded: whole steps only.

    Raises:
        ConfigError: if the levels do not ascend or the scaling is unknown.
    """

    _SNAP = 1e-3  # levels that differ by rounding from a level of the table are that level

    def __init__(self, sigmas: Any, scaling: str = "vp", *, rounded: bool = False) -> None:
        levels = torch.as_tensor(sigmas, dtype=torch.float64).detach().cpu()
        check_choice("scaling", scaling, ("vp", "ve", "flow"))
        is_vector = levels.ndim == 1 and len(levels) >= 2
        require(
            is_vector and bool((levels > 0).all() & levels.isfinite().all() & (levels.diff() > 0).all()),
            "expected at least 2 noise levels, (n,), positive, finite and strictly ascending with the step; "
            f"got shape {tuple(levels.shape)}, first {levels.flatten()[:3].tolist()}.",
        )
        self.sigmas, self.scaling, self.rounded = levels, scaling, rounded
        self._logs = {torch.device("cpu"): levels.log()}

    @classmethod
    def from_alphas(cls, alphas_cumprod: Any, *, rounded: bool = False) -> "Discrete":
        """The variance-preserving process with a² = ᾱ_i at step i.

        Args:
            alphas_cumprod: ᾱ, (n,), descending within [0, 1]; steps at the end without any signal, ᾱ = 0, are left
                out, since no σ is large enough for them.
            rounded: whole steps only.

        Raises:
            ConfigError: if ᾱ does not descend within [0, 1).
        """
        squares = torch.as_tensor(alphas_cumprod, dtype=torch.float64).detach().cpu()
        return cls(((1 - squares) / squares)[squares != 0].sqrt(), rounded=rounded)

    def __repr__(self) -> str:
        steps = "whole steps" if self.rounded else "steps"
        return f"Discrete({len(self.sigmas)} {steps}, {self.scaling}, {content_hash(self.sigmas)[:16]})"

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The first and the last level."""
        return float(self.sigmas[0]), float(self.sigmas[-1])

    def time(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """The step of each σ, (b,), with a fraction or an integer."""
        if sigma.device not in self._logs:  # copied once, since a copy waits for the device's queue
            self._logs[sigma.device] = self.sigmas.log().to(sigma.device)
        logs = self._logs[sigma.device]
        wanted = sigma.log().clamp(logs[0], logs[-1])
        below = (torch.searchsorted(logs, wanted, right=True) - 1).clamp(0, len(logs) - 2)
        step = below + (wanted - logs[below]) / (logs[below + 1] - logs[below])
        nearest = step.round()
        if self.rounded:
            return nearest.long()
        return torch.where((step - nearest).abs() < self._SNAP, nearest, step)

    def rate(self, sigma: Float[Tensor, "b"]) -> Tensor:
        """(1 + σ)² on the linear flow; unknown for a table of other levels."""
        require(
            self.scaling == "flow",
            f"a flow field on a discrete {self.scaling} schedule has no known speed dσ/dt. "
            "Use the schedule in continuous time, VP or VE, or scaling='flow'.",
        )
        return (1 + sigma) ** 2


Schedule: TypeAlias = VP | VE | LinearFlow | Discrete


def as_schedule(schedule: Any) -> Schedule:
    """A schedule by name ("vp", "ve", "flow": with default settings, in continuous time) or as it is."""
    named = {"vp": VP(), "ve": VE(), "flow": LinearFlow()}
    found = named.get(schedule) if isinstance(schedule, str) else schedule
    if not isinstance(found, Schedule):
        raise ConfigError(
            f"schedule must be one of {', '.join(named)}, or a schedule of gausslens.denoisers.schedules; got "
            f"{schedule!r:.80}. A table of ᾱ becomes a schedule with Discrete.from_alphas."
        )
    return found


def signal(scaling: str, sigma: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    """a(σ) of a scaling."""
    if scaling == "vp":
        return (1 + sigma**2).rsqrt()
    return torch.ones_like(sigma) if scaling == "ve" else 1 / (1 + sigma)
