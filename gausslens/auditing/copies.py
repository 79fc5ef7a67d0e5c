"""Samples against the training set: which are copies, be they mirrored or shifted, and can chance explain it?

Everything rests on each sample's nearest neighbours among the training images T and the held-out images H, under each
family of transformations: "plain" (as they are), "mirrored" and "shifted". Each family has its two-set copy test (see
`measures.twoset`), in all of T against all of H; the p-value of all is the smallest one times their number. Samples
are named as copies in those families alone whose test gives the alarm: elsewhere a list is chance likeness. The
description beside it (GL score, share of samples much nearer to one training image than to any other) is about plain
copies. For a model trained on mirrored images as well (`augment="flip"`) "plain" is either orientation.

Repeats within T and within H are dropped first. A training image that occurs twice is one image, not two that fell to
one side; and it must not hide its own copies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._typing import Images
from ..images import Bounds
from ..measures.copying import DUPLICATE_RMSE, compared_sets, estimate_ratio, gl_score, identifiable_images
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.neighbors import duplicates, resident
from ..measures.twoset import CopyTest, Neighborhood, fewest_copies, judge_neighborhood
from ..progress import track
from .pool import Pool, families_of, without_repeats
from .thresholds import THRESHOLDS
from .transformations import Transformation

ALARM_LEVEL = THRESHOLDS["p"].value


class Pair(NamedTuple):
    """A sample named as a copy.

    Attributes:
        sample: its index.
        image: the index of the training image it is a copy of.
        transformation: what was done to that image.
        rmse: root mean square difference of the two.
        ratio: how much nearer it lies to this image than to the nearest held-out one, r = d_T/d_H.
    """

    sample: int
    image: int
    transformation: Transformation
    rmse: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Copies:
    """How near samples lie to training images, and which are copies; tensors are on the CPU.

    Attributes:
        nearest: the training image nearest to each sample under any transformation, (m,).
        distances: d₁, the distance to it, (m,).
        ratios: d₁/d₂, d₂ the distance to the next distinct training image under that family of transformations, (m,);
            NaN where there is none.
        matched: that transformation, for each sample.
        gl: the GL score, the mean of ‖x − NN(x)‖/‖x‖ over samples x ≠ 0; plain.
        gl_held_out: the same of the held-out images; None without them.
        gl_relative: `gl`/`gl_held_out`, about 1 for samples as new as real images.
        ratio_fraction: the share of samples with plain d₁/d₂ < threshold.
        ratio_fraction_held_out: the same of the held-out images; None without them.
        identifiable: the share of samples whose nearest training image is no nearer to another one than the flattest
            tenth is, so that a copy could be told from a likeness.
        tests: the two-set copy test of each family; none without held-out images.
        pairs: the samples named as copies in families whose test gives the alarm, by ascending r.
        train_duplicates: pairs (i, j) of training images of which j repeats i, (p, 2).
        shared_duplicates: pairs (i, j) of a training image i and a held-out image j that repeats it, (p, 2).
        neighborhoods: what the tests were made of.
        pool: the images compared with.
        threshold: of d₁/d₂ and of the tests.
        level: of the p-value, at which there is an alarm.
        permutations: behind each p-value.
    """

    nearest: Tensor = field(repr=False)
    distances: Tensor = field(repr=False)
    ratios: Tensor = field(repr=False)
    matched: tuple[Transformation, ...] = field(repr=False)
    gl: Estimate
    gl_held_out: Estimate | None
    gl_relative: Estimate | None
    ratio_fraction: Estimate
    ratio_fraction_held_out: Estimate | None
    identifiable: Estimate
    tests: dict[str, CopyTest]
    pairs: list[Pair] = field(repr=False)
    train_duplicates: Tensor = field(repr=False)
    shared_duplicates: Tensor = field(repr=False)
    neighborhoods: dict[str, Neighborhood] = field(repr=False)
    pool: Pool = field(repr=False)
    threshold: float
    level: float
    permutations: int

    @property
    def p_value(self) -> float | None:
        """The smallest p-value of the tests times their number; None without held-out images."""
        if not self.tests:
            return None
        return min(1.0, len(self.tests) * min(test.p_value for test in self.tests.values()))

    @property
    def could_alarm(self) -> bool:
        """Whether the tests would find copies if all samples were copies; few held-out images cannot rule chance out."""
        level = self.level / max(len(self.tests), 1)
        needed = (fewest_copies(test.n_train, test.n_held_out, level) for test in self.tests.values())
        return min(needed, default=math.inf) <= len(self.nearest)

    @property
    def alarm(self) -> bool:
        """Whether chance is ruled out: the p-value is at most the level."""
        return self.p_value is not None and self.p_value <= self.level

    @property
    def copied_fraction(self) -> Estimate | None:
        """The share of samples named as copies; None without held-out images, where none can be named."""
        return proportion_estimate(len(self.pairs), len(self.nearest)) if self.tests else None

    def __str__(self) -> str:
        n_held_out = 0 if self.pool.held_out is None else len(self.pool.held_out)
        lines = [
            f"{len(self.nearest)} samples against {len(self.pool.train)} training and {n_held_out} held-out images",
            f"  GL score: {self.gl}; of held-out images: {self.gl_held_out}; relative to it: {self.gl_relative}",
            f"  nearer than {self.threshold:.2g} of the next distinct training image: {self.ratio_fraction}",
        ]
        lines += [f"  {family}: {test}" for family, test in self.tests.items()]
        if self.tests:
            found = "copies found" if self.alarm else "no more copies than by chance"
            lines.append(f"  {found}: p = {self.p_value:.2g}; {len(self.pairs)} samples named as copies")
        return "\n".join(lines)


def find_copies(
    samples: Images,
    train: Images,
    held_out: Images | None = None,
    *,
    mirrored: bool = True,
    shifts: Sequence[int] = (1, 2),
    augment: str | None = None,
    threshold: float = 1 / 3,
    false_discovery: float = 0.1,
    level: float = ALARM_LEVEL,
    permutations: int = 9999,
    duplicate_rmse: float = DUPLICATE_RMSE,
    seed: int = 0,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Copies:
    """Which samples are copies of training images, and whether chance can explain it.

    p = #families · min p of the two-set copy tests; pairs are named at a false-discovery rate in each family.

    The held-out images must be drawn at random from the source of the training images and not have been trained on. The
    more there are beside the training images, the better: each copy found multiplies the p-value by |T|/(|T| + |H|).

    Args:
        samples: generated images, (m, *shape); only checked to be finite.
        train: the images the model was trained on, (n, *shape).
        held_out: images of the same source it has not seen, (n', *shape); without them there is description alone.
        mirrored: whether to look for mirrored copies.
        shifts: pixels by which copies may be shifted, in either direction along each axis; () for none.
        augment: "flip" for a model that was trained on mirrored images, too.
        threshold: of d₁/d₂ and of the copy tests, above 0 and below 1.
        false_discovery: the admissible share of wrong pairs, above 0 and below 1.
        level: the p-value up to which there is an alarm.
        permutations: random labellings behind each p-value.
        duplicate_rmse: root mean square difference up to which two images are the same.
        seed: fixes everything random.
        bounds: admissible values of float `train` and `held_out`, or None.
        device: where to look for neighbours; None is where `train` is.
        progress: show progress bars.

    Returns:
        Neighbours, scores, tests and pairs.

    Raises:
        ConfigError: if an option is out of its range.
        DataError: if a set is empty or not finite, or the sets' image shapes differ.

    >>> images = torch.rand(300, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> samples = torch.cat([images[:30].flip(-1), images[200:]])
    >>> copies = find_copies(samples, images[:100], images[100:200])
    >>> copies.alarm, len(copies.pairs), str(copies.pairs[0].transformation)
    (True, 30, 'mirrored')
    """
    generated, known, unseen = compared_sets(
        samples, train, held_out, threshold=threshold, duplicate_rmse=duplicate_rmse, bounds=bounds
    )
    generated, known = resident(generated, device), resident(known, device)
    unseen = None if unseen is None else resident(unseen, device)
    tolerance = duplicate_rmse * math.sqrt(known[0].numel())
    families = families_of(known.ndim == 4, mirrored=mirrored, shifts=shifts, augment=augment)
    where: dict[str, Any] = {"device": device, "progress": progress}
    repeats = duplicates(known, tolerance=tolerance, **where)
    shared = torch.empty(0, 2, dtype=torch.long)
    if unseen is not None:
        shared = duplicates(known, unseen, tolerance=tolerance, **where)
        unseen, _ = without_repeats(unseen, duplicates(unseen, tolerance=tolerance, **where))
    pool = Pool(*without_repeats(known, repeats), unseen, families, device)

    found = {family: pool.in_train(generated, family) for family in track(pool.families, enabled=progress)}
    neighborhoods = {}
    if unseen is not None:
        neighborhoods = {family: pool.neighborhood(generated, family, near) for family, near in found.items()}
    options = {"threshold": threshold, "false_discovery": false_discovery}
    tests = {
        family: judge_neighborhood(near, **options, permutations=permutations, seed=seed)
        for family, near in neighborhoods.items()
    }
    first, indices, _ = found["plain"]
    gl, gl_held_out, close_held_out = gl_score(generated, first[:, 0]), None, None
    if unseen is not None:
        from_unseen = pool.in_train(unseen, "plain", 2)[0]
        gl_held_out, close_held_out = gl_score(unseen, from_unseen[:, 0]), _share_close(from_unseen, threshold)
    told_apart = identifiable_images(indices[:, 0], pool.train, tolerance, seed, where)
    return Copies(
        **_nearest_of_all(pool, found),
        gl=gl,
        gl_held_out=gl_held_out,
        gl_relative=None if gl_held_out is None else estimate_ratio(gl, gl_held_out),
        ratio_fraction=_share_close(first, threshold),
        ratio_fraction_held_out=close_held_out,
        identifiable=proportion_estimate(int(told_apart.sum()), len(told_apart)),
        tests={family: replace(test, copied=pool.kept[test.copied]) for family, test in tests.items()},
        pairs=_pairs(pool, found, tests, level),
        train_duplicates=repeats,
        shared_duplicates=shared,
        neighborhoods=neighborhoods,
        pool=pool,
        threshold=threshold,
        level=level,
        permutations=permutations,
    )


def _ratios(distances: Tensor) -> Tensor:
    """d₁/d₂, NaN where there is no second image; d₁ = d₂ = 0 has ratio 1."""
    if distances.shape[1] < 2:
        return torch.full((len(distances),), math.nan, dtype=torch.float64)
    first, second = distances[:, 0], distances[:, 1]
    return torch.where(second > 0, first / second, 1.0)


def _share_close(distances: Tensor, threshold: float) -> Estimate:
    close = _ratios(distances) < threshold
    return proportion_estimate(int(close.sum()), len(close))


def _nearest_of_all(pool: Pool, found: dict[str, tuple[Tensor, Tensor, Tensor]]) -> dict[str, Any]:
    """Of each sample, the nearest training image under any transformation; of equally near ones, the plain one."""
    families = list(found)
    distances = torch.stack([found[family][0][:, 0] for family in families])
    best = distances.argmin(0)
    rows = torch.arange(len(best))
    which = torch.stack([found[family][2][:, 0] for family in families])[best, rows].tolist()
    return {
        "nearest": pool.kept[torch.stack([found[family][1][:, 0] for family in families])[best, rows]],
        "distances": distances[best, rows],
        "ratios": torch.stack([_ratios(found[family][0]) for family in families])[best, rows],
        "matched": tuple(pool.families[families[f]][w] for f, w in zip(best.tolist(), which, strict=True)),
    }


def _pairs(
    pool: Pool, found: dict[str, tuple[Tensor, Tensor, Tensor]], tests: dict[str, CopyTest], level: float
) -> list[Pair]:
    """The samples named, each in the family in which it lies nearest to its image."""
    pixels = math.sqrt(pool.train[0].numel())
    named: dict[int, Pair] = {}
    for family, test in tests.items():
        if len(tests) * test.p_value > level:
            continue
        distances, _, which = found[family]
        for sample, image in zip(test.copies.tolist(), test.copied.tolist(), strict=True):
            pair = Pair(
                sample,
                int(pool.kept[image]),
                pool.families[family][int(which[sample, 0])],
                float(distances[sample, 0]) / pixels,
                float(test.ratios[sample]),
            )
            if sample not in named or pair.rmse < named[sample].rmse:
                named[sample] = pair
    return sorted(named.values(), key=lambda pair: (pair.ratio, pair.sample))
