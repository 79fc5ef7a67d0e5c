"""The transition from copying to novelty: a known one is found, and its interval covers it as often as it says."""

import math

import pytest
import torch

from gausslens import DataError
from gausslens.studies.onset import crossing, find_onset
from gausslens.studies.transition import Count, fit_transition

SIZES = (16, 32, 64, 128, 256, 512, 1024)
NEEDED = 100.0  # images
WIDTH = 0.3


def simulated(
    generator, *, seeds=4, needed=NEEDED, top=0.97, seed_shift=0.0, model_shift=0.0, sizes=SIZES, samples=256
):
    """Counts of networks around a transition at which copying falls below 5 % with `needed` images."""
    center = math.log(needed) - WIDTH * math.log(top / 0.05 - 1)

    def normal():
        return float(torch.randn((), generator=generator))

    counts = []
    for seed in range(seeds):
        of_seed = center + seed_shift * normal()
        for n in sizes:
            share = top / (1 + math.exp((math.log(n) - of_seed - model_shift * normal()) / WIDTH))
            copies = torch.binomial(torch.tensor(float(samples)), torch.tensor(share), generator=generator)
            counts.append(Count(n, seed, int(copies), samples))
    return counts


def covered(found):
    return (found.low or 0) <= NEEDED <= (found.high or math.inf)


def test_a_known_transition_is_found():
    generator = torch.Generator().manual_seed(0)
    found = fit_transition(simulated(generator))
    assert covered(found.needed)
    assert found.needed.value == pytest.approx(NEEDED, rel=0.15)
    assert found.needed.high / found.needed.low < 2
    assert found.midpoint.value < found.needed.low
    assert found.always < 0.01
    assert found.never < 0.01
    median, low, high = found.curve
    assert bool((low <= median).all() and (median <= high).all())
    assert float(median[0]) > 0.9
    assert float(median[-1]) < 0.01


def test_fewer_seeds_and_seeds_that_differ_say_less():
    generator = torch.Generator().manual_seed(1)

    def width(**options):
        needed = fit_transition(simulated(generator, **options)).needed
        return math.log(needed.high / needed.low)

    alike = width(seeds=6)
    assert width(seeds=1, sizes=(16, 64, 256, 1024)) > 2 * alike
    assert width(seeds=4, seed_shift=0.5) > 2 * alike


def test_between_a_size_that_copies_and_one_that_does_not_anything_is_possible():
    counts = [
        Count(n, seed, copies, 256) for seed in range(4) for n, copies in ((16, 256), (32, 256), (512, 0), (1024, 0))
    ]
    needed = fit_transition(counts).needed
    assert 32 <= needed.low < 70
    assert 300 < needed.high <= 700


def test_what_lies_beyond_the_sizes_is_not_made_up():
    copying = [Count(n, seed, 250, 256) for seed in range(3) for n in (16, 64, 256)]
    found = fit_transition(copying)
    assert found.needed.value is None
    assert found.needed.high is None
    assert found.always > 0.99
    new = fit_transition([Count(n, seed, 0, 256) for seed in range(3) for n in (16, 64, 256)])
    assert new.needed.value is None
    assert new.needed.low is None
    assert new.never > 0.9
    with pytest.raises(DataError, match="two numbers"):
        fit_transition(copying[:1])


@pytest.mark.slow
@pytest.mark.parametrize("shifts", [(0.0, 0.0), (0.25, 0.0), (0.0, 0.25), (0.2, 0.2)])
def test_the_interval_covers_as_often_as_it_says(shifts):
    generator = torch.Generator().manual_seed(2)
    sizes = (16, 48, 64, 90, 128, 512)
    trials = 40
    hits = sum(
        covered(fit_transition(simulated(generator, seed_shift=shifts[0], model_shift=shifts[1], sizes=sizes)).needed)
        for _ in range(trials)
    )
    assert hits >= 34, f"{hits} of {trials}"


def test_a_crossing_is_interpolated_and_must_last():
    assert crossing({10.0: 0.0, 20.0: 0.0}) is None
    assert crossing({10.0: 0.2, 20.0: 0.3}) == 10
    assert crossing({10.0: 0.025, 40.0: 0.1}) == pytest.approx(20)
    assert 40 < crossing({10.0: 0.0, 20.0: 0.2, 40.0: 0.01, 80.0: 0.2}) < 80


def test_the_onset_has_an_interval_over_seeds():
    onset = find_onset(64, [{10.0: 0.025, 40.0: 0.1}, {10.0: 0.01, 40.0: 0.1}, {10.0: 0.0, 40.0: 0.0}])
    assert (onset.memorizing, onset.seeds, onset.safe) == (2, 3, 10)
    assert 20 < onset.starts < 30
    assert onset.low < onset.starts < onset.high
    none = find_onset(64, [{10.0: 0.0, 40.0: 0.0}])
    assert (none.starts, none.low, none.safe) == (None, None, 40)


def test_a_look_before_training_is_no_time():
    assert crossing({0.0: 0.0, 10.0: 0.2}) == 10.0
    assert find_onset(10, [{0.0: 0.0, 10.0: 0.2}]).starts == pytest.approx(10.0)
