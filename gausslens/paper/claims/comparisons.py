"""Measures of several claims: slopes, differences between the ends of a tag or between two curves, gaps in pixels; signs."""

from typing import Any

from .claim import SIGN, Threshold, pixel_scale
from .evidence import Evidence, Measure, MissingError, Number, mean_at, slope


def largest(evidence: Evidence, tag: str = "n") -> Any:
    """The largest value of a tag; None without any."""
    return max((record[tag] for record in evidence.records if record.get(tag) is not None), default=None)


def smallest(evidence: Evidence, tag: str = "n") -> Any:
    """The smallest."""
    return min((record[tag] for record in evidence.records if record.get(tag) is not None), default=None)


def positive(figure: str) -> Threshold:
    """Above 0, as the paper claims in a figure."""
    return Threshold(f"{SIGN} in {figure}", above=0.0)


def negative(figure: str) -> Threshold:
    """Below 0, likewise."""
    return Threshold(f"{SIGN} in {figure}", below=0.0)


def trend(tag: str, measure: Measure, every_seed: Evidence) -> Measure:
    """The slope of a measure on the logarithm of a tag, over all values that any seed has."""

    def of_seed(records: Evidence) -> Number:
        return slope({value: measure(group) for value, group in records.by(tag).items()}, every_seed.by(tag))

    return of_seed


def ends(records: Evidence, tag: str, every_seed: Evidence) -> tuple[Evidence, Evidence]:
    """One seed's records at the smallest and at the largest value of a tag, of those that any seed has."""
    values = [*every_seed.by(tag)]
    if len(values) < 2:
        raise MissingError(f"two values of {tag} are needed, 1 found")
    return records.where(**{tag: values[0]}), records.where(**{tag: values[-1]})


def first_minus_last(tag: str, measure: Measure, every_seed: Evidence) -> Measure:
    """A measure at the smallest value of a tag minus at the largest."""
    return lambda records: measure(ends(records, tag, every_seed)[0]) - measure(ends(records, tag, every_seed)[1])


def minus(first: dict[str, Any], second: dict[str, Any]) -> Measure:
    """The mean over noise levels of the curve with the first tags, minus that of the other at the same levels."""

    def difference(records: Evidence) -> Any:
        curve = records.where(**first)
        return curve.mean() - mean_at(records.where(**second).curve(), [*curve.curve()])

    return difference


def in_pixels(measure: Measure, evidence: Evidence) -> Measure:
    """A gap in the unit of the paper's images, or relative to the data's RMS elsewhere."""
    return lambda records: measure(records) / pixel_scale(evidence)
