"""Tails, intervals and corrections agree with their definitions and with simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from gausslens.paper.claims.claim import over_seeds
from gausslens.paper.claims.evidence import Evidence, MissingError, Number, mean, slope
from gausslens.paper.claims.inference import Combined, combine, holm, spearman, spearman_tails


def test_without_image_error_the_interval_is_students():
    values = [0.2, 0.5, 0.4, 0.1]
    found = combine(values, [0.0] * 4)
    expected = stats.ttest_1samp(values, 0.05)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-6)
    assert found.p_above(0.05) == pytest.approx(expected.pvalue / 2, rel=1e-6)
    assert found.p_above(0.55) == pytest.approx(1 - stats.ttest_1samp(values, 0.55).pvalue / 2, rel=1e-6)


def test_image_error_does_not_average_out_over_seeds():
    for seeds in (1, 3, 30):
        low, high = combine([1.0] * seeds, [0.04] * seeds).interval()
        assert (high - low) / 2 == pytest.approx(1.96 * 0.2, rel=1e-4)


@pytest.mark.parametrize("threshold", [-0.4, 0.05, 0.6])
def test_p_values_and_intervals_agree(threshold):
    found = Combined(0.3, 0.01, 0.02, 3)
    low, high = found.interval()
    assert found.p_above(low) == pytest.approx(0.025, rel=1e-6)
    assert found.p_above(high) == pytest.approx(0.975, rel=1e-6)
    assert (found.p_above(threshold) < 0.025) == (threshold < low)


def test_no_error_known_means_no_interval():
    assert combine([0.3], [0.0]).interval() is None


@pytest.mark.parametrize("seeds", [3, 4, 5])
@pytest.mark.parametrize("ratio", [0.25, 1.0, 16.0])
def test_intervals_cover(seeds, ratio):
    generator, trials, images = np.random.default_rng(seeds), 1500, 100
    common = generator.standard_normal(trials)  # the images' error, the same for every seed
    training = math.sqrt(seeds * ratio) * generator.standard_normal((trials, seeds))
    variances = generator.chisquare(images - 1, trials) / (images - 1)
    covered = 0
    for index in range(trials):
        low, high = combine((common[index] + training[index]).tolist(), [float(variances[index])] * seeds).interval()
        covered += low <= 0 <= high
    assert 0.93 <= covered / trials <= 0.985


def test_false_alarms_of_a_p_value():
    generator = np.random.default_rng(7)
    p_values = [
        combine((generator.standard_normal() + generator.standard_normal(3)).tolist(), [1.0] * 3).p_above(0.0)
        for _ in range(400)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.08


def test_holm_steps_down():
    p_values = {"a": 0.04, "b": 0.012, "c": 0.02, "d": 0.9}
    assert holm(p_values) == {"b"}  # .012 ≤ .05/4, but .02 > .05/3
    assert holm({**p_values, "c": 0.016}) == {"b", "c"}  # .04 > .05/2
    assert holm({"a": 0.04}) == {"a"}
    assert holm({}) == set()


def test_spearman_with_ties():
    x, y = [1, 2, 2, 3, 5], [0.1, 0.5, 0.4, 0.4, 0.9]
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman([1, 2, 3], [4, 4, 4]) == 0


def test_ranks_in_perfect_order_are_as_likely_as_one_order_in_all():
    order = [1.0, 2.0, 3.0, 4.0, 5.0]
    upper, lower = spearman_tails([(order, order)])
    assert upper == pytest.approx(1 / 120, rel=0.2)
    assert lower == 1
    assert spearman_tails([(order, order)] * 3)[0] < 3e-4


def test_errors_of_differences_add_in_squares_and_of_sums_at_once():
    a, b = Number(2.0, 0.3, 0.0, 50), Number(1.0, 0.4, 0.0, 40)
    assert (a - b).variance == pytest.approx(0.3**2 + 0.4**2)
    assert (a + b).variance == pytest.approx((0.3 + 0.4) ** 2)
    assert mean([a, b]).variance == pytest.approx(0.35**2)
    assert a.log().variance == pytest.approx(0.15**2)
    assert (a / b).value == 2
    assert (a / b).variance == pytest.approx(0.3**2 + 0.8**2)
    assert (a - b).count == 40


def test_slopes_are_least_squares():
    sizes, values = [10, 30, 100, 500], [0.4, 0.7, 0.6, 1.1]
    expected = stats.linregress(np.log(sizes), values).slope
    assert slope({n: Number(v) for n, v in zip(sizes, values, strict=True)}).value == pytest.approx(expected)
    with pytest.raises(MissingError, match="at least 2 values"):
        slope({10: Number(1.0)})


def test_logarithms_of_nothing_are_missing():
    with pytest.raises(MissingError, match="not positive"):
        Number(0.0).log()
    with pytest.raises(MissingError, match="is 0"):
        Number(1.0) / Number(0.0)


def test_what_is_missing_is_said_of_the_first_seed():
    def refuse(records):
        raise MissingError(f"nothing of seed {records.records[0]['seed']}")

    evidence = Evidence([{"quantity": "any", "value": 1.0, "seed": seed} for seed in (0, 1)])
    with pytest.raises(MissingError, match="nothing of seed 0"):
        over_seeds(evidence, refuse)
