"""Fits and errors from sums against explicit fits and errors on the data themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gausslens.denoisers.regression import (
    Affine,
    Sums,
    choose_strength,
    mean_square_difference,
    strength_grid,
)

D = 6


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def problem(n, seed=0, noise=0.5):
    """Inputs that are correlated and off centre, and targets affine in them up to noise, far from the origin."""
    x = normal(n, D, seed=seed) @ normal(D, D, seed=100) + 3 * normal(D, seed=101)
    target = x @ normal(D, D, seed=102).T + 5 + noise * normal(n, D, seed=seed + 1000)
    return x, target


def sums_of(x, target, batch=7):
    return Sums.of(zip(x.split(batch), target.split(batch), strict=True))


def explicit_least_squares(x, target):
    with_intercept = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    solution = torch.linalg.lstsq(with_intercept, target, driver="gelsd").solution
    return Affine(solution[:-1].T, solution[-1])


def explicit_ridge(x, target, toward, strength):
    """Least squares with √κ(W − W_G) = 0 as d further rows, which have no intercept."""
    penalty = strength**0.5 * torch.eye(D, dtype=x.dtype)
    rows = torch.cat([torch.cat([x, x.new_ones(len(x), 1)], 1), torch.cat([penalty, x.new_zeros(D, 1)], 1)])
    wanted = torch.cat([target, penalty @ toward.T])
    solution = torch.linalg.lstsq(rows, wanted, driver="gelsd").solution
    return Affine(solution[:-1].T, solution[-1])


def explicit_error(fit, x, target):
    return float((target - x @ fit.weight.T - fit.bias).square().sum(1).mean())


def close(a, b, tolerance=1e-10):
    return float((a - b).norm()) <= tolerance * float(b.norm())


def same(a, b, tolerance=1e-10):
    """Whether two `Sums` hold the same numbers."""
    tensors = ("mean_x", "mean_target", "xx", "target_x")
    return (
        a.count == b.count
        and all(close(getattr(a, name), getattr(b, name), tolerance) for name in tensors)
        and a.target_square == pytest.approx(b.target_square, rel=tolerance)
    )


def test_least_squares_is_the_fit_with_an_intercept():
    x, target = problem(40)
    fit, reference = sums_of(x, target).least_squares(), explicit_least_squares(x, target)
    assert close(fit.weight, reference.weight)
    assert close(fit.bias, reference.bias)


@pytest.mark.parametrize("strength", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("n", [3, 40])
def test_ridge_is_least_squares_with_penalty_rows(n, strength):
    x, target = problem(n)
    toward = normal(D, D, seed=5)
    fit, reference = sums_of(x, target).ridge(toward, strength), explicit_ridge(x, target, toward, strength)
    assert close(fit.weight, reference.weight, 1e-8)
    assert close(fit.bias, reference.bias, 1e-8)


def test_ridge_goes_from_least_squares_to_what_it_is_shrunk_toward():
    x, target = problem(40)
    sums, toward = sums_of(x, target), normal(D, D, seed=5)
    assert close(sums.ridge(toward, 1e-12).weight, sums.least_squares().weight, 1e-8)
    assert close(sums.ridge(toward, 1e12).weight, toward, 1e-8)


@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_error_of_any_map_on_any_data_comes_from_the_sums(seed, n):
    x, target = problem(n, seed)
    fit = Affine(normal(D, D, seed=seed + 1), normal(D, seed=seed + 2))
    assert sums_of(x, target).error(fit) == pytest.approx(explicit_error(fit, x, target), rel=1e-10)


def test_variance_is_the_error_of_the_mean():
    x, target = problem(30)
    assert sums_of(x, target).variance == pytest.approx(float((target - target.mean(0)).square().sum(1).mean()))


@given(st.integers(1, 20), st.integers(1, 20))
def test_merged_sums_are_those_of_the_union(n, m):
    (x, target), (y, other) = problem(n), problem(m, seed=7)
    merged = sums_of(x, target).merge(sums_of(y + 2, other - 9))
    assert same(merged, sums_of(torch.cat([x, y + 2]), torch.cat([target, other - 9])))


def test_batches_do_not_matter():
    x, target = problem(50)
    assert same(sums_of(x, target, batch=1), sums_of(x, target, batch=50), 1e-12)


def test_float32_data_are_summed_in_float64():
    x, target = (part.float() for part in problem(200, noise=0.0))
    assert same(sums_of(x, target), sums_of(x.double(), target.double()), 1e-14)


def test_minus_subtracts_a_linear_map_from_the_target():
    x, target = problem(30)
    weight = normal(D, D, seed=5)
    assert same(sums_of(x, target).minus(weight), sums_of(x, target - x @ weight.T))


def test_a_constant_target_has_no_variance_at_all():
    x, _ = problem(301)
    target = (normal(D, seed=3) / 3).expand(301, D)
    sums = sums_of(x, target).merge(sums_of(x[:100] + 1, target[:100]))
    assert sums.variance == 0
    assert not sums.least_squares().weight.any()


def test_mean_square_difference_of_two_maps_over_the_inputs():
    x, target = problem(30)
    a, b = (Affine(normal(D, D, seed=seed), normal(D, seed=seed + 1)) for seed in (1, 3))
    difference = x @ a.weight.T + a.bias - x @ b.weight.T - b.bias
    expected = float(difference.square().sum(1).mean())
    assert mean_square_difference(a, b, sums_of(x, target)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("n", "noise", "distance"), [(8, 3.0, 0.3), (12, 1.0, 0.3), (60, 1.0, 1.0), (60, 5.0, 0.1), (3, 1.0, 1.0)]
)
def test_the_strength_is_that_of_an_exhaustive_search(n, noise, distance):
    (x, target), (y, other) = problem(n, 0, noise), problem(n + 3, 7, noise)
    toward = normal(D, D, seed=102) + distance * normal(D, D, seed=9)
    first, second = sums_of(x, target), sums_of(y, other)
    grid = strength_grid(first, second)
    errors = [
        explicit_error(explicit_ridge(x, target, toward, strength), y, other)
        + explicit_error(explicit_ridge(y, other, toward, strength), x, target)
        for strength in grid.tolist()
    ]
    best = int(torch.tensor(errors).argmin())
    assert choose_strength(first, second, toward) == pytest.approx(float(grid[best]), rel=1e-12)
    assert 0 < best < len(grid) - 1  # the cases are such that some shrinkage helps, and full shrinkage hurts


def test_the_grid_reaches_from_no_shrinkage_to_nothing_but():
    x, target = problem(40)
    sums, toward = sums_of(x, target), normal(D, D, seed=5)
    grid = strength_grid(sums, sums)
    assert close(sums.ridge(toward, float(grid[0])).weight, sums.least_squares().weight, 1e-3)
    assert close(sums.ridge(toward, float(grid[-1])).weight, toward, 1e-3)
    assert torch.allclose(grid[1:] / grid[:-1], torch.tensor(10**0.1, dtype=torch.float64))
