"""Augmentation: each transformation by itself, and what the network is told."""

import math

import pytest
import torch

from gausslens.config import AUGMENT_INPUTS
from gausslens.training.augmentation import N_DRAWS, augment

IMAGES = torch.rand(1, 2, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
NEVER, ALWAYS = 9.0, -9.0  # normal numbers whose distribution function is 1 and 0
FLIP_X, FLIP_Y, SCALE, ROTATE, STRETCH, MOVE = range(6)


def numbers(*happening, **parameters):
    """Draws under which only the named transformations happen, with the parameters at these places."""
    draws = torch.zeros(1, N_DRAWS)
    draws[:, :6] = NEVER
    draws[:, list(happening)] = ALWAYS
    for place, value in parameters.items():
        draws[:, int(place[1:])] = value
    return draws


def test_without_transformations_images_pass_untouched():
    x, told = augment(IMAGES, numbers(), 0.5)
    assert torch.equal(x, IMAGES)
    assert torch.equal(told, torch.zeros(1, AUGMENT_INPUTS))


@pytest.mark.parametrize(("which", "axis"), [(FLIP_X, 3), (FLIP_Y, 2)])
def test_flips(which, axis):
    x, told = augment(IMAGES, numbers(which), 0.5)
    torch.testing.assert_close(x, IMAGES.flip(axis), atol=1e-5, rtol=0)
    assert told.nonzero().tolist() == [[0, which]]
    assert told[0, which] == 1


def test_a_quarter_turn():
    quarter = float(torch.special.ndtri(torch.tensor(0.75, dtype=torch.float64)))  # θ = π(2Φ − 1)
    x, told = augment(IMAGES, numbers(ROTATE, _7=quarter), 0.5)
    turned = [torch.rot90(IMAGES, k, (2, 3)) for k in (1, 3)]
    assert min(float((x - other).abs().max()) for other in turned) < 1e-4
    torch.testing.assert_close(told[0, 3:5], torch.tensor([-1.0, 1.0]), atol=1e-5, rtol=0)
    assert (told[0, [0, 1, 2, 5, 6, 7, 8]] == 0).all()


def test_translation_by_whole_pixels_moves_what_it_says():
    x, told = augment(IMAGES, numbers(MOVE, _11=2.0, _12=-1.0), 0.5)  # an eighth of 8 pixels is one
    torch.testing.assert_close(x[..., :-1, 2:], IMAGES[..., 1:, :-2], atol=1e-5, rtol=0)
    assert told[0, 7:].tolist() == [2.0, -1.0]


def test_translation_is_in_fractions_of_either_side():
    wide = torch.rand(1, 1, 8, 16)
    x, _ = augment(wide, numbers(MOVE, _11=1.0), 0.5)
    torch.testing.assert_close(x[..., 2:], wide[..., :-2], atol=1e-5, rtol=0)


def test_scaling_by_two_enlarges():
    ramp = torch.linspace(-1, 1, 9)[:8].expand(1, 1, 8, 8)
    x, told = augment(ramp, numbers(SCALE, _6=5.0), 0.5)  # log₂ of the factor has spread 0.2
    middle = slice(2, 6)
    torch.testing.assert_close(x[0, 0, 4, middle].diff(), ramp[0, 0, 4, middle].diff() / 2, atol=1e-5, rtol=0)
    assert told[0, 2] == 5.0


def test_stretching_enlarges_one_way_and_shrinks_the_other():
    rows = torch.linspace(-1, 1, 8)[:, None].expand(1, 1, 8, 8)
    x, told = augment(rows, numbers(STRETCH, _8=2.5, _10=float("-inf")), 0.5)  # along φ = 0, by √2
    torch.testing.assert_close(x[0, 0, 3:5, 4].diff(), rows[0, 0, 3:5, 4].diff() * math.sqrt(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(told[0, 5:7], torch.tensor([2.5, 0.0]))


def test_each_transformation_happens_with_its_probability():
    draws = torch.randn(20_000, N_DRAWS, generator=torch.Generator().manual_seed(2))
    x, told = augment(torch.zeros(20_000, 1, 2, 2), draws, 0.2)
    assert x.shape == (20_000, 1, 2, 2)
    for place in (0, 1, 2, 4, 5, 7):
        assert float((told[:, place] != 0).float().mean()) == pytest.approx(0.2, abs=0.012)


def test_one_image_does_not_depend_on_the_others():
    draws = torch.randn(5, N_DRAWS, generator=torch.Generator().manual_seed(3))
    images = torch.rand(5, 3, 8, 8)
    together = augment(images, draws, 0.6)
    alone = augment(images[2:3], draws[2:3], 0.6)
    torch.testing.assert_close(together[0][2:3], alone[0])
    assert torch.equal(together[1][2:3], alone[1])
