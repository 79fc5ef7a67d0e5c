"""Memorisation scores against their definitions, with duplicates, zeros and bad input."""

import math

import numpy as np
import pytest
import torch

from gausslens import Estimate, memorization
from gausslens.errors import ConfigError, DataError
from gausslens.images import dequantize
from gausslens.measures.intervals import mean_estimate
from gausslens.measures.memorization import estimate_ratio


def images(n, seed, side=4):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def distance(a, b):
    return math.dist(a.flatten().tolist(), b.flatten().tolist())


def test_scores_follow_their_definitions():
    train, held_out = images(50, 0), images(40, 1)
    samples = torch.cat([images(15, 2), train[:5] + 0.01 * images(5, 3)])
    result = memorization(samples, train, held_out)

    nearest, gl, ratios = [], [], []
    for sample in samples:
        ranked = sorted((distance(sample, image), i) for i, image in enumerate(train))
        nearest.append(ranked[0][1])
        gl.append(ranked[0][0] / float(sample.norm()))
        ratios.append(ranked[0][0] / ranked[1][0])
    new = [min(distance(x, image) for image in train) / float(x.norm()) for x in held_out]

    assert result.nearest.tolist() == nearest
    torch.testing.assert_close(result.distances / result.second_distances, torch.tensor(ratios, dtype=torch.float64))
    assert result.gl.value == pytest.approx(sum(gl) / 20, rel=1e-12)
    assert result.gl_held_out.value == pytest.approx(sum(new) / 40, rel=1e-12)
    assert result.relative_gl.value == pytest.approx(result.gl.value / result.gl_held_out.value)
    assert result.relative_gl.low < result.relative_gl.value < result.relative_gl.high
    assert result.ratio_fraction.value == sum(r < 1 / 3 for r in ratios) / 20 == 5 / 20
    assert (result.n_train, result.n_held_out) == (50, 40)


@pytest.mark.parametrize("copies", [1, 3, 40])
def test_duplicates_of_the_nearest_image_do_not_hide_a_copy(copies):
    """With d₂ the distance to a duplicate, d₁/d₂ would be 1 for a perfect copy of a repeated image."""
    alone = images(60, 4)
    repeated = torch.cat([alone, alone[:1].expand(copies, 1, 4, 4) + 1e-4 * images(copies, 5)])
    sample = alone[:1] + 0.01 * images(1, 6)
    expected = sorted(distance(sample, image) for image in alone)[1]
    result = memorization(sample, repeated)
    assert float(result.second_distances) == pytest.approx(expected, rel=1e-12)
    assert result.ratio_fraction.value == 1.0
    assert {tuple(pair) for pair in result.train_duplicates.tolist()} == {(0, 60 + i) for i in range(copies)}
    strict = memorization(sample, repeated, duplicate_rmse=0.0)
    assert strict.ratio_fraction.value == 0.0
    assert len(strict.train_duplicates) == 0


def test_without_a_second_distinct_image_there_is_no_ratio():
    train = images(1, 7).expand(5, 1, 4, 4)
    result = memorization(train[:2], train)
    assert bool(result.second_distances.isnan().all())
    assert result.ratio_fraction.value == 0.0
    assert not bool(result.identifiable.any())
    assert memorization(train[:1], train[:1]).gl.value == 0.0


def test_memorising_and_new_samples_are_told_apart():
    pool = images(450, 8)
    train, held_out, new = pool[:200], pool[200:400], pool[400:]
    copying = memorization(train[:50] + 0.01 * images(50, 9), train, held_out)
    assert copying.relative_gl.high < 0.1
    assert copying.ratio_fraction.value > 0.95
    assert copying.copy_test.p_value < 0.001
    fresh = memorization(new, train, held_out)
    assert fresh.relative_gl.low < 1 < fresh.relative_gl.high
    assert fresh.ratio_fraction.value < 0.05
    assert fresh.copy_test.p_value > 0.01


def test_shared_duplicates_are_counted():
    train, held_out = images(60, 10), images(30, 11)
    held_out[4], held_out[9] = train[50], train[3] + 0.001
    result = memorization(images(5, 12), train, held_out)
    assert result.shared_duplicates.tolist() == [[50, 4], [3, 9]]


def test_flat_images_are_not_identifiable():
    """A tenth of the training set is almost blank; samples near those images cannot be called copies of one of them."""
    flat = 0.03 * images(10, 13)
    train = torch.cat([flat, images(90, 14)])
    samples = torch.cat([flat[:5] + 0.001, train[50:60] + 0.001])
    result = memorization(samples, train)
    assert result.identifiable.tolist() == [False] * 5 + [True] * 10


def test_samples_of_zeros_have_no_gl_score():
    train = images(20, 15)
    samples = torch.cat([torch.zeros(2, 1, 4, 4, dtype=torch.float64), train[:3]])
    result = memorization(samples, train)
    assert (result.gl.value, result.gl.count) == (0.0, 3)
    assert math.isnan(memorization(samples[:2], train).gl.value)


def test_every_kind_of_source_gives_the_same_numbers(tmp_path):
    pixels = torch.randint(0, 256, (80, 1, 4, 4), generator=torch.Generator().manual_seed(16)).to(torch.uint8)
    samples, held_out = pixels[:10] // 2 + pixels[30:40] // 2, pixels[60:]
    np.save(tmp_path / "train.npy", pixels[:60].numpy())
    mapped = np.load(tmp_path / "train.npy", mmap_mode="r")
    batches = [pixels[:25], pixels[25:60]]
    results = [
        memorization(samples, train, held_out) for train in (pixels[:60], mapped, batches, dequantize(pixels[:60]))
    ]
    for result in results[1:]:
        assert torch.equal(result.distances, results[0].distances)
        assert torch.equal(result.second_distances, results[0].second_distances)
        assert (result.gl, result.relative_gl, str(result)) == (results[0].gl, results[0].relative_gl, str(results[0]))


def test_ratio_interval_is_fiellers_for_symmetric_intervals():
    x, y = Estimate(2.0, 1.7, 2.3, 50), Estimate(4.0, 3.5, 4.5, 60)
    ratio = estimate_ratio(x, y)
    # Fieller: the r with (x − r·y)² = 0.3² + r²·0.5².
    for end in (ratio.low, ratio.high):
        assert (2 - end * 4) ** 2 == pytest.approx(0.3**2 + end**2 * 0.5**2)
    assert ratio.low < 0.5 < ratio.high
    unresolved = estimate_ratio(x, Estimate(1.0, -0.5, 2.5, 3))
    assert (unresolved.low, unresolved.high) == (0.0, math.inf)
    assert math.isnan(estimate_ratio(x, Estimate(0.0, 0.0, 0.0, 5)).value)


@pytest.mark.slow
def test_ratio_interval_covers_the_truth():
    generator, covered = torch.Generator().manual_seed(0), 0
    for _ in range(600):
        a = torch.empty(80, dtype=torch.float64).exponential_(1.0, generator=generator) + 0.5
        b = torch.empty(120, dtype=torch.float64).exponential_(2.0, generator=generator) + 0.5
        ratio = estimate_ratio(mean_estimate(a), mean_estimate(b))
        covered += ratio.low <= 1.5 <= ratio.high
    assert 600 * 0.95 - 4 * math.sqrt(600 * 0.0475) <= covered <= 600 * 0.95 + 4 * math.sqrt(600 * 0.0475)


def test_summary_reads_as_text():
    pool = images(90, 17)
    text = str(memorization(pool[:10], pool[:40], pool[40:]))
    assert text.startswith("10 samples against 40 training and 50 held-out images")
    assert "GL score: 0.000" in text
    assert "p = " in text
    assert "copy test" not in str(memorization(pool[:10], pool[:40]))


def test_bad_input_is_named():
    pool = images(20, 18)
    with pytest.raises(DataError, match=r"samples must have the shape .* \(1, 4, 4\); got \(1, 3, 3\)"):
        memorization(images(5, 19, side=3), pool)
    with pytest.raises(DataError, match=r"held_out must have the shape"):
        memorization(pool, pool, images(5, 20, side=3))
    with pytest.raises(DataError, match="samples is empty"):
        memorization(pool[:0], pool)
    with pytest.raises(DataError, match="samples must be finite"):
        memorization(pool * math.inf, pool)
    with pytest.raises(DataError, match="float train must lie in"):
        memorization(pool, 3 * pool)
    with pytest.raises(ConfigError, match="duplicate_rmse"):
        memorization(pool, pool, duplicate_rmse=-1.0)
    with pytest.raises(ConfigError, match="threshold"):
        memorization(pool, pool, threshold=0.0)
    assert memorization(3 * pool, 3 * pool, bounds=None).gl.value == 0.0
