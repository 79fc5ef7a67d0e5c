"""Captions say how much stands behind a figure."""

import math

import pytest

from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.figures import line, trainings, trainings_behind


@pytest.mark.parametrize(
    ("seeds", "words"),
    [([3], "1 training seed"), ([0, 1000, 1, 1001], "2 training seeds"), ([None], "0 training seeds")],
)
def test_captions_count_the_trainings_that_are_there(seeds, words):
    assert trainings(Evidence({"quantity": "x", "value": 0.0, "seed": seed} for seed in seeds)) == words


def test_captions_do_not_count_the_trainings_of_one_model_for_another():
    found = [{"quantity": "x", "value": 0.0, "width": width, "seed": seed} for width, seed in ((4, 1), (8, 0), (8, 1))]
    assert trainings(Evidence(found)) == "1 to 2 training seeds"
    assert trainings_behind(Evidence(found)).startswith(
        "1 to 2 training seeds (with one seed, intervals are over images only"
    )
    assert trainings_behind(Evidence(found[:1])) == "1 training seed"


def copies(seed, value, low, high):
    return {
        "quantity": "memorized_fraction",
        "value": value,
        "low": low,
        "high": high,
        "count": 256,
        "seed": seed,
        "n": 9,
    }


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_interval_of_no_copies_begins_at_none_and_ends_where_records_end(seeds):
    drawn = line("copies", Evidence([copies(seed, 0.0, 0.0, 0.0148) for seed in range(seeds)]), x="n")
    assert (drawn.y, drawn.low) == ((0.0,), (0.0,))
    assert drawn.high == pytest.approx((0.0148,))


def test_without_an_interval_there_is_none():
    drawn = line("copies", Evidence([copies(0, 0.1, None, float("nan"))]), x="n")
    assert (drawn.low, drawn.high) == ((None,), (None,))


def test_several_seeds_have_an_interval_over_seeds_and_images():
    values, ends = (0.1, 0.2, 0.3), (0.06, 0.04)  # below and above each value
    found = [copies(seed, value, value - ends[0], value + ends[1]) for seed, value in enumerate(values)]
    drawn = line("copies", Evidence(found), x="n")
    of_seeds = 4.302653 * 0.1 / 3**0.5  # Student's quantile with two degrees of freedom, times the standard error
    assert drawn.y == pytest.approx((0.2,))
    assert drawn.low == pytest.approx((0.2 - math.hypot(of_seeds, ends[0]),))
    assert drawn.high == pytest.approx((0.2 + math.hypot(of_seeds, ends[1]),))
