"""Copies beside their controls: would as many come about by chance?

Real new images satisfy the rule for copies now and then (see `measures.originals`), and so do samples of a model that only
knows mean and covariance, where images are few. So copies exist only if the samples hold more of them than either control,
by a one-sided Fisher test each:

    real images    held-out images against the originals, pooled with the originals against one another
    Gaussian       as many samples of the training images' own Gaussian denoiser, from the same latents by the same sampler

Originals that stand in the training set once and those that stand there repeatedly are tested apart. Only held-out images
can say whether the latter are memorised or commonplace. For the former the originals themselves are controls, too. But where
new images coincide with old ones by nature (icons), taking out repeats takes out just these coincidences. By Good and
Turing a new image coincides with an original that stands once at a rate of 2N₂/N, with N₂ originals that stand twice. So
these pairs count, N₂ of N/2, unless held-out images coincide far more rarely (p ≤ .0001): then the repeats are the training
set's own.

The unit is an original or a group: of each held-out group and of each original one image is a control.

Fewer than five copied originals may be one draw of a generator that collapsed. They convict only if the upper limit of the
real images' share is at most .01, or if a sample is within 2/255 RMSE of an original that no held-out image repeats.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from scipy.stats import hypergeom
from torch import Tensor

from .._typing import Bool, Float, Int
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.originals import Match, Originals
from .families import PLAIN, Family
from .thresholds import THRESHOLDS

ONCE, REPEATED = "once", "repeatedly"
_FEW, _RARE = int(THRESHOLDS["few originals"].value), THRESHOLDS["rare"].value
_RARER = 0.0001  # level at which held-out images coincide more rarely than training images do
# Shares of the level: whole copies, unchanged, of originals that stand once or repeatedly. The others have what is left.
_PLAIN_SHARES = {ONCE: 0.55, REPEATED: 0.15}


class Tally(NamedTuple):
    """How many of so many images are copies by the rule."""

    copies: int
    total: int

    @property
    def share(self) -> Estimate:
        """The share with its interval; of no images it may be anything."""
        return proportion_estimate(*self) if self.total else Estimate(math.nan, 0.0, 1.0, 0)


@dataclass(frozen=True)
class Comparison:
    """Copies among samples beside both controls, for one family and one kind of original.

    Attributes:
        family: what copies look like.
        kind: how often the originals stand in the training set, "once" or "repeatedly".
        samples: copies among the samples.
        real: copies among real images.
        gaussian: copies among samples of the Gaussian denoiser; None if there are none.
        originals: how many originals the samples copy.
        exact: whether a sample is within 2/255 RMSE of an original that no held-out image repeats.
        level: its share of the audit's level.
    """

    family: str
    kind: str
    samples: Tally
    real: Tally
    gaussian: Tally | None
    originals: int
    exact: bool
    level: float

    @property
    def p_value(self) -> float:
        """The larger of the p-values beside either control; 1 where there are no real images."""
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
        sure = exact or self.real.share.high <= _RARE
        low, high = 0, self.samples.total  # the p-values fall with the number of copies
        if not self._enough(high) or (concentrated and not sure):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._enough(middle) else (middle, high)
        return high if concentrated or sure else max(high, _FEW)

    def _p_value(self, copies: int) -> float:
        """The larger of the p-values beside either control if so many samples were copies."""
        if not self.real.total:
            return 1.0
        controls = [control for control in (self.real, self.gaussian) if control is not None]
        return max(fisher_p(copies, self.samples.total, *control) for control in controls)

    def _enough(self, copies: int) -> bool:
        return self._p_value(copies) <= self.level


@dataclass(frozen=True, eq=False)
class FamilyMatches:
    """The nearest originals of samples and of all controls, in one family.

    Attributes:
        family: what copies look like.
        originals: the training images in the family's window, as originals.
        rows: which samples were held up against them, (s,).
        samples: their matches.
        held_out: matches of held-out images; None where they are no control.
        overlap: which of these repeat a training image or share a group with one.
        others: matches of originals that stand once among all the others.
        gaussian: matches of the Gaussian denoiser's samples; None if there are none.
        level: of the whole audit.
        n_families: how many families share the level.
        tolerance: the distance up to which two images are the same.
    """

    family: Family
    originals: Originals = field(repr=False)
    rows: Int[Tensor, "s"] = field(repr=False)
    samples: Match = field(repr=False)
    held_out: Match | None = field(repr=False)
    overlap: Bool[Tensor, "m"] = field(repr=False)
    others: Match = field(repr=False)
    gaussian: Match | None = field(repr=False)
    level: float
    n_families: int
    tolerance: float

    def comparisons(self, *, with_overlap: bool = True) -> list[Comparison]:
        """The comparisons, by kind of original; of kinds that are there."""
        kinds = [ONCE] * bool(self.originals.unique.any()) + [REPEATED] * bool((~self.originals.unique).any())
        return [self._comparison(kind, kinds, with_overlap) for kind in kinds]

    def of_kind(self, match: Match, kind: str) -> Bool[Tensor, "m"]:
        """Which images are copies of originals of a kind."""
        return match.copied & (self.originals.unique[match.original] == (kind == ONCE))

    def real_ratios(self, kind: str) -> Float[Tensor, "c"]:
        """d₁/d₂ of real images beside originals of a kind: held-out images, and of originals that stand once the others."""
        matches = [self.held_out] * (self.held_out is not None) + [self.others] * (kind == ONCE)
        ratios = [match.ratio[self.originals.unique[match.original] == (kind == ONCE)] for match in matches if match]
        return torch.cat(ratios) if ratios else torch.empty(0, dtype=torch.float64)

    def _comparison(self, kind: str, kinds: list[str], with_overlap: bool) -> Comparison:
        own = self.of_kind(self.samples, kind)
        copied = self.samples.original[own].unique()
        held_out = None
        if self.held_out is not None:
            held_out = self.held_out if with_overlap else self.held_out[(~self.overlap).nonzero()[:, 0]]
        repeated_there = torch.zeros(self.originals.count, dtype=torch.bool)
        if self.held_out is not None:
            repeated_there[self.held_out.original[self.held_out.first <= self.tolerance]] = True
        near = own & (self.samples.first <= self.tolerance) & ~repeated_there[self.samples.original]
        return Comparison(
            family=self.family.name,
            kind=kind,
            samples=_tally(own),
            real=self._real(kind, held_out),
            gaussian=None if self.gaussian is None else _tally(self.of_kind(self.gaussian, kind)),
            originals=len(copied),
            exact=bool(near.any()),
            level=self._share(kind, kinds) * self.level,
        )

    def _share(self, kind: str, kinds: list[str]) -> float:
        """This comparison's share of the level; fixed before any sample is looked at."""
        plain = sum(_PLAIN_SHARES.values())
        if self.family.name == PLAIN:
            return _PLAIN_SHARES[kind] if len(kinds) > 1 else plain
        return (1 - plain) / (max(self.n_families - 1, 1) * len(kinds))

    def _real(self, kind: str, held_out: Match | None) -> Tally:
        new = Tally(0, 0) if held_out is None else _tally(self.of_kind(held_out, kind))
        if kind == REPEATED:
            return new
        own = _tally(self.of_kind(self.others, kind))
        pairs, drawn = int((self.originals.standing == 2).sum()), int(self.originals.standing.sum())
        # In proportion to the originals that stand once and were asked; a pair is one event, of which N/2 are possible.
        asked = own.total / int(self.originals.unique.sum())
        hits, possible = own.copies / 2 + pairs * asked, drawn * asked / 2
        with_repeats = Tally(math.ceil(hits), max(round(possible), math.ceil(hits))) if pairs else own
        if new.total and _rarer(new, with_repeats):
            with_repeats = own
        return Tally(new.copies + with_repeats.copies, new.total + with_repeats.total)


def _tally(copied: Bool[Tensor, "m"]) -> Tally:
    return Tally(int(copied.sum()), len(copied))


def _rarer(new: Tally, known: Tally) -> bool:
    """Whether copies are significantly rarer among new images than among known ones."""
    return fisher_p(*known, *new) <= _RARER


def fisher_p(copies: int, count: int, control_copies: int, control_count: int) -> float:
    """Fisher's one-sided p-value that copies are no more frequent than in a control.

    p = P(X ≥ copies), X hypergeometric: of all copies in both sets, those that fall to the first. Valid whatever the share
    of copies, since it is given their number.

    >>> round(fisher_p(10, 1000, 0, 1000), 5)
    0.00095
    """
    everything = count + control_count
    return float(hypergeom.sf(copies - 1, everything, copies + control_copies, count))
