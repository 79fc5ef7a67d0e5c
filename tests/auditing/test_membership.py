"""Membership: shares, AUC and recognition rates against their definitions, coverage, and images that leak by name."""

from itertools import pairwise

import pytest
import torch

from gausslens.auditing.evidence import Evidence
from gausslens.auditing.losses import LossGap
from gausslens.auditing.membership import membership_records, true_positive_rate


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
        seed=0,
        images=torch.arange(train.shape[1]) + 1000,
        **others,
    )


def told_of(losses):
    return Evidence(membership_records(losses))


def leaking(found):
    return [record["value"] - 1000 for record in found.find("leaking_image")]


def test_numbers_follow_their_definitions():
    train, held_out = gamma(3, 200, 0.5, 0), gamma(3, 1000, 1.0, 1)
    found = told_of(losses(train, held_out))
    shares, aucs = found.by_level("memory_share"), found.by_level("auc")
    for level, sigma in enumerate((2.0, 1.5, 1.0)):
        share = 1 - float(train[level].mean() / held_out[level].mean())
        assert shares[sigma].value == pytest.approx(share)
        assert shares[sigma].low < share < shares[sigma].high
        auc = float((train[level][:, None] < held_out[level]).double().mean())
        assert aucs[sigma].value == pytest.approx(auc)
        assert found.auc_low[level] < aucs[sigma].low
    assert {record["sigma"] for record in found.find("roc")} == {max(aucs, key=lambda sigma: aucs[sigma].value)}
    threshold = held_out[0].sort().values[10]  # ten of a thousand lie below
    rates = found.by_level("tpr", false_positive_rate=0.01)
    assert rates[2.0].value == pytest.approx(float((train[0] < threshold).double().mean()))
    assert not found.find("tpr", false_positive_rate=0.001)
    curve = [(record["false_positive_rate"], record["value"]) for record in found.find("roc", denoiser="network")]
    assert (curve[0], curve[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert all(x0 <= x1 and y0 <= y1 for (x0, y0), (x1, y1) in pairwise(curve))


def test_rates_need_enough_held_out_images():
    assert not told_of(losses(gamma(2, 50, 1, 0), gamma(2, 999, 1, 1))).find("tpr")
    found = told_of(losses(gamma(2, 50, 1, 0), gamma(2, 10_000, 1, 1))).find("tpr")
    assert {record["false_positive_rate"] for record in found} == {0.01, 0.001}


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
        found = told_of(losses(train, gamma(2, 1000, 1.0, 100 + seed)))
        named += len(leaking(found))
        wrong += sum(image >= 40 for image in leaking(found))
    assert named > 500
    assert wrong <= 0.15 * named
    assert leaking(told_of(losses(gamma(2, 200, 1.0, 5), gamma(2, 1000, 1.0, 6)))) == []


def test_classes_are_told_apart():
    train = torch.cat([gamma(2, 40, 0.1, 0), gamma(2, 40, 1.0, 1), gamma(2, 5, 1.0, 2)], 1)
    labels = torch.tensor([3] * 40 + [5] * 40 + [7] * 5)
    found = told_of(losses(train, gamma(2, 85, 1.0, 3), labels=labels, held_out_labels=labels[torch.randperm(85)]))
    aucs, shares = (
        {record["label"]: record["value"] for record in found.find(quantity)}
        for quantity in ("class_auc", "class_memory_share")
    )
    assert set(aucs) == {3, 5}
    assert aucs[3] > 0.9
    assert aucs[5] < 0.7
    assert shares[3] == pytest.approx(0.9, abs=0.06)
