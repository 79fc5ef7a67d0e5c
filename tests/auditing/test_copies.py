"""Copies found and named, whatever was done to them; silence where there are none; agreement with `memorization`."""

import math

import pytest
import torch

from gausslens import memorization
from gausslens.auditing.copies import find_copies
from gausslens.measures.transformations import MIRRORED, Transformation
from gausslens.errors import ConfigError, DataError
from gausslens.images import quantize


def images(n, seed, side=6):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed)) * 2 - 1


PLAIN, SHIFT = Transformation(), Transformation(down=-1, right=2)


def planted(seed=0, transformation=PLAIN, noise=0.01, copies=30):
    """30 copies of training images 50 … 79 after 170 new samples, and a pool in two halves."""
    pool = images(600, seed)
    made = transformation.apply(pool[50 : 50 + copies]) + noise * images(copies, seed + 1)
    return torch.cat([images(170, seed + 2), made]), pool[:300], pool[300:]


@pytest.mark.parametrize(
    ("transformation", "family"),
    [(PLAIN, "plain"), (MIRRORED, "mirrored"), (SHIFT, "shifted")],
    ids=["plain", "mirrored", "shifted"],
)
def test_copies_are_found_and_named_with_what_was_done_to_them(transformation, family):
    copies = find_copies(*planted(0, transformation))
    assert copies.alarm
    assert copies.p_value == pytest.approx(3 / 10_000)
    assert copies.tests[family].p_value == 1 / 10_000
    assert all(test.p_value > 0.05 for name, test in copies.tests.items() if name != family)
    assert sorted((pair.sample, pair.image) for pair in copies.pairs) == [(170 + i, 50 + i) for i in range(30)]
    assert {pair.transformation for pair in copies.pairs} == {transformation}
    assert all(pair.rmse < 0.02 for pair in copies.pairs)
    assert copies.nearest[170:].tolist() == list(range(50, 80))
    assert copies.matched[170:] == (transformation,) * 30
    assert float(copies.ratios[170:].max()) < 1 / 3
    assert copies.copied_fraction.value == 30 / 200
    assert "copies found: p = 0.0003; 30 samples named" in str(copies)


def test_new_samples_raise_no_alarm():
    copies = find_copies(*planted(10, copies=0))
    assert not copies.alarm
    assert copies.pairs == []
    assert copies.gl_relative.low < 1 < copies.gl_relative.high
    assert "no more copies than by chance" in str(copies)


def test_description_is_that_of_memorization():
    samples, train, held_out = planted(20)
    copies, plain = find_copies(samples, train, held_out), memorization(samples, train, held_out)
    assert copies.ratio_fraction == plain.ratio_fraction
    assert (copies.gl, copies.gl_held_out, copies.gl_relative) == (plain.gl, plain.gl_held_out, plain.gl_relative)
    assert copies.identifiable.value == pytest.approx(float(plain.identifiable.double().mean()))
    assert copies.tests["plain"].p_value == plain.copy_test.p_value
    assert torch.equal(copies.tests["plain"].ratios, plain.copy_test.ratios)
    alone = find_copies(samples, train, held_out, mirrored=False, shifts=())
    assert list(alone.tests) == ["plain"]
    assert alone.p_value == plain.copy_test.p_value
    torch.testing.assert_close(alone.ratios, plain.distances / plain.second_distances)


def test_held_out_images_like_one_training_image_are_counted_too():
    """Not those that repeat one, which are no held-out images."""
    pool = images(400, 0)
    alike = pool[:30] + 0.02 * torch.randn(30, *pool.shape[1:], generator=torch.Generator().manual_seed(1))
    found = find_copies(images(50, 2), pool[:200], torch.cat([pool[200:370], alike]), bounds=None)
    assert found.ratio_fraction_held_out.value == pytest.approx(30 / 200)
    assert find_copies(images(50, 2), pool[:200]).ratio_fraction_held_out is None


def test_flipped_training_images_are_references_too():
    """A model trained on both orientations copies either; both count as plain, and pairs name the image once."""
    samples, train, held_out = planted(30, MIRRORED)
    copies = find_copies(samples, train, held_out, augment="flip")
    assert list(copies.tests) == ["plain", "shifted"]
    assert copies.p_value == pytest.approx(2 / 10_000)
    assert {pair.image for pair in copies.pairs} == set(range(50, 80))
    assert copies.ratio_fraction.value >= 30 / 200
    assert find_copies(samples, train, held_out).ratio_fraction.value < 0.05
    both = torch.cat([train, train.flip(-1)])
    assert copies.gl == memorization(samples, both).gl


def test_repeated_training_images_neither_hide_copies_nor_alarm():
    """One image 14 times in the training set: all its copies fell to one side, which must not look like evidence."""
    pool = images(400, 40)
    train = torch.cat([pool[:200], pool[:1].expand(13, 1, 6, 6) + 1e-4 * images(13, 41)])
    sample = torch.cat([pool[:1] + 0.001, images(40, 42)])
    copies = find_copies(sample, train, pool[200:])
    assert copies.tests["plain"].p_value > 0.3
    assert not copies.alarm
    assert copies.train_duplicates.tolist() == [[0, 200 + i] for i in range(13)]
    assert float(copies.ratios[0]) < 0.01
    # Indices are those of the set as given, whatever was dropped from it.
    shuffled = torch.cat([train[200:], pool[:200]])
    named = find_copies(torch.cat([pool[30:60] + 0.001, images(50, 43)]), shuffled, pool[200:])
    assert sorted(pair.image for pair in named.pairs) == [13 + i for i in range(30, 60)]


def test_shared_images_are_listed_and_no_evidence():
    samples, train, held_out = planted(50, noise=0.0)
    held_out[:30] = train[50:80]
    copies = find_copies(samples, train, held_out)
    assert copies.shared_duplicates.tolist() == [[50 + i, i] for i in range(30)]
    assert not copies.alarm


def test_few_held_out_images_need_more_copies():
    samples, train, held_out = planted(60)
    assert not find_copies(samples, train, held_out[:60]).alarm  # (5/6)³⁰ = 0.004
    many = train[:120] + 0.01 * images(120, 63)
    copies = find_copies(many, train, held_out[:60])
    assert copies.alarm
    assert {pair.image for pair in copies.pairs} == set(range(120))


def test_without_held_out_images_there_is_description_alone():
    samples, train, _ = planted(70)
    copies = find_copies(samples, train)
    assert (copies.p_value, copies.copied_fraction, copies.gl_held_out, copies.tests) == (None, None, None, {})
    assert not copies.alarm
    assert copies.ratio_fraction.value >= 30 / 200
    assert "2 samples" not in str(copies)


def test_pixels_latents_and_tiny_sets_work():
    samples, train, held_out = planted(80)
    whole = find_copies(quantize(samples), quantize(train), quantize(held_out))
    assert whole.alarm
    vectors = find_copies(*(3 * part.flatten(1) for part in (samples, train, held_out)), bounds=None)
    assert list(vectors.tests) == ["plain"]
    assert vectors.alarm
    tiny = find_copies(samples[:3], train[:1], held_out[:1])
    assert bool(tiny.ratios.isnan().all())
    assert not tiny.alarm


def test_bad_input_is_named():
    samples, train, held_out = planted(90)
    with pytest.raises(ConfigError, match='augment must be "flip" or None'):
        find_copies(samples, train, augment="rotate")
    with pytest.raises(ConfigError, match="threshold"):
        find_copies(samples, train, threshold=1.0)
    with pytest.raises(ConfigError, match="duplicate_rmse"):
        find_copies(samples, train, duplicate_rmse=math.inf)
    with pytest.raises(ConfigError, match="leave something of images of 6 pixels"):
        find_copies(samples, train, shifts=(6,))
    with pytest.raises(DataError, match=r"held_out must have the shape .* \(1, 6, 6\); got \(1, 5, 5\)"):
        find_copies(samples, train, images(5, 91, side=5))
    with pytest.raises(DataError, match="float train must lie in"):
        find_copies(samples, 3 * train, held_out)
