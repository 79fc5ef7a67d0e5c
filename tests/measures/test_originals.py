"""The copy rule against its definition: originals, near-duplicates, groups, transformations."""

import math

import pytest
import torch

from gausslens.measures.originals import DUPLICATE_RMSE, Originals
from gausslens.measures.transformations import MIRRORED, Transformation


def images(n, seed, side=4):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def distance(a, b):
    return math.dist(a.flatten().tolist(), b.flatten().tolist())


def by_hand(sample, pool, original, left_out=None):
    """d₁, d₂, the nearest image and its original, with loops."""
    ranked = sorted((distance(sample, image), i) for i, image in enumerate(pool) if original[i] != left_out)
    first, nearest = ranked[0]
    others = [d for d, i in ranked if original[i] != original[nearest]]
    return first, min(others, default=math.nan), nearest


@pytest.mark.parametrize("groups", [None, 3, 25])
def test_matches_follow_the_definition(groups):
    pool, samples = images(50, 0), images(20, 1)
    of = None if groups is None else torch.arange(50) % groups
    originals = Originals.of(pool, of)
    match = originals.nearest(samples)
    original = list(range(50)) if of is None else of.tolist()
    for row, sample in enumerate(samples):
        first, second, nearest = by_hand(sample, pool, original)
        assert float(match.first[row]) == pytest.approx(first, rel=1e-12)
        assert float(match.second[row]) == pytest.approx(second, rel=1e-12)
        assert int(match.image[row]) == nearest
        assert bool(match.copied[row]) == (first < second / 3)


def test_an_original_is_not_compared_with_itself():
    pool = images(30, 2)
    groups = torch.arange(30) // 2
    originals = Originals.of(pool, groups)
    chosen = torch.tensor([0, 7, 29])
    match = originals.without_themselves(chosen)
    for row, place in enumerate(chosen.tolist()):
        first, second, nearest = by_hand(pool[place], pool, groups.tolist(), left_out=int(groups[place]))
        assert float(match.first[row]) == pytest.approx(first, rel=1e-12)
        assert float(match.second[row]) == pytest.approx(second, rel=1e-12)
        assert int(match.image[row]) == nearest


def test_near_duplicates_are_one_original_and_are_counted():
    pool = images(20, 3)
    step = DUPLICATE_RMSE * torch.ones(1, 1, 4, 4)
    repeated = torch.cat([pool, pool[:3] + 0.9 * step, pool[:1] - 0.9 * step, pool[5:6] + 1.1 * step])
    originals = Originals.of(repeated)
    assert originals.count == 21
    assert originals.standing[:4].tolist() == [3, 2, 2, 1]
    assert originals.of_image[[0, 20, 23]].unique().numel() == 1
    assert bool(originals.nearest(pool[:1] + 0.001).copied[0])
    assert int((~originals.unique).sum()) == 3


def test_duplicates_join_groups_and_a_group_stands_once():
    pool = images(6, 4)
    repeated = torch.cat([pool, pool[:1]])  # the last repeats the first, in another group
    originals = Originals.of(repeated, torch.tensor([0, 0, 1, 1, 2, 2, 1]))
    assert originals.of_image.tolist() == [0, 0, 0, 0, 1, 1, 0]
    assert originals.standing.tolist() == [2, 1]
    alone = Originals.of(repeated[[0, 1, 2, 6]], torch.tensor([0, 0, 1, 0]))  # repeated within its own group
    assert alone.standing.tolist() == [1, 1]


def test_copies_of_transformed_originals_are_copies_under_that_transformation_alone():
    pool = images(40, 5)
    originals = Originals.of(pool)
    mirrored = pool[:5].flip(-1) + 0.001
    assert not originals.nearest(mirrored).copied.any()
    match = originals.nearest(mirrored, transformations=[Transformation(), MIRRORED])
    assert match.copied.all()
    assert match.image.tolist() == list(range(5))
    assert match.transformation.tolist() == [1] * 5


def test_a_single_original_has_no_copies():
    """Nothing to compare with: a likeness cannot be told from a copy."""
    pool = images(1, 6)
    match = Originals.of(pool).nearest(pool)
    assert float(match.first[0]) == 0
    assert math.isnan(float(match.second[0]))
    assert not bool(match.copied[0])
    both = torch.zeros(2, 1, 4, 4)
    assert Originals.of(both).count == 1
    assert not Originals.of(both).nearest(both).copied.any()
