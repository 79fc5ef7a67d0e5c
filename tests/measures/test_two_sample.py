import math
from statistics import NormalDist

import pytest
import torch
from scipy import stats

from gausslens.measures.two_sample import auc_estimate, difference_estimate, permutation_p_values, quotient_estimate


def _normal(n, seed, shift=0.0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 12), (40, 25)])
def test_auc_is_the_share_of_ordered_pairs(n, m):
    members, others = (_normal(k, seed).mul(3).round() for k, seed in ((n, 0), (m, 1)))
    pairs = others[None] - members[:, None]
    brute = ((pairs > 0).double() + 0.5 * (pairs == 0).double()).mean()
    assert auc_estimate(members, others).value == pytest.approx(float(brute), abs=1e-12)


def test_auc_of_separated_sets_is_one_and_still_uncertain():
    few = auc_estimate(torch.arange(10.0), torch.arange(10.0) + 100)
    many = auc_estimate(torch.arange(200.0), torch.arange(200.0) + 1000)
    assert few.value == many.value == few.high == 1.0
    assert 0.5 < few.low < 0.9 < many.low < 1.0
    assert auc_estimate(torch.arange(10.0) + 100, torch.arange(10.0)).value == 0.0


def test_permutation_p_is_uniform_without_a_difference():
    rows = 400
    members, others = _normal(rows * 15, 0).reshape(rows, 15), _normal(rows * 20, 1).reshape(rows, 20)
    p = torch.cat(
        [permutation_p_values(members[i : i + 1], others[i : i + 1], permutations=499, seed=i) for i in range(rows)]
    )
    assert stats.kstest(p.numpy(), "uniform").pvalue > 0.01


def test_permutation_p_is_the_exact_one():
    members, others = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[3.0, 5.0, 6.0, 7.0]])
    exact = stats.mannwhitneyu(members[0], others[0], alternative="less", method="exact").pvalue
    assert permutation_p_values(members, others, permutations=20_000).item() == pytest.approx(exact, abs=0.006)


def test_permutation_p_is_one_sided_and_small_where_members_have_less():
    low, high = _normal(60, 0)[None], _normal(60, 1, 2.0)[None]
    assert permutation_p_values(low, high).item() == pytest.approx(1e-4)
    assert permutation_p_values(high, low).item() > 0.99


def test_difference_agrees_with_welch():
    members, others = _normal(30, 2), 2 * _normal(50, 3, 1.0)
    interval = stats.ttest_ind(others, members, equal_var=False).confidence_interval()
    found = difference_estimate(members, others)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=2e-3)


def test_difference_of_one_unit_has_no_interval():
    assert math.isnan(difference_estimate(torch.ones(1), torch.ones(5)).low)


def test_quotient_is_none_where_the_denominator_may_be_nothing():
    y = _normal(20, 0), _normal(20, 1)
    assert quotient_estimate(y, y) is None
    assert quotient_estimate(y, (y[0], y[1] + 5)) is not None
    assert quotient_estimate(y, (y[0] + 5, y[1])) is None


def test_quotient_of_a_multiple_is_exact():
    z = _normal(20, 0), _normal(30, 1, 3.0)
    found = quotient_estimate((0.25 * z[0], 0.25 * z[1]), z)
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25), abs=1e-6)


@pytest.mark.parametrize(("n", "m"), [(40, 60), (200, 200)])
def test_intervals_cover(n, m):
    """Skewed values, as losses are; AUC, difference and quotient. 400 trials: 93 to 97 %, and two standard errors."""
    trials, shift = 400, 1.0
    truth = stats.norm.cdf(shift / math.sqrt(2))
    mean = [math.exp(0.3 * s + 0.045) for s in (0.0, shift)]
    hits = torch.zeros(3)
    for trial in range(trials):
        random = torch.Generator().manual_seed(trial)
        draws = [torch.randn(k, generator=random, dtype=torch.float64) + s for k, s in ((n, 0.0), (m, shift))]
        y = [(0.3 * z).exp() for z in draws]
        z = [a + 0.2 * torch.randn(len(a), generator=random, dtype=torch.float64) + i for i, a in enumerate(y)]
        found = auc_estimate(*y), difference_estimate(*y), quotient_estimate(tuple(y), tuple(z))
        gap = mean[1] - mean[0]
        for index, true in enumerate((truth, gap, gap / (gap + 1))):
            hits[index] += found[index].low <= true <= found[index].high
    slack = 2 * math.sqrt(0.95 * 0.05 / trials)
    assert bool(((hits / trials > 0.93 - slack) & (hits / trials < 0.97 + slack)).all()), hits / trials


@pytest.mark.parametrize("auc", [0.9, 0.96, 0.99])
def test_the_interval_of_a_great_auc_covers_with_few_others(auc):
    shift, trials = math.sqrt(2) * NormalDist().inv_cdf(auc), 400
    random = torch.Generator().manual_seed(0)
    found = [
        auc_estimate(torch.randn(600, generator=random), shift + torch.randn(50, generator=random))
        for _ in range(trials)
    ]
    assert sum(one.low <= auc <= one.high for one in found) >= 0.93 * trials
