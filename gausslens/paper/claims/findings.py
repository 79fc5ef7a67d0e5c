"""What a claim finds in the records: statistics against thresholds, controls beside them, and what to keep in mind.

A statistic is computed for each training seed and combined over seeds and images (see `inference`). A claim of several
statistics holds if all do (the largest of their p-values counts), and does not hold if any does not (the smallest counts,
times how many there are).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .evidence import Evidence, Measure, MissingError, Number
from .inference import Combined, Real, combine, spearman, spearman_tails
from .thresholds import ANY, CERTAIN_SEEDS, PIXEL_UNITS, Range, Threshold


@dataclass(frozen=True)
class Statistic:
    """One number that a claim rests on."""

    name: str  # what it is
    threshold: Threshold  # what it must exceed or stay below
    value: float | None = None  # the estimate; None where records are missing
    # lower end of its 95 % interval over images and seeds (images alone with one seed), not adjusted for how many
    # claims are judged; None where there is no interval.
    low: float | None = None
    high: float | None = None  # its upper end
    # how many images (or samples, or pairs) are behind it at each seed; None where no record says.
    images: int | None = None
    seeds: int = 0  # how many training seeds
    # p-value of the hypothesis that the threshold is not exceeded; None where there is no interval.
    p_holds: float | None = None
    p_fails: float | None = None  # p-value of the hypothesis that it is
    missing: str | None = None  # which records it would need; None where they are there
    seeded: bool = True  # whether training has a part in it, so that seeds count

    @property
    def lacks(self) -> str | None:
        """What keeps it from showing that the claim holds, whatever its value; None if nothing does."""
        if self.missing is not None:
            return self.missing
        if self.seeded and self.seeds < CERTAIN_SEEDS:
            return f"{CERTAIN_SEEDS} training seeds needed, {self.seeds} found"
        return None if self.p_holds is not None else "no record has an interval"


@dataclass(frozen=True)
class Control:
    """A number that is shown beside a claim and not judged."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Finding:
    """All that a claim finds."""

    statistics: tuple[Statistic, ...]  # what it is judged by, at least one
    controls: tuple[Control, ...] = ()  # what is shown beside it
    caveat: str | None = None  # what to keep in mind when it holds
    note: str | None = None  # what else the numbers say


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, as the file of its study defines it."""

    name: str  # "C1" … "C21"
    text: str  # the claim in a sentence
    find: Callable[[Evidence], Finding]  # what records say of it; its docstring says which it reads


def claim(name: str, text: str) -> Callable[[Callable[[Evidence], Finding]], Claim]:
    """Make a claim of the function below, which says what records find."""
    return lambda find: Claim(name, text, find)


def statistic(name: str, threshold: Threshold, evidence: Evidence, measure: Measure) -> Statistic:
    """A statistic of each seed's records, over all seeds."""
    try:
        numbers = each_seed(evidence, measure)
    except MissingError as error:
        return Statistic(name, threshold, missing=str(error))
    counts = [number.count for number in numbers if number.count is not None]
    combined = combine([number.value for number in numbers], [number.variance for number in numbers])
    return _against(name, threshold, combined, min(counts, default=None))


def rank_statistic(
    name: str, threshold: Threshold, evidence: Evidence, pairs: Callable[[Evidence], tuple[list[Real], list[Real]]]
) -> Statistic:
    """Spearman's correlation of two quantities, over all seeds."""
    found: list[tuple[list[Real], list[Real]]] = []

    def measure(records: Evidence) -> Number:
        pair = pairs(records)
        found.append(pair)
        return Number(spearman(*pair))

    result = statistic(name, threshold, evidence, measure)
    if result.p_holds is None or result.p_fails is None:
        return result
    upper, lower = spearman_tails(found)
    return replace(result, p_holds=max(result.p_holds, upper), p_fails=max(result.p_fails, lower))


def bound(name: str, threshold: Threshold, evidence: Evidence) -> Statistic:
    """The largest of numbers that are exact: no images, no seeds, no interval; the value itself is held to the threshold."""
    if not len(evidence):
        return Statistic(name, threshold, missing="no record of it", seeded=False)
    value = max(float(record["value"]) for record in evidence.records)
    holds = threshold.below is not None and value <= threshold.below
    return Statistic(name, threshold, value, value, value, None, 0, float(not holds), float(holds), None, seeded=False)


def control(name: str, evidence: Evidence, measure: Measure, possible: Range = ANY) -> tuple[Control, ...]:
    """A number beside a claim, with its interval within the values that are possible; none where its records are missing."""
    try:
        numbers = each_seed(evidence, measure)
    except MissingError:
        return ()
    combined = combine([number.value for number in numbers], [number.variance for number in numbers])
    low, high = _within(possible, combined.interval()) or (None, None)
    return (Control(name, combined.value, low, high),)


def controls(measure: Measure, named: Mapping[str, Evidence], possible: Range = ANY) -> tuple[Control, ...]:
    """The same number of several kinds of records, each under its name."""
    return tuple(found for name, evidence in named.items() for found in control(name, evidence, measure, possible))


def each_seed(evidence: Evidence, measure: Measure) -> list[Number]:
    """The statistic of each seed that has the records for it."""
    numbers, reasons = [], []
    for records in evidence.seeds():
        try:
            numbers.append(measure(records))
        except MissingError as error:
            reasons.append(error)
    if not numbers:
        raise next(iter(reasons), MissingError("no record"))
    return numbers


def of_the_papers_images(evidence: Evidence) -> bool:
    """Whether records are of data that the paper's thresholds are meant for, also by a name such as cifar10-long."""
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
    """What to say of a gap's unit: nothing for the paper's images."""
    return "" if of_the_papers_images(evidence) else ", over the data's RMS"


def _against(name: str, threshold: Threshold, combined: Combined, images: int | None) -> Statistic:
    interval = _within(threshold.possible, combined.interval())
    if interval is None:
        return Statistic(name, threshold, combined.value, images=images, seeds=combined.seeds)
    holds = [combined.p_above(threshold.above)] if threshold.above is not None else []
    holds += [1 - combined.p_above(threshold.below)] if threshold.below is not None else []
    fails = [1 - p for p in holds]
    p_fails = min(1.0, len(fails) * min(fails))
    return Statistic(name, threshold, combined.value, *interval, images, combined.seeds, max(holds), p_fails)


def _within(possible: Range, interval: tuple[float, float] | None) -> tuple[float, float] | None:
    if interval is None:
        return None
    least, most = possible
    low, high = interval
    return low if least is None else max(low, least), high if most is None else min(high, most)
