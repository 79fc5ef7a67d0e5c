"""A measured quantity at every noise level, with intervals, differences and extremes.

A measure at noise level σ is a mean over n independent units: images, or pairs of images. A curve keeps the value of
every unit at every σ. All noise levels have the same units and, with the same images and seed, so have all denoisers.
Differences are therefore taken unit by unit, where shared variation cancels, and extremes over σ are found again in every
resample of the units.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._typing import Float, Sigmas
from ..errors import require
from ..noise import as_sigmas
from .intervals import Estimate, mean_interval, minimum_interval

_DIFFERENCE = ", difference"


@dataclass(frozen=True)
class Conditions:
    """What two curves must share so that their units are paired."""

    metric: str
    inputs: str  # "images", "pairs of images" or "pairs of noise"
    seed: int  # of the noise and of the choice of images
    draws: int  # noisy inputs, or pairs of them
    content: str  # digest of the images (for pure noise, their shape) and labels


@dataclass(frozen=True)
class Extremum(Estimate):
    """The least or greatest value of a curve with its 95 % interval; `sigma` is the noise level where it is reached."""

    sigma: float

    def __str__(self) -> str:
        return f"{super().__str__()} at σ={self.sigma:.4g}"


@dataclass(frozen=True, eq=False, repr=False)
class Curve:
    """Values at noise levels σ_1 … σ_s, each a mean over the same n units, with 95 % intervals.

    `a - b` of curves with the same metric, images, noise and noise levels is the curve of paired differences.

    Attributes:
        sigmas: the noise levels, (s,).
        values: the measure at each, (s,).
        low: lower ends of the intervals, (s,).
        high: upper ends of the intervals, (s,).
        per_image: the value of each unit, (s, n); the mean of a row is `values`. For explained variance, a ratio of
            sums, a unit's value is the ratio plus the unit's influence on it (see `ratio_interval`).
        conditions: what was measured on which inputs.
        span: least and greatest value the measure can have.

    >>> import torch
    >>> conditions = Conditions("rmse", "images", 0, 4, "digest")
    >>> a = Curve.of_means([2.0, 1.0], torch.tensor([[1.0, 3.0, 9.0, 4.0], [0.5, 2.0, 7.0, 3.0]]), conditions)
    >>> b = Curve.of_means([2.0, 1.0], a.per_image - 1, conditions)
    >>> print(a - b)  # image by image exactly 1, whatever the spread between images
    rmse, difference; 4 images, seed 0
         sigma      value        low       high
             2          1          1          1
             1          1          1          1
    >>> print(a.minimum())
    3.125 [-1.271, 7.522] (n=4) at σ=1
    """

    sigmas: Float[Tensor, "s"]
    values: Float[Tensor, "s"]
    low: Float[Tensor, "s"]
    high: Float[Tensor, "s"]
    per_image: Float[Tensor, "s n"]
    conditions: Conditions
    span: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of_means(
        cls,
        sigmas: Sigmas,
        per_image: Float[Tensor, "s n"],
        conditions: Conditions,
        span: tuple[float, float] = (-math.inf, math.inf),
    ) -> "Curve":
        """The curve of the units' means, with the intervals of `mean_interval` clipped to `span`."""
        values, low, high = mean_interval(per_image)
        return cls(as_sigmas(sigmas), values, low.clamp(*span), high.clamp(*span), per_image.double(), conditions, span)

    @property
    def count(self) -> int:
        """The number of independent units: images, or pairs of images."""
        return self.per_image.shape[1]

    def minimum(self) -> Extremum:
        """The least value over σ; for its interval see `minimum_interval`."""
        return self._extremum(1)

    def maximum(self) -> Extremum:
        """The greatest value over σ; for its interval see `minimum_interval`."""
        return self._extremum(-1)

    def __sub__(self, other: "Curve") -> "Curve":
        ours, theirs = (vars(curve.conditions) | {"sigmas": curve.sigmas.tolist()} for curve in (self, other))
        differing = [f"{name} ({ours[name]} and {theirs[name]})" for name in ours if ours[name] != theirs[name]]
        require(
            not differing,
            "a - b pairs curves unit by unit, so both must have the same metric, images, noise and noise levels; "
            f"these differ in {', '.join(differing)}. Measure both with the same images, sigmas, count and seed.",
        )
        metric = self.conditions.metric.removesuffix(_DIFFERENCE) + _DIFFERENCE
        return Curve.of_means(self.sigmas, self.per_image - other.per_image, replace(self.conditions, metric=metric))

    def __repr__(self) -> str:
        lines = [
            f"{self.conditions.metric}; {self.count} {self.conditions.inputs}, seed {self.conditions.seed}",
            f"{'sigma':>10} {'value':>10} {'low':>10} {'high':>10}",
        ]
        for row in zip(self.sigmas.tolist(), self.values.tolist(), self.low.tolist(), self.high.tolist(), strict=True):
            lines.append(" ".join(f"{number:>10.4g}" for number in row))
        return "\n".join(lines)

    def _extremum(self, sign: int) -> Extremum:
        row, value, low, high = minimum_interval(sign * self.per_image)
        ends = torch.tensor(sorted((sign * low, sign * high)), dtype=torch.float64).clamp(*self.span)
        low, high = (ends + 0.0).tolist()  # the sign may have made 0 into -0
        return Extremum(sign * value + 0.0, low, high, self.count, float(self.sigmas[row]))
