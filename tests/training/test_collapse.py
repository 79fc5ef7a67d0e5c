"""Collapse of a training: told of one, and not of spikes, noise or slow learning."""

import math
import random

import pytest

from gausslens.training.collapse import collapse_warning

FALLING = [0.2 + 0.7 * math.exp(-step / 5) for step in range(40)]


def _records(losses):
    return [
        {"quantity": "loss", "value": loss, "kimg": 6.4 * (step + 1), "count": 6400} for step, loss in enumerate(losses)
    ]


def test_a_loss_that_falls_and_jumps_back_for_good_is_told_with_its_numbers():
    told = collapse_warning(_records([0.91, 0.56, 0.29, 0.25, *[0.94 - 0.004 * step for step in range(36)]]))
    assert told is not None
    assert "fell from 0.91 to 0.29 after 25.6 kimg, rose to 0.936 after 38.4 kimg, and is 0.808 now" in told


def test_a_loss_that_is_thrown_back_and_regains_most_of_it_is_told():
    regained = [0.26 - 0.0005 * step for step in range(30)]
    told = collapse_warning(_records([*FALLING, 0.25, 0.54, 0.94, 0.66, 0.42, 0.37, 0.33, *regained]))
    assert told is not None
    assert "fell from 0.9 to 0.2" in told
    assert "and is 0.246 now" in told
    assert (
        collapse_warning(_records([*FALLING, 0.25, 0.54, 0.94, 0.66, 0.42, 0.37, 0.33, *regained, *[0.21] * 5])) is None
    )


@pytest.mark.parametrize(
    "losses",
    [
        FALLING,
        [*FALLING[:20], 40.0, 5.0, 0.9, *FALLING[20:]],  # a spike that passes
        [*FALLING, 0.9, 0.9],  # not for long yet
        [1.6, 1.1, 1.0, *[1.3] * 20],  # little was learned at any time
        [0.25, 0.24, *[0.5] * 20],  # nothing can be learned
        [0.9, 0.3, 0.9, 0.9],  # too short to tell
        [],
    ],
)
def test_other_curves_are_not_told(losses):
    assert collapse_warning(_records(losses)) is None


def test_noise_around_a_loss_that_cannot_fall_is_not_told():
    draw = random.Random(0)
    for _ in range(200):
        assert collapse_warning(_records([0.25 * draw.lognormvariate(0, 0.15) for _ in range(20)])) is None


def test_weights_whose_average_keeps_what_was_learned_have_not_collapsed():
    losses = _records([0.41, 0.25, 0.17, 0.17, *[0.31] * 10])
    assert collapse_warning(losses) is not None
    averaged = {"quantity": "denoising_loss", "on": "train", "value": 0.146, "kimg": 83.2}
    assert collapse_warning([*losses, averaged]) is None
    assert collapse_warning([*losses, averaged | {"value": 0.36}]) is not None


def test_records_of_a_few_steps_do_not_count():
    few_steps = {"quantity": "loss", "value": 0.1, "kimg": 300.0, "count": 128}
    assert collapse_warning([*_records([0.9] * 20), few_steps]) is None
