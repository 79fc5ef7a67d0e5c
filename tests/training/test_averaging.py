"""The moving average of weights: its half-life, and its start."""

import torch

from gausslens.training.update import WeightAverage


def follow(values, half_life, batch=10):
    """The average after each of these values of one weight."""
    module = torch.nn.BatchNorm1d(1)
    average, found = WeightAverage(module, half_life), []
    for step, value in enumerate(values):
        with torch.no_grad():
            module.weight.fill_(value)
            module.running_mean.fill_(value)
        average.update((step + 1) * batch, batch)
        assert float(average.module.running_mean) == value
        found.append(float(average.module.weight.detach()))
    return found


def test_the_first_step_copies_so_that_the_initial_weights_never_weigh_in():
    assert follow([5.0] * 20, 1e9) == [5.0] * 20
    assert follow([7.0], 1e9) == [7.0]


def test_a_short_run_averages_its_last_twentieth():
    # After 1,000 equal steps at 0, steps at 1: the half-life is 5 % of the images so far.
    found = follow([0.0] * 1000 + [1.0] * 100, 1e9)
    assert abs(found[1000 + 51] - 0.5) < 0.02


def test_a_long_run_has_the_half_life_asked_for():
    found = follow([0.0] * 1000 + [1.0] * 40, half_life=100.0)
    assert abs(found[1009] - 0.5) < 1e-6  # 10 steps of 10 images
    assert abs(found[1019] - 0.75) < 1e-6


def test_without_a_half_life_there_is_no_average():
    assert follow([1.0, 2.0, 3.0], 0.0) == [1.0, 2.0, 3.0]


def test_the_average_is_a_copy_in_eval_mode_without_gradients():
    module = torch.nn.Linear(2, 2)
    average = WeightAverage(module, 10.0)
    average.update(1, 1)
    assert not average.module.training
    assert not any(parameter.requires_grad for parameter in average.module.parameters())
    assert average.module.weight.data_ptr() != module.weight.data_ptr()
