"""The moments that matter in a training run, from a sequence of looks at it (see `looks`).

Nothing is decided by one noisy look. Distances are compared image by image, on the same noisy images, and two looks differ
if the 95 % interval of their mean difference excludes 0. Copies are counted over the last three looks together, whose
samples are independent: memorising has started once the interval of their share lies above the threshold and at least two of
the looks say so each for itself, and has ended again only when the interval lies below.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..measures.intervals import Estimate, proportion_estimate, student_quantile
from ..measures.memorization import MEMORIZED
from .probe import ProbeResult

NEARER_MULTIDELTA = 0.5
"""ρ above which a network is nearer to memorising, for networks that cannot be sampled."""

_POOLED = 3  # looks whose samples are counted together
_AGREEING = 2  # looks among them that must say the same


@dataclass(frozen=True)
class Event:
    """A moment.

    Attributes:
        step: the best guess.
        earliest: of the looks that cannot be excluded, the first; for the start of memorising, the last that excludes it.
        latest: the last; for the start of memorising, the first that is certain.
        settled: whether looks after it leave no doubt that it is over.
    """

    step: float | int
    earliest: float | int
    latest: float | int
    settled: bool


def closest_to_gaussian(looks: Sequence[ProbeResult]) -> Event | None:
    """The look at which the network was closest to the Gaussian denoiser; None without looks.

    It is settled once two looks or more in a row, up to the latest, are further away for certain.
    """
    if not looks:
        return None
    best = min(range(len(looks)), key=lambda index: looks[index].gaussian.value)
    first = last = best
    while first > 0 and not _further(looks[first - 1], looks[best]):
        first -= 1
    while last < len(looks) - 1 and not _further(looks[last + 1], looks[best]):
        last += 1
    since = looks[last + 1 :]
    settled = len(since) >= _AGREEING and all(_further(look, looks[best]) for look in since)
    return Event(looks[best].step, looks[first].step, looks[last].step, settled)


def start_of_memorizing(looks: Sequence[ProbeResult], by_chance: Estimate | None = None) -> Event | None:
    """Since when the network memorises; None if it does not, as far as can be said."""
    threshold = max(MEMORIZED, by_chance.high if by_chance is not None and by_chance.value > 0 else 0.0)
    mark, excluded = None, looks[0].step if looks else 0
    for index, look in enumerate(looks):
        recent = looks[max(index + 1 - _POOLED, 0) : index + 1]
        share = _share(recent)
        if share is None:
            continue
        limit = threshold if look.samples else NEARER_MULTIDELTA
        if mark is None:
            saying = [each for each in recent if is_suspicious(each, threshold)]
            if share.low > limit and len(saying) >= _AGREEING:
                mark = Event(saying[0].step, min(excluded, saying[0].step), look.step, True)
        if share.high < limit:
            mark, excluded = None, look.step
    return mark


def is_suspicious(look: ProbeResult, threshold: float = MEMORIZED) -> bool:
    """Whether a look alone, by its value and not its interval, speaks of memorising."""
    if look.samples:
        return look.copies > threshold * look.samples
    return look.rho is not None and look.rho.value > NEARER_MULTIDELTA


def recommended_probe(looks: Sequence[ProbeResult], memorizing: Event | None) -> ProbeResult | None:
    """The look whose weights to keep; None without looks.

    Of those before memorising starts, the one with the least held-out loss. Without held-out images the one closest to the
    Gaussian or, while nothing is memorised, the latest.
    """
    if memorizing is not None:
        return best_of([look for look in looks if look.step < memorizing.step]) or looks[0]
    if looks and looks[-1].loss_held_out is None:
        return looks[-1]
    return best_of(looks)


def best_of(looks: Sequence[ProbeResult]) -> ProbeResult | None:
    """The look with the least held-out loss, without held-out images the one closest to the Gaussian; None without looks."""
    return min(looks, key=lambda look: (look.loss_held_out or look.gaussian).value) if looks else None


def steps_to_keep(looks: Sequence[ProbeResult], memorizing: Event | None) -> list[float | int]:
    """Steps whose weights may yet be recommended, ascending: all others can be thrown away."""
    may_be = [recommended_probe(looks, memorizing), best_of(looks)]
    for index in range(max(len(looks) - _POOLED, 0), len(looks)):
        if is_suspicious(looks[index]):
            may_be.append(best_of(looks[:index]) or looks[0])
    return sorted({look.step for look in may_be if look is not None})


def _further(look: ProbeResult, best: ProbeResult) -> bool:
    """Whether a look was further from the Gaussian than the best, for certain."""
    own, least = (torch.tensor(each.gaussian_by_image, dtype=torch.float64) for each in (look, best))
    difference = own - least
    n = len(difference)
    if n < 2:
        return bool(difference.mean() > 0)
    return bool(difference.mean() > student_quantile(n - 1) * difference.std() / math.sqrt(n))


def _share(recent: Sequence[ProbeResult]) -> Estimate | None:
    """The share of copies over several looks; for networks that cannot be sampled, ρ of the last."""
    n = sum(look.samples for look in recent)
    return proportion_estimate(sum(look.copies for look in recent), n) if n else recent[-1].rho
