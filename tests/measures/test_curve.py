"""Curves: intervals row by row, paired differences, and extremes over noise levels."""

import math
from dataclasses import replace

import pytest
import torch

from gausslens.errors import ConfigError
from gausslens.measures.curve import Conditions, Curve
from gausslens.measures.intervals import mean_interval, minimum_interval

CONDITIONS = Conditions("rmse", "images", 0, 30, "digest")
SIGMAS = [5.0, 1.0, 0.2]


def units(seed=0, n=30):
    return torch.rand(3, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_values_and_intervals_are_those_of_the_means():
    curve = Curve.of_means(SIGMAS, units(), CONDITIONS)
    for found, expected in zip((curve.values, curve.low, curve.high), mean_interval(units()), strict=True):
        assert torch.equal(found, expected)
    assert curve.sigmas.tolist() == SIGMAS
    assert curve.count == 30
    assert torch.allclose(curve.per_image.mean(1), curve.values, rtol=1e-14)


def test_differences_are_paired():
    image_effect = 10 * units(seed=1)
    a = Curve.of_means(SIGMAS, image_effect + units(seed=2), CONDITIONS)
    b = Curve.of_means(SIGMAS, image_effect + 0.5, CONDITIONS)
    difference = a - b
    _, low, high = mean_interval(units(seed=2) - 0.5)
    assert torch.allclose(difference.values, a.values - b.values)
    assert torch.allclose(difference.low, low)
    assert torch.allclose(difference.high, high)
    assert bool(((difference.high - difference.low) < 0.2 * (a.high - a.low)).all())
    assert torch.allclose((b - a).low, -difference.high)


def test_a_curve_minus_itself_is_exactly_zero():
    curve = Curve.of_means(SIGMAS, units(), CONDITIONS)
    difference = curve - curve
    assert difference.values.tolist() == difference.low.tolist() == difference.high.tolist() == [0, 0, 0]


def test_differences_of_differences():
    a, b, c = (Curve.of_means(SIGMAS, units(seed=seed), CONDITIONS) for seed in range(3))
    twice = (a - b) - (a - c)
    assert torch.allclose(twice.values, (c - b).values)
    assert twice.conditions.metric == (a - b).conditions.metric
    with pytest.raises(ConfigError, match="metric"):
        (a - b) - c


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metric": "nmse"}, "metric (rmse and nmse)"),
        ({"seed": 7}, "seed (0 and 7)"),
        ({"draws": 60}, "draws (30 and 60)"),
        ({"content": "other"}, "content (digest and other)"),
        ({"inputs": "pairs of noise"}, "inputs (images and pairs of noise)"),
    ],
)
def test_unpaired_curves_say_what_differs(changes, named):
    a = Curve.of_means(SIGMAS, units(), CONDITIONS)
    b = Curve.of_means(SIGMAS, units(), replace(CONDITIONS, **changes))
    with pytest.raises(ConfigError) as error:
        a - b
    assert named in str(error.value)
    assert str(error.value).count("(") == 1


def test_curves_of_other_noise_levels_do_not_pair():
    a = Curve.of_means(SIGMAS, units(), CONDITIONS)
    b = Curve.of_means([5.0, 1.0, 0.3], units(), CONDITIONS)
    with pytest.raises(ConfigError, match=r"sigmas .*0\.2.*0\.3"):
        a - b


def test_minimum_and_maximum():
    per_image = units() + torch.tensor([[0.5], [0.0], [1.0]])
    curve = Curve.of_means(SIGMAS, per_image, CONDITIONS)
    least, greatest = curve.minimum(), curve.maximum()
    row, value, low, high = minimum_interval(per_image)
    assert (least.value, least.low, least.high) == (value, low, high)
    assert least.sigma == SIGMAS[row] == 1.0
    assert least.count == 30
    assert greatest.sigma == 0.2
    assert greatest.value == pytest.approx(float(curve.values[2]))
    assert greatest.low < greatest.value < greatest.high
    mirrored = Curve.of_means(SIGMAS, -per_image, CONDITIONS).minimum()
    assert (greatest.low, greatest.high) == (-mirrored.high, -mirrored.low)
    assert str(least).endswith("(n=30) at σ=1")


def test_intervals_are_cut_at_the_ends_of_the_span():
    near_one = 1 - 0.01 * units(n=10) ** 8
    curve = Curve.of_means(SIGMAS, near_one, CONDITIONS, (0.0, 1.0))
    assert bool((mean_interval(near_one)[2] > 1).any())
    assert bool((curve.high <= 1).all())
    assert curve.maximum().high <= 1
    assert bool((curve.low == mean_interval(near_one)[1]).all())


def test_one_image_has_values_without_intervals():
    curve = Curve.of_means(SIGMAS, units(n=1), CONDITIONS, (0.0, 1.0))
    assert bool(curve.low.isnan().all())
    assert bool(curve.high.isnan().all())
    least = curve.minimum()
    assert least.value == float(curve.values.min())
    assert math.isnan(least.low)
    assert math.isnan(least.high)


def test_table():
    lines = str(Curve.of_means(SIGMAS, units(), CONDITIONS)).splitlines()
    assert lines[0] == "rmse; 30 images, seed 0"
    assert lines[1].split() == ["sigma", "value", "low", "high"]
    assert [line.split()[0] for line in lines[2:]] == ["5", "1", "0.2"]
