"""Measures of several claims: slopes, differences between the ends of a tag or between two curves, gaps in pixels; signs.

A study's window is where the multi-delta and the Gaussian denoiser differ; `InWindow` measures there.
"""

from collections.abc import Mapping
from functools import cached_property
from statistics import fmean
from typing import Any

from .claim import HIGH_NOISE, LOW_NOISE, SIGN, Threshold, pixel_scale
from .evidence import Evidence, Measure, MissingError, Number, mean_at, slope
from .inference import Real


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
    return lambda records: slope({value: measure(of) for value, of in records.by(tag).items()}, every_seed.by(tag))


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
        return curve.mean() - mean_at(records.where(**second).over("sigma"), [*curve.over("sigma")])

    return difference


def in_pixels(measure: Measure, evidence: Evidence) -> Measure:
    """A gap in the unit of the paper's images, or relative to the data's RMS elsewhere."""
    return lambda records: measure(records) / pixel_scale(evidence)


def window(memory_to_gaussian: Mapping[Real, Number]) -> list[Real]:
    """The noise levels at which the multi-delta and the Gaussian denoiser differ by more than half their largest difference.

    This window does not depend on any network.
    On held-out images the two also differ at the lowest noise, where every good denoiser returns its input. So only the
    paper's intermediate noise levels count, if any of the levels is one.
    """
    most = max(memory_to_gaussian.values()).value
    apart = [sigma for sigma, number in memory_to_gaussian.items() if number.value > most / 2]
    return [sigma for sigma in apart if LOW_NOISE <= sigma <= HIGH_NOISE] or apart


class InWindow:
    """RMSE(θ, G) in the window of a study, without records that have a `role`; G is gaussian or gaussian_full.

    The window is that of RMSE(M, G) on held-out images, on average over the study's training sets.
    """

    def __init__(self, evidence: Evidence, study: str, reference: str = "gaussian") -> None:
        self._controls = gaps_of(evidence, study).where(denoiser="multidelta", reference="gaussian")
        self._network = {"denoiser": "network", "reference": reference}
        found = evidence.where(study=study, quantity=("rmse", "memorized_fraction"), denoiser="network", role=None)
        self.studied = Evidence(found.records, (f"study {study}",), found.undone)

    @cached_property
    def sigmas(self) -> list[Real]:
        """The noise levels of the window."""
        levels = self._controls.by("sigma").items()
        return window({sigma: Number(fmean(r["value"] for r in group.records)) for sigma, group in levels})

    def mean(self, records: Evidence) -> Number:
        """The mean over the window, of the distances between two denoisers."""
        return mean_at(records.over("sigma"), self.sigmas)

    def over(self, records: Evidence, tag: str) -> dict[Real, Number]:
        """The mean over the window at each value of a tag, of one seed's records."""
        return {value: mean_at(group.over("sigma"), self.sigmas) for value, group in self._of(records).by(tag).items()}

    def slope(self, records: Evidence, tag: str) -> Number:
        """The slope of the mean on the logarithm of a tag, of one seed's records, over all values in the study."""
        return slope(self.over(records, tag), self._of(self.studied).by(tag))

    def _of(self, records: Evidence) -> Evidence:
        return records.where(quantity="rmse", on="held_out", **self._network)


def gaps_of(evidence: Evidence, study: str) -> Evidence:
    """The records of gaps, RMSE on held-out images, of the models that a study judges."""
    return evidence.where(study=study, quantity="rmse", on="held_out", role=None)
