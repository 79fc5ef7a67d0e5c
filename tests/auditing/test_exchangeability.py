"""Whether the sets may come from one distribution: what differs is refused and named, what does not is not."""

import pytest
import torch
from torch.nn.functional import avg_pool2d, interpolate

from gausslens.auditing.evidence import Evidence
from gausslens.auditing.exchangeability import check_exchangeability
from gausslens.auditing.pool import Pool
from gausslens.data import load_images
from gausslens.images import as_tensor, dequantize
from gausslens.noise import draw_order


@pytest.fixture(scope="module", name="digits")
def shuffled_digits():
    loaded = load_images("digits")
    order = draw_order(0, len(loaded))
    return dequantize(as_tensor(loaded.images))[order], as_tensor(loaded.labels)[order]


def checked(*sets, **groups):
    """With as few permutations as a refusal takes: p = 1/2,000."""
    return Evidence(check_exchangeability(Pool(*sets, **groups), permutations=1999))


def noise(images):
    return 0.1 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))


CHANGES = {
    "less contrast": lambda x: 0.8 * x,
    "more contrast": lambda x: 1.3 * x,
    "blurred": lambda x: interpolate(avg_pool2d(x, 2, stride=1), size=x.shape[2:], mode="bilinear"),
    "noise": lambda x: x + noise(x),
}


@pytest.mark.parametrize("n_held_out", [100, 300])
@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_refused_and_named(digits, name, n_held_out):
    images, _ = digits
    found = checked(images[:400], CHANGES[name](images[400 : 400 + n_held_out]))
    assert found.value("detail_p") <= 0.0005
    assert "do not come from one distribution" in found.refused
    assert name in found.refused


def test_other_classes_are_seen_by_neighbours(digits):
    images, labels = digits
    found = checked(images[labels < 5][:400], images[labels >= 5][:200])
    assert found.value("neighbors_p") <= 0.0005
    assert found.value("neighbors_share") > 1.2
    assert "differ in content" in found.refused


def test_draws_of_one_law_are_not_refused_whatever_their_ratio(digits):
    images, _ = digits
    for n_held_out in (20, 100, 400):
        found = checked(images[:500], images[500 : 500 + n_held_out])
        assert found.refused is None
        assert found.first("contrast")["count"] == 500 + n_held_out


def test_repeats_and_groups_count_once(digits):
    images, _ = digits
    known = torch.cat([images[:200], images[:5].repeat_interleave(40, 0)])
    found = checked(known, images[200:400])
    assert found.first("neighbors_p")["count"] == 200 + 200
    assert found.refused is None
    # Near-identical frames would each be the other's neighbour: refused, unless the groups are named.
    frames = torch.cat([images[:300] + 0.3 * noise(images[:300]) * (1 + i) for i in range(4)]).clamp(-1, 1)
    groups = torch.arange(300).repeat(4)
    known, new = groups < 150, groups >= 150
    unnamed = checked(frames[known], frames[new])
    assert unnamed.value("neighbors_p") <= 0.0005
    assert "--groups" in unnamed.refused
    named = checked(frames[known], frames[new], groups=groups[known], held_out_groups=groups[new])
    assert named.refused is None
    assert named.first("detail_p")["count"] == 150 + 150


def test_of_very_few_images_nothing_is_said(digits):
    images, _ = digits
    assert list(check_exchangeability(Pool(images[:100], images[100:105]))) == []


@pytest.mark.slow
def test_p_values_are_those_of_chance(digits):
    """At most 1 % of exchangeable sets are refused; here p ≤ .05 comes about in about 5 %."""
    images, _ = digits
    p_values = []
    for seed in range(120):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        n_train, n_held_out = ((200, 200), (400, 80), (300, 25))[seed % 3]
        parts = images[order[:n_train]], images[order[n_train : n_train + n_held_out]]
        found = Evidence(check_exchangeability(Pool(*parts), permutations=499, seed=seed))
        p_values.append([found.value("neighbors_p"), found.value("detail_p")])
    shares = (torch.tensor(p_values) <= 0.05).double().mean(0)
    assert float(shares.max()) < 0.12  # 3.5 standard errors
    assert 0.35 < float(torch.tensor(p_values).mean()) < 0.65
