"""The two-set copy test: are samples nearer to training images than to images that could have been training images?

The training images T and the held-out images H are equally large random halves of one pool, so the label "training" is
assigned at random. A sample has r = d_T/d_H, the ratio of its distances to the nearest image of either half. A copy has
r ≪ 1; the mirror case, r ≫ 1, occurs by chance alone. With A = #{r < t} and B = #{r > 1/t}, t = 1/3, the p-value of A − B
comes from permuting the labels. If the halves differ in size, A − κB replaces A − B, with κ = |T|/|H|. Copies are named by
target–decoy selection: the samples with the smallest r, as long as mirror cases are few in comparison.
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._typing import Bool, Float, Int
from ..errors import require
from ..noise import draw_order, generator
from .neighbors import nearest
from .originals import COPY_RATIO

NEIGHBORS = 16
FALSE_DISCOVERY = 0.05
"""The largest expected share of wrong names among the named copies."""

_CHUNK_LABELS = 1 << 24
_SHARED_LABELS = 64  # labellings are drawn for a multiple of so many images


@dataclass(frozen=True)
class CopyTest:
    """The result of the two-set copy test.

    Attributes:
        p_value: (1 + #{permutations with A − κB at least the observed}) / (1 + permutations).
        nearer_train: A, the samples with r < threshold.
        nearer_held_out: B, the samples with r > 1/threshold.
        ratios: r = d_T/d_H of each sample, (m,), 0 … ∞.
        copies: the samples named as copies, by ascending r (or u), (c,).
        copied: the training image of which each of them is a copy, (c,).
        n_train: number of training images in the pool.
        n_held_out: number of held-out images in the pool.
        threshold: t.
        false_discovery: the largest expected share of wrong names among `copies`.
        permutations: number of random labellings behind the p-value.
    """

    p_value: float
    nearer_train: int
    nearer_held_out: int
    ratios: Tensor = field(repr=False)
    copies: Tensor = field(repr=False)
    copied: Tensor = field(repr=False)
    n_train: int
    n_held_out: int
    threshold: float
    false_discovery: float
    permutations: int

    def __str__(self) -> str:
        equal = f"{self.n_train} images in each half"
        sides = equal if self.n_train == self.n_held_out else f"{self.n_train} against {self.n_held_out} images"
        return (
            f"of {len(self.ratios)} samples, {self.nearer_train} lie {1 / self.threshold:.3g} times nearer to a "
            f"training image than to any held-out one, and {self.nearer_held_out} the reverse: p = {self.p_value:.2g} "
            f"({sides}); {len(self.copies)} named as copies"
        )


def copy_test(
    samples: Tensor,
    train: Tensor,
    held_out: Tensor,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
    **options: Any,
) -> CopyTest:
    """Whether samples copy training images, with an exact p-value, and which samples do.

    p = (1 + #{A* − B* ≥ A − B}) / (1 + permutations),  copies = {r ≤ t*},
    t* the largest t* < t with (1 + #{r ≥ 1/t*}) / #{r ≤ t*} ≤ false_discovery (target–decoy selection).

    The held-out images must be exchangeable with the training images: drawn from the same source, at random, without
    shared duplicates. The p-value is exact if the samples are independent of the split, even if they are smoother or
    noisier than real images. Read p-value, A, B and names together: a small p-value may rest on one sample whose many
    close neighbours are all in one half. The error rate of names assumes that samples fall to either half independently,
    which is false for many samples around one image. At a rate of 0.05 nothing is named unless at least 20 samples have
    r < t. Copies of flat images, and of images with few degrees of freedom, are not identifiable, since others are as near.

    The images are tensors of any scale. `options` are `threshold`, `false_discovery` and `permutations` of
    `judge_neighbors`.

    >>> pool = torch.rand(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> copies, new = pool[:30] + 0.001, torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    >>> copy_test(copies, pool[:200], pool[200:]).p_value, copy_test(new, pool[:200], pool[200:]).p_value
    (0.0001, 1.0)
    """
    size = min(len(train), len(held_out))
    found, chosen = [], []
    for half in (train, held_out):
        own = draw_order(seed, len(half), stream="copy test")[:size].sort().values
        images = half if len(half) == size else half[own]
        found.append(nearest(samples, images, min(NEIGHBORS, size), device=device, progress=progress))
        chosen.append(own)
    result = judge_neighbors(found[0], found[1], (size, size), seed=seed, **options)
    return replace(result, copied=chosen[0][result.copied])


def judge_neighbors(
    to_train: tuple[Float[Tensor, "m j"], Int[Tensor, "m j"]],
    to_held_out: tuple[Float[Tensor, "m k"], Int[Tensor, "m k"]],
    sizes: tuple[int, int],
    *,
    threshold: float = COPY_RATIO,
    false_discovery: float = FALSE_DISCOVERY,
    permutations: int = 9999,
    seed: int = 0,
) -> CopyTest:
    """The two-set copy test, given the `NEIGHBORS` nearest to each sample in either half: distances, ascending, and indices.

    Only the 16 pool images nearest to a sample are kept. If none of them is in a half, the distance to that half is set to
    that of the 16th, which can only bring r nearer to 1. So a sample counts only if all pool images within d₁/t of it, d₁
    its smallest distance, have the same label, and never if d₁₆ ≤ d₁/t. Distances 0 and 0 have r = 1: no evidence.

    If the halves differ in size, r and 1/r differ in law even by chance, but the label of the nearest image is still
    random. Then copies are named by the score u = d₁/d₂ of the two nearest pool images, which ignores labels, and a decoy
    has weight κ.
    """
    for name, value in (("threshold", threshold), ("false_discovery", false_discovery)):
        require(0 < value < 1, f"{name} must lie above 0 and below 1; got {value}.")
    require(permutations >= 1, f"permutations must be at least 1; got {permutations}. 9999 resolve p-values to 0.0001.")
    distances, order = torch.cat([to_train[0], to_held_out[0]], 1).sort(dim=1, stable=True)
    members = torch.cat([to_train[1], to_held_out[1] + sizes[0]], 1).gather(1, order)[:, :NEIGHBORS]
    distances = distances[:, :NEIGHBORS]
    in_train, first, last = members < sizes[0], distances[:, 0], distances[:, -1:]
    d_train, d_held_out = (distances.where(own, last).amin(1) for own in (in_train, ~in_train))
    targets, decoys = d_train < threshold * d_held_out, d_held_out < threshold * d_train
    ratios = torch.where(d_train == d_held_out, 1.0, d_train / d_held_out)
    if sizes[0] == sizes[1]:
        copies = _target_decoy(torch.where(decoys, 1 / ratios, ratios), targets, decoys, false_discovery)
    else:
        second = distances[:, min(1, distances.shape[1] - 1)]
        alone = first < threshold * second
        copies = _target_decoy(first / second, targets & alone, decoys & alone, false_discovery, sizes[0] / sizes[1])
    nearer_train, nearer_held_out = int(targets.sum()), int(decoys.sum())
    null = _permutation_null(*_close_sets(distances, members, threshold), sizes, permutations, seed)
    return CopyTest(
        p_value=(1 + int((null >= _difference(nearer_train, nearer_held_out, sizes)).sum())) / (1 + permutations),
        nearer_train=nearer_train,
        nearer_held_out=nearer_held_out,
        ratios=ratios,
        copies=copies,
        copied=members[copies, 0],
        n_train=sizes[0],
        n_held_out=sizes[1],
        threshold=threshold,
        false_discovery=false_discovery,
        permutations=permutations,
    )


def _target_decoy(
    scores: Float[Tensor, "m"],
    targets: Bool[Tensor, "m"],
    decoys: Bool[Tensor, "m"],
    false_discovery: float,
    odds: float = 1.0,
) -> Int[Tensor, "c"]:
    """The targets with the smallest scores, by ascending score: as many as `false_discovery` admits."""
    order = scores.argsort(stable=True)
    order = order[targets[order]]
    ascending, mirrored = scores[order], scores[decoys].sort().values
    false = odds * (1 + torch.searchsorted(mirrored, ascending, right=True))
    admissible = (false / torch.searchsorted(ascending, ascending, right=True) <= false_discovery).nonzero()
    return order[: int(admissible.max()) + 1] if len(admissible) else order[:0]


def _close_sets(
    distances: Float[Tensor, "m k"], members: Int[Tensor, "m k"], threshold: float
) -> tuple[Int[Tensor, "g k"], Int[Tensor, "g"]]:
    """The sets of pool images that must have one label for a sample to count, and the number of samples with each set.

    A set is in descending order, padded with its first member. Samples that can never count are left out.
    """
    close = ~(distances[:, :1] < threshold * distances)
    sets = members.masked_fill(~close, -1)[~close[:, -1]].sort(1, descending=True).values
    unique, counts = torch.unique(sets, dim=0, return_counts=True)
    return torch.where(unique < 0, unique[:, :1], unique), counts


def _difference(nearer_train: Any, nearer_held_out: Any, sizes: tuple[int, int]) -> Any:
    """A − κB, times the smallest factor that makes it an integer."""
    divisor = math.gcd(*sizes)
    return sizes[1] // divisor * nearer_train - sizes[0] // divisor * nearer_held_out


def _permutation_null(
    sets: Int[Tensor, "g k"], counts: Int[Tensor, "g"], sizes: tuple[int, int], permutations: int, seed: int
) -> Float[Tensor, "permutations"]:
    """A − κB, scaled by `_difference`, under random labellings of the pool that keep the sizes of its halves."""
    if len(sets) == 0:
        return torch.zeros(permutations, dtype=torch.float64)
    images, places = torch.unique(sets, return_inverse=True)
    # Rounded up, so that tests under one seed share their labellings: those of fewer images begin those of more.
    n_labels = min(sum(sizes), _SHARED_LABELS * math.ceil(len(images) / _SHARED_LABELS))
    chunk = max(1, _CHUNK_LABELS // len(images))
    weights = counts.float()  # sums of up to 2²⁴ samples are exact
    parts = []
    for index, start in enumerate(range(0, permutations, chunk)):
        draws = min(chunk, permutations - start)
        labels = _urn_labels(n_labels, sizes, draws, seed, index)
        all_train, any_train = labels[places[:, 0]], labels[places[:, 0]]
        for rank in range(1, places.shape[1]):
            larger = (places[:, rank] != places[:, 0]).nonzero()[:, 0]
            others = labels[places[larger, rank]]
            all_train[larger] &= others
            any_train[larger] |= others
        nearer = (weights @ all_train.float()).double(), (weights @ (~any_train).float()).double()
        parts.append(_difference(*nearer, sizes))
    return torch.cat(parts)


@lru_cache(maxsize=4)
def _urn_labels(
    n_images: int, sizes: tuple[int, int], draws: int, seed: int, index: int
) -> Bool[Tensor, "n_images draws"]:
    """Part `index` of a seed's random labellings of the first images: draws without replacement from an urn."""
    uniform = torch.rand(n_images, draws, generator=generator(seed, "copy test labels", index))
    labels = torch.empty(n_images, draws, dtype=torch.bool)
    left = torch.full((draws,), float(sizes[0]))
    for image in range(n_images):
        labels[image] = uniform[image] * (sum(sizes) - image) < left
        left -= labels[image].float()
    return labels
