"""Copies and their controls: would as many come about by chance?

Real new images satisfy the rule for copies now and then (see `measures.originals`), and so do samples of a model that only
knows mean and covariance, where images are few. So copies exist only if the samples hold more of them than either control,
by a one-sided Fisher test each:

    real images    held-out images against the originals, pooled with the originals against one another
    Gaussian       as many samples of the training images' own Gaussian denoiser, from the same latents by the same sampler

Originals that occur once in the training set and those that occur repeatedly are tested separately. Only held-out images can
say whether the latter are memorised or commonplace. For the former the originals themselves are controls, too. But where new
images coincide with old ones by nature (icons), leaving out repeats leaves out just these coincidences. By Good and Turing a
new image coincides with an original that occurs once at a rate of 2N₂/N, with N₂ originals that occur twice. So these pairs
count, N₂ of N/2, unless held-out images coincide far more rarely (p ≤ .0001): then the repeats are the training set's own.

The unit is an original or a group: of each held-out group and of each original one image is a control.

Fewer than five copied originals may be one draw of a generator that collapsed. They convict only if the upper limit of the
real images' share is at most .01, or if a sample is within 2/255 RMSE of an original that no held-out image repeats.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from scipy.stats import hypergeom
from torch import Tensor

from .._typing import Bool, Float, Int
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.originals import Match, Originals
from ..measures.transformations import Transformation
from ..noise import draw_order
from .families import PLAIN, Family
from .thresholds import limit

ONCE, REPEATED = "once", "repeatedly"
_LEVEL, _FEW, _RARE = limit("p"), limit("few originals"), limit("rare")
_RARER = 0.0001  # level at which held-out images coincide more rarely than training images do
# Shares of the level: whole copies, unchanged, of originals that occur once or repeatedly. The others share the rest.
_PLAIN_SHARES = {ONCE: 0.55, REPEATED: 0.15}


class Tally(NamedTuple):
    """How many of so many images are copies by the rule."""

    copies: int
    total: int

    @classmethod
    def of(cls, copied: Bool[Tensor, "m"]) -> "Tally":
        """Of images that are copies or not."""
        return cls(int(copied.sum()), len(copied))

    @property
    def share(self) -> Estimate:
        """The share with its interval; of no images it may be anything."""
        return proportion_estimate(*self) if self.total else Estimate(math.nan, 0.0, 1.0, 0)


@dataclass(frozen=True)
class Comparison:
    """Copies among samples and in both controls, for one family and one kind of original."""

    family: str
    kind: str  # how often the originals occur in the training set, "once" or "repeatedly"
    samples: Tally
    real: Tally  # of real images
    gaussian: Tally | None  # of samples of the Gaussian denoiser
    originals: int  # how many originals the samples copy
    exact: bool  # whether a sample is within 2/255 RMSE of an original that no held-out image repeats
    level: float  # its share of the audit's level

    @property
    def p_value(self) -> float:
        """The larger of the p-values against either control; 1 where there are no real images."""
        return self._p_value(self.samples.copies)

    @property
    def convicts(self) -> bool:
        """Whether copies exist, by this comparison."""
        several = self.originals >= _FEW or self.exact or self.real.share.high <= _RARE
        return self.p_value <= self.level and several

    @property
    def undecided(self) -> bool:
        """Whether copies exceed the Gaussian denoiser's, and real images can neither explain nor refute them."""
        if self.convicts or self.gaussian is None:
            return False
        beyond = fisher_p(*self.samples, *self.gaussian) <= self.level
        return beyond and self.real.copies * self.samples.total < self.samples.copies * self.real.total / 2

    def smallest_count(self, *, concentrated: bool, exact: bool = True) -> int | None:
        """The fewest copies among as many samples that convict, chance ones included; None if not even all samples would."""
        sure, total = exact or self.real.share.high <= _RARE, self.samples.total
        # The p-values fall with the number of copies.
        fewest = 1 + bisect_left(range(1, total + 1), True, key=lambda copies: self._p_value(copies) <= self.level)
        if fewest > total or (concentrated and not sure):
            return None
        return fewest if concentrated or sure else max(fewest, int(_FEW))

    def _p_value(self, copies: int) -> float:
        """The larger of the p-values against either control if so many samples were copies."""
        if not self.real.total:
            return 1.0
        controls = [control for control in (self.real, self.gaussian) if control is not None]
        return max(fisher_p(copies, self.samples.total, *control) for control in controls)


def share_level(family: str, kinds: list[str], n_families: int) -> dict[str, float]:
    """The level of each comparison of a family; fixed before any sample is compared."""
    plain = sum(_PLAIN_SHARES.values())
    if family == PLAIN:
        return {kind: (_PLAIN_SHARES[kind] if len(kinds) > 1 else plain) * _LEVEL for kind in kinds}
    return {kind: (1 - plain) / (max(n_families - 1, 1) * len(kinds)) * _LEVEL for kind in kinds}


def one_of_each(units: Int[Tensor, "n"], seed: int, stream: str) -> Int[Tensor, "u"]:
    """One image of each unit, such as a group or an original, in random order."""
    order = draw_order(seed, len(units), stream=stream)
    numbers = torch.unique(units[order], return_inverse=True)[1]
    first = torch.full((int(numbers.max()) + 1,), len(order))
    return order[first.scatter_reduce_(0, numbers, torch.arange(len(order)), "amin").sort().values]


@dataclass(frozen=True, eq=False, repr=False)
class FamilyMatches:
    """The nearest originals of samples and of all controls, in one family."""

    family: Family
    originals: Originals  # the training images in the family's window
    rows: Int[Tensor, "s"]  # which samples were compared with them
    samples: Match
    held_out: Match | None  # None where held-out images are no control
    overlap: Bool[Tensor, "m"]  # which of these repeat a training image or share a group with one
    others: Match  # originals that occur once, compared with all the others
    gaussian: Match | None  # samples of the Gaussian denoiser
    levels: Mapping[str, float]  # of the comparison with each kind of original that is there
    tolerance: float  # the distance up to which two images are the same

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparisons, by kind of original."""
        return self.compare()

    @property
    def convicts(self) -> bool:
        """Whether copies exist, by any of the comparisons."""
        return any(one.convicts for one in self.comparisons)

    def compare(self, *, with_overlap: bool = True) -> list[Comparison]:
        """The same, with or without the held-out images of the overlap."""
        return [self._compare(kind, level, with_overlap) for kind, level in self.levels.items()]

    def transformation(self, row: int) -> Transformation:
        """What was done to the nearest original of a sample."""
        return self.family.transformations[int(self.samples.transformation[row])]

    def of_kind(self, match: Match, kind: str) -> Bool[Tensor, "m"]:
        """Which images are copies of originals of a kind."""
        return match.copied & self._near_kind(match, kind)

    def real_ratios(self, kind: str) -> Float[Tensor, "c"]:
        """d₁/d₂ of real images near originals of a kind: held-out images, and for originals that occur once the others."""
        matches = [] if self.held_out is None else [self.held_out]
        if kind == ONCE:
            matches.append(self.others)
        ratios = [match.ratio[self._near_kind(match, kind)] for match in matches]
        return torch.cat(ratios) if ratios else torch.empty(0, dtype=torch.float64)

    def _near_kind(self, match: Match, kind: str) -> Bool[Tensor, "m"]:
        return self.originals.unique[match.original] == (kind == ONCE)

    def _compare(self, kind: str, level: float, with_overlap: bool) -> Comparison:
        own, held_out = self.of_kind(self.samples, kind), self.held_out
        exact = own & (self.samples.first <= self.tolerance)
        if held_out is not None:
            exact &= ~torch.isin(self.samples.original, held_out.original[held_out.first <= self.tolerance])
            held_out = held_out if with_overlap else held_out[~self.overlap]
        return Comparison(
            family=self.family.name,
            kind=kind,
            samples=Tally.of(own),
            real=self._real(kind, held_out),
            gaussian=None if self.gaussian is None else Tally.of(self.of_kind(self.gaussian, kind)),
            originals=len(self.samples.original[own].unique()),
            exact=bool(exact.any()),
            level=level,
        )

    def _real(self, kind: str, held_out: Match | None) -> Tally:
        new = Tally(0, 0) if held_out is None else Tally.of(self.of_kind(held_out, kind))
        if kind == REPEATED:
            return new
        own = Tally.of(self.of_kind(self.others, kind))
        pairs, drawn = int((self.originals.standing == 2).sum()), int(self.originals.standing.sum())
        # In proportion to the originals that occur once and were compared; a pair is one event, of which N/2 are possible.
        asked = own.total / int(self.originals.unique.sum())
        hits, possible = own.copies / 2 + pairs * asked, drawn * asked / 2
        with_repeats = Tally(math.ceil(hits), max(round(possible), math.ceil(hits))) if pairs else own
        rarer = new.total and fisher_p(*with_repeats, *new) <= _RARER  # among new images than among known ones
        known = own if rarer else with_repeats
        return Tally(new.copies + known.copies, new.total + known.total)


def fisher_p(copies: int, count: int, control_copies: int, control_count: int) -> float:
    """Fisher's one-sided p-value that copies are no more frequent than in a control.

    p = P(X ≥ copies), X hypergeometric: of all copies in both sets, those that fall to the first. Valid whatever the share
    of copies, since it is given their number.

    >>> round(fisher_p(10, 1000, 0, 1000), 5)
    0.00095
    """
    everything = count + control_count
    return float(hypergeom.sf(copies - 1, everything, copies + control_copies, count))
