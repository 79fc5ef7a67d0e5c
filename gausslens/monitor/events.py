"""The events that matter in a training run, from the results of a sequence of probes.

Nothing is decided by one noisy result. Distances are compared image by image, on the same noisy images, and two results
differ if the 95 % interval of their mean difference excludes 0. Copies are counted over the last three probes together,
whose samples are independent. Memorising has started once the interval of their share lies above the threshold and two
of the three say so by themselves. It has ended again only when the interval lies below.
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

_POOLED = 3  # probes whose samples are counted together
_AGREEING = 2  # probes among them that must say the same


@dataclass(frozen=True)
class Event:
    """A moment of a training run."""

    step: float | int  # the best guess
    # the first step that cannot be excluded; for the start of memorising, the last that excludes it.
    earliest: float | int
    latest: float | int  # the last; for the start of memorising, the first that is certain
    settled: bool  # whether what came after it leaves no doubt that it is over


def closest_to_gaussian(results: Sequence[ProbeResult]) -> Event:
    """When the network was closest to the Gaussian denoiser.

    It is settled once two results or more in a row, up to the latest, are further away for certain.
    """
    best = min(range(len(results)), key=lambda index: results[index].gaussian.value)
    further = [_is_further(result, results[best]) for result in results]
    first = last = best
    while first > 0 and not further[first - 1]:
        first -= 1
    while last < len(results) - 1 and not further[last + 1]:
        last += 1
    settled = len(results) - 1 - last >= _AGREEING and all(further[last + 1 :])
    return Event(results[best].step, results[first].step, results[last].step, settled)


def start_of_memorizing(results: Sequence[ProbeResult], by_chance: Estimate | None = None) -> Event | None:
    """Since when the network memorises; None if it does not, as far as can be said."""
    threshold = max(MEMORIZED, by_chance.high if by_chance is not None and by_chance.value > 0 else 0.0)
    event, excluded = None, results[0].step if results else 0
    for index, result in enumerate(results):
        recent = results[max(index + 1 - _POOLED, 0) : index + 1]
        if (share := _share(recent)) is None:
            continue
        limit = threshold if result.samples else NEARER_MULTIDELTA
        suspicious = [each.step for each in recent if is_suspicious(each, threshold)]
        if event is None and share.low > limit and len(suspicious) >= _AGREEING:
            event = Event(suspicious[0], min(excluded, suspicious[0]), result.step, True)
        if share.high < limit:
            event, excluded = None, result.step
    return event


def is_suspicious(result: ProbeResult, threshold: float = MEMORIZED) -> bool:
    """Whether a result alone, by its value and not its interval, speaks of memorising."""
    if result.samples:
        return result.copies > threshold * result.samples
    return result.rho is not None and result.rho.value > NEARER_MULTIDELTA


def recommended_probe(results: Sequence[ProbeResult], memorizing: Event | None) -> ProbeResult:
    """The result whose weights to keep; see `GeneralizationMonitor.recommended`."""
    if memorizing is not None:
        return best_of([result for result in results if result.step < memorizing.step] or results[:1])
    return results[-1] if results[-1].loss_held_out is None else best_of(results)


def best_of(results: Sequence[ProbeResult]) -> ProbeResult:
    """The result with the least held-out loss; without held-out images, the one closest to the Gaussian."""
    return min(results, key=lambda result: (result.loss_held_out or result.gaussian).value)


def steps_to_keep(results: Sequence[ProbeResult], memorizing: Event | None) -> list[float | int]:
    """Steps whose weights may yet be recommended, ascending: all others can be thrown away."""
    may_be = [recommended_probe(results, memorizing), best_of(results)]
    for index in range(max(len(results) - _POOLED, 0), len(results)):
        if is_suspicious(results[index]):
            may_be.append(best_of(results[: max(index, 1)]))
    return sorted({result.step for result in may_be})


def _is_further(result: ProbeResult, best: ProbeResult) -> bool:
    """Whether the network was further from the Gaussian than at its best, for certain."""
    own, least = (torch.tensor(each.gaussian_by_image, dtype=torch.float64) for each in (result, best))
    difference = own - least
    n = len(difference)
    margin = student_quantile(n - 1) * difference.std() / math.sqrt(n) if n > 1 else 0.0
    return bool(difference.mean() > margin)


def _share(recent: Sequence[ProbeResult]) -> Estimate | None:
    """The share of copies over several results; for networks that cannot be sampled, ρ of the last."""
    n = sum(result.samples for result in recent)
    return proportion_estimate(sum(result.copies for result in recent), n) if n else recent[-1].rho
