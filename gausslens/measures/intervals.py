"""Numbers with their 95 % intervals.

Every measure is a mean over independent units (images, image pairs, samples) y₁ … y_n, or a smooth function of such
means. The units are assumed independent and identically distributed, nothing more: per-image errors are skewed, so the
interval of a mean is the studentised bootstrap's. The resamples are multinomial counts, the same for every row of a
matrix of units, so that values at several noise levels are resampled jointly and everything is two matrix products.
The resampling seed is fixed: the same data give the same interval.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._typing import Float
from ..errors import ConfigError, DataError
from ..noise import generator

RESAMPLES = 2000

# Below, a resample too often repeats one unit; above, Student's interval agrees to a percent of its length.
_BOOTSTRAP_UNITS = range(8, 2000)

_NORMAL_QUANTILE = 1.959963984540054
_STUDENT_QUANTILES = (12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836, 2.446911851)


@dataclass(frozen=True)
class Estimate:
    """One number with its 95 % interval.

    Attributes:
        value: the estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        count: the number of independent units behind it.

    >>> print(Estimate(0.312, 0.290, 0.335, 100))
    0.312 [0.290, 0.335] (n=100)
    """

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.count})"


def mean_interval(
    per_unit: Float[Tensor, "*s n"],
) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"], Float[Tensor, "*s"]]:
    """Means over the last axis with their 95 % intervals.

    ȳ − q₉₇.₅·se … ȳ − q₂.₅·se,  se = s/√n, q the quantiles of (ȳ* − ȳ)/se* over resamples (bootstrap-t).
    With fewer than 8 units or at least 2,000, q are Student's quantiles instead.

    Args:
        per_unit: values of n ≥ 1 independent units, (*s, n); rows are resampled jointly.

    Returns:
        Values, lower and upper ends, each (*s). One unit has no interval: its ends are NaN. Rows without any spread
        have both ends at the value.

    Reference: Efron, Tibshirani (1993), An Introduction to the Bootstrap, §12.5.

    >>> y = torch.linspace(0, 1, 50, dtype=torch.float64) ** 4
    >>> value, low, high = mean_interval(y)
    >>> bool(high - value > value - low)  # skewed to the right, so it reaches further to the right
    True
    """
    n = per_unit.shape[-1]
    values = per_unit.double()
    mean = values.mean(-1)
    if n == 1:
        nothing = torch.full_like(mean, math.nan)
        return mean, nothing, nothing
    error = values.std(-1) / math.sqrt(n)
    lower, upper = (
        _studentized_quantiles(values - mean[..., None]) if n in _BOOTSTRAP_UNITS else _student_quantiles(mean, n)
    )
    return mean, mean - upper * error, mean - lower * error


def mean_estimate(per_unit: Tensor) -> Estimate:
    """The mean of one vector of independent units, with its 95 % interval (see `mean_interval`).

    Args:
        per_unit: values of n ≥ 1 units, (n,).

    Returns:
        The mean, its interval and n.

    Raises:
        DataError: if there is no unit.
    """
    if per_unit.ndim != 1 or len(per_unit) == 0:
        raise DataError(f"expected a vector of at least one unit's value; got shape {tuple(per_unit.shape)}.")
    value, low, high = mean_interval(per_unit)
    return Estimate(float(value), float(low), float(high), len(per_unit))


def proportion_estimate(successes: int, n: int) -> Estimate:
    """A proportion with Wilson's 95 % interval.

    (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n),  p = successes/n.

    Wilson's rather than Clopper and Pearson's: its coverage is 95 % on average over p, where theirs is at least 95 %
    for every p and so wider than needed; and it is still an interval, not a point, when none or all succeed.

    Args:
        successes: how many units have the property, 0 … n.
        n: how many units there are, at least 1.

    Returns:
        The proportion, its interval and n.

    Raises:
        ConfigError: if the counts cannot be.

    Reference: Wilson (1927), J. Am. Stat. Assoc. 22, 209 ff.

    >>> print(proportion_estimate(0, 100))
    0.000 [0.000, 0.037] (n=100)
    """
    if n < 1 or not 0 <= successes <= n:
        raise ConfigError(f"expected 0 <= successes <= n and n >= 1; got successes={successes}, n={n}.")
    p, z = successes / n, _NORMAL_QUANTILE
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # The ends are exactly 0 and 1 there; the formula rounds.
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == n else centre + reach
    return Estimate(p, low, high, n)


def bootstrap_counts(n: int, resamples: int = RESAMPLES) -> Float[Tensor, "resamples n"]:
    """How often each of n units appears in each resample of n units, in float64; the same at every call."""
    picks = torch.randint(n, (resamples, n), generator=generator(0, "bootstrap", n))
    return torch.zeros(resamples, n, dtype=torch.float64).scatter_add_(
        1, picks, torch.ones(picks.shape, dtype=torch.float64)
    )


def _studentized_quantiles(centred: Float[Tensor, "*s n"]) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
    n = centred.shape[-1]
    frequencies = bootstrap_counts(n).to(centred.device) / n
    scale = centred.abs().amax(-1, keepdim=True)
    unit = centred / scale.where(scale > 0, 1)
    mean = unit @ frequencies.T
    error = ((unit.square() @ frequencies.T - mean.square()).clamp_min(0) / (n - 1)).sqrt()
    # A resample of one value only says nothing about t.
    t = (mean / error).where(error > 0, 0)
    ends = torch.tensor([0.025, 0.975], dtype=t.dtype, device=t.device)
    lower, upper = torch.quantile(t, ends, dim=-1)
    return lower, upper


def _student_quantiles(like: Float[Tensor, "*s"], n: int) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
    quantile = torch.full_like(like, student_quantile(n - 1))
    return -quantile, quantile


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: tabulated up to 6 degrees of freedom, Cornish and Fisher's series above."""
    if freedom <= len(_STUDENT_QUANTILES):
        return _STUDENT_QUANTILES[freedom - 1]
    z = _NORMAL_QUANTILE
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))
