"""Membership: shares, AUC and recognition rates against their definitions, coverage, and images that leak by name."""

import pytest
import torch

from gausslens.auditing.losses import LossGap
from gausslens.auditing.membership import measure_membership, true_positive_rate


def gamma(rows, n, mean, seed):
    random = torch.Generator().manual_seed(seed)
    return mean * -torch.rand(rows, n, 4, generator=random, dtype=torch.float64).log().mean(2)


def losses(train, held_out, **others):
    shape = train.shape[0], held_out.shape[1]
    both = {"gaussian": 1.0, "multidelta": 1.0, "baseline": 1.0}
    return LossGap(
        sigmas=torch.linspace(2, 1, len(train)),
        train={"network": train, **{name: gamma(*train.shape, mean, 90) for name, mean in both.items()}},
        held_out={"network": held_out, **{name: gamma(*shape, mean, 91) for name, mean in both.items()}},
        pull={},
        apart={},
        n_train=train.shape[1],
        noises=4,
        seed=0,
        images=torch.arange(train.shape[1]) + 1000,
        **others,
    )


def test_numbers_follow_their_definitions():
    train, held_out = gamma(3, 200, 0.5, 0), gamma(3, 1000, 1.0, 1)
    found = measure_membership(losses(train, held_out))
    for level in range(3):
        share = 1 - float(train[level].mean() / held_out[level].mean())
        assert found.memory_share[level].value == pytest.approx(share)
        assert found.memory_share[level].low < share < found.memory_share[level].high
        auc = float((train[level][:, None] < held_out[level]).double().mean())
        assert found.auc[level].value == pytest.approx(auc)
        assert found.auc_low[level] < found.auc[level].low
    assert found.level == max(range(3), key=lambda level: found.auc[level].value)
    threshold = held_out[0].sort().values[10]  # ten of a thousand lie below
    assert found.tpr[0.01][0].value == pytest.approx(float((train[0] < threshold).double().mean()))
    assert 0.001 not in found.tpr
    assert found.roc[0] == (0.0, 0.0)
    assert found.roc[-1] == (1.0, 1.0)
    assert all(x0 <= x1 and y0 <= y1 for (x0, y0), (x1, y1) in zip(found.roc, found.roc[1:], strict=False))


def test_rates_need_enough_held_out_images():
    assert measure_membership(losses(gamma(2, 50, 1, 0), gamma(2, 999, 1, 1))).tpr == {}
    assert list(measure_membership(losses(gamma(2, 50, 1, 0), gamma(2, 10_000, 1, 1))).tpr) == [0.01, 0.001]


@pytest.mark.parametrize("mean", [1.0, 0.5])
def test_intervals_of_the_recognition_rate_cover_it(mean):
    """The quantile of the held-out losses is uncertain, too; the interval is conservative."""
    truth = float((gamma(1, 400_000, mean, 2) < gamma(1, 400_000, 1.0, 3).quantile(0.01)).double().mean())
    hits = 0
    for seed in range(200):
        found = true_positive_rate(gamma(1, 150, mean, 10 + seed)[0], gamma(1, 1000, 1.0, 500 + seed)[0], 0.01)
        hits += found.low <= truth <= found.high
    assert hits >= 190


def test_images_that_leak_are_named_with_few_wrong_names():
    named = wrong = 0
    for seed in range(20):
        train = torch.cat([gamma(2, 40, 0.01, seed), gamma(2, 160, 1.0, 50 + seed)], 1)
        found = measure_membership(losses(train, gamma(2, 1000, 1.0, 100 + seed)))
        named += int(found.leaking.sum())
        wrong += int(found.leaking[40:].sum())
    assert named > 500
    assert wrong <= 0.15 * named
    assert int(measure_membership(losses(gamma(2, 200, 1.0, 5), gamma(2, 1000, 1.0, 6))).leaking.sum()) == 0


def test_classes_are_told_apart():
    train = torch.cat([gamma(2, 40, 0.1, 0), gamma(2, 40, 1.0, 1), gamma(2, 5, 1.0, 2)], 1)
    labels = torch.tensor([3] * 40 + [5] * 40 + [7] * 5)
    found = measure_membership(
        losses(train, gamma(2, 85, 1.0, 3), labels=labels, held_out_labels=labels[torch.randperm(85)])
    )
    assert set(found.by_class) == {3, 5}
    assert found.by_class[3][0].value > 0.9
    assert found.by_class[5][0].value < 0.7
    assert found.by_class[3][1].value == pytest.approx(0.9, abs=0.06)
