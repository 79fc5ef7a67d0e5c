"""The transition from copying to novelty: the share of copies among a network's samples against the number of images.

A network trained on n images with seed j, which decides its images too, makes k copies among m samples,

    k ~ Binomial(m, f),   f = c + (a − c)/(1 + exp((log n − μ − δ_j − ε)/s)),

with δ_j ~ N(0, τ_seed²) a seed's and ε ~ N(0, τ_model²) a training's own shift of the transition, a ≤ 1 the share of copies
among samples of networks with hardly any images, and c the few samples that are mistaken. All of μ, s, a, τ_seed and τ_model
are unknown, with flat priors on a grid; the shifts are integrated out. So the interval says what is not known for want of
samples, of seeds, or of sizes in between. A bootstrap over three or four seeds, of which there are few resamples, does not;
nor can it tell anything between two sizes, one of which copies always and the other never.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .._typing import Float
from ..errors import DataError
from ..measures.copying import MEMORIZED

_SPACING = 0.02  # of the grid of μ, in log n
_BEYOND = 2.0  # how far it reaches beyond the sizes that were tried, in log n
_WIDTHS = torch.logspace(math.log10(0.03), math.log10(1.2), 14, dtype=torch.float64)
_TOPS = torch.tensor([1.0, 0.97, 0.9, 0.75, 0.5], dtype=torch.float64)
_SHIFTS = (0.0, 0.1, 0.2, 0.4, 0.8)
_CHANCE = 0.002
_QUANTILES = (0.5, 0.025, 0.975)


@dataclass(frozen=True)
class Count:
    """What was counted of one network.

    Attributes:
        n: its number of training images.
        seed: of its training and of the choice of its images.
        copies: among its samples.
        samples: how many there were.
    """

    n: int
    seed: int
    copies: int
    samples: int

    @property
    def share(self) -> float:
        """Copies among samples."""
        return self.copies / self.samples


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

    Args:
        counts: of networks on at least two numbers of images.
        threshold: share of copies above which a network memorises, below ½.

    Returns:
        The transition.

    Raises:
        DataError: if there are fewer than two numbers of images.

    >>> counts = [Count(n, seed, copies, 100) for n, copies in ((16, 95), (64, 50), (256, 1)) for seed in range(4)]
    >>> needed = fit_transition(counts).needed
    >>> 90 < needed.low < needed.value < needed.high < 256
    True
    """
    tried = sorted({count.n for count in counts})
    if len(tried) < 2:
        raise DataError(f"a transition needs networks on two numbers of images or more; got {tried}.")
    first, last = math.log(tried[0]), math.log(tried[-1])
    steps = int((last - first + 2 * _BEYOND) / _SPACING) + 1
    centers = first - _BEYOND + _SPACING * torch.arange(steps, dtype=torch.float64)
    posterior = _posterior(counts, centers)
    mu, width, top = torch.meshgrid(centers, _WIDTHS, _TOPS, indexing="ij")
    needed = mu + width * ((top - _CHANCE) / (threshold - _CHANCE) - 1).log()
    sizes = torch.linspace(first, last, 60, dtype=torch.float64)
    shares = [_quantiles(_share(x - mu, width, top), posterior) for x in sizes]
    return Transition(
        needed=_bound(needed, posterior, tried),
        midpoint=_bound(mu, posterior, tried),
        sizes=tuple(sizes.exp().tolist()),
        curve=torch.tensor(shares, dtype=torch.float64).T.contiguous(),
        always=float(posterior[needed > last].sum()),
        never=float(posterior[needed < first].sum()),
    )


def _share(distance: Tensor, width: Tensor, top: Tensor) -> Tensor:
    """The share of copies at a distance log n − μ from the transition."""
    return (_CHANCE + (top - _CHANCE) * torch.sigmoid(-distance / width)).clamp_max(1 - _CHANCE)


def _posterior(counts: Sequence[Count], centers: Float[Tensor, "g"]) -> Float[Tensor, "g w a"]:
    """The probability of each μ, s and a, the shifts and their spreads integrated out."""
    seeds = sorted({count.seed for count in counts})
    by_seed = [torch.stack([_likelihood(count, centers) for count in counts if count.seed == seed]) for seed in seeds]
    kernels = [_kernel(centers, shift) for shift in _SHIFTS]
    total = torch.zeros(len(centers), len(_WIDTHS), len(_TOPS), dtype=torch.float64)
    logs = []
    for of_model in kernels:
        shifted = [torch.einsum("gh,ihwa->igwa", of_model, of_seed).log().sum(0) for of_seed in by_seed]
        peaks = [log.max() for log in shifted]
        for of_seed_shift in kernels:
            log = sum(
                torch.einsum("gh,hwa->gwa", of_seed_shift, (log - peak).exp()).log() + peak
                for log, peak in zip(shifted, peaks, strict=True)
            )
            assert isinstance(log, Tensor)
            logs.append(log)
    highest = max(float(log.max()) for log in logs)
    for log in logs:
        total += (log - highest).exp()
    return total / total.sum()


def _likelihood(count: Count, centers: Float[Tensor, "g"]) -> Float[Tensor, "g w a"]:
    """Of one network's copies, over μ + δ + ε, s and a; up to a factor, and nowhere quite 0."""
    distance = math.log(count.n) - centers[:, None, None]
    share = _share(distance, _WIDTHS[None, :, None], _TOPS[None, None, :])
    log = count.copies * share.log() + (count.samples - count.copies) * (-share).log1p()
    return (log - log.max()).exp().clamp_min(1e-200)


def _kernel(centers: Float[Tensor, "g"], shift: float) -> Float[Tensor, "g g"]:
    """Weights of N(0, shift²) from one center to another; each row sums to 1."""
    if shift == 0:
        return torch.eye(len(centers), dtype=torch.float64)
    weights = (-((centers[:, None] - centers[None, :]) / shift).square() / 2).exp()
    return weights / weights.sum(1, keepdim=True)


def _quantiles(values: Tensor, weights: Tensor) -> list[float]:
    """Median, 2.5 % and 97.5 % quantiles of weighted values."""
    ordered, order = values.flatten().sort()
    heaped = weights.flatten()[order].cumsum(0)
    places = torch.searchsorted(heaped, torch.tensor(_QUANTILES, dtype=torch.float64) * heaped[-1])
    found: list[float] = ordered[places.clamp_max(len(ordered) - 1)].tolist()
    return found


def _bound(logs: Tensor, posterior: Tensor, tried: Sequence[int]) -> Bound:
    ends = [math.exp(value) for value in _quantiles(logs, posterior)]
    value, low, high = (end if tried[0] <= end <= tried[-1] else None for end in ends)
    return Bound(value, low, high)
