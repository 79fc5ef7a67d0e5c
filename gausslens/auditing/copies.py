"""Copying, what comes out: which samples are copies of training images, of which ones, and how often.

The rule for a copy is that of `measures.originals`; `controls` says when copies exist. The families (`families`) are tested
side by side and share the audit's level in fixed parts. In those that convict, copies are named at a false-discovery rate of
.1 with real images as decoys: a ratio below u names a sample if by chance at most a tenth as many samples would lie below u.
A whole copy is not named again for its parts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._typing import Bool, Float, Images, Int
from ..images import Bounds, gather
from ..measures.copy_test import NEIGHBORS, CopyTest, judge_neighbors
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.memorization import estimate_ratio, gather_sets, gl_score
from ..measures.neighbors import nearest, resident
from ..measures.originals import COPY_RATIO, DUPLICATE_RMSE, Match, Originals, near_duplicates
from ..measures.transformations import Transformation
from ..noise import draw_order
from ..progress import track
from .controls import ONCE, REPEATED, Comparison, FamilyMatches
from .families import PLAIN, Family, families_of
from .thresholds import THRESHOLDS

_LEVEL, _FALSE_DISCOVERY = THRESHOLDS["p"].value, THRESHOLDS["false discovery"].value
_LEAST_CONTROLS = 500


class Copy(NamedTuple):
    """A sample named as a copy.

    Attributes:
        sample: its index.
        image: the index of the training image it is a copy of.
        original: the original which that image belongs to.
        family: what the copy looks like.
        transformation: what was done to the image.
        rmse: root mean square difference of the two, in the family's window.
        ratio: d₁/d₂.
    """

    sample: int
    image: int
    original: int
    family: str
    transformation: Transformation
    rmse: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Copies:
    """How near samples lie to training images, and which are copies; tensors are on the CPU.

    Attributes:
        matches: nearest originals of samples and controls, by family.
        comparisons: samples beside their controls, for each family and kind of original.
        overlap_decides: whether copies exist only if held-out images that repeat training images are left out.
        copies: the samples named as whole copies, by ascending ratio.
        part_copies: the samples named for a copied part; a sample may stand here several times.
        share: the share of samples that are whole copies by the rule, plain ones or in a family that convicts.
        gl: the GL score, the mean of ‖x − NN(x)‖/‖x‖ over samples x ≠ 0.
        gl_held_out: the same of the held-out images; None without them.
        two_set: the two-set copy test; None without held-out images that are exchangeable with training images.
    """

    matches: dict[str, FamilyMatches] = field(repr=False)
    comparisons: list[Comparison]
    overlap_decides: bool
    copies: list[Copy] = field(repr=False)
    part_copies: list[Copy] = field(repr=False)
    share: Estimate
    gl: Estimate
    gl_held_out: Estimate | None
    two_set: CopyTest | None

    @property
    def exist(self) -> bool:
        """Whether copies of whole training images exist among the samples."""
        return any(found.convicts and not self._is_part(found.family) for found in self.comparisons)

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
    def relative_gl(self) -> Estimate | None:
        """`gl`/`gl_held_out`, about 1 for samples as new as real images."""
        return None if self.gl_held_out is None else estimate_ratio(self.gl, self.gl_held_out)

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

    def _is_part(self, family: str) -> bool:
        return self.matches[family].family.is_part

    def __str__(self) -> str:
        lines = [f"{self.share.count} samples: a share of {self.share} are copies of training images by the rule"]
        lines += [
            f"  of originals that stand {found.kind}: {found.samples.copies} of {found.samples.total} samples, "
            f"{found.real.copies} of {found.real.total} real images, p = {found.p_value:.2g}"
            for found in self.comparisons
            if found.family == PLAIN
        ]
        return "\n".join([*lines, f"  {len(self.copies)} samples are named, of {len(self.counts)} originals"])


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
    repeats: Int[Tensor, "p 2"] | None = None,
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
    generated, known, unseen = gather_sets(
        samples, train, held_out, threshold=COPY_RATIO, duplicate_rmse=duplicate_rmse, bounds=bounds
    )
    generated, known = resident(generated, device), resident(known, device)
    unseen = None if unseen is None else resident(unseen, device)
    where: dict[str, Any] = {"rmse": duplicate_rmse, "device": device}
    n_train, n_held_out = len(known), 0 if unseen is None else len(unseen)
    if repeats is None:
        pool = known if unseen is None else torch.cat([known.cpu(), unseen.cpu()])
        repeats = near_duplicates(pool, rmse=duplicate_rmse, device=device)
    overlap = overlapping(repeats, n_train, n_held_out, groups, held_out_groups)
    families = families_of(known.shape[1:], mirrored=mirrored, shifts=shifts, parts=parts, flip=flip)
    search = _Search(
        samples=generated,
        train=known,
        held_out=unseen if exchangeable else None,
        gaussian=None if gaussian is None else gather(gaussian, bounds=None, name="gaussian"),
        groups=groups,
        held_out_groups=held_out_groups,
        repeats=repeats[repeats[:, 1] < n_train],
        overlap=overlap,
        n_families=len(families),
        where=where,
        seed=seed,
    )
    everyone = torch.arange(len(generated))
    whole = [family for family in families if not family.is_part]
    matches = {family.name: search.match(family, everyone) for family in track(whole, label="copies", enabled=progress)}
    named = _whole_copies(matches.values())
    rest = torch.tensor([index for index in everyone.tolist() if index not in named], dtype=torch.long)
    if len(rest):
        looked_for = track([family for family in families if family.is_part], label="parts", enabled=progress)
        matches |= {family.name: search.match(family, rest) for family in looked_for}
    comparisons = [one for found in matches.values() for one in found.comparisons()]
    without_overlap = [one for found in matches.values() for one in found.comparisons(with_overlap=False)]
    plain, two_set = matches[PLAIN], None
    if unseen is not None and exchangeable and not bool(overlap.all()):
        two_set = _two_set(plain.originals, generated, unseen, held_out_groups, overlap, where, seed)
    return Copies(
        matches=matches,
        comparisons=comparisons,
        overlap_decides=not any(one.convicts for one in comparisons) and any(one.convicts for one in without_overlap),
        copies=sorted(named.values(), key=lambda copy: (copy.ratio, copy.sample)),
        part_copies=[copy for found in matches.values() if found.family.is_part for copy in _named(found)],
        share=_share(matches.values()),
        gl=gl_score(generated, plain.samples.first),
        gl_held_out=None if unseen is None else gl_score(unseen, plain.originals.nearest(unseen).first),
        two_set=two_set,
    )


def overlapping(
    repeats: Int[Tensor, "p 2"],
    n_train: int,
    n_held_out: int,
    groups: Int[Tensor, "n"] | None = None,
    held_out_groups: Int[Tensor, "m"] | None = None,
) -> Bool[Tensor, "m"]:
    """Which held-out images repeat a training image, or are of a group with training images.

    `repeats` are pairs (i, j) of training images, then held-out ones, of which j repeats i, the first that it repeats.
    """
    shared = repeats[(repeats[:, 0] < n_train) & (repeats[:, 1] >= n_train)]
    overlap = torch.zeros(n_held_out, dtype=torch.bool)
    overlap[shared[:, 1] - n_train] = True
    if groups is not None and held_out_groups is not None:
        overlap |= torch.isin(held_out_groups.cpu(), groups.cpu())
    return overlap


@dataclass(frozen=True, eq=False)
class _Search:
    """What is held up against the originals, in any family."""

    samples: Tensor
    train: Tensor
    held_out: Tensor | None
    gaussian: Tensor | None
    groups: Tensor | None
    held_out_groups: Tensor | None
    repeats: Tensor
    overlap: Tensor
    n_families: int
    where: dict[str, Any]
    seed: int

    def match(self, family: Family, rows: Int[Tensor, "s"]) -> FamilyMatches:
        """Samples in `rows`, and all controls, held up against the originals in a family."""
        known = family.crop(self.train)
        originals = Originals.of(known, self.groups, repeats=None if family.is_part else self.repeats, **self.where)
        how: dict[str, Any] = {"transformations": family.transformations}
        most = max(_LEAST_CONTROLS, 2 * len(self.samples))
        once = originals.unique[originals.of_image[originals.kept]].nonzero()[:, 0]
        once = self._one_of_each(once, originals.of_image[originals.kept], "original controls")[:most]
        held_out, new = None, torch.empty(0, dtype=torch.long)
        if self.held_out is not None:
            new = self._one_of_each(torch.arange(len(self.held_out)), self.held_out_groups, "held-out controls")[:most]
            held_out = originals.nearest(family.crop(self.held_out[new.to(self.held_out.device)]), **how)
        return FamilyMatches(
            family=family,
            originals=originals,
            rows=rows,
            samples=originals.nearest(family.crop(self.samples[rows.to(self.samples.device)]), **how),
            held_out=held_out,
            overlap=self.overlap[new],
            others=originals.without_themselves(once, **how),
            gaussian=None if self.gaussian is None else originals.nearest(family.crop(self.gaussian), **how),
            level=_LEVEL,
            n_families=self.n_families,
            tolerance=self.where["rmse"] * math.sqrt(known[0].numel()),
        )

    def _one_of_each(self, rows: Int[Tensor, "r"], groups: Tensor | None, stream: str) -> Int[Tensor, "g"]:
        """One of the rows of each group, in random order."""
        if not len(rows):
            return rows
        drawn = rows[draw_order(self.seed, len(rows), stream=stream)]
        if groups is None:
            return drawn
        _, group = torch.unique(groups.cpu()[drawn], return_inverse=True)
        first = torch.full((int(group.max()) + 1,), len(drawn)).scatter_reduce_(
            0, group, torch.arange(len(drawn)), "amin"
        )
        return drawn[first.sort().values]


def _named(found: FamilyMatches) -> list[Copy]:
    """The samples named in a family, for each kind of original that convicts there."""
    copies = []
    for comparison in found.comparisons():
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
        if not found.family.is_part and (found.family.name == PLAIN or any(one.convicts for one in found.comparisons()))
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
