"""Axes: from values to places on a drawing, and the values that get a tick."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .figures import Real

_MARGIN = 0.04
_FEW_TICKS = 3


@dataclass(frozen=True)
class Scale:
    """The place of each value: `low` at `start`, `high` at `end`, and linear between them, or linear in the logarithm."""

    low: float  # the least value
    high: float  # the greatest
    start: float  # the place of the least
    end: float  # the place of the greatest
    log: bool = False  # whether places are linear in the logarithm

    def __call__(self, value: Real) -> float:
        """The place of a value."""
        low, high, value = (math.log10(part) if self.log else part for part in (self.low, self.high, value))
        return float(self.start + (value - low) / (high - low) * (self.end - self.start))

    def ticks(self) -> list[float]:
        """Round values from low to high: 1, 2 or 5 times powers of ten, few enough to label them all."""
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)


def fit_scale(values: NDArray[np.float64], start: float, end: float, *, log: bool = False) -> Scale:
    """A scale on which all values have a place, with a little room at both ends."""
    there = values[np.isfinite(values)]
    if not len(there):
        return Scale(1.0, 10.0, start, end, log) if log else Scale(0.0, 1.0, start, end)
    low, high = (float(np.log10(end)) if log else float(end) for end in (there.min(), there.max()))
    room = (high - low) * _MARGIN or (0.3 if log else abs(low) * 0.1 or 0.5)
    low, high = low - room, high + room
    return Scale(10.0**low, 10.0**high, start, end, log) if log else Scale(low, high, start, end)


def tick_text(value: Real) -> str:
    """A value as it is written at a tick."""
    return f"{value:.6g}".replace("-", "−")


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) >= _FEW_TICKS:
            return shown[:: math.ceil(len(shown) / 8)]
    return _linear_ticks(low, high)
