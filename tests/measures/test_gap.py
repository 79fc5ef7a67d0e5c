"""Gaps between denoisers: float64 references by loops, what is held fixed, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from gausslens import ConfigError, DataError, GaussianDenoiser, Moments, gap, identity_gap
from gausslens.images import dequantize
from gausslens.noise import draw_noise, draw_order

SIGMAS = [3.0, 0.4]
SHAPE = (2, 3, 3)


def pictures(n=12, seed=0, dtype=torch.float64):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - 1


def soft(x, sigma):
    return torch.tanh(x) / (1 + sigma.reshape(-1, 1, 1, 1))


def flat(x, sigma):
    return 0.3 * x + 0.1


def reference(a, b, images, sigma, metric, count, seed=0):
    """One value per noisy input, one input at a time, in NumPy."""
    order = draw_order(seed, len(images))
    units = min(count, len(images))
    outputs = []
    for i in range(count):
        x0 = images[order[i % units]].double()
        x = (x0 + sigma * draw_noise(seed, torch.tensor([i]), SHAPE)[0].double())[None]
        level = torch.tensor([sigma], dtype=torch.float64)
        outputs.append((a(x, level)[0].numpy().ravel(), b(x, level)[0].numpy().ravel()))
    if metric == "rmse":
        return np.array([math.sqrt(((p - q) ** 2).sum() / p.size) for p, q in outputs])
    if metric == "nmse":
        return np.array([math.sqrt(((p - q) ** 2).sum() / (p**2).sum()) for p, q in outputs])
    mean = sum(p for p, _ in outputs) / count
    return np.array([[((p - q) ** 2).sum(), ((p - mean) ** 2).sum()] for p, q in outputs])


@pytest.mark.parametrize("metric", ["rmse", "nmse"])
@pytest.mark.parametrize("count", [None, 5])
def test_mean_metrics_against_a_loop(metric, count):
    images = pictures()
    curve = gap(soft, flat, images, SIGMAS, metric=metric, count=count, seed=3)
    for row, sigma in enumerate(SIGMAS):
        expected = reference(soft, flat, images, sigma, metric, count or 12, seed=3)
        np.testing.assert_allclose(curve.per_image[row].numpy(), expected, rtol=1e-12)
        assert float(curve.values[row]) == pytest.approx(expected.mean(), rel=1e-12)
    assert curve.count == (count or 12)


@pytest.mark.parametrize("count", [12, 30])
def test_explained_variance_against_a_loop(count):
    images = pictures()
    curve = gap(soft, flat, images, SIGMAS, metric="ev", count=count)
    for row, sigma in enumerate(SIGMAS):
        error, total = reference(soft, flat, images, sigma, "ev", count).sum(0)
        assert float(curve.values[row]) == pytest.approx(1 - error / total, rel=1e-12)
        assert float(curve.per_image[row].mean()) == pytest.approx(1 - error / total, rel=1e-12)
        assert curve.low[row] < curve.values[row] < curve.high[row] <= 1
    assert curve.count == 12


def test_recycled_images_are_averaged_within_the_image():
    images = pictures(4)
    curve = gap(soft, flat, images, SIGMAS, count=10)
    per_input = reference(soft, flat, images, SIGMAS[0], "rmse", 10)
    expected = [per_input[unit::4].mean() for unit in range(4)]
    assert curve.count == 4
    np.testing.assert_allclose(curve.per_image[0].numpy(), expected, rtol=1e-12)


def test_fresh_noise_on_recycled_images_is_no_more_evidence_about_images():
    # Here the gap depends on the image alone, so ten looks at each of ten images say as much as one.
    def by_image(x, sigma, y):
        return x + 0.1 * y.reshape(-1, 1, 1, 1)

    options = {"labels": torch.arange(10)}
    once = gap(by_image, lambda x, sigma, y: x, pictures(10), 1.0, **options)
    often = gap(by_image, lambda x, sigma, y: x, pictures(10), 1.0, count=100, **options)
    assert (once.low.item(), once.high.item()) == pytest.approx((often.low.item(), often.high.item()), rel=1e-9)


def test_at_most_a_hundred_images_unless_asked():
    images = pictures(130)
    assert gap(soft, flat, images, 1.0).count == 100
    assert gap(soft, flat, images, 1.0, count=130).count == 130


def test_a_denoiser_has_no_gap_to_itself():
    images = pictures()
    assert gap(soft, soft, images, SIGMAS).values.tolist() == [0, 0]
    assert gap(soft, soft, images, SIGMAS, metric="nmse").values.tolist() == [0, 0]
    assert gap(soft, soft, images, SIGMAS, metric="ev").values.tolist() == [1, 1]


def test_explained_variance_of_the_mean_output_is_zero():
    # With one output for all, b = ā explains nothing; the interval, for an infinite number of images, is just below 0.
    images = pictures(50)
    mean = gap_mean_output(images, 1.0)
    curve = gap(flat, lambda x, sigma: mean.expand_as(x), images, 1.0, metric="ev")
    assert float(curve.values) == pytest.approx(0, abs=1e-12)
    assert curve.high == pytest.approx(1 / 50, abs=5e-3)


def gap_mean_output(images, sigma):
    x = images[draw_order(0, len(images))] + sigma * draw_noise(0, torch.arange(len(images)), SHAPE).double()
    return flat(x, None).mean(0)


def test_zero_outputs_have_defined_gaps():
    images = pictures()

    def zero(x, sigma):
        return torch.zeros_like(x)

    assert gap(zero, zero, images, 1.0, metric="nmse").values.item() == 0
    assert gap(zero, flat, images, 1.0, metric="nmse").values.item() == 1
    assert gap(flat, zero, images, 1.0, metric="nmse").values.item() == 1
    assert identity_gap(zero, images, 1.0).values.item() == 1
    assert identity_gap(zero, images, 1.0, metric="cosine").values.item() == 0
    assert gap(zero, zero, images, 1.0, metric="ev").values.item() == 1
    constant = gap(lambda x, sigma: torch.full_like(x, 0.1), flat, images, 1.0, metric="ev")
    assert (constant.values.item(), constant.low.item(), constant.high.item()) == (0, 0, 0)


@pytest.mark.parametrize("metric", ["nmse", "cosine"])
def test_identity_gap_against_a_loop(metric):
    images = pictures()
    curve = identity_gap(soft, images, SIGMAS, metric=metric)
    if metric == "nmse":
        expected = reference(soft, lambda x, sigma: x, images, SIGMAS[1], "nmse", 12)
    else:
        x = images[draw_order(0, 12)] + SIGMAS[1] * draw_noise(0, torch.arange(12), SHAPE).double()
        level = torch.full((12,), SIGMAS[1], dtype=torch.float64)
        expected = nn.functional.cosine_similarity(soft(x, level).flatten(1), x.flatten(1)).numpy()
    np.testing.assert_allclose(curve.per_image[1].numpy(), expected, rtol=1e-12)


def test_identity_gap_of_the_identity_and_its_opposite():
    images = pictures()
    assert identity_gap(lambda x, sigma: x, images, 1.0).values.item() == 0
    assert identity_gap(lambda x, sigma: -x, images, 1.0).values.item() == pytest.approx(2)
    assert identity_gap(lambda x, sigma: -x, images, 1.0, metric="cosine").values.item() == pytest.approx(-1)
    assert identity_gap(lambda x, sigma: 3 * x, images, 1.0, metric="cosine").values.item() == pytest.approx(1)


@pytest.mark.parametrize("metric", ["rmse", "nmse", "ev"])
def test_batch_size_changes_nothing(metric):
    images = pictures()
    whole = gap(soft, flat, images, SIGMAS, metric=metric, count=31)
    for batch_size in (1, 7, 31):
        part = gap(soft, flat, images, SIGMAS, metric=metric, count=31, batch_size=batch_size)
        assert torch.allclose(part.per_image, whole.per_image, rtol=1e-12)
        assert torch.allclose(part.low, whole.low, rtol=1e-10)


def test_all_noise_levels_and_models_share_images_and_noise():
    images, seen = pictures(), []

    def spy(x, sigma):
        seen.append((x, float(sigma[0])))
        return x

    gap(spy, flat, images, SIGMAS)
    identity_gap(spy, images, SIGMAS)
    eps = [(x - images[draw_order(0, 12)]) / sigma for x, sigma in seen]
    assert len(eps) == 4
    for other in eps[1:]:
        assert torch.allclose(other, eps[0], rtol=1e-10, atol=1e-10)


def test_both_denoisers_see_the_same_numbers_in_their_own_dtype():
    class Keeps(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.weight = nn.Parameter(torch.ones((), dtype=dtype))
            self.seen = None

        def forward(self, x, sigma):
            assert sigma.dtype == x.dtype
            self.seen = x
            return x * self.weight

    coarse, fine = Keeps(torch.float32), Keeps(torch.float64)
    curve = gap(coarse, fine, pictures(), 1.0)
    assert (coarse.seen.dtype, fine.seen.dtype) == (torch.float32, torch.float64)
    assert torch.equal(coarse.seen.double(), fine.seen)
    assert curve.values.item() == 0
    gap(coarse, fine, pictures(), 1.0, dtype=torch.float64)
    assert coarse.seen.dtype == torch.float64


def test_modules_are_called_in_eval_mode_without_gradients_and_put_back():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.dropout = nn.Dropout(0.5)
            self.frozen = nn.Dropout(0.5).eval()

        def forward(self, x, sigma):
            assert not torch.is_grad_enabled()
            return self.frozen(self.dropout(x)) * self.scale

    model = Dropping()
    assert identity_gap(model, pictures(), 1.0).values.item() == 0
    assert gap(model, model, pictures(), 1.0).values.item() == 0
    assert model.training
    assert model.dropout.training
    assert not model.frozen.training
    assert torch.is_grad_enabled()


def test_labels_go_along_with_their_images():
    images = pictures(10)
    labels = torch.arange(10) % 3

    def conditional(x, sigma, y):
        return x + y.reshape(-1, 1, 1, 1)

    order = draw_order(0, 10)
    curve = gap(conditional, lambda x, sigma, y: x, images, 1.0, labels=labels, count=25, batch_size=4)
    np.testing.assert_allclose(curve.per_image[0].numpy(), labels[order].numpy(), atol=1e-12)
    other = gap(conditional, lambda x, sigma, y: x, images, 1.0, labels=labels.flip(0), count=25)
    with pytest.raises(ConfigError, match="content"):
        curve - other


def test_uint8_and_float_images_give_one_curve():
    pixels = torch.randint(0, 256, (9, *SHAPE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    a = gap(soft, flat, pixels, SIGMAS)
    b = gap(soft, flat, dequantize(pixels), SIGMAS)
    assert torch.allclose(a.values, b.values, rtol=1e-5)
    assert (a - b).values.abs().max() < 1e-6  # and they are paired
    assert torch.allclose(gap(soft, flat, pixels.numpy(), SIGMAS).values, a.values)


def test_paired_differences_of_two_models():
    images = pictures(40)
    a, b = (gap(soft, lambda x, sigma, k=k: k * x, images, SIGMAS) for k in (0.3, 0.31))
    difference = b - a
    assert torch.allclose(difference.values, b.values - a.values)
    assert bool((difference.high - difference.low < 0.5 * (a.high - a.low)).all())
    for changed in (
        gap(soft, flat, images, SIGMAS, seed=1),
        gap(soft, flat, pictures(40, seed=1), SIGMAS),
        gap(soft, flat, images, SIGMAS, metric="nmse"),
        gap(soft, flat, images, SIGMAS, count=20),
        gap(soft, flat, images, [3.0, 0.5]),
    ):
        with pytest.raises(ConfigError, match="differ in"):
            a - changed


def test_vectors_are_taken_without_bounds():
    vectors = 100 * torch.randn(8, 5, dtype=torch.float64)
    curve = gap(lambda x, sigma: x, lambda x, sigma: x + 2, vectors, 1.0, bounds=None)
    assert curve.values.item() == pytest.approx(2)


def test_one_image_has_no_interval():
    for metric in ("rmse", "nmse", "ev"):
        curve = gap(soft, flat, pictures(1), 1.0, metric=metric, count=3)
        assert curve.count == 1
        assert math.isnan(curve.low.item())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("metric", ["rmse", "nmse", "ev"])
def test_outputs_that_are_not_finite_name_the_noise_level(value, metric):
    def broken(x, sigma):
        return torch.where(sigma.reshape(-1, 1, 1, 1) < 1, value, x)

    with pytest.raises(DataError, match=r"second denoiser .* sigma = 0\.4"):
        gap(flat, broken, pictures(), SIGMAS, metric=metric)
    with pytest.raises(DataError, match=r"the denoiser .* sigma = 0\.4"):
        identity_gap(broken, pictures(), SIGMAS)


def test_bad_arguments():
    images = pictures()
    with pytest.raises(ConfigError, match="rmse, nmse, ev; got 'mse'"):
        gap(soft, flat, images, 1.0, metric="mse")
    with pytest.raises(ConfigError, match="nmse, cosine; got 'rmse'"):
        identity_gap(soft, images, 1.0, metric="rmse")
    with pytest.raises(ConfigError, match="count"):
        gap(soft, flat, images, 1.0, count=0)
    with pytest.raises(ConfigError, match="positive"):
        gap(soft, flat, images, [1.0, 0.0])
    with pytest.raises(ConfigError, match="batch_size"):
        gap(soft, flat, images, 1.0, batch_size=0)
    with pytest.raises(DataError, match="12 integers"):
        gap(soft, flat, images, 1.0, labels=torch.zeros(3, dtype=torch.long))
    with pytest.raises(DataError, match=r"\[-1, 1\]"):
        gap(soft, flat, 3 * images, 1.0)
    with pytest.raises(DataError, match="NaN"):
        gap(soft, flat, images * math.nan, 1.0)
    with pytest.raises(DataError, match="empty"):
        gap(soft, flat, images[:0], 1.0)
    with pytest.raises(DataError, match="shape"):
        gap(soft, flat, images[0], 1.0)
    with pytest.raises(DataError, match="its input's shape"):
        gap(soft, lambda x, sigma: x[:, :1], images, 1.0)


def test_a_denoiser_that_changes_its_input_harms_nobody():
    images = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    gaussian = GaussianDenoiser(Moments.fit(images))

    def greedy(x, sigma):
        denoised = gaussian(x, sigma)
        x.zero_()
        return denoised

    assert float(gap(greedy, gaussian, images, [0.1, 1.0], count=20).values.max()) < 1e-6
