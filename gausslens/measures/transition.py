"""The transition from copying to novelty: the number of training images from which on few samples are copies.

A network trained on n images with seed j, which decides its images too, makes k copies among m samples,

    k ~ Binomial(m, f),   f = c + (a − c)·F((μ + δ_j + ε − log n)/s),

with δ_j ~ N(0, τ_seed²) the shift of the transition by a seed and ε ~ N(0, τ_model²) by a training run, a ≤ 1 the share of
copies with very few images, and c the small share of samples that look like copies by chance. F is the logistic or the
normal law: the choice matters between sizes and is unknown, too. Intervals are quantiles of the posterior.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .._typing import Float
from ..errors import DataError, require
from .memorization import MEMORIZED

_QUANTILES = (0.5, 0.025, 0.975)
_BEYOND = 2.0  # how far μ may lie outside the sizes that were tried, in log n
_STEEPEST, _FLATTEST = 0.03, 1.2
_SHIFTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
_CHANCE = 0.002
_ALIKE = 1.702  # the normal law's deviation in widths s: with it the two laws differ by less than .01

_POINTS = 181, 11, 7  # of the grid: μ, log s and u
_ZOOMS = 2
_NEGLIGIBLE = 1e-3  # weight of a shift, or density relative to the greatest, that a zoom leaves out
_REACH = 3  # of a shift, in standard deviations


@dataclass(frozen=True)
class Count:
    """The copies among the samples of one network."""

    n: int  # training images
    seed: int  # of the training and of the choice of images
    copies: int
    samples: int

    @property
    def share(self) -> float:
        """The share of copies among the samples."""
        return self.copies / self.samples


@dataclass(frozen=True)
class Bound:
    """The median of a number of images with its 95 % interval; numbers outside the sizes that were tried are None."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class Transition:
    """The estimated transition of the median network: one without shifts."""

    needed: Bound  # number of images from which on the share of copies is below `MEMORIZED`
    midpoint: Bound  # number of images at which the share of copies is half of that with very few images
    sizes: tuple[float, ...] = field(repr=False)  # numbers of images along the curve
    curve: Float[Tensor, "3 n"] = field(repr=False)  # the share of copies there: median, low and high
    always: float  # the probability that networks still copy with the most images that were tried
    never: float  # the probability that networks do not copy even with the fewest


def fit_transition(counts: Sequence[Count]) -> Transition:
    """Fit the transition; the interval covers what few samples, seeds and sizes leave open.

    A bootstrap over three or four seeds has too few different resamples for that. It also says nothing about the sizes
    between one whose networks always copy and one whose networks never do.

    >>> counts = [Count(n, seed, copies, 100) for n, copies in ((16, 95), (64, 50), (256, 1)) for seed in range(4)]
    >>> needed = fit_transition(counts).needed
    >>> 90 < needed.low < needed.value < needed.high < 256
    True
    """
    tried = sorted({count.n for count in counts})
    require(len(tried) >= 2, f"a transition needs networks on two numbers of images or more; got {tried}.", DataError)
    first, last = math.log(tried[0]), math.log(tried[-1])
    grid, weights = posterior_of(counts)
    needed = grid.size_at(MEMORIZED)
    sizes = _linspace(first, last, 60)
    shares = [_quantiles(grid.share_at(x), weights) for x in sizes.tolist()]

    def bound(logs: Tensor) -> Bound:
        ends = (math.exp(value) for value in _quantiles(logs, weights))
        return Bound(*(end if tried[0] <= end <= tried[-1] else None for end in ends))

    return Transition(
        needed=bound(needed),
        midpoint=bound(grid.centers.expand_as(weights)),
        sizes=tuple(sizes.exp().tolist()),
        curve=torch.tensor(shares, dtype=torch.float64).T.contiguous(),
        always=float(weights[needed > last].sum()),
        never=float(weights[needed < first].sum()),
    )


def _quantiles(values: Tensor, weights: Tensor) -> list[float]:
    ordered, order = values.flatten().sort()
    heaped = weights.flatten()[order].cumsum(0)
    places = torch.searchsorted(heaped, torch.tensor(_QUANTILES, dtype=torch.float64) * heaped[-1])
    found: list[float] = ordered[places.clamp_max(len(ordered) - 1)].tolist()
    return found


def posterior_of(counts: Sequence[Count]) -> tuple["_Grid", Float[Tensor, "g w a l"]]:
    """A grid of μ, s, a and both laws, and the probability of each of its points, with the shifts integrated out.

    Priors are flat: of μ, of log s, of u where a = 1 − u²/2, on a few values of τ, and on both laws. (Digits favour the
    normal one, a hundred to one.) The grid is laid again where the posterior is, twice: on one grid of the whole prior the
    posterior could be a single point, since some thousand samples determine s and a to a few percent. Intervals would then
    be too narrow, and biased by the distance to that point.
    """
    sizes = [math.log(count.n) for count in counts]
    ends = (min(sizes) - _BEYOND, max(sizes) + _BEYOND), (math.log(_STEEPEST), math.log(_FLATTEST)), (0.0, 1.0)
    grid = whole = _Grid([_linspace(*pair, points) for pair, points in zip(ends, _POINTS, strict=True)], _SHIFTS)
    for _ in range(_ZOOMS):
        grid = grid.zoom(_weights(counts, grid), whole)
    return grid, _weights(counts, grid).sum((0, 1))


class _Grid(NamedTuple):
    """Equally spaced values of μ, of log s and of u, where a = 1 − u²/2, and spreads of the shifts."""

    axes: list[Tensor]  # (g,), (w,) and (a,)
    shifts: tuple[float, ...]

    @property
    def centers(self) -> Float[Tensor, "g 1 1 1"]:
        """The centers μ, in log n."""
        return self.axes[0][:, None, None, None]

    @property
    def widths(self) -> Float[Tensor, "w 1 1"]:
        """The widths s."""
        return self.axes[1].exp()[:, None, None]

    @property
    def tops(self) -> Float[Tensor, "a 1"]:
        """The shares a of copies with very few images."""
        return (1 - self.axes[2].square() / 2)[:, None]

    def share_at(self, log_size: float) -> Float[Tensor, "g w a l"]:
        """The share of copies of a network without shifts, under the logistic and the normal law."""
        steps = (log_size - self.centers) / self.widths
        fallen = torch.cat([torch.sigmoid(-steps), torch.special.ndtr(-steps / _ALIKE)], -1)
        return (_CHANCE + (self.tops - _CHANCE) * fallen).clamp_max(1 - _CHANCE)

    def size_at(self, share: float) -> Float[Tensor, "g w a l"]:
        """The log n at which the share of copies has fallen to `share`, below ½."""
        left = (share - _CHANCE) / (self.tops - _CHANCE)
        steps = torch.cat([-left.logit(), -_ALIKE * torch.special.ndtri(left)], -1)
        return self.centers + self.widths * steps

    def zoom(self, weights: Float[Tensor, "m s g w a l"], whole: "_Grid") -> "_Grid":
        """A grid of as many values where the weights are, a step further, and in μ as far beyond as networks are shifted.

        Large shifts without weight are left out. Small ones are kept: they may gain weight on the finer grid.
        """
        likely = torch.maximum(weights.sum((0, 2, 3, 4, 5)), weights.sum((1, 2, 3, 4, 5))) > _NEGLIGIBLE
        shifts = self.shifts[: int(likely.nonzero().max()) + 1]
        axes = []
        for axis, (values, limits) in enumerate(zip(self.axes, whole.axes, strict=True)):
            density = weights.sum([dim for dim in range(weights.ndim) if dim != axis + 2])
            kept = values[density > _NEGLIGIBLE * density.max()]
            margin = float(values[1] - values[0]) + (_REACH * shifts[-1] if axis == 0 else 0.0)
            low, high = max(float(kept[0]) - margin, float(limits[0])), min(float(kept[-1]) + margin, float(limits[-1]))
            axes.append(_linspace(low, high, len(values)))
        return _Grid(axes, shifts)


def _linspace(low: float, high: float, points: int) -> Float[Tensor, "n"]:
    return torch.linspace(low, high, points, dtype=torch.float64)


def _weights(counts: Sequence[Count], grid: _Grid) -> Float[Tensor, "m s g w a l"]:
    """The probability of each τ_model, τ_seed, μ, s, a and law on the grid, the shifts integrated out."""
    by_seed = [
        torch.stack([_likelihood(count, grid) for count in counts if count.seed == seed])
        for seed in sorted({count.seed for count in counts})
    ]
    kernels = torch.stack([_kernel(grid.axes[0], shift) for shift in grid.shifts])
    logs = []
    for of_model in kernels:
        shifted = [torch.einsum("gh,ihwal->igwal", of_model, of_seed).log().sum(0) for of_seed in by_seed]
        scaled = [(log - log.max()).exp() for log in shifted]
        log = torch.stack([torch.einsum("sgh,hwal->sgwal", kernels, of_seed).log() for of_seed in scaled]).sum(0)
        logs.append(log + torch.stack([log.max() for log in shifted]).sum())
    joint = torch.stack(logs)
    weights = (joint - joint.max()).exp()
    return weights / weights.sum()


def _likelihood(count: Count, grid: _Grid) -> Float[Tensor, "g w a l"]:
    """The likelihood of one network's copies over μ + δ + ε, s, a and law; up to a factor, and above 0 everywhere."""
    share = grid.share_at(math.log(count.n))
    log = count.copies * share.log() + (count.samples - count.copies) * (-share).log1p()
    return (log - log.max()).exp().clamp_min(1e-200)


def _kernel(centers: Float[Tensor, "g"], shift: float) -> Float[Tensor, "g g"]:
    """Weights of N(0, shift²) from each center to the others; each row sums to 1."""
    if shift == 0:
        return torch.eye(len(centers), dtype=torch.float64)
    weights = (-((centers[:, None] - centers[None, :]) / shift).square() / 2).exp()
    return weights / weights.sum(1, keepdim=True)
