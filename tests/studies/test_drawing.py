"""Captions say how much stands behind a figure."""

import pytest

from gausslens.studies.claims.evidence import Evidence
from gausslens.studies.drawing import line, trainings


@pytest.mark.parametrize(
    ("seeds", "words"),
    [([3], "1 training seed"), ([0, 1000, 1, 1001], "2 training seeds"), ([None], "0 training seeds")],
)
def test_captions_count_the_trainings_that_are_there(seeds, words):
    assert trainings(Evidence({"quantity": "x", "value": 0.0, "seed": seed} for seed in seeds)) == words


def copies(seed, value, low, high):
    return {
        "quantity": "memorised_fraction",
        "value": value,
        "low": low,
        "high": high,
        "count": 256,
        "seed": seed,
        "n": 9,
    }


def test_a_record_that_stands_alone_keeps_its_own_interval():
    drawn = line("copies", Evidence([copies(0, 0.0, 0.0, 0.0148)]), x="n")
    assert (drawn.y, drawn.low, drawn.high) == ((0.0,), (0.0,), (0.0148,))
    drawn = line("copies", Evidence([copies(0, 0.0, None, float("nan"))]), x="n")
    assert (drawn.low, drawn.high) == ((None,), (None,))


def test_several_seeds_have_an_interval_over_seeds_and_images():
    drawn = line(
        "copies", Evidence([copies(seed, value, 0.0, 0.2) for seed, value in enumerate((0.1, 0.2, 0.3))]), x="n"
    )
    assert drawn.y == pytest.approx((0.2,))
    assert drawn.low[0] < 0.0 < 0.4 < drawn.high[0]
