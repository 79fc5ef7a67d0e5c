"""Agreement of samples: each measure against a slow float64 loop, its properties, and the controls."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gausslens import agreement
from gausslens.errors import ConfigError, DataError
from gausslens.measures.agreement import ssim


def images(n, seed, shape=(1, 8, 8)):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def reference_ssim(a, b, data_range):
    """SSIM of two images from its definition: a Gaussian window moved over every position, pixel by pixel."""
    channels, height, width = a.shape
    size = min(11, height, width)
    size -= (size + 1) % 2
    half = size // 2
    window = {
        (i, j): math.exp(-(i * i + j * j) / (2 * 1.5**2))
        for i in range(-half, half + 1)
        for j in range(-half, half + 1)
    }
    total = sum(window.values())
    values = []
    for c in range(channels):
        for row in range(half, height - half):
            for column in range(half, width - half):
                weighted = [
                    (w / total, float(a[c, row + i, column + j]), float(b[c, row + i, column + j]))
                    for (i, j), w in window.items()
                ]
                mean_a, mean_b = sum(w * x for w, x, _ in weighted), sum(w * y for w, _, y in weighted)
                var_a = sum(w * (x - mean_a) ** 2 for w, x, _ in weighted)
                var_b = sum(w * (y - mean_b) ** 2 for w, _, y in weighted)
                cov = sum(w * (x - mean_a) * (y - mean_b) for w, x, y in weighted)
                c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
                values.append(
                    (2 * mean_a * mean_b + c1) * (2 * cov + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
                )
    return sum(values) / len(values)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 9), (2, 14, 12), (1, 1, 5), (1, 2, 2)])
@pytest.mark.parametrize("data_range", [2.0, 255.0])
def test_ssim_equals_a_pixel_loop(shape, data_range):
    a = images(2, 0, shape)
    b = 0.7 * a + 0.3 * images(2, 1, shape)
    expected = [reference_ssim(x, y, data_range) for x, y in zip(a, b, strict=True)]
    torch.testing.assert_close(
        ssim(a, b, data_range), torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-12
    )


@given(st.integers(0, 10**6), st.integers(1, 13), st.integers(1, 13))
def test_ssim_is_symmetric_at_most_one_and_one_for_equals(seed, height, width):
    a, b = images(3, seed, (2, height, width)), images(3, seed + 1, (2, height, width))
    torch.testing.assert_close(ssim(a, a), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(ssim(a, b), ssim(b, a))
    assert bool((ssim(a, b).abs() <= 1 + 1e-12).all())


def test_pixel_measures_follow_their_definitions():
    a, b = images(5, 2), images(5, 3)
    per_pair = agreement(a, b).same_noise.per_pair
    for i in range(5):
        x, y = a[i].flatten(), b[i].flatten()
        gap = math.dist(x.tolist(), y.tolist())
        assert float(per_pair["rmse"][i]) == pytest.approx(gap / 8, rel=1e-12)
        assert float(per_pair["nmse"][i]) == pytest.approx(gap / math.sqrt(sum(v * v for v in x.tolist())), rel=1e-12)
        assert float(per_pair["correlation"][i]) == pytest.approx(float(torch.corrcoef(torch.stack([x, y]))[0, 1]))
        assert float(per_pair["ssim"][i]) == pytest.approx(reference_ssim(a[i], b[i], 2.0), rel=1e-10)


def test_a_set_agrees_with_itself_perfectly():
    samples = images(20, 4)
    samples[3] = 0.3  # a constant image
    result = agreement(samples, samples)
    values = [getattr(result.same_noise, name) for name in ("rmse", "nmse", "correlation", "ssim")]
    assert [round(estimate.value, 12) for estimate in values] == [0.0, 0.0, 1.0, 1.0]
    assert all(estimate.count == 20 for estimate in values)
    assert result.shuffled.correlation.high < 0.3
    assert result.shuffled.ssim.high < 0.3
    assert result.shuffled.rmse.low > 0.5
    assert (result.multi_delta, result.excess) == (None, None)


@given(st.floats(0.01, 100), st.floats(-50, 50), st.integers(0, 1000))
def test_correlation_ignores_affine_changes(scale, shift, seed):
    a, b = images(4, seed), images(4, seed + 1)
    plain, changed = agreement(a, b), agreement(a, scale * b + shift)
    torch.testing.assert_close(
        changed.same_noise.per_pair["correlation"], plain.same_noise.per_pair["correlation"], rtol=1e-9, atol=1e-9
    )


def test_constant_images_have_a_defined_correlation():
    a, b = images(3, 5), images(3, 6)
    a[0] = 0.3
    b[1] = -0.1
    assert agreement(a, b).same_noise.per_pair["correlation"][:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("n", [2, 3, 50])
def test_shuffled_pairs_are_a_derangement_fixed_by_the_seed(n):
    """Images that are constants i/n: the distance of a shuffled pair tells which sample was paired with which."""
    levels = torch.arange(n, dtype=torch.float64) / n
    a = levels[:, None, None, None].expand(n, 1, 4, 4)
    b = a + 10 ** torch.arange(n, dtype=torch.float64)[:, None, None, None] if n < 4 else a
    shuffled = agreement(a, b).shuffled.per_pair["rmse"]
    assert float(shuffled.min()) > 0
    assert torch.equal(shuffled, agreement(a, b).shuffled.per_pair["rmse"])
    if n == 50:
        assert not torch.equal(shuffled, agreement(a, b, seed=1).shuffled.per_pair["rmse"])


def test_every_sample_is_shuffled_exactly_once():
    n = 40
    powers = 2.0 ** torch.arange(n, dtype=torch.float64)
    b = powers[:, None, None, None].expand(n, 1, 1, 1)
    partners = agreement(torch.zeros(n, 1, 1, 1, dtype=torch.float64), b).shuffled.per_pair["rmse"]
    assert torch.equal(partners.sort().values, powers)
    assert bool((partners != powers).all())


def test_excess_is_the_paired_difference():
    """Noise by noise, models and controls rise and fall together: pairing takes that out of the interval."""
    base, fresh = images(60, 7), [images(60, seed) for seed in (8, 9, 10, 11)]
    mix = torch.linspace(0.1, 0.9, 60, dtype=torch.float64)[:, None, None, None]  # some noises are harder than others
    ours = [mix * base + 0.5 * (1 - mix) * part for part in fresh[:2]]
    controls = [mix * base + 0.7 * (1 - mix) * part for part in fresh[2:]]
    result = agreement(*ours, multi_delta=tuple(controls))
    for name in ("rmse", "nmse", "correlation", "ssim"):
        same, control = result.same_noise.per_pair[name], result.multi_delta.per_pair[name]
        torch.testing.assert_close(result.excess.per_pair[name], same - control)
        excess = getattr(result.excess, name)
        assert excess.value == pytest.approx(float((same - control).mean()))
        width = getattr(result.same_noise, name).high - getattr(result.same_noise, name).low
        assert excess.high - excess.low < width
    assert result.excess.correlation.low > 0
    assert result.excess.rmse.high < 0


def test_uint8_samples_and_small_chunks_change_nothing(monkeypatch):
    pixels = torch.randint(0, 256, (10, 1, 8, 8), generator=torch.Generator().manual_seed(12)).to(torch.uint8)
    other = pixels.flip(3)
    whole = agreement(pixels, other).same_noise
    monkeypatch.setattr("gausslens.measures.agreement._CHUNK_NUMBERS", 130)
    values = [pixels.float() / 127.5 - 1, other.float() / 127.5 - 1]
    pieces = agreement(*values).same_noise
    for name, expected in whole.per_pair.items():
        torch.testing.assert_close(pieces.per_pair[name], expected, rtol=1e-6, atol=1e-7)


def test_summary_names_the_controls():
    a, b = images(10, 13), images(10, 14)
    text = str(agreement(a, b, multi_delta=(b, a)))
    assert [line.split(":")[0] for line in text.splitlines()] == ["same noise", "shuffled", "multi-delta", "excess"]


def test_bad_input_is_named():
    a = images(5, 15)
    with pytest.raises(DataError, match=r"samples_b must match samples_a.*\(5, 1, 8, 8\); got \(4, 1, 8, 8\)"):
        agreement(a, a[:4])
    with pytest.raises(DataError, match=r"multi_delta\[1\] must match"):
        agreement(a, a, multi_delta=(a, images(5, 16, (1, 4, 4))))
    with pytest.raises(DataError, match="at least two images"):
        agreement(a[:1], a[:1])
    with pytest.raises(DataError, match="at least two images"):
        agreement(a.flatten(1), a.flatten(1))
    with pytest.raises(DataError, match="samples_b must be finite"):
        agreement(a, a * math.nan)
    with pytest.raises(ConfigError, match="data_range"):
        agreement(a, a, data_range=0.0)
    agreement(9 * a, -9 * a)  # samples are never range-checked
