"""Copying, what comes out: which samples are copies of training images, of which ones, and how often.

The rule for a copy is that of `measures.originals`; `controls` says when copies exist. The families (`families`) are tested
in parallel and share the audit's level in fixed parts. In those that convict, copies are named at a false-discovery rate of
.1 with real images as decoys: a ratio below u names a sample if chance puts at most a tenth as many samples below u. A whole
copy is not named again for its parts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .._typing import Float, Int
from ..measures.copy_test import NEIGHBORS, CopyTest, judge_neighbors
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.memorization import gl_score
from ..measures.neighbors import nearest, resident
from ..measures.originals import COPY_RATIO, Match, Originals
from ..measures.transformations import Transformation
from ..noise import draw_order
from ..progress import track
from .controls import ONCE, REPEATED, Comparison, FamilyMatches, one_of_each, share_level
from .families import PLAIN, Family, families_of
from .pool import Pool
from .thresholds import limit

_FALSE_DISCOVERY = limit("false discovery")
_LEAST_CONTROLS = 500


class Copy(NamedTuple):
    """A sample named as a copy."""

    sample: int
    image: int  # the training image it is a copy of
    original: int  # the original which that image belongs to
    family: str  # what the copy looks like
    transformation: Transformation  # what was done to the image
    rmse: float  # root mean square difference of the two, in the family's window
    ratio: float  # d₁/d₂


@dataclass(frozen=True, eq=False, repr=False)
class Copies:
    """How near samples lie to training images, and which are copies; tensors are on the CPU."""

    matches: dict[str, FamilyMatches]  # nearest originals of samples and controls, by family
    copies: list[Copy]  # the samples named as whole copies, by ascending ratio
    part_copies: list[Copy]  # those named for a copied part; a sample may be listed several times
    share: Estimate  # of samples that are whole copies by the rule, plain ones or in a family that convicts
    gl: Estimate  # the GL score, the mean of ‖x − NN(x)‖/‖x‖ over samples x ≠ 0
    gl_held_out: Estimate | None  # the same of the held-out images
    two_set: CopyTest | None  # None without held-out images that are exchangeable with training images

    @property
    def plain(self) -> FamilyMatches:
        """The matches of whole, unchanged images."""
        return self.matches[PLAIN]

    @property
    def comparisons(self) -> list[Comparison]:
        """Samples and their controls, for each family and kind of original."""
        return [one for found in self.matches.values() for one in found.comparisons]

    @property
    def exist(self) -> bool:
        """Whether copies of whole training images exist among the samples."""
        return any(found.convicts and not found.family.is_part for found in self.matches.values())

    @property
    def overlap_decides(self) -> bool:
        """Whether copies exist only if held-out images that repeat training images are left out."""
        without = (one for found in self.matches.values() for one in found.compare(with_overlap=False))
        return not any(one.convicts for one in self.comparisons) and any(one.convicts for one in without)

    @property
    def undecided(self) -> Comparison | None:
        """Copies of originals with repeats that held-out images are too few to judge, if there are such."""
        repeated = self.find(PLAIN, REPEATED)
        return repeated if repeated is not None and repeated.undecided else None

    @property
    def parts(self) -> Counter[str]:
        """How many samples are named in each family of copied parts."""
        return Counter(copy.family for copy in self.part_copies)

    @property
    def counts(self) -> dict[int, int]:
        """How many samples are named as copies of each original, the most copied first."""
        return dict(Counter(copy.original for copy in self.copies).most_common())

    def find(self, family: str = PLAIN, kind: str = ONCE) -> Comparison | None:
        """The comparison of a family and a kind of original, if there is one."""
        return next((found for found in self.comparisons if (found.family, found.kind) == (family, kind)), None)


def find_copies(
    samples: Tensor,
    pool: Pool,
    gaussian: Tensor | None = None,
    *,
    families: Sequence[Family] | None = None,
    exchangeable: bool = True,
    seed: int = 0,
    progress: bool = False,
) -> Copies:
    """Which samples are copies of training images, compared with real images and samples of the Gaussian denoiser.

    >>> images = torch.rand(300, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> samples = torch.cat([images[:30].flip(-1), images[200:]])
    >>> copies = find_copies(samples, Pool(images[:100], images[100:200]))
    >>> copies.exist, len(copies.counts), str(copies.copies[0].transformation)
    (True, 30, 'mirrored')
    """
    families = families_of(pool.train.shape[1:]) if families is None else families
    unseen = None if pool.held_out is None else resident(pool.held_out, pool.device)
    search = _Search(
        pool=pool,
        samples=resident(samples, pool.device),
        train=resident(pool.train, pool.device),
        held_out=unseen if exchangeable else None,
        gaussian=gaussian,
        n_families=len(families),
        seed=seed,
    )
    everyone = torch.arange(len(samples))
    whole = [family for family in families if not family.is_part]
    matches = {family.name: search.match(family, everyone) for family in track(whole, label="copies", enabled=progress)}
    named = _whole_copies(matches.values())
    rest = everyone[~torch.isin(everyone, torch.tensor(list(named), dtype=torch.long))]
    if len(rest):
        parts = track([family for family in families if family.is_part], label="parts", enabled=progress)
        matches |= {family.name: search.match(family, rest) for family in parts}
    plain = matches[PLAIN]
    return Copies(
        matches=matches,
        copies=sorted(named.values(), key=lambda copy: (copy.ratio, copy.sample)),
        part_copies=[copy for found in matches.values() if found.family.is_part for copy in _named(found)],
        share=_share(matches.values()),
        gl=gl_score(search.samples, plain.samples.first),
        gl_held_out=None if unseen is None else gl_score(unseen, plain.originals.nearest(unseen).first),
        two_set=search.two_set(plain.originals),
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """What is compared with the originals, in any family."""

    pool: Pool
    samples: Tensor
    train: Tensor
    held_out: Tensor | None  # None if held-out images are no control
    gaussian: Tensor | None
    n_families: int
    seed: int

    def match(self, family: Family, rows: Int[Tensor, "s"]) -> FamilyMatches:
        """The nearest originals of the samples in `rows` and of all controls, in a family."""
        pool, known = self.pool, family.crop(self.train)
        repeats = None if family.is_part else pool.train_repeats
        originals = Originals.of(known, pool.groups, repeats=repeats, rmse=pool.rmse, device=pool.device)

        def nearest_to(images: Tensor) -> Match:
            return originals.nearest(family.crop(images), transformations=family.transformations)

        most = max(_LEAST_CONTROLS, 2 * len(self.samples))
        once = originals.unique[originals.of_image[originals.kept]].nonzero()[:, 0]
        once = self._drawn(once, originals.of_image[originals.kept], "original controls")[:most]
        held_out, new = None, torch.empty(0, dtype=torch.long)
        if self.held_out is not None:
            new = self._drawn(torch.arange(len(self.held_out)), pool.held_out_groups, "held-out controls")[:most]
            held_out = nearest_to(self.held_out[new.to(self.held_out.device)])
        kinds = [ONCE] * bool(originals.unique.any()) + [REPEATED] * bool((~originals.unique).any())
        return FamilyMatches(
            family=family,
            originals=originals,
            rows=rows,
            samples=nearest_to(self.samples[rows.to(self.samples.device)]),
            held_out=held_out,
            overlap=pool.overlap[new],
            others=originals.without_themselves(once, transformations=family.transformations),
            gaussian=None if self.gaussian is None else nearest_to(self.gaussian),
            levels=share_level(family.name, kinds, self.n_families),
            tolerance=pool.rmse * math.sqrt(known[0].numel()),
        )

    def two_set(self, originals: Originals) -> CopyTest | None:
        """The two-set copy test of originals that occur once in both sets together; what is permuted are originals.

        Which these are does not depend on the sets, so the labels of the others are exchangeable, whatever recurs.
        """
        pool, held_out = self.pool, self.held_out
        if held_out is None or bool(pool.overlap.all()):
            return None
        new = (~pool.overlap).nonzero()[:, 0]
        groups = None if pool.held_out_groups is None else pool.held_out_groups[new]
        others = Originals.of(held_out[new.to(held_out.device)], groups, rmse=pool.rmse, device=pool.device)
        once = originals.unique.clone()
        if bool(pool.overlap.any()):
            once[originals.nearest(held_out[pool.overlap.to(held_out.device)]).original] = False
        found, counts = [], []
        for part, alone in ((originals, once), (others, others.unique)):
            rows = alone[part.of_image[part.kept]].nonzero()[:, 0]
            if not len(rows):
                return None
            images = part.images[rows.to(part.images.device)]
            distances, indices = nearest(self.samples, images, min(NEIGHBORS, len(images)), device=pool.device)
            numbers = torch.cumsum(alone, 0) - 1
            found.append((distances, numbers[part.of_image[part.kept[rows[indices]]]]))
            counts.append(int(alone.sum()))
        of_train, of_new = found
        return judge_neighbors(
            of_train, of_new, (counts[0], counts[1]), false_discovery=_FALSE_DISCOVERY, seed=self.seed
        )

    def _drawn(self, rows: Int[Tensor, "r"], groups: Tensor | None, stream: str) -> Int[Tensor, "g"]:
        """The rows in random order, one of each group."""
        if groups is None or not len(rows):
            return rows[draw_order(self.seed, len(rows), stream=stream)]
        return rows[one_of_each(groups.cpu()[rows], self.seed, stream)]


def _named(found: FamilyMatches) -> list[Copy]:
    """The samples named in a family, for each kind of original that convicts there."""
    copies, match = [], found.samples
    pixels = math.sqrt(found.originals.images[0].numel())
    for comparison in found.comparisons:
        if not comparison.convicts:
            continue
        ratios = match.ratio.masked_fill(~found.of_kind(match, comparison.kind), math.inf)
        largest = _admissible_ratio(ratios, found.real_ratios(comparison.kind), comparison)
        for row in (ratios < largest).nonzero()[:, 0].tolist():
            copies.append(
                Copy(
                    sample=int(found.rows[row]),
                    image=int(match.image[row]),
                    original=int(match.original[row]),
                    family=found.family.name,
                    transformation=found.transformation(row),
                    rmse=float(match.first[row]) / pixels,
                    ratio=float(ratios[row]),
                )
            )
    return copies


def _admissible_ratio(ratios: Float[Tensor, "s"], decoys: Float[Tensor, "c"], comparison: Comparison) -> float:
    """The largest u ≤ 1/3 with (copies expected by chance below u)/#{ratios < u} ≤ .1.

    By chance the samples would have as large a share below u as real images have, decoys and coincident repeats together.
    """
    count, n = len(ratios), max(comparison.real.total, 1)
    repeats = comparison.real.copies - int((decoys < COPY_RATIO).sum())  # coincidences of unknown ratio
    targets, decoys = ratios[ratios < COPY_RATIO].sort().values, decoys.sort().values
    below = torch.arange(1, len(targets) + 1)
    expected = count * (torch.searchsorted(decoys, targets, right=True) + repeats) / n
    admissible = (expected <= _FALSE_DISCOVERY * below).nonzero()
    if not len(admissible):
        return 0.0
    last = int(admissible.max())
    return COPY_RATIO if last + 1 == len(targets) else float(targets[last + 1])


def _whole_copies(found: Iterable[FamilyMatches]) -> dict[int, Copy]:
    """The samples named as whole copies, each in the family in which it lies nearest to its original."""
    named: dict[int, Copy] = {}
    for copy in (copy for family in found for copy in _named(family)):
        if copy.sample not in named or copy.rmse < named[copy.sample].rmse:
            named[copy.sample] = copy
    return named


def _share(matches: Iterable[FamilyMatches]) -> Estimate:
    """The share of samples that are whole copies by the rule: plain ones, or in a family that convicts."""
    counted = [
        found.samples.copied
        for found in matches
        if not found.family.is_part and (found.family.name == PLAIN or found.convicts)
    ]
    copied = torch.stack(counted).any(0)
    return proportion_estimate(int(copied.sum()), len(copied))
