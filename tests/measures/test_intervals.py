"""Intervals: against SciPy and a loop over resamples, in their limits, and by coverage."""

import math

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from gausslens.measures.intervals import (
    Estimate,
    bootstrap_counts,
    jackknife_estimate,
    mean_estimate,
    mean_interval,
    minimum_interval,
    proportion_estimate,
    ratio_interval,
    student_quantile,
)


def skewed(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(0.7).exp()


def resampled_rows(n):
    """Each resample as the list of its units."""
    for counts in bootstrap_counts(n):
        yield [unit for unit in range(n) for _ in range(int(counts[unit]))]


def ends(value, error, t_values, n):
    """The rule for one row, from the sorted t of 1,999 resamples."""
    t_values, q = sorted(t_values), scipy.stats.t.ppf(0.975, n - 1)
    reach_down, reach_up = t_values[1949], -t_values[49]
    return (
        value - max(reach_down, (reach_down + q) / 2) * error,
        value + max(reach_up, (reach_up + q) / 2) * error,
    )


def test_bootstrap_counts_are_multinomial_and_reproducible():
    counts = bootstrap_counts(20)
    assert counts.shape == (1999, 20)
    assert torch.equal(counts.sum(1), torch.full((1999,), 20.0, dtype=torch.float64))
    assert torch.equal(counts, bootstrap_counts(20))
    # Var = n·p·(1 − p) = 0.95 and Cov between units = −n·p² = −0.05
    covariance = torch.cov(counts.T)
    assert covariance.diagonal().mean() == pytest.approx(0.95, rel=0.03)
    assert (covariance.sum() - covariance.diagonal().sum()) / (20 * 19) == pytest.approx(-0.05, rel=0.03)


def test_mean_interval_is_the_rule_applied_to_each_resample():
    y = skewed(12)
    mean, error = y.mean(), y.std() / math.sqrt(12)
    t_values = []
    for rows in resampled_rows(12):
        resample = y[rows]
        t_values.append(float((resample.mean() - mean) / (resample.std() / math.sqrt(12)).clamp_min(0.1 * error)))
    low, high = ends(float(mean), float(error), t_values, 12)
    found = mean_interval(y)
    assert found[0] == pytest.approx(float(mean), abs=1e-14)
    assert float(found[1]) == pytest.approx(low, rel=1e-4)  # Student's quantile comes from a series
    assert float(found[2]) == pytest.approx(high, rel=1e-4)


def test_ratio_interval_is_the_rule_applied_to_each_resample():
    y, z = skewed(12), skewed(12, seed=1)
    ratio = y.sum() / z.sum()
    left_out = torch.stack([(y.sum() - y[i]) / (z.sum() - z[i]) for i in range(12)])  # the jackknife, by leaving out
    error = (12 * (ratio - left_out)).std() / math.sqrt(12)
    t_values = []
    for rows in resampled_rows(12):
        a, b = y[rows], z[rows]
        r = a.sum() / b.sum()
        spread = ((a - r * b).square().sum() / (12 * 11)).sqrt() / b.mean()
        t_values.append(float((r - ratio) / spread.clamp_min(0.1 * error)))
    low, high = ends(float(ratio), float(error), t_values, 12)
    found, found_low, found_high, per_unit = ratio_interval(y, z)
    assert float(found) == pytest.approx(float(ratio), abs=1e-14)
    assert float(per_unit.mean()) == pytest.approx(float(ratio), abs=1e-14)
    assert float(found_low) == pytest.approx(low, rel=1e-4)
    assert float(found_high) == pytest.approx(high, rel=1e-4)


def test_ratio_of_equal_denominators_has_the_interval_of_a_mean():
    y = skewed(30)
    ratio, low, high, per_unit = ratio_interval(y, torch.full_like(y, 2.0))
    mean, mean_low, mean_high = mean_interval(y / 2)
    assert float(ratio) == pytest.approx(float(mean))
    # The jackknife's error of a mean is the usual one.
    assert torch.allclose(per_unit, (y / 2 - mean) * 30 / 29 + mean)
    assert float(ratio - low) == pytest.approx(float(mean - mean_low) * 30 / 29, rel=1e-6)
    assert float(high - ratio) == pytest.approx(float(mean_high - mean) * 30 / 29, rel=1e-6)


def test_rows_are_independent_of_each_other_and_of_their_order():
    y = skewed(3, 40)
    together = mean_interval(y)
    for row in range(3):
        for part, alone in zip(together, mean_interval(y[row]), strict=True):
            assert torch.allclose(part[row], alone, rtol=1e-12)
    stacked = mean_interval(y.reshape(1, 3, 40))
    assert stacked[0].shape == (1, 3)


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.sampled_from([2, 5, 8, 50, 2500]))
def test_intervals_move_and_scale_with_the_units(shift, scale, n):
    y = skewed(n)
    moved = mean_interval(shift + scale * y)
    for part, original in zip(moved, mean_interval(y), strict=True):
        assert float(part) == pytest.approx(shift + scale * float(original), rel=1e-8, abs=1e-8)


def test_reflection_swaps_the_ends():
    y = skewed(40)
    value, low, high = mean_interval(y)
    mirrored, mirrored_low, mirrored_high = mean_interval(-y)
    assert float(mirrored) == pytest.approx(-float(value))
    assert float(mirrored_low) == pytest.approx(-float(high))
    assert float(mirrored_high) == pytest.approx(-float(low))


@pytest.mark.parametrize("n", [2, 3, 7, 2000, 5000])
def test_few_or_many_units_have_students_interval(n):
    y = skewed(n)
    _, low, high = mean_interval(y)
    expected = scipy.stats.t.interval(0.95, n - 1, loc=float(y.mean()), scale=float(y.std()) / math.sqrt(n))
    assert (float(low), float(high)) == pytest.approx(expected, rel=1e-6)


def test_students_quantile():
    for freedom in range(1, 200):
        assert student_quantile(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=4e-4)


def test_one_unit_has_no_interval():
    estimate = mean_estimate(torch.tensor([3.0]))
    assert estimate.value == 3
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)
    _, low, high, _ = ratio_interval(torch.ones(1), torch.ones(1))
    assert math.isnan(float(low))
    assert math.isnan(float(high))


@pytest.mark.parametrize("n", [2, 20, 3000])
def test_units_without_spread_have_a_point(n):
    value, low, high = mean_interval(torch.full((2, n), 0.1))
    assert torch.equal(low, value)
    assert torch.equal(high, value)


def test_one_outlier_among_equal_units_has_a_finite_interval():
    y = torch.zeros(100, dtype=torch.float64)
    y[3] = 1
    estimate = mean_estimate(y)
    assert estimate.low <= 0 <= estimate.value <= estimate.high <= 0.2


def test_skewness_moves_the_interval_towards_the_tail():
    y = skewed(60)
    value, low, high = mean_interval(y)
    reach = student_quantile(59) * y.std() / math.sqrt(60)
    assert high > value + reach
    assert low > value - reach


def test_wilson_interval():
    for successes, n in ((0, 10), (3, 10), (7, 1000), (10, 10)):
        expected = scipy.stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
        estimate = proportion_estimate(successes, n)
        assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
        assert estimate.value == successes / n
        assert estimate.count == n


def test_estimate_reads_as_number_interval_and_count():
    assert str(Estimate(0.312, 0.290, 0.335, 100)) == "0.312 [0.290, 0.335] (n=100)"


@pytest.mark.parametrize("n", [5, 40, 2500])
def test_minimum_well_apart_is_that_of_its_row(n):
    y = torch.stack([skewed(n) + 100, skewed(n, seed=1), skewed(n, seed=2) + 50])
    row, value, low, high = minimum_interval(y)
    expected = mean_interval(y[1])
    assert row == 1
    assert value == pytest.approx(float(expected[0]))
    reach = float(expected[2] - expected[0])
    tolerance = 1e-9 if n == 40 else 0.06  # outside the range of resampling the quantiles are of 1,999 normal draws
    assert (low, high) == pytest.approx((float(expected[1]), float(expected[2])), abs=tolerance * reach)


def test_minimum_of_rows_that_move_together_is_no_lower_than_one():
    y = skewed(50)
    _, _, low, high = minimum_interval(torch.stack([y, y, y]))
    _, expected_low, expected_high = mean_interval(y)
    assert (low, high) == pytest.approx((float(expected_low), float(expected_high)))


def test_minimum_of_near_ties_allows_for_the_choice():
    # Independent rows: the least mean is low by selection, so the interval reaches further up than that of its row.
    y = torch.randn(10, 50, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    row, value, _, high = minimum_interval(y)
    student_high = float(mean_interval(y[row])[2])
    assert value == pytest.approx(float(y.mean(1).min()))
    assert high > student_high


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 100])
@pytest.mark.parametrize(
    ("law", "truth"),
    [
        (lambda z: z, 0.0),
        (lambda z: z.square(), 1.0),
        (lambda z: (0.6 * z).exp(), math.exp(0.18)),
        (lambda z: -(0.6 * z).exp(), -math.exp(0.18)),
    ],
)
def test_coverage_of_means(law, truth, n):
    y = law(torch.randn(2000, n, generator=torch.Generator().manual_seed(7), dtype=torch.float64))
    _, low, high = mean_interval(y)
    covered = float(((low <= truth) & (truth <= high)).double().mean())
    assert 0.93 < covered < 0.97


def test_leaving_out_single_units_gives_students_interval_of_a_mean():
    units = torch.randn(12, dtype=torch.float64)
    without = [float(torch.cat([units[:i], units[i + 1 :]]).mean()) for i in range(12)]
    found = jackknife_estimate(float(units.mean()), without, 12)
    reach = student_quantile(11) * float(units.std()) / 12**0.5
    assert (found.low, found.high) == pytest.approx((found.value - reach, found.value + reach), rel=1e-12)
    assert math.isnan(jackknife_estimate(1.0, [1.0], 2).low)


def test_leaving_out_groups_covers_a_smooth_statistic():
    covered = 0
    for trial in range(300):
        units = torch.randn(200, generator=torch.Generator().manual_seed(trial), dtype=torch.float64).exp()
        groups = torch.arange(200) % 10
        without = [float(units[groups != group].log().var()) for group in range(10)]
        found = jackknife_estimate(float(units.log().var()), without, 200)
        covered += found.low <= 1 <= found.high
    assert 0.91 * 300 <= covered <= 0.98 * 300
