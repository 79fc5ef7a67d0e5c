"""What is known of how the share of copies among a network's samples falls with the number of its images.

A network trained on n images with seed j, which decides its images too, makes k copies among m samples,

    k ~ Binomial(m, f),   f = c + (a − c)·F((μ + δ_j + ε − log n)/s),

with δ_j ~ N(0, τ_seed²) a seed's and ε ~ N(0, τ_model²) a training's own shift of the transition, a ≤ 1 the share of copies
among samples of networks with hardly any images, and c the few samples that are mistaken. F is the logistic or the normal
law: it matters between sizes which of them, and is not known either. (Digits speak for the normal one, a hundred to one.)

Priors are flat: of μ, of log s, of u where a = 1 − u²/2, on a few values of τ, and on both laws. The posterior is found on a
grid that is laid again where the posterior is, twice; the shifts are integrated out. On one grid of the whole prior it could
be a single point, since some thousand samples know s and a to a few percent. Intervals would then be too narrow, and off by
as much as the point is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .._typing import Float

_BEYOND = 2.0  # how far μ may lie beyond the sizes that were tried, in log n
_STEEPEST, _FLATTEST = 0.03, 1.2
_SHIFTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
_CHANCE = 0.002
_ALIKE = 1.702  # the normal law's deviation in widths s: the two laws differ by less than .01 then

_POINTS = 181, 11, 7  # of the grid: μ, log s and u
_ZOOMS = 2
_NEGLIGIBLE = 1e-3  # weight of a shift, or density as a share of the greatest, that a zoom leaves out
_REACH = 3  # of a shift, in its spreads


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


class Posterior(NamedTuple):
    """The probability of each μ, s, a and law.

    Attributes:
        centers: μ, in log n.
        widths: s.
        tops: a.
        weights: the probabilities; they add up to 1.
    """

    centers: Float[Tensor, "g w a l"]
    widths: Float[Tensor, "g w a l"]
    tops: Float[Tensor, "g w a l"]
    weights: Float[Tensor, "g w a l"]

    def share_at(self, log_size: float) -> Float[Tensor, "g w a l"]:
        """The share of copies of a network without shifts."""
        return _share(log_size - self.centers, self.widths, self.tops)

    def size_at(self, share: float) -> Float[Tensor, "g w a l"]:
        """The log n at which it has fallen to a share, below ½."""
        left = (share - _CHANCE) / (self.tops - _CHANCE)
        logistic, normal = -left[..., :1].logit(), -_ALIKE * torch.special.ndtri(left[..., 1:])
        return self.centers + self.widths * torch.cat([logistic, normal], -1)


def posterior_of(counts: Sequence[Count]) -> Posterior:
    """The posterior."""
    sizes = [math.log(count.n) for count in counts]
    ends = (min(sizes) - _BEYOND, max(sizes) + _BEYOND), (math.log(_STEEPEST), math.log(_FLATTEST)), (0.0, 1.0)
    centers, log_widths, roots = (_spaced(*pair, points) for pair, points in zip(ends, _POINTS, strict=True))
    grid = whole = _Grid(centers, log_widths, roots, _SHIFTS)
    for _ in range(_ZOOMS):
        grid = grid.zoomed(_weights(counts, grid), whole)
    weights = _weights(counts, grid).sum((0, 1))
    axes = torch.meshgrid(grid.centers, grid.widths, grid.tops, indexing="ij")
    mu, width, top = (values[..., None].expand_as(weights) for values in axes)
    return Posterior(mu, width, top, weights)


def _share(distance: Tensor, width: Tensor, top: Tensor) -> Tensor:
    """The share of copies at a distance log n − μ from the transition; the last dimension is of the laws, or 1."""
    steps = (distance / width).expand(*torch.broadcast_shapes(distance.shape, width.shape)[:-1], 2)
    fallen = torch.stack([torch.sigmoid(-steps[..., 0]), torch.special.ndtr(-steps[..., 1] / _ALIKE)], -1)
    return (_CHANCE + (top - _CHANCE) * fallen).clamp_max(1 - _CHANCE)


class _Grid(NamedTuple):
    """Equally spaced values of μ, of log s and of u, where a = 1 − u²/2, and spreads of the shifts."""

    centers: Float[Tensor, "g"]
    log_widths: Float[Tensor, "w"]
    roots: Float[Tensor, "a"]
    shifts: tuple[float, ...]

    @property
    def widths(self) -> Float[Tensor, "w"]:
        """s."""
        return self.log_widths.exp()

    @property
    def tops(self) -> Float[Tensor, "a"]:
        """a."""
        return 1 - self.roots.square() / 2

    def zoomed(self, weights: Float[Tensor, "m s g w a l"], whole: "_Grid") -> "_Grid":
        """A grid of as many values where the weights are, with μ as far around as networks are shifted.

        Great shifts without weight are left out; small ones may get theirs on a finer grid only, which fits better.
        """
        likely = torch.maximum(weights.sum((0, 2, 3, 4, 5)), weights.sum((1, 2, 3, 4, 5))) > _NEGLIGIBLE
        shifts = self.shifts[: int(likely.nonzero().max()) + 1]
        return _Grid(
            _closer(self.centers, whole.centers, weights.sum((0, 1, 3, 4, 5)), _REACH * shifts[-1]),
            _closer(self.log_widths, whole.log_widths, weights.sum((0, 1, 2, 4, 5))),
            _closer(self.roots, whole.roots, weights.sum((0, 1, 2, 3, 5))),
            shifts,
        )


def _closer(
    values: Float[Tensor, "n"], whole: Float[Tensor, "n"], density: Float[Tensor, "n"], reach: float = 0.0
) -> Tensor:
    """As many values where the density is not negligible, and a step and `reach` further, within the whole."""
    kept = values[density > _NEGLIGIBLE * density.max()]
    margin = float(values[1] - values[0]) + reach
    low, high = max(float(kept[0]) - margin, float(whole[0])), min(float(kept[-1]) + margin, float(whole[-1]))
    return _spaced(low, high, len(values))


def _spaced(low: float, high: float, points: int) -> Float[Tensor, "n"]:
    return torch.linspace(low, high, points, dtype=torch.float64)


def _weights(counts: Sequence[Count], grid: _Grid) -> Float[Tensor, "m s g w a l"]:
    """The probability of each τ_model, τ_seed, μ, s, a and law on the grid, the shifts integrated out."""
    by_seed = [
        torch.stack([_likelihood(count, grid) for count in counts if count.seed == seed])
        for seed in sorted({count.seed for count in counts})
    ]
    kernels = torch.stack([_kernel(grid.centers, shift) for shift in grid.shifts])
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
    """Of one network's copies, over μ + δ + ε, s, a and law; up to a factor, and nowhere quite 0."""
    distance = math.log(count.n) - grid.centers[:, None, None, None]
    share = _share(distance, grid.widths[:, None, None], grid.tops[:, None])
    log = count.copies * share.log() + (count.samples - count.copies) * (-share).log1p()
    return (log - log.max()).exp().clamp_min(1e-200)


def _kernel(centers: Float[Tensor, "g"], shift: float) -> Float[Tensor, "g g"]:
    """Weights of N(0, shift²) from one center to another; each row sums to 1."""
    if shift == 0:
        return torch.eye(len(centers), dtype=torch.float64)
    weights = (-((centers[:, None] - centers[None, :]) / shift).square() / 2).exp()
    return weights / weights.sum(1, keepdim=True)
