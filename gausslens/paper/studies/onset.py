"""When memorising starts: the length of training at which the share of copies among samples passes the threshold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from ...measures.intervals import student_quantile
from ...measures.memorization import MEMORIZED

_LEAST = 1e-3  # a share of copies below this is taken for it, on a logarithmic scale


@dataclass(frozen=True)
class Onset:
    """When networks on some number of images begin to memorise."""

    n: int  # number of images
    starts: float | None  # geometric mean over those seeds that do, in kimg; None if none does
    low: float | None  # lower end of its 95 % interval over seeds; None with fewer than two
    high: float | None  # upper end
    memorizing: int  # seeds that do
    seeds: int  # all seeds
    safe: float  # the longest training that was looked at before any seed began, in kimg; 0 if there is none


def find_onset(n: int, shares: Sequence[Mapping[float, float]], threshold: float = MEMORIZED) -> Onset:
    """When memorising starts with n images.

    >>> onset = find_onset(64, [{10.0: 0.0, 20.0: 0.0, 40.0: 0.1}, {10.0: 0.0, 20.0: 0.01, 40.0: 0.04}])
    >>> 20 < onset.starts < 40, onset.memorizing, onset.safe
    (True, 1, 20.0)
    """
    found = [crossing(share, threshold) for share in shares]
    starts = [start for start in found if start is not None]
    before = [
        max((kimg for kimg in share if start is None or kimg < start), default=0.0)
        for share, start in zip(shares, found, strict=True)
    ]
    center, low, high = over_trainings(starts) if starts else (None, None, None)
    return Onset(n, center, low, high, memorizing=len(starts), seeds=len(found), safe=min(before))


def over_trainings(times: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The geometric mean of times, and the ends of its 95 % interval over trainings, None with fewer than two."""
    logs = [math.log(time) for time in times]
    if len(logs) < 2:
        return math.exp(fmean(logs)), None, None
    reach = student_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs)), math.exp(fmean(logs) - reach), math.exp(fmean(logs) + reach)


def crossing(share: Mapping[float, float], threshold: float = MEMORIZED) -> float | None:
    """When a share rises above the threshold for good, between two looks by log-log interpolation; None if it does not."""
    looks = sorted((kimg, value) for kimg, value in share.items() if kimg > 0)  # time 0 has no logarithm
    if not looks or looks[-1][1] <= threshold:
        return None
    for (early, below), (late, above) in reversed(list(pairwise(looks))):
        if below <= threshold:
            rise = math.log(above / max(below, _LEAST))
            part = math.log(threshold / max(below, _LEAST)) / rise
            return math.exp(math.log(early) + part * math.log(late / early))
    return looks[0][0]
