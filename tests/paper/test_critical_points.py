import math

import pytest

from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.critical_points import (
    closest,
    format_closest,
    format_images_needed,
    format_onset,
    images_needed,
    memorizing_from,
)

SIGMAS = (0.5, 1.5, 4.0, 10.0)


def copies(n, seed, value, count=200, **tags):
    said = {"quantity": "memorized_fraction", "denoiser": "network", "study": "size", "n": n, "seed": seed}
    return {**said, "value": value, "count": count, **tags}


def gaps(seed, distances):
    """The records of one training whose distance to its Gaussian is the same at all levels, by kimg."""
    said = {"quantity": "rmse", "study": "time", "n": 50, "seed": seed, "on": "held_out", "reference": "gaussian"}
    said |= {"low": 0.0, "high": 1.0, "count": 20}
    network = [
        {**said, "denoiser": "network", "kimg": kimg, "sigma": sigma, "value": value}
        for kimg, value in distances.items()
        for sigma in SIGMAS
    ]
    return network + [{**said, "denoiser": "multidelta", "kimg": 8.0, "sigma": sigma, "value": 1.0} for sigma in SIGMAS]


def test_more_trainings_and_sizes_say_better_how_many_images_are_needed():
    shares = {16: 0.95, 64: 0.5, 256: 0.01}
    once = images_needed(Evidence([copies(n, 0, share) for n, share in shares.items()]))
    often = images_needed(Evidence([copies(n, seed, share) for n, share in shares.items() for seed in range(4)]))
    assert 64 < often.low < often.value < often.high < 256
    assert often.high - often.low < (once.high or math.inf) - (once.low or 0)
    assert f"at N* = {often.value:,.0f} training images" in format_images_needed(often)


def test_one_size_says_nothing_of_how_many_are_needed():
    assert images_needed(Evidence([copies(16, 0, 0.9)])) is None
    assert format_images_needed(None) == ""


def test_copying_at_all_sizes_needs_more_images_than_were_tried():
    needed = images_needed(Evidence([copies(n, seed, 0.95) for n in (16, 64, 256) for seed in range(3)]))
    assert needed.value is None
    assert "beyond those tried" in format_images_needed(needed)


def test_the_closest_time_is_a_geometric_mean_with_an_interval_over_trainings():
    falling = {2.0: 0.3, 4.0: 0.1, 8.0: 0.2}
    later = {2.0: 0.3, 4.0: 0.2, 8.0: 0.1}
    one = closest(Evidence(gaps(0, falling)), 50)
    assert one == ((4.0,), pytest.approx(4.0), None, None)
    assert format_closest(one, 50) == " For N = 50 it is smallest after 4 thousand images."
    wide = {1e-6: 0.5, 1e6: 0.5}
    two = closest(Evidence(gaps(0, falling | wide) + gaps(1, later | wide)), 50)
    assert two.at == (4.0, 8.0)
    assert two.value == pytest.approx(math.sqrt(32))
    # The interval is symmetric in log kimg, with Student's quantile for one degree of freedom.
    reach = 12.706 * (math.log(2) / math.sqrt(2)) / math.sqrt(2)
    assert (math.log(two.high / two.value), math.log(two.value / two.low)) == pytest.approx((reach, reach), rel=1e-3)
    said = format_closest(two, 50)
    assert "4, 8 thousand images in the 2 trainings (geometric mean and 95 % interval: 5.66 [" in said
    # Beyond the first and the last snapshot nobody has looked.
    narrow = closest(Evidence(gaps(0, falling) + gaps(1, later)), 50)
    assert (narrow.value, narrow.low, narrow.high) == (two.value, 2.0, 8.0)
    # Trainings that agree on a snapshot may have turned anywhere between its neighbours.
    same = closest(Evidence(gaps(0, falling) + gaps(1, falling)), 50)
    assert (same.low, same.high) == (2.0, 8.0)


def test_trainings_that_are_not_looked_at_to_the_end_do_not_count():
    whole, begun = {2.0: 0.3, 4.0: 0.1, 8.0: 0.2}, {2.0: 0.3}
    assert closest(Evidence(gaps(0, whole) + gaps(1, begun)), 50).at == (4.0,)
    shares = [copies(50, 0, share, kimg=kimg, study="time") for kimg, share in ((2.0, 0.0), (4.0, 0.0), (8.0, 0.2))]
    onset = memorizing_from(Evidence([*shares, copies(50, 1, 0.0, kimg=2.0, study="time")]), 50)
    assert (onset.memorizing, onset.seeds) == (1, 1)


def test_without_records_nothing_is_said_of_time():
    assert closest(Evidence([]), 50) is None
    assert memorizing_from(Evidence([]), 50) is None
    assert format_closest(None, 50) == format_onset(None) == ""
