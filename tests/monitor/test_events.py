"""The moments that matter in a training run: when memorising starts, where the minimum is, and which weights are wanted."""

from dataclasses import replace

import torch

from gausslens.measures.intervals import Estimate, proportion_estimate
from gausslens.monitor.events import closest_to_gaussian, recommended_probe, start_of_memorizing, steps_to_keep
from gausslens.monitor.probe import ProbeResult


def look_at(step, *, copies=0, samples=32, gaussian=1.0, loss=1.0, images=20):
    noise = torch.randn(images, generator=torch.Generator().manual_seed(step)).double()
    by_image = tuple((gaussian + 0.01 * (noise - noise.mean())).tolist())
    exact = Estimate(gaussian, gaussian, gaussian, images)
    return ProbeResult(
        step, None, exact, exact, exact, Estimate(loss, loss, loss, images), copies, samples, by_image, seconds=0.1
    )


def test_one_look_with_copies_starts_nothing():
    looks = [look_at(step, copies=20 if step == 4 else 0) for step in range(8)]
    assert start_of_memorizing(looks) is None


def test_memorising_ends_only_when_it_is_surely_over():
    looks = [look_at(step, copies=copies) for step, copies in enumerate((0, 0, 0, 8, 8, 2, 1, 2))]
    assert start_of_memorizing(looks).step == 3, "a few copies later do not undo it"
    looks += [look_at(step, copies=0) for step in range(8, 12)]
    assert start_of_memorizing(looks) is None


def test_chance_raises_the_threshold():
    looks = [look_at(step, copies=4) for step in range(6)]
    assert start_of_memorizing(looks) is not None
    assert start_of_memorizing(looks, proportion_estimate(12, 100)) is None


def test_false_alarms_are_rare_and_onsets_are_found():
    generator = torch.Generator().manual_seed(0)

    def looks_with(rates):
        draws = torch.binomial(torch.full((len(rates),), 32.0), torch.tensor(rates), generator=generator)
        return [look_at(step, copies=int(copies)) for step, copies in enumerate(draws)]

    alarms = sum(start_of_memorizing(looks_with([0.01] * 30)) is not None for _ in range(200))
    assert alarms <= 4
    found = [start_of_memorizing(looks_with([0.0] * 10 + [0.3] * 10)) for _ in range(200)]
    assert all(mark is not None for mark in found)
    assert sum(mark.earliest <= 10 <= mark.latest for mark in found) >= 190
    assert all(abs(mark.step - 10) <= 1 for mark in found)


def test_the_minimum_is_between_the_looks_that_cannot_be_told_apart():
    looks = [look_at(step, gaussian=value) for step, value in enumerate((3.0, 2.0, 1.001, 1.0, 1.002, 2.0, 3.0))]
    mark = closest_to_gaussian(looks)
    assert (mark.earliest, mark.latest, mark.settled) == (2, 4, True)
    assert not closest_to_gaussian(looks[:6]).settled, "one look is not enough"


def test_weights_before_a_suspicion_stay_wanted():
    looks = [look_at(0, loss=2.0), look_at(1, loss=1.0), look_at(2, loss=0.9, copies=5), look_at(3, loss=0.8, copies=5)]
    assert steps_to_keep(looks[:3], start_of_memorizing(looks[:3])) == [1, 2]
    mark = start_of_memorizing(looks)
    assert mark.step == 2
    assert recommended_probe(looks, mark).step == 1
    assert 1 in steps_to_keep(looks, mark)


def test_a_look_is_not_further_than_itself():
    looks = [look_at(0, gaussian=0.7), replace(look_at(0, gaussian=0.7), step=1)]
    assert closest_to_gaussian(looks).latest == 1
