"""Records as evidence: selecting them by tag, and computing with their values and errors.

A `Number` is a value with its error over images, propagated through sums, differences, logarithms and slopes to first order.
Records of one study are measured on the same images. An image that is hard for one model is hard for all, so errors are
assumed to be positively correlated. Then the error of a sum is at most the sum of the errors, and that of a difference at
most √(error² + error²). So a Number keeps apart the errors of the numbers that it rises with and of those it falls with.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from ...measures.intervals import NORMAL_QUANTILE
from ...store.records import Record
from .inference import Real


class MissingError(Exception):
    """Records that a claim needs are missing; the message says which."""


@dataclass(frozen=True)
class Number:
    """A value with its error over images."""

    value: float
    rising: float = 0.0  # sum of the errors of the numbers it rises with, each times its derivative
    falling: float = 0.0  # the same for the numbers it falls with
    count: int | None = None  # images behind it: the least of all its terms; None if no record says

    @property
    def variance(self) -> float:
        """The variance over images."""
        return self.rising**2 + self.falling**2

    def __lt__(self, other: "Number") -> bool:  # the least of several has its own error, which is rather too wide
        return self.value < other.value

    def __add__(self, other: "Number") -> "Number":
        return total((self, other))

    def __sub__(self, other: "Number") -> "Number":
        return self + other * -1

    def __mul__(self, factor: Real) -> "Number":
        rising, falling = self.rising * abs(factor), self.falling * abs(factor)
        if factor < 0:
            rising, falling = falling, rising
        return Number(self.value * factor, rising, falling, self.count)

    def __truediv__(self, other: "Number | Real") -> "Number":
        if not isinstance(other, Number):
            return self * (1 / other)
        if other.value == 0:
            raise MissingError("a value that is divided by is 0")
        ratio = self.value / other.value
        return replace(self * (1 / other.value) - other * (ratio / other.value), value=ratio)

    def log(self) -> "Number":
        """The natural logarithm."""
        if self.value <= 0:
            raise MissingError("a value whose logarithm is needed is not positive")
        return replace(self * (1 / self.value), value=math.log(self.value))


def total(numbers: Iterable[Number]) -> Number:
    """The sum."""
    terms = tuple(numbers)
    count = min((term.count for term in terms if term.count is not None), default=None)
    return Number(sum(t.value for t in terms), sum(t.rising for t in terms), sum(t.falling for t in terms), count)


def mean(numbers: Iterable[Number]) -> Number:
    """The mean of one or more numbers."""
    terms = tuple(numbers)
    return total(terms) / len(terms)


def slope(points: Mapping[Real, Number], sizes: Iterable[Real] = ()) -> Number:
    """The least-squares slope on the natural logarithm of a size.

    >>> round(slope({math.e: Number(1.0), math.e**2: Number(3.0)}).value, 12)
    2.0
    """
    absent = [size for size in sizes if size not in points]
    if absent:
        raise MissingError(f"no record at {absent[0]:g}, which other seeds have")
    if len(points) < 2:
        raise MissingError(f"at least 2 values are needed for a slope, {len(points)} found")
    logs = [math.log(size) for size in points]
    centre = sum(logs) / len(logs)
    scale = sum((x - centre) ** 2 for x in logs)
    return total(number * ((x - centre) / scale) for x, number in zip(logs, points.values(), strict=True))


class Evidence:
    """Records, which have a finite `value`, to be selected by their tags.

    For messages, `told` holds the selections so far, and `undone` the selected studies that have no record at all.
    """

    def __init__(self, records: Iterable[Record], told: tuple[str, ...] = (), undone: tuple[str, ...] = ()) -> None:
        self.records = list(records)
        self._told, self.undone = told, undone

    def __len__(self) -> int:
        return len(self.records)

    def where(self, **tags: Any) -> "Evidence":
        """The records with these tags; None also matches a missing tag, and a tuple matches any of its members."""
        kept, undone = self.records, self.undone
        for tag, wanted in tags.items():
            choices = wanted if isinstance(wanted, tuple) else (wanted,)
            kept = [record for record in kept if record.get(tag) in choices]
            if tag == "study":
                done = {record.get("study") for record in self.records}
                undone += tuple(study for study in choices if study not in done)
        told = tuple(_words(tag, wanted) for tag, wanted in tags.items() if wanted is not None)
        return Evidence(kept, self._told + told, undone)

    def at(self, low: Real = 0.0, high: Real = math.inf) -> "Evidence":
        """The records at noise levels low ≤ σ ≤ high."""
        told = (f"σ ≥ {low:g}" if high == math.inf else f"{low:g} ≤ σ ≤ {high:g}",)
        kept = [record for record in self.records if record.get("sigma") is not None and low <= record["sigma"] <= high]
        return Evidence(kept, self._told + told, self.undone)

    def by(self, tag: str) -> dict[Any, "Evidence"]:
        """The records that have the tag, grouped by its values in ascending order."""
        groups: dict[Any, list[Record]] = {}
        for record in self.records:
            if record.get(tag) is not None:
                groups.setdefault(record[tag], []).append(record)
        if not groups:
            raise self._missing(f" with {tag}")
        return {
            value: Evidence(groups[value], (*self._told, _words(tag, value)), self.undone) for value in sorted(groups)
        }

    def latest(self) -> Record:
        """The record after the longest training."""
        if not self.records:
            raise self._missing()
        return max(self.records, key=lambda record: record.get("kimg") or 0.0)

    def one(self) -> Number:
        """The number of the latest record."""
        return _number(self.latest())

    def over(self, tag: str) -> dict[Any, Number]:
        """The number at each value of a tag."""
        return {value: group.one() for value, group in self.by(tag).items()}

    def mean(self) -> Number:
        """The mean over noise levels."""
        return mean(self.over("sigma").values())

    def least(self) -> Number:
        """The smallest over noise levels."""
        return min(self.over("sigma").values())

    def greatest(self) -> Number:
        """The largest over noise levels."""
        return max(self.over("sigma").values())

    def names(self, tag: str) -> list[str]:
        """The values of a tag that holds names, sorted."""
        return sorted({str(record[tag]) for record in self.records if record.get(tag)})

    def seeds(self) -> list["Evidence"]:
        """The records of each training seed; records without a seed belong to all."""
        if all(record.get("seed") is None for record in self.records):
            return [self]
        return [self.where(seed=(seed, None)) for seed in self.by("seed")]

    def _missing(self, also: str = "") -> MissingError:
        if self.undone:
            return MissingError(f"no record of study {' or '.join(self.undone)}, which has not been done")
        return MissingError(f"no record of {', '.join(self._told) or 'any kind'}{also}")


def mean_at(curve: Mapping[Real, Number], sigmas: Sequence[Real]) -> Number:
    """The mean of a curve over these noise levels."""
    absent = [sigma for sigma in sigmas if sigma not in curve]
    if absent or not sigmas:
        raise MissingError(f"no record at sigma = {absent[0]:g}" if absent else "no noise level to average over")
    return mean(curve[sigma] for sigma in sigmas)


Measure = Callable[[Evidence], Number]
"""A statistic of one seed's records."""


def _number(record: Record) -> Number:
    low, high, count = record.get("low"), record.get("high"), record.get("count")
    error = (high - low) / (2 * NORMAL_QUANTILE) if is_finite(low) and is_finite(high) else 0.0
    return Number(float(record["value"]), error, 0.0, int(count) if is_finite(count) else None)


def _words(tag: str, value: object) -> str:
    choices = (
        " or ".join(str(choice) for choice in value if choice is not None) if isinstance(value, tuple) else str(value)
    )
    return choices if tag == "quantity" else f"{tag} {choices}"


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number; failed measurements have None or NaN."""
    return isinstance(value, int | float) and math.isfinite(value)
