"""The two-set copy test: do samples lie nearer to training images than to images that might have been in their place?

The training images T and the held-out images H are equal-size random halves of one pool, so which half an image is in
is a fair label. A sample lies at r = d_T/d_H, the ratio of its distances to the nearest image of either half. A copy
has r ≪ 1; the mirror case, r ≫ 1, comes about by chance alone. With A = #{r < t} and B = #{r > 1/t}, t = 1/3, the
p-value of A − B comes from permuting the labels. It is exact if the samples are independent of the split, be they
smoother or noisier than real images.

Only the 16 pool images nearest to a sample are kept. A half without any of them is taken to be as far as the 16th,
which can only bring r nearer to 1. So a sample counts just when all pool images within d₁/t of it, d₁ its smallest
distance, carry one label, and never when d₁₆ ≤ d₁/t. Distances 0 and 0 have r = 1: no evidence either way.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .._typing import Bool, Float, Images, Int
from ..errors import ConfigError
from ..images import Bounds, gather
from ..noise import draw_order, generator
from .neighbors import nearest

NEIGHBORS = 16
_CHUNK_LABELS = 1 << 24


@dataclass(frozen=True)
class CopyTest:
    """What the two-set copy test found.

    Attributes:
        p_value: (1 + #{permutations with A − B at least the observed}) / (1 + permutations).
        nearer_train: A, the samples with r < threshold.
        nearer_held_out: B, the samples with r > 1/threshold.
        ratios: r = d_T/d_H of each sample, (m,), 0 … ∞.
        copies: the samples named as copies, by ascending r, (c,).
        copied: the training image each of them is a copy of, (c,).
        size: images used of either half; the larger set is cut to a random subset of the smaller one's size.
        threshold: t.
        false_discovery: the admissible share of wrong names among `copies`.
        permutations: random labellings behind the p-value.
    """

    p_value: float
    nearer_train: int
    nearer_held_out: int
    ratios: Tensor = field(repr=False)
    copies: Tensor = field(repr=False)
    copied: Tensor = field(repr=False)
    size: int
    threshold: float
    false_discovery: float
    permutations: int

    def __str__(self) -> str:
        return (
            f"of {len(self.ratios)} samples, {self.nearer_train} lie {1 / self.threshold:.3g} times nearer to a "
            f"training image than to any held-out one, {self.nearer_held_out} the reverse: p = {self.p_value:.2g} "
            f"({self.size} images a side); {len(self.copies)} named as copies"
        )


def copy_test(
    samples: Images,
    train: Images,
    held_out: Images,
    *,
    threshold: float = 1 / 3,
    false_discovery: float = 0.05,
    permutations: int = 9999,
    seed: int = 0,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    progress: bool = False,
) -> CopyTest:
    """Whether samples copy training images, with an exact p-value, and which ones do.

    p = (1 + #{A* − B* ≥ A − B}) / (1 + permutations),  copies = {r ≤ t*},
    t* the largest t* < t with (1 + #{r ≥ 1/t*}) / #{r ≤ t*} ≤ false_discovery (target–decoy selection).

    The held-out images must be exchangeable with the training images: drawn from the same source, at random, without
    shared duplicates. Read p-value, A, B and names together. A small p-value may rest on one sample, all of whose many
    close neighbours fell to one half. The names' error rate assumes that samples fall to either half independently,
    which many samples around one image do not; at a rate of 0.05 nothing is named unless at least 20 samples have
    r < t. Copies of flat images, and of images of few degrees of freedom, are not identifiable: others lie as near.

    Args:
        samples: generated images, (m, *shape); only checked to be finite.
        train: the images the model was trained on, (n, *shape).
        held_out: images from the same source it has not seen, (n', *shape).
        threshold: t, above 0 and below 1.
        false_discovery: the admissible share of wrong names, above 0 and below 1.
        permutations: random labellings, at least 1.
        seed: fixes the labellings, and the subset of the larger set.
        bounds: admissible values of float `train` and `held_out`, or None.
        device: where to find neighbours; None is where the images are.
        progress: show progress bars.

    Returns:
        The test's result.

    Raises:
        ConfigError: if an option is out of its range.

    >>> pool = torch.rand(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> copies, new = pool[:30] + 0.001, torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    >>> copy_test(copies, pool[:200], pool[200:]).p_value, copy_test(new, pool[:200], pool[200:]).p_value
    (0.0001, 1.0)
    """
    for name, value in (("threshold", threshold), ("false_discovery", false_discovery)):
        if not 0 < value < 1:
            raise ConfigError(f"{name} must lie above 0 and below 1; got {value}.")
    if permutations < 1:
        raise ConfigError(f"permutations must be at least 1; got {permutations}. 9999 resolve p-values to 0.0001.")
    queries = gather(samples, bounds=None, name="samples")
    halves = [gather(train, bounds=bounds, name="train"), gather(held_out, bounds=bounds, name="held_out")]
    size = min(len(half) for half in halves)
    kept = [_subset(len(half), size, seed) for half in halves]
    found = [
        nearest(
            queries, half if len(half) == size else half[own], min(NEIGHBORS, size), device=device, progress=progress
        )
        for half, own in zip(halves, kept, strict=True)
    ]
    neighbors = min(NEIGHBORS, 2 * size)
    distances, order = torch.cat([found[0][0], found[1][0]], 1).sort(dim=1, stable=True)
    members = torch.cat([found[0][1], found[1][1] + size], 1).gather(1, order)
    distances, members = distances[:, :neighbors], members[:, :neighbors]

    to_train, to_held_out = _halves_distances(distances, members < size)
    targets, decoys = to_train < threshold * to_held_out, to_held_out < threshold * to_train
    ratios = torch.where(to_train == to_held_out, 1.0, to_train / to_held_out)
    copies = _target_decoy(ratios, targets, decoys, false_discovery)
    nearer_train, nearer_held_out = int(targets.sum()), int(decoys.sum())
    null = _permuted(*_close_sets(distances, members, threshold), size, permutations, seed)
    return CopyTest(
        p_value=(1 + int((null >= nearer_train - nearer_held_out).sum())) / (1 + permutations),
        nearer_train=nearer_train,
        nearer_held_out=nearer_held_out,
        ratios=ratios,
        copies=copies,
        copied=kept[0][found[0][1][copies, 0]],
        size=size,
        threshold=threshold,
        false_discovery=false_discovery,
        permutations=permutations,
    )


def _subset(n: int, size: int, seed: int) -> Int[Tensor, "size"]:
    return draw_order(seed, n, stream="copy test")[:size].sort().values


def _halves_distances(
    distances: Float[Tensor, "m k"], in_train: Bool[Tensor, "m k"]
) -> tuple[Float[Tensor, "m"], Float[Tensor, "m"]]:
    """Distances to the nearest image of either half, at most that of the last neighbour."""
    last = distances[:, -1]
    to_train, to_held_out = (
        distances.masked_fill(~own, math.inf).amin(1).minimum(last) for own in (in_train, ~in_train)
    )
    return to_train, to_held_out


def _target_decoy(
    ratios: Float[Tensor, "m"], targets: Bool[Tensor, "m"], decoys: Bool[Tensor, "m"], false_discovery: float
) -> Int[Tensor, "c"]:
    """The most samples of smallest r whose estimated share of false ones is admissible, by ascending r."""
    order = ratios.argsort(stable=True)
    order = order[targets[order]]
    scores = ratios[order]
    mirrored = (1 / ratios[decoys]).sort().values
    share = (1 + torch.searchsorted(mirrored, scores, right=True)) / torch.searchsorted(scores, scores, right=True)
    admissible = (share <= false_discovery).nonzero()
    return order[: int(admissible.max()) + 1] if len(admissible) else order[:0]


def _close_sets(
    distances: Float[Tensor, "m k"], members: Int[Tensor, "m k"], threshold: float
) -> tuple[Int[Tensor, "g k"], Int[Tensor, "g"]]:
    """The sets of pool images that must carry one label for a sample to count, and how many samples share each.

    Sets are in descending order, filled up with their first member; samples that can never count have none.
    """
    close = ~(distances[:, :1] < threshold * distances)
    sets = members.masked_fill(~close, -1)[~close[:, -1]].sort(1, descending=True).values
    unique, counts = torch.unique(sets, dim=0, return_counts=True)
    return torch.where(unique < 0, unique[:, :1], unique), counts


def _permuted(
    sets: Int[Tensor, "g k"], counts: Int[Tensor, "g"], size: int, permutations: int, seed: int
) -> Float[Tensor, "permutations"]:
    """A − B under random labellings of the pool in which `size` of its 2·`size` images are training images."""
    if len(sets) == 0:
        return torch.zeros(permutations, dtype=torch.float64)
    images, places = torch.unique(sets, return_inverse=True)
    chunk = max(1, _CHUNK_LABELS // len(images))
    weights = counts.double()
    parts = []
    for index, start in enumerate(range(0, permutations, chunk)):
        draws = min(chunk, permutations - start)
        labels = _urn_labels(len(images), size, draws, generator(seed, "copy test labels", index))
        all_train, any_train = labels[places[:, 0]], labels[places[:, 0]]
        for rank in range(1, places.shape[1]):
            larger = (places[:, rank] != places[:, 0]).nonzero()[:, 0]
            others = labels[places[larger, rank]]
            all_train[larger] &= others
            any_train[larger] |= others
        parts.append(weights @ all_train.double() - weights @ (~any_train).double())
    return torch.cat(parts)


def _urn_labels(n_images: int, size: int, draws: int, random: torch.Generator) -> Bool[Tensor, "n_images draws"]:
    """Labels of the first images of a random labelling: draws without replacement from `size` of either kind."""
    uniform = torch.rand(n_images, draws, generator=random)
    labels = torch.empty(n_images, draws, dtype=torch.bool)
    left = torch.full((draws,), float(size))
    for image in range(n_images):
        labels[image] = uniform[image] * (2 * size - image) < left
        left -= labels[image].float()
    return labels
