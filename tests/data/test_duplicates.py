"""Copies of training images among held-out ones are found, and different images are left alone."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from gausslens.data import Splits, find_duplicates, load_images
from gausslens.errors import DataError

RNG = np.random.default_rng(0)


def smooth(n, size=24):
    """Images with the contrast of photographs: random, blurred, their colours all near grey."""
    grey = RNG.integers(20, 236, (n, 6, 6), dtype=np.uint8)
    resized = [np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)) for image in grey]
    tints = RNG.integers(-20, 21, (n, 3, 1, 1))
    return (np.stack(resized)[:, None] + tints).clip(0, 255).astype(np.uint8)


def noisy(image, levels):
    return (image + RNG.normal(0, levels, image.shape)).round().clip(0, 255).astype(np.uint8)


def through_jpeg(image, quality):
    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file)).transpose(2, 0, 1)


def test_planted_copies_are_found_and_nothing_else():
    train, held_out = smooth(300), smooth(100)
    held_out[7] = train[250]
    held_out[30] = train[0]
    held_out[50] = noisy(train[11], 2)
    held_out[51] = through_jpeg(train[12], 75)
    held_out[99] = noisy(through_jpeg(train[13], 90), 2)
    report = find_duplicates(train, held_out)
    assert report.exact.tolist() == [[250, 7], [0, 30]]
    assert report.near.tolist() == [[11, 50], [12, 51], [13, 99]]
    assert report.count == 5
    for (i, j), levels in zip(report.near, report.near_levels, strict=True):
        assert levels == pytest.approx(np.sqrt(((train[i].astype(float) - held_out[j]) ** 2).mean()), rel=1e-6)
    assert str(report) == "5 of 100 held-out images repeat one of 300 training images: 2 exactly, 3 nearly"


def test_a_copy_is_shown_beside_its_nearest_original():
    train = smooth(20)
    train[3] = noisy(train[9], 5)
    assert find_duplicates(train, noisy(train[9:10], 1)).near.tolist() == [[9, 0]]
    assert find_duplicates(train, train[9:10]).exact.tolist() == [[9, 0]]


def test_flat_images_are_copies_only_if_equal():
    train = np.full((3, 1, 8, 8), 100, np.uint8)
    held_out = np.stack([train[0], train[0] + 3, noisy(train[0], 2)])
    report = find_duplicates(train, held_out)
    assert report.exact.tolist() == [[0, 0]]
    assert len(report.near) == 0


def test_a_held_out_set_that_is_all_copies_is_seen_as_such():
    train = smooth(50)
    assert len(find_duplicates(train, noisy(train, 2)).near) == 50
    assert len(find_duplicates(train, train).exact) == 50


@pytest.mark.parametrize("name", ["digits", "fashion"])
def test_different_images_are_left_alone(name):
    images = load_images(name).images
    splits = Splits(len(images))
    report = find_duplicates(images[splits.named("all")], images[splits.held_out])
    assert report.count == 0
    assert str(report).startswith(f"none of {len(splits.held_out)} held-out images repeats")


def test_floats_are_compared_in_the_same_units():
    train = smooth(10)
    held_out = noisy(train[:4], 3)
    report = find_duplicates(train, held_out)
    floats = [torch.from_numpy(images) / 127.5 - 1 for images in (train, held_out)]
    again = find_duplicates(*floats)
    assert report.near.tolist() == again.near.tolist() == [[k, k] for k in range(4)]
    np.testing.assert_allclose(report.near_levels, again.near_levels, rtol=1e-5)


def test_images_of_two_shapes_are_refused():
    with pytest.raises(DataError, match="must have the shape of"):
        find_duplicates(smooth(3), smooth(3, size=20))
