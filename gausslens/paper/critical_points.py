"""Critical numbers of images and lengths of training, with intervals: N*, τ* and the onset of memorising.

N* is the number of images from which on fewer than 5 % of a typical network's samples are copies, by the model of
`transition`. τ* is the length of training at which a network on few images is closest to the Gaussian of these images. Its
interval is over trainings, on a logarithmic scale; it includes the neighbouring snapshots and ends at the first and the last
snapshot. The onset of memorising is the length of training after which the share of copies among samples stays above 5 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from ..measures.intervals import student_quantile
from ..measures.memorization import MEMORIZED
from ..measures.transition import Bound, Count, fit_transition
from .claims.comparisons import InWindow
from .claims.evidence import Evidence, MissingError, Number
from .claims.inference import Real

_ROUNDING = 1e-9  # of a geometric mean
_LEAST = 1e-3  # smaller shares of copies count as this on a logarithmic scale


@dataclass(frozen=True)
class Onset:
    """When networks on some number of images begin to memorise."""

    n: int  # number of images
    starts: float | None  # geometric mean over the seeds that memorise, in kimg; None if none does
    low: float | None  # lower end of its 95 % interval over seeds; None with fewer than two
    high: float | None  # upper end
    memorizing: int  # seeds that memorise
    seeds: int  # all seeds
    safe: float  # the longest training with a snapshot before any seed memorises, in kimg; 0 if there is none


class Turning(NamedTuple):
    """When networks of few images are closest to their Gaussian."""

    at: tuple[float, ...]  # the length of training in kimg at which each seed's distance is smallest
    value: float  # their geometric mean
    low: float | None  # lower end of its 95 % interval over trainings; None with fewer than two
    high: float | None  # upper end


def images_needed(evidence: Evidence) -> Bound | None:
    """N*, from the shares of copies among samples of networks on several numbers of images; None with fewer than two."""
    counts = [
        Count(record["n"], record["seed"], round(record["value"] * record["count"]), record["count"])
        for record in evidence.where(quantity="memorized_fraction", denoiser="network").records
    ]
    return fit_transition(counts).needed if len({count.n for count in counts}) > 1 else None


def closest(evidence: Evidence, few: int) -> Turning | None:
    """τ*, from the distances of the study of time in its window; None if they are not known."""
    gaps = InWindow(evidence, "time")
    try:
        found = _finished([gaps.over(records, "kimg") for records in gaps.studied.where(n=few).seeds()])
    except MissingError:
        return None
    trained = [{kimg: gap for kimg, gap in of_seed.items() if kimg > 0} for of_seed in found]
    lowest = tuple(min(of_seed, key=of_seed.__getitem__) for of_seed in trained)
    if not lowest:
        return None
    value, low, high = _over_trainings(lowest)
    if low is not None and high is not None:
        times = sorted({kimg for of_seed in trained for kimg in of_seed})
        before = [kimg for kimg in times if kimg < value * (1 - _ROUNDING)]
        after = [kimg for kimg in times if kimg > value * (1 + _ROUNDING)]
        low, high = max(min([low, *before[-1:]]), times[0]), min(max([high, *after[:1]]), times[-1])
    return Turning(lowest, value, low, high)


def memorizing_from(evidence: Evidence, few: int) -> Onset | None:
    """When copies among samples of networks of few images pass 5 % for good; None without records."""
    copies = evidence.where(quantity="memorized_fraction", denoiser="network", n=few)
    shares = _finished([records.over("kimg") for records in copies.seeds()]) if len(copies) else []
    return find_onset(few, shares) if shares else None


def _finished(trainings: list[dict[Real, Number]]) -> list[dict[Real, float]]:
    """The values of trainings with all snapshots that any training has; in the others the minimum may come later."""
    times = {kimg for training in trainings for kimg in training}
    return [{kimg: number.value for kimg, number in of.items()} for of in trainings if set(of) == times]


def find_onset(n: int, shares: Sequence[Mapping[float, float]]) -> Onset:
    """When memorising starts with n images, from the shares of copies of each training, by kimg.

    >>> onset = find_onset(64, [{10.0: 0.0, 20.0: 0.0, 40.0: 0.1}, {10.0: 0.0, 20.0: 0.01, 40.0: 0.04}])
    >>> 20 < onset.starts < 40, onset.memorizing, onset.safe
    (True, 1, 20.0)
    """
    found = [crossing(share) for share in shares]
    starts = [start for start in found if start is not None]
    before = [
        max((kimg for kimg in share if start is None or kimg < start), default=0.0)
        for share, start in zip(shares, found, strict=True)
    ]
    center, low, high = _over_trainings(starts) if starts else (None, None, None)
    return Onset(n, center, low, high, memorizing=len(starts), seeds=len(found), safe=min(before))


def crossing(share: Mapping[float, float]) -> float | None:
    """When a share of copies passes the threshold for good, interpolated log-log between snapshots; None if it does not."""
    found = sorted((kimg, value) for kimg, value in share.items() if kimg > 0)  # time 0 has no logarithm
    if not found or found[-1][1] <= MEMORIZED:
        return None
    for (early, below), (late, above) in reversed(list(pairwise(found))):
        if below <= MEMORIZED:
            rise = math.log(above / max(below, _LEAST))
            part = math.log(MEMORIZED / max(below, _LEAST)) / rise
            return math.exp(math.log(early) + part * math.log(late / early))
    return found[0][0]


def _over_trainings(times: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The geometric mean of times, and the ends of its 95 % interval over trainings, None with fewer than two."""
    logs = [math.log(time) for time in times]
    mean = fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None
    reach = student_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)


def format_images_needed(bound: Bound | None) -> str:
    """N* as a sentence, with a space before it; empty if it is not known."""
    if bound is None:
        return ""
    share = f"{MEMORIZED:.0%}".replace("%", " %")
    if bound.value is None:
        return f" The number of images from which on fewer than {share} are copies lies beyond those tried."
    low, high = (
        otherwise if end is None else f"{end:,.0f}"
        for end, otherwise in ((bound.low, "fewer than tried"), (bound.high, "more than tried"))
    )
    return (
        f" The share of copies falls below {share} at N* = {bound.value:,.0f} training images (95 % interval: {low} to "
        f"{high})."
    )


def format_closest(turning: Turning | None, few: int) -> str:
    """τ* as a sentence, with a space before it; empty if it is not known."""
    if turning is None:
        return ""
    each = ", ".join(f"{kimg:,g}" for kimg in turning.at)
    said, count = format_time(turning.value, turning.low, turning.high), len(turning.at)
    mean = "" if turning.low is None else f" in the {count} trainings (geometric mean and 95 % interval: {said})"
    return f" For N = {few:,} it is smallest after {each} thousand images{mean}."


def format_onset(onset: Onset | None) -> str:
    """The onset of memorising as a sentence, with a space before it; empty if it is not known."""
    if onset is None:
        return ""
    if onset.starts is None:
        return f" For N = {onset.n:,} the share has not passed {MEMORIZED:g}."
    missing = onset.seeds - onset.memorizing
    never = f", and not at all in {missing} of {onset.seeds} trainings" if missing else ""
    when = format_time(onset.starts, onset.low, onset.high)
    return f" For N = {onset.n:,} the share passes {MEMORIZED:g} after {when} thousand images{never}."


def format_time(value: float, low: float | None, high: float | None) -> str:
    """A length of training, with its interval where there is one; three digits each."""
    said, *ends = (f"{float(f'{one:.3g}'):,g}" for one in (value, low, high) if one is not None)
    return f"{said} [{', '.join(ends)}]" if ends else said
