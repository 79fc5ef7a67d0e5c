"""Where copying ends as images grow in number, and when it begins as training goes on: N* and τ*, with intervals.

N* is the number of images from which on fewer than 5 % of a typical network's samples are copies, by the model of
`transition`; its interval says what is not known for want of samples, trainings or sizes in between. τ* is the
length of training at which a network of few images is closest to the Gaussian of these images; its interval is over
trainings, on a logarithmic scale, reaches to the snapshots before and after, and ends at the first and the last: between
them and beyond nobody has looked.
"""

from typing import NamedTuple

from ...measures.memorization import MEMORIZED
from ...measures.transition import Bound, Count, fit_transition
from ..claims.evidence import Evidence, MissingError, Number
from ..claims.inference import Real
from ..claims.window import InWindow
from .onset import Onset, find_onset, over_trainings

_ROUNDING = 1e-9  # of a geometric mean


class Turning(NamedTuple):
    """When networks of few images are closest to their Gaussian."""

    at: tuple[float, ...]  # the length of training in kimg at which each training's distance is least, by seed
    value: float  # their geometric mean
    # lower end of its 95 % interval over trainings, at least to the snapshot before and at most to the first; None with
    # fewer than two.
    low: float | None
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
    lowest = tuple(min(of_seed, key=lambda kimg, of=of_seed: of[kimg].value) for of_seed in trained)  # type: ignore[misc]
    if not lowest:
        return None
    value, low, high = over_trainings(lowest)
    if low is not None and high is not None:
        times = sorted({kimg for of_seed in trained for kimg in of_seed})
        low = min(low, max((kimg for kimg in times if kimg < value * (1 - _ROUNDING)), default=low))
        high = max(high, min((kimg for kimg in times if kimg > value * (1 + _ROUNDING)), default=high))
        low, high = max(low, times[0]), min(high, times[-1])
    return Turning(lowest, value, low, high)


def memorizing_from(evidence: Evidence, few: int) -> Onset | None:
    """When copies among samples of networks of few images pass 5 % for good; None without records."""
    copies = evidence.where(quantity="memorized_fraction", denoiser="network", n=few)
    shares = [
        {kimg: share.value for kimg, share in of_seed.items()}
        for of_seed in _finished([records.over("kimg") for records in (copies.seeds() if len(copies) else ())])
    ]
    return find_onset(few, shares) if shares else None


def _finished(trainings: "list[dict[Real, Number]]") -> "list[dict[Real, Number]]":
    """Those of which all snapshots have been looked at that any has: the others may turn later."""
    times = {kimg for training in trainings for kimg in training}
    return [training for training in trainings if set(training) == times]


def format_images_needed(bound: Bound | None) -> str:
    """N* as a sentence, with a space before it; empty if it is not known."""
    if bound is None:
        return ""
    share = f"{MEMORIZED:.0%}".replace("%", " %")
    if bound.value is None:
        return f" The number of images from which on fewer than {share} are copies lies beyond those tried."
    return (
        f" Fewer than {share} are copies from N* = {bound.value:,.0f} images on, between "
        f"{_end(bound.low, 'fewer than tried')} and {_end(bound.high, 'more than tried')} with 95 % probability."
    )


def format_closest(turning: Turning | None, few: int) -> str:
    """τ* as a sentence, likewise."""
    if turning is None:
        return ""
    each = ", ".join(f"{kimg:,g}" for kimg in turning.at)
    mean = "" if turning.low is None else f" ({format_time(turning.value, turning.low, turning.high)} on average)"
    return f" For N = {few:,} it is least after {each} thousand images{mean}."


def format_onset(onset: Onset | None) -> str:
    """When copying begins as a sentence, likewise."""
    if onset is None:
        return ""
    if onset.starts is None:
        return f" For N = {onset.n:,} it has not passed {MEMORIZED:g}."
    missing = onset.seeds - onset.memorizing
    never = f", and not at all in {missing} of {onset.seeds} trainings" if missing else ""
    when = format_time(onset.starts, onset.low, onset.high)
    return f" For N = {onset.n:,} it passes {MEMORIZED:g} after {when} thousand images{never}."


def format_time(value: float, low: float | None, high: float | None) -> str:
    """A length of training, with its interval where there is one; three digits each."""
    return _three(value) + ("" if low is None or high is None else f" [{_three(low)}, {_three(high)}]")


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _end(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:,.0f}"
