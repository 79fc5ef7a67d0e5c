"""Training and held-out images together: what repeats, where they overlap, and which held-out images are left to compare."""

import torch

from gausslens.auditing.pool import Pool


def images(n, seed):
    return torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1


TRAIN, NEW = images(10, 0), images(6, 1)


def test_repeats_within_and_between_the_sets_are_found():
    pool = Pool(torch.cat([TRAIN, TRAIN[:2]]), torch.cat([NEW, TRAIN[3:4]]))
    assert pool.train_repeats.tolist() == [[0, 10], [1, 11]]
    assert pool.repeats.tolist() == [[0, 10], [1, 11], [3, 18]]
    assert pool.overlap.tolist() == [False] * 6 + [True]


def test_groups_overlap_without_repeats():
    pool = Pool(TRAIN, NEW, groups=torch.arange(10), held_out_groups=torch.tensor([9, 9, 20, 21, 22, 23]))
    assert pool.overlap.tolist() == [True, True, False, False, False, False]
    assert pool.originals.count == 14


def test_what_the_model_has_seen_is_not_compared():
    known = {"labels": torch.zeros(10, dtype=torch.long), "groups": torch.arange(10)}
    new = {"held_out_labels": torch.arange(7), "held_out_groups": torch.arange(7) + 50}
    pool = Pool(TRAIN, torch.cat([NEW[:3], TRAIN[:1], NEW[3:]]), **known, **new).compared
    assert torch.equal(pool.held_out, NEW)
    assert pool.held_out_labels.tolist() == [0, 1, 2, 4, 5, 6]
    assert [(name, len(part)) for name, part, _, _ in pool.sets] == [("train", 10), ("held_out", 6)]


def test_a_single_new_image_is_none():
    pool = Pool(TRAIN, torch.cat([TRAIN[:3], NEW[:1]])).compared
    assert pool.held_out is None
    assert [name for name, *_ in pool.sets] == ["train"]
    assert Pool(TRAIN).compared.overlap.tolist() == []
