"""Copying, what comes out: which samples are copies of training images, of which ones, and how often.

The rule for a copy is that of `measures.originals`; `controls` says when copies exist. The families (`families`) are tested
side by side and share the audit's level in fixed parts. In those that convict, copies are named at a false-discovery rate of
.1 with real images as decoys: a ratio below u names a sample if by chance at most a tenth as many samples would lie below u.
A whole copy is not named again for its parts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._typing import Bool, Float, Images, Int
from ..images import Bounds, gather
from ..measures.copy_test import NEIGHBORS, CopyTest, judge_neighbors
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.memorization import gather_sets, gl_score
from ..measures.neighbors import nearest, resident
from ..measures.originals import COPY_RATIO, DUPLICATE_RMSE, Match, Originals, near_duplicates
from ..measures.transformations import Transformation
from ..noise import draw_order
from ..progress import track
from .controls import ONCE, REPEATED, Comparison, FamilyMatches, one_of_each, share_level
from .families import PLAIN, Family, families_of
from .thresholds import THRESHOLDS

_FALSE_DISCOVERY = THRESHOLDS["false discovery"].value
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


class Repeats(NamedTuple):
    """Which of the training images, then held-out ones, repeat others."""

    pairs: Int[Tensor, "p 2"]  # (i, j) of which j repeats i, the first that it repeats
    overlap: Bool[Tensor, "m"]  # held-out images that repeat a training image, or are of a group with training images


def find_repeats(
    train: Tensor,
    held_out: Tensor | None,
    groups: Int[Tensor, "n"] | None = None,
    held_out_groups: Int[Tensor, "m"] | None = None,
    *,
    rmse: float = DUPLICATE_RMSE,
    device: torch.device | str | None = None,
) -> Repeats:
    """The images of both sets that are within a root mean square difference of earlier ones, and where the sets overlap."""
    pool = train if held_out is None else torch.cat([train.cpu(), held_out.cpu()])
    pairs = near_duplicates(pool, rmse=rmse, device=device)
    shared = pairs[(pairs[:, 0] < len(train)) & (pairs[:, 1] >= len(train)), 1]
    overlap = torch.zeros(len(pool) - len(train), dtype=torch.bool)
    overlap[shared - len(train)] = True
    if groups is not None and held_out_groups is not None:
        overlap |= torch.isin(held_out_groups.cpu(), groups.cpu())
    return Repeats(pairs, overlap)


@dataclass(frozen=True, eq=False, repr=False)
class Copies:
    """How near samples lie to training images, and which are copies; tensors are on the CPU."""

    matches: dict[str, FamilyMatches]  # nearest originals of samples and controls, by family
    copies: list[Copy]  # the samples named as whole copies, by ascending ratio
    part_copies: list[Copy]  # those named for a copied part; a sample may stand here several times
    share: Estimate  # of samples that are whole copies by the rule, plain ones or in a family that convicts
    gl: Estimate  # the GL score, the mean of ‖x − NN(x)‖/‖x‖ over samples x ≠ 0
    gl_held_out: Estimate | None  # the same of the held-out images
    two_set: CopyTest | None  # None without held-out images that are exchangeable with training images

    @property
    def comparisons(self) -> list[Comparison]:
        """Samples beside their controls, for each family and kind of original."""
        return [one for found in self.matches.values() for one in found.comparisons]

    @property
    def exist(self) -> bool:
        """Whether copies of whole training images exist among the samples."""
        return any(one.convicts and not self.matches[one.family].family.is_part for one in self.comparisons)

    @property
    def overlap_decides(self) -> bool:
        """Whether copies exist only if held-out images that repeat training images are left out."""
        without = (one for found in self.matches.values() for one in found.compare(with_overlap=False))
        return not any(one.convicts for one in self.comparisons) and any(one.convicts for one in without)

    @property
    def undecided(self) -> Comparison | None:
        """Copies of originals that stand repeatedly which held-out images are too few to judge, if there are such."""
        repeated = self.find(PLAIN, REPEATED)
        return repeated if repeated is not None and repeated.undecided else None

    @property
    def parts(self) -> list[str]:
        """The families of copied parts of which copies exist and can be named."""
        return list(dict.fromkeys(copy.family for copy in self.part_copies))

    @property
    def closest(self) -> Match:
        """The nearest original of each sample, as it is."""
        return self.matches[PLAIN].samples

    @property
    def counts(self) -> dict[int, int]:
        """How many samples are named as copies of each original, the most copied first."""
        return dict(Counter(copy.original for copy in self.copies).most_common())

    def find(self, family: str = PLAIN, kind: str = ONCE) -> Comparison | None:
        """The comparison of a family and a kind of original, if there is one."""
        return next((found for found in self.comparisons if (found.family, found.kind) == (family, kind)), None)


def find_copies(
    samples: Images,
    train: Images,
    held_out: Images | None = None,
    gaussian: Images | None = None,
    *,
    groups: Int[Tensor, "n"] | None = None,
    held_out_groups: Int[Tensor, "m"] | None = None,
    exchangeable: bool = True,
    mirrored: bool = True,
    shifts: Sequence[int] = (1, 2),
    parts: bool = True,
    flip: bool = False,
    repeats: Repeats | None = None,
    duplicate_rmse: float = DUPLICATE_RMSE,
    seed: int = 0,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Copies:
    """Which samples are copies of training images, beside real images and samples of the Gaussian denoiser.

    >>> images = torch.rand(300, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> samples = torch.cat([images[:30].flip(-1), images[200:]])
    >>> copies = find_copies(samples, images[:100], images[100:200])
    >>> copies.exist, len(copies.counts), str(copies.copies[0].transformation)
    (True, 30, 'mirrored')
    """
    sets = gather_sets(samples, train, held_out, threshold=COPY_RATIO, duplicate_rmse=duplicate_rmse, bounds=bounds)
    generated, known = (resident(part, device) for part in sets[:2])
    unseen = None if sets[2] is None else resident(sets[2], device)
    where: dict[str, Any] = {"rmse": duplicate_rmse, "device": device}
    repeats = repeats or find_repeats(known, unseen, groups, held_out_groups, **where)
    families = families_of(known.shape[1:], mirrored=mirrored, shifts=shifts, parts=parts, flip=flip)
    search = _Search(
        samples=generated,
        train=known,
        held_out=unseen if exchangeable else None,
        gaussian=None if gaussian is None else gather(gaussian, bounds=None, name="gaussian"),
        groups=groups,
        held_out_groups=held_out_groups,
        repeats=repeats,
        n_families=len(families),
        where=where,
        seed=seed,
    )
    everyone = torch.arange(len(generated))
    whole = [family for family in families if not family.is_part]
    matches = {family.name: search.match(family, everyone) for family in track(whole, label="copies", enabled=progress)}
    named = _whole_copies(matches.values())
    rest = everyone[~torch.isin(everyone, torch.tensor(list(named), dtype=torch.long))]
    if len(rest):
        looked_for = track([family for family in families if family.is_part], label="parts", enabled=progress)
        matches |= {family.name: search.match(family, rest) for family in looked_for}
    originals, samples_matched = matches[PLAIN].originals, matches[PLAIN].samples
    two_set = None
    if unseen is not None and exchangeable and not bool(repeats.overlap.all()):
        two_set = _two_set(originals, generated, unseen, held_out_groups, repeats.overlap, where, seed)
    return Copies(
        matches=matches,
        copies=sorted(named.values(), key=lambda copy: (copy.ratio, copy.sample)),
        part_copies=[copy for found in matches.values() if found.family.is_part for copy in _named(found)],
        share=_share(matches.values()),
        gl=gl_score(generated, samples_matched.first),
        gl_held_out=None if unseen is None else gl_score(unseen, originals.nearest(unseen).first),
        two_set=two_set,
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """What is held up against the originals, in any family."""

    samples: Tensor
    train: Tensor
    held_out: Tensor | None
    gaussian: Tensor | None
    groups: Tensor | None
    held_out_groups: Tensor | None
    repeats: Repeats
    n_families: int
    where: dict[str, Any]
    seed: int

    def match(self, family: Family, rows: Int[Tensor, "s"]) -> FamilyMatches:
        """Samples in `rows`, and all controls, held up against the originals in a family."""
        known, pairs = family.crop(self.train), self.repeats.pairs
        own_pairs = None if family.is_part else pairs[pairs[:, 1] < len(known)]
        originals = Originals.of(known, self.groups, repeats=own_pairs, **self.where)
        how: dict[str, Any] = {"transformations": family.transformations}
        most = max(_LEAST_CONTROLS, 2 * len(self.samples))
        once = originals.unique[originals.of_image[originals.kept]].nonzero()[:, 0]
        once = self._drawn(once, originals.of_image[originals.kept], "original controls")[:most]
        held_out, new = None, torch.empty(0, dtype=torch.long)
        if self.held_out is not None:
            new = self._drawn(torch.arange(len(self.held_out)), self.held_out_groups, "held-out controls")[:most]
            held_out = originals.nearest(family.crop(self.held_out[new.to(self.held_out.device)]), **how)
        kinds = [ONCE] * bool(originals.unique.any()) + [REPEATED] * bool((~originals.unique).any())
        return FamilyMatches(
            family=family,
            originals=originals,
            rows=rows,
            samples=originals.nearest(family.crop(self.samples[rows.to(self.samples.device)]), **how),
            held_out=held_out,
            overlap=self.repeats.overlap[new],
            others=originals.without_themselves(once, **how),
            gaussian=None if self.gaussian is None else originals.nearest(family.crop(self.gaussian), **how),
            levels=share_level(family.name, kinds, self.n_families),
            tolerance=self.where["rmse"] * math.sqrt(known[0].numel()),
        )

    def _drawn(self, rows: Int[Tensor, "r"], groups: Tensor | None, stream: str) -> Int[Tensor, "g"]:
        """The rows in random order, one of each group."""
        if groups is None or not len(rows):
            return rows[draw_order(self.seed, len(rows), stream=stream)]
        return rows[one_of_each(groups.cpu()[rows], self.seed, stream)]


def _named(found: FamilyMatches) -> list[Copy]:
    """The samples named in a family, for each kind of original that convicts there."""
    copies = []
    for comparison in found.comparisons:
        if not comparison.convicts:
            continue
        ratios = found.samples.ratio.masked_fill(~found.of_kind(found.samples, comparison.kind), math.inf)
        decoys = found.real_ratios(comparison.kind)
        limit = _admissible_ratio(ratios, decoys, comparison)
        pixels = math.sqrt(found.originals.images[0].numel())
        for row in (ratios < limit).nonzero()[:, 0].tolist():
            one = found.samples
            copies.append(
                Copy(
                    sample=int(found.rows[row]),
                    image=int(one.image[row]),
                    original=int(one.original[row]),
                    family=found.family.name,
                    transformation=found.family.transformations[int(one.transformation[row])],
                    rmse=float(one.first[row]) / pixels,
                    ratio=float(ratios[row]),
                )
            )
    return copies


def _admissible_ratio(ratios: Float[Tensor, "s"], decoys: Float[Tensor, "c"], comparison: Comparison) -> float:
    """The largest u ≤ 1/3 with (copies expected by chance below u)/#{ratios < u} ≤ .1.

    By chance the samples would have as large a share below u as real images have, decoys and coincident repeats alike.
    """
    count, n = len(ratios), max(comparison.real.total, 1)
    repeats = comparison.real.copies - int((decoys < COPY_RATIO).sum())  # coincidences that no ratio is known of
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
    for copy in (copy for family in found if not family.family.is_part for copy in _named(family)):
        if copy.sample not in named or copy.rmse < named[copy.sample].rmse:
            named[copy.sample] = copy
    return named


def _share(matches: Iterable[FamilyMatches]) -> Estimate:
    """The share of samples that are whole copies by the rule: plain ones, or in a family that convicts."""
    counted = [
        found.samples.copied
        for found in matches
        if not found.family.is_part and (found.family.name == PLAIN or any(one.convicts for one in found.comparisons))
    ]
    copied = torch.stack(counted).any(0)
    return proportion_estimate(int(copied.sum()), len(copied))


def _two_set(
    originals: Originals,
    samples: Tensor,
    held_out: Tensor,
    groups: Int[Tensor, "m"] | None,
    overlap: Bool[Tensor, "m"],
    where: dict[str, Any],
    seed: int,
) -> CopyTest | None:
    """The two-set copy test of originals that stand once in both sets together; what is permuted are originals.

    Which these are does not depend on the sets, so the labels of the others are exchangeable, whatever recurs.
    """
    new = (~overlap).nonzero()[:, 0]
    others = Originals.of(held_out[new.to(held_out.device)], None if groups is None else groups[new], **where)
    once = originals.unique.clone()
    if bool(overlap.any()):
        once[originals.nearest(held_out[overlap.to(held_out.device)]).original] = False
    found, counts = [], []
    for pool, alone in ((originals, once), (others, others.unique)):
        rows = alone[pool.of_image[pool.kept]].nonzero()[:, 0]
        if not len(rows):
            return None
        images = pool.images[rows.to(pool.images.device)]
        distances, indices = nearest(samples, images, min(NEIGHBORS, len(images)), device=where["device"])
        numbers = torch.cumsum(alone, 0) - 1
        found.append((distances, numbers[pool.of_image[pool.kept[rows[indices]]]]))
        counts.append(int(alone.sum()))
    return judge_neighbors(found[0], found[1], (counts[0], counts[1]), false_discovery=_FALSE_DISCOVERY, seed=seed)
