"""A claim of the paper: statistics of records, each compared with a threshold, and controls.

The claims are in the files of their studies (`paper/studies/`), with their texts, statistics and thresholds. This file has
the numbers that several share. A change of a threshold needs a dated entry in docs/log/.

A statistic is computed for each training seed and combined over seeds and images (see `inference`). A claim of several
statistics holds if all of them do: its p-value is the largest of theirs. It fails if any of them does: then its p-value is
the smallest, times their number. Gaps are in units of [-1, 1] pixels for the data in `PIXEL_UNITS`, and relative to the root
mean square of the data's pixels elsewhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from .evidence import Evidence, Measure, MissingError, Number
from .inference import ANY, Combined, Range, Real, combine, spearman, spearman_tails

PIXEL_UNITS = ("cifar10", "celeba", "celeba64", "ffhq", "ffhq64")

HIGH_NOISE, LOW_NOISE = 20.0, 0.1
"""Where the paper's high noise levels begin and its low ones end."""

CERTAIN_SEEDS = 3
"""Training seeds that must agree before a claim holds."""

PAPER_GENERALIZATION = 0.6
"""GL above which the paper calls a model generalising (Fig. 13); shown and not judged, as new real images may score less."""

SIGN = "our choice: the sign that the paper claims"
"""The source of most thresholds at 0."""


@dataclass(frozen=True)
class Threshold:
    """The bound, or the two bounds, of a statistic."""

    source: str  # the paper's figure, or why we chose it
    above: float | None = None  # the statistic must be above this
    below: float | None = None  # the statistic must be below this
    possible: Range = ANY  # the values that the statistic can have

    @property
    def level(self) -> float:
        """The one bound, for figures."""
        (level,) = (end for end in (self.above, self.below) if end is not None)
        return level

    def __str__(self) -> str:
        if self.above is not None and self.below is not None:
            return f"in ({self.above:.3g}, {self.below:.3g})"
        return f"> {self.above:.3g}" if self.above is not None else f"< {self.below:.3g}"


@dataclass(frozen=True)
class Statistic:
    """One number that a claim rests on."""

    name: str  # what it is
    threshold: Threshold  # what it must exceed or stay below
    value: float | None = None  # the estimate; None if records are missing
    # Ends of its 95 % interval over images and seeds (over images alone with one seed), not adjusted for how many claims are
    # judged; None if there is no interval.
    low: float | None = None
    high: float | None = None
    images: int | None = None  # images (or samples, or pairs) behind it at each seed; None if no record says
    seeds: int = 0  # training seeds behind it
    p_holds: float | None = None  # of the hypothesis that the threshold is not exceeded; None if there is no interval
    p_fails: float | None = None  # of the hypothesis that it is
    missing: str | None = None  # the records that are missing; None if none are
    seeded: bool = True  # whether it depends on training, so that seeds count

    @property
    def lacks(self) -> str | None:
        """What is missing for it to show that the claim holds, whatever its value; None if nothing is."""
        if self.missing is not None:
            return self.missing
        if self.seeded and self.seeds < CERTAIN_SEEDS:
            return f"{CERTAIN_SEEDS} training seeds needed, {self.seeds} found"
        return None if self.p_holds is not None else "no record has an interval"


@dataclass(frozen=True)
class Control:
    """A number that is shown with a claim and not judged."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Finding:
    """The numbers of a claim."""

    statistics: tuple[Statistic, ...]  # it is judged by these, at least one
    controls: tuple[Control, ...] = ()  # these are shown
    caveat: str | None = None  # what to keep in mind when the claim holds
    note: str | None = None  # what else the numbers say


Found: TypeAlias = Iterator[Statistic | Control | str]
"""What the function of a claim yields: its statistics, its controls, and what else to note."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, as the file of its study defines it."""

    name: str  # "C1" … "C21"
    text: str  # the claim in a sentence
    caveat: str | None
    function: Callable[[Evidence], Found]

    def find(self, evidence: Evidence) -> Finding:
        """What records say of it."""
        found = list(self.function(evidence))
        statistics = tuple(one for one in found if isinstance(one, Statistic))
        controls = tuple(one for one in found if isinstance(one, Control))
        return Finding(statistics, controls, self.caveat, next((one for one in found if isinstance(one, str)), None))


def claim(name: str, text: str, caveat: str | None = None) -> Callable[[Callable[[Evidence], Found]], Claim]:
    """Make a claim of the function below, which yields what records say of it; its docstring says which it reads."""
    return lambda function: Claim(name, text, caveat, function)


def statistic(name: str, threshold: Threshold, evidence: Evidence, measure: Measure) -> Statistic:
    """A statistic: a measure of each seed's records, combined over seeds."""
    try:
        combined, images = over_seeds(evidence, measure)
    except MissingError as error:
        return Statistic(name, threshold, missing=str(error))
    interval = combined.interval(threshold.possible)
    if interval is None:
        return Statistic(name, threshold, combined.value, images=images, seeds=combined.seeds)
    holds = [combined.p_above(threshold.above)] if threshold.above is not None else []
    holds += [1 - combined.p_above(threshold.below)] if threshold.below is not None else []
    fails = [1 - p for p in holds]
    p_fails = min(1.0, len(fails) * min(fails))
    return Statistic(name, threshold, combined.value, *interval, images, combined.seeds, max(holds), p_fails)


def rank_statistic(
    name: str, threshold: Threshold, evidence: Evidence, pairs: Callable[[Evidence], tuple[list[Real], list[Real]]]
) -> Statistic:
    """Spearman's correlation of two quantities, combined over seeds."""
    found: list[tuple[list[Real], list[Real]]] = []

    def measure(records: Evidence) -> Number:
        found.append(pairs(records))
        return Number(spearman(*found[-1]))

    result = statistic(name, threshold, evidence, measure)
    if result.p_holds is None or result.p_fails is None:
        return result
    upper, lower = spearman_tails(found)
    return replace(result, p_holds=max(result.p_holds, upper), p_fails=max(result.p_fails, lower))


def bound(name: str, threshold: Threshold, evidence: Evidence) -> Statistic:
    """The largest of exact numbers, without images, seeds or interval; the value itself is compared with the threshold."""
    if not len(evidence):
        return Statistic(name, threshold, missing="no record of it", seeded=False)
    value = max(float(record["value"]) for record in evidence.records)
    holds = threshold.below is not None and value <= threshold.below
    return Statistic(name, threshold, value, value, value, None, 0, float(not holds), float(holds), None, seeded=False)


def control(name: str, evidence: Evidence, measure: Measure, possible: Range = ANY) -> tuple[Control, ...]:
    """A control, with its interval cut to the possible values; none if its records are missing."""
    try:
        combined, _ = over_seeds(evidence, measure)
    except MissingError:
        return ()
    return (Control(name, combined.value, *(combined.interval(possible) or (None, None))),)


def over_seeds(evidence: Evidence, measure: Measure) -> tuple[Combined, int | None]:
    """A measure combined over the seeds whose records suffice, and the least number of images behind it."""
    numbers, reasons = [], []
    for records in evidence.seeds():
        try:
            numbers.append(measure(records))
        except MissingError as error:
            reasons.append(error)
    if not numbers:
        raise next(iter(reasons), MissingError("no record"))
    counts = [number.count for number in numbers if number.count is not None]
    combined = combine([number.value for number in numbers], [number.variance for number in numbers])
    return combined, min(counts, default=None)


def of_the_papers_images(evidence: Evidence) -> bool:
    """Whether records are of data to which the paper's thresholds apply, also under a name such as cifar10-long."""
    return any(str(record.get("data")).partition("-")[0] in PIXEL_UNITS for record in evidence.records)


def pixel_scale(evidence: Evidence) -> float:
    """What gaps are divided by: 1 for the paper's images, the data's RMS elsewhere."""
    if of_the_papers_images(evidence):
        return 1.0
    scale = evidence.where(quantity="data_rms").one().value
    if scale <= 0:
        raise MissingError("the data's RMS is 0, and gaps are divided by it")
    return scale


def unit_words(evidence: Evidence) -> str:
    """The unit of a gap, to end a name with; empty for the paper's images."""
    return "" if of_the_papers_images(evidence) else ", over the data's RMS"
