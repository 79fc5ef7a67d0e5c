"""The grid is the published one; draw i is standard normal and depends on (seed, stream, i) alone."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gausslens import karras_sigmas
from gausslens.errors import ConfigError
from gausslens.noise import as_sigmas, draw_noise, draw_order, generator

# The ten noise levels on which the paper distils and samples.
PUBLISHED = [
    80.0,
    42.41518931851267,
    21.10867673619376,
    9.723201355260132,
    4.066123602953759,
    1.501741979068008,
    0.46997905799774714,
    0.1166385635251784,
    0.020435334553438746,
    0.002,
]


def test_ten_levels_are_those_of_the_paper():
    torch.testing.assert_close(karras_sigmas(10), torch.tensor(PUBLISHED, dtype=torch.float64), rtol=1e-13, atol=0)


def test_twenty_levels_hold_those_quoted_for_the_jacobian():
    rounded = [float(f"{sigma:.4g}") for sigma in karras_sigmas(20).tolist()]
    assert {22.79, 1.979} <= set(rounded)


@given(
    n=st.integers(2, 60),
    low=st.floats(1e-4, 1),
    ratio=st.floats(1.5, 1e5),
    rho=st.floats(1, 12),
)
def test_grids_descend_between_exact_ends_evenly_in_the_root(n, low, ratio, rho):
    sigmas = karras_sigmas(n, low, low * ratio, rho)
    assert sigmas.dtype == torch.float64
    assert sigmas[0] == low * ratio
    assert sigmas[-1] == low
    assert (sigmas.diff() < 0).all()
    steps = (sigmas ** (1 / rho)).diff()
    torch.testing.assert_close(steps, steps.mean().expand_as(steps), rtol=1e-6, atol=0)


def test_one_level_is_the_largest():
    assert karras_sigmas(1).tolist() == [80.0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 0},
        {"n": 5, "sigma_min": 0.0},
        {"n": 5, "sigma_min": 2.0, "sigma_max": 1.0},
        {"n": 5, "sigma_max": math.inf},
        {"n": 5, "sigma_min": math.nan},
        {"n": 5, "rho": 0.0},
        {"n": 5, "rho": math.nan},
    ],
)
def test_grids_that_cannot_be_are_refused(arguments):
    with pytest.raises(ConfigError, match="got"):
        karras_sigmas(**arguments)


@pytest.mark.parametrize("sigmas", [2, 2.0, [2], (2.0,), torch.tensor(2), torch.tensor([2.0]), iter([2])])
def test_one_level_in_any_form_is_a_vector(sigmas):
    levels = as_sigmas(sigmas)
    assert levels.dtype == torch.float64
    assert levels.tolist() == [2.0]


@pytest.mark.parametrize(
    ("sigmas", "message"),
    [
        ([], "sigmas is empty"),
        ([3.0, 0.0], "must be positive and finite; got 0.0 among 2"),
        (-1.0, "got -1.0 among 1"),
        ([1.0, math.nan], "got nan"),
        (torch.tensor([math.inf]), "got inf"),
        (None, "got None"),
        ("low", "got 'low'"),
        ([1.0, None], r"got \[1.0, None\]"),
    ],
)
def test_levels_that_are_not_positive_numbers_are_refused(sigmas, message):
    with pytest.raises(ConfigError, match=message):
        as_sigmas(sigmas)


@pytest.mark.parametrize("shape", [(), (1,), (3, 8, 8), (1, 200, 200)])
def test_draws_do_not_depend_on_the_batch_they_are_made_in(shape):
    whole = draw_noise(3, torch.arange(40), shape)
    assert whole.shape == (40, *shape)
    assert whole.dtype == torch.float32
    order = draw_order(0, 40)
    assert torch.equal(draw_noise(3, order, shape), whole[order])
    assert torch.equal(draw_noise(3, torch.tensor([17, 39, 17]), shape), whole[[17, 39, 17]])
    parts = [draw_noise(3, part, shape) for part in torch.arange(40).split(7)]
    assert torch.equal(torch.cat(parts), whole)


def test_draws_ignore_the_users_defaults():
    expected = draw_noise(3, torch.arange(5), (2, 2))
    torch.manual_seed(123)
    torch.set_default_dtype(torch.float64)
    try:
        drawn = draw_noise(3, torch.arange(5), (2, 2))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(drawn, expected)


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    draw_noise(3, torch.arange(5), (2, 2))
    draw_order(3, 5)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_are_standard_normal_and_independent():
    noise = draw_noise(11, torch.arange(2000), (100,)).double()
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 0.01
    # Between draws, also across the blocks they are made in, and between pixels.
    neighbours = (noise[1:] * noise[:-1]).mean(1)
    assert abs(neighbours.mean()) < 4 / math.sqrt(noise.numel())
    correlation = noise.T @ noise / len(noise)
    assert (correlation - torch.eye(100)).abs().max() < 6 / math.sqrt(len(noise))
    assert len(noise.unique(dim=0)) == len(noise)


@pytest.mark.parametrize("other", [{"seed": 1}, {"stream": "latents"}])
def test_seeds_and_streams_are_independent(other):
    indices = torch.arange(500)
    first = draw_noise(0, indices, (100,)).double()
    second = draw_noise(other.get("seed", 0), indices, (100,), stream=other.get("stream", "noise")).double()
    assert abs((first * second).mean()) < 4 / math.sqrt(first.numel())


def test_orders_are_permutations_fixed_by_seed_and_stream():
    order = draw_order(5, 1000)
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert torch.equal(order, draw_order(5, 1000))
    assert not torch.equal(order, draw_order(6, 1000))
    assert not torch.equal(order, draw_order(5, 1000, stream="split"))


def test_generators_of_different_names_differ():
    states = [generator(*key).get_state() for key in [(0, "a", 0), (0, "a", 1), (0, "b", 0), (1, "a", 0), (-1, "a", 0)]]
    assert len({bytes(state.numpy()) for state in states}) == 5
