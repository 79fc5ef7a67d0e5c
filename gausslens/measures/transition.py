"""The transition from copying to novelty: from how many images on few of a network's samples are copies.

What is known of it is the posterior of `transition_posterior`, of which the 2.5, 50 and 97.5 % quantiles are told. So the
interval says what is not known for want of samples, of seeds, or of sizes in between. A bootstrap over three or four seeds,
of which there are few resamples, does not; nor can it tell anything between two sizes, one of which copies always and the
other never. It is the transition of a typical network: half of all have theirs at fewer images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .._typing import Float
from ..errors import DataError
from .memorization import MEMORIZED
from .transition_posterior import Count, posterior_of

__all__ = ["Bound", "Count", "Transition", "fit_transition"]

_QUANTILES = (0.5, 0.025, 0.975)


@dataclass(frozen=True)
class Bound:
    """A number of images with its 95 % interval; ends beyond what was tried are None.

    Attributes:
        value: the median; None if it is beyond what was tried.
        low: below it with a probability of 2.5 %; None: perhaps less than the fewest images that were tried.
        high: above it likewise; None: perhaps more than the most.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class Transition:
    """What is known of the transition.

    Attributes:
        needed: images from which on the share of copies is below the threshold.
        midpoint: images at which it is half of what it is with hardly any.
        sizes: numbers of images along the curve.
        curve: the share of copies there: median, low and high, (3, sizes).
        always: the probability that copying has not stopped with the most images that were tried.
        never: the probability that there is no copying with the fewest.
    """

    needed: Bound
    midpoint: Bound
    sizes: tuple[float, ...] = field(repr=False)
    curve: Float[Tensor, "3 n"] = field(repr=False)
    always: float
    never: float


def fit_transition(counts: Sequence[Count], threshold: float = MEMORIZED) -> Transition:
    """Fit the transition.

    >>> counts = [Count(n, seed, copies, 100) for n, copies in ((16, 95), (64, 50), (256, 1)) for seed in range(4)]
    >>> needed = fit_transition(counts).needed
    >>> 90 < needed.low < needed.value < needed.high < 256
    True
    """
    tried = sorted({count.n for count in counts})
    if len(tried) < 2:
        raise DataError(f"a transition needs networks on two numbers of images or more; got {tried}.")
    first, last = math.log(tried[0]), math.log(tried[-1])
    found = posterior_of(counts)
    needed = found.size_at(threshold)
    sizes = torch.linspace(first, last, 60, dtype=torch.float64)
    shares = [_quantiles(found.share_at(x), found.weights) for x in sizes.tolist()]
    return Transition(
        needed=_bound(needed, found.weights, tried),
        midpoint=_bound(found.centers, found.weights, tried),
        sizes=tuple(sizes.exp().tolist()),
        curve=torch.tensor(shares, dtype=torch.float64).T.contiguous(),
        always=float(found.weights[needed > last].sum()),
        never=float(found.weights[needed < first].sum()),
    )


def _quantiles(values: Tensor, weights: Tensor) -> list[float]:
    """Median, 2.5 % and 97.5 % quantiles of weighted values."""
    ordered, order = values.flatten().sort()
    heaped = weights.flatten()[order].cumsum(0)
    places = torch.searchsorted(heaped, torch.tensor(_QUANTILES, dtype=torch.float64) * heaped[-1])
    found: list[float] = ordered[places.clamp_max(len(ordered) - 1)].tolist()
    return found


def _bound(logs: Tensor, weights: Tensor, tried: Sequence[int]) -> Bound:
    ends = [math.exp(value) for value in _quantiles(logs, weights)]
    value, low, high = (end if tried[0] <= end <= tried[-1] else None for end in ends)
    return Bound(value, low, high)
