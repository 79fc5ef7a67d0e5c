"""Linearity: exact for linear and affine maps, against a loop for others, pairs and labels, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from gausslens import ConfigError, DataError, linearity
from gausslens.images import dequantize
from gausslens.noise import draw_noise

SIGMAS = [3.0, 0.4]
SHAPE = (2, 3, 3)
DIM = 18


def pictures(n=12, seed=0, dtype=torch.float64):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - 1


def affine_map(bias):
    W = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return lambda x, sigma: (x.flatten(1) @ W.T + bias).reshape(x.shape)


def cubic(x, sigma):
    return x**3 / (1 + sigma.reshape(-1, 1, 1, 1)) + 0.2


class Recorder:
    """The identity, which keeps its inputs."""

    def __init__(self):
        self.seen = []

    def __call__(self, x, sigma, labels=None):
        self.seen.append((x.clone(), labels))
        return x


def pairs_of(images, sigma, **options):
    """x1 and x2 of every pair, as a denoiser sees them."""
    recorder = Recorder()
    linearity(recorder, images, sigma, **options)
    return recorder.seen[0][0], recorder.seen[1][0]


@pytest.mark.parametrize("inputs", ["images", "noise"])
@pytest.mark.parametrize("alpha", [2**-0.5, 0.1, 0.99])
def test_linear_maps_are_linear(inputs, alpha):
    options = {"inputs": inputs, "alpha": alpha}
    cosine = linearity(affine_map(0.0), pictures(), SIGMAS, **options)
    nmse = linearity(affine_map(0.0), pictures(), SIGMAS, metric="nmse", **options)
    assert (1 - cosine.per_image).abs().max() <= 1e-12
    assert nmse.per_image.max() <= 1e-12


@pytest.mark.parametrize("inputs", ["images", "noise"])
@pytest.mark.parametrize("alpha", [2**-0.5, 0.1, 0.99])
@pytest.mark.parametrize("bias", [0.5, 50.0])
def test_affine_maps_are_affine_and_not_linear(inputs, alpha, bias):
    options = {"inputs": inputs, "alpha": alpha}
    denoiser = affine_map(bias)
    cosine = linearity(denoiser, pictures(), 0.4, affine=True, **options)
    nmse = linearity(denoiser, pictures(), 0.4, affine=True, metric="nmse", **options)
    assert (1 - cosine.per_image).abs().max() <= 1e-12
    assert nmse.per_image.max() <= 1e-12
    assert linearity(denoiser, pictures(), 0.4, **options).values.item() < 1 - 1e-9
    assert linearity(denoiser, pictures(), 0.4, metric="nmse", **options).values.item() > 1e-4


def test_the_sign_of_the_cosine_does_not_count():
    # |x| is as far from linear as can be, and −|x| just as far.
    scores = [linearity(lambda x, sigma, s=s: s * x.abs(), pictures(), 1.0).values.item() for s in (1, -1)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "nmse"])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("inputs", ["images", "noise"])
def test_scores_against_a_loop(metric, affine, inputs):
    images, alpha = pictures(), 0.6
    beta = 0.8
    curve = linearity(cubic, images, SIGMAS, metric=metric, affine=affine, inputs=inputs, alpha=alpha, count=9, seed=2)
    mean = images.mean(0)

    def apply(x, sigma):
        return cubic(x[None], torch.tensor([sigma], dtype=torch.float64))[0].numpy().ravel()

    for row, sigma in enumerate(SIGMAS):
        first, second = pairs_of(images, sigma, inputs=inputs, count=9, seed=2)
        expected = []
        for x1, x2 in zip(first, second, strict=True):
            rest = 1 - alpha - beta if affine else 0.0
            origin = apply(mean, sigma) if affine else 0.0
            left = apply(alpha * x1 + beta * x2 + rest * mean, sigma) - origin
            right = alpha * apply(x1, sigma) + beta * apply(x2, sigma) + rest * apply(mean, sigma) * affine - origin
            if metric == "cosine":
                expected.append(abs(left @ right) / np.linalg.norm(left) / np.linalg.norm(right))
            else:
                expected.append(np.linalg.norm(left - right) / np.linalg.norm(left))
        per_unit = [np.mean(expected[unit :: curve.count]) for unit in range(curve.count)]
        np.testing.assert_allclose(curve.per_image[row].numpy(), per_unit, rtol=1e-11)
    assert curve.count == (6 if inputs == "images" else 9)


def test_pairs_are_disjoint_images_with_independent_noise():
    images = pictures(13)
    first, second = pairs_of(images, 1e-6)
    used = [int((images - x).flatten(1).norm(dim=1).argmin()) for x in (*first, *second)]
    assert len(first) == 6
    assert len(set(used)) == 12
    first, second = pairs_of(torch.zeros(400, *SHAPE, dtype=torch.float64), 2.0, count=200)
    assert first.std().item() == pytest.approx(2, rel=0.05)
    correlation = torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]
    assert abs(correlation.item()) < 4 / math.sqrt(first.numel())


def test_mixtures_keep_the_noise_level():
    recorder = Recorder()
    linearity(recorder, torch.zeros(400, *SHAPE, dtype=torch.float64), 2.0, alpha=0.3, count=200)
    assert recorder.seen[2][0].std().item() == pytest.approx(2, rel=0.05)


def test_noise_inputs_have_no_image_in_them():
    first, _ = pairs_of(pictures(1), 2.0, inputs="noise")
    assert len(first) == 100
    assert torch.allclose(first, 2 * draw_noise(0, torch.arange(100), SHAPE).double())


def test_counts():
    assert linearity(cubic, pictures(13), 1.0).count == 6
    assert linearity(cubic, pictures(300), 1.0).count == 100
    assert linearity(cubic, pictures(300), 1.0, count=120).count == 120
    assert linearity(cubic, pictures(12), 1.0, count=40).count == 6
    assert linearity(cubic, pictures(12), 1.0, count=40, inputs="noise").count == 40


def test_zero_outputs_have_defined_scores():
    images = pictures()

    def zero(x, sigma):
        return torch.zeros_like(x)

    assert linearity(zero, images, 1.0).values.item() == 1
    assert linearity(zero, images, 1.0, metric="nmse").values.item() == 0
    constant = linearity(lambda x, sigma: torch.full_like(x, 0.3), images, 1.0, affine=True)
    assert (constant.values.item(), constant.low.item()) == (1, 1)
    mixtures = iter(range(3))

    def zero_for_mixtures(x, sigma):
        return torch.zeros_like(x) if next(mixtures) == 2 else x

    assert linearity(zero_for_mixtures, images, 1.0).values.item() == 0
    mixtures = iter(range(3))
    assert linearity(zero_for_mixtures, images, 1.0, metric="nmse").values.item() == 1


@pytest.mark.parametrize("affine", [False, True])
def test_batch_size_changes_nothing(affine):
    whole = linearity(cubic, pictures(), SIGMAS, affine=affine, count=17)
    for batch_size in (1, 5, 17):
        part = linearity(cubic, pictures(), SIGMAS, affine=affine, count=17, batch_size=batch_size)
        assert torch.allclose(part.per_image, whole.per_image, rtol=1e-12)


def test_three_calls_a_noise_level_and_one_for_the_mean():
    for affine, calls in ((False, 6), (True, 8)):
        recorder = Recorder()
        linearity(recorder, pictures(), SIGMAS, affine=affine)
        assert len(recorder.seen) == calls
    recorder = Recorder()
    linearity(recorder, pictures(), SIGMAS, affine=True, batch_size=2)
    assert len(recorder.seen) == 2 * (1 + 3 * 3)


def test_pairs_share_a_label_which_goes_along():
    images, labels = pictures(20), torch.tensor([0, 1, 2, 7] * 5)
    recorder = Recorder()
    linearity(recorder, images, 1e-6, labels=labels, count=11, batch_size=4)

    def classes(call):
        inputs = torch.cat([x for x, _ in recorder.seen[call::3]])
        return [int(labels[(images - x).flatten(1).norm(dim=1).argmin()]) for x in inputs]

    given_labels = [torch.cat([y for _, y in recorder.seen[call::3]]).tolist() for call in range(3)]
    assert classes(0) == classes(1) == given_labels[0] == given_labels[1] == given_labels[2]
    assert set(given_labels[0]) == {0, 1, 2, 7}


@pytest.mark.parametrize("inputs", ["images", "noise"])
def test_maps_that_are_affine_for_each_label(inputs):
    def conditional(x, sigma, y):
        return x * (1 + y).reshape(-1, 1, 1, 1) + y.reshape(-1, 1, 1, 1)

    labels = torch.tensor([5, 1, 2] * 6)
    options = {"labels": labels, "inputs": inputs}
    curve = linearity(conditional, pictures(18), SIGMAS, affine=True, batch_size=2, **options)
    assert (1 - curve.per_image).abs().max() <= 1e-12
    assert linearity(conditional, pictures(18), 0.4, **options).values.item() < 0.999


def test_curves_pair_across_alpha_and_models_but_not_inputs():
    images = pictures(40)
    half = linearity(cubic, images, SIGMAS)
    other = linearity(cubic, images, SIGMAS, alpha=0.99**0.5)
    difference = half - other
    assert bool((difference.high < 0).all())  # mixing equally is the hardest
    model = linearity(affine_map(1.0), images, SIGMAS)
    assert torch.allclose((half - model).values, half.values - model.values)
    for changed in (
        linearity(cubic, images, SIGMAS, inputs="noise", count=20),
        linearity(cubic, images, SIGMAS, seed=1),
        linearity(cubic, images, SIGMAS, metric="nmse"),
        linearity(cubic, pictures(40, seed=1), SIGMAS),
    ):
        with pytest.raises(ConfigError, match="differ in"):
            half - changed


def test_minimum_over_noise_levels():
    curve = linearity(cubic, pictures(60), [3.0, 1.0, 0.4, 0.1])
    least = curve.minimum()
    assert least.value == pytest.approx(curve.values.min().item())
    assert least.sigma == curve.sigmas[curve.values.argmin()].item()
    assert least.low < least.value < least.high <= 1


def test_uint8_and_float_images_give_one_curve():
    pixels = torch.randint(0, 256, (10, *SHAPE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    a = linearity(cubic, pixels, SIGMAS, affine=True)
    b = linearity(cubic, dequantize(pixels), SIGMAS, affine=True)
    assert (a - b).values.abs().max() < 1e-5


def test_modules_are_called_in_eval_mode_in_their_dtype_and_put_back():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.dropout = nn.Dropout(0.5)

        def forward(self, x, sigma):
            assert x.dtype == sigma.dtype == torch.float32
            assert not torch.is_grad_enabled()
            return self.dropout(x) * self.scale

    model = Dropping()
    curve = linearity(model, pictures(), SIGMAS, affine=True)
    assert (1 - curve.values).abs().max() < 1e-6
    assert curve.values.dtype == torch.float64
    assert model.training
    assert model.dropout.training


def test_bad_arguments():
    images = pictures()
    for alpha in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(ConfigError, match="alpha"):
            linearity(cubic, images, 1.0, alpha=alpha)
    with pytest.raises(ConfigError, match="cosine, nmse; got 'rmse'"):
        linearity(cubic, images, 1.0, metric="rmse")
    with pytest.raises(ConfigError, match="images, noise; got 'both'"):
        linearity(cubic, images, 1.0, inputs="both")
    with pytest.raises(ConfigError, match="count"):
        linearity(cubic, images, 1.0, count=-1)
    with pytest.raises(ConfigError, match="positive"):
        linearity(cubic, images, -1.0)
    with pytest.raises(DataError, match="got 1 images"):
        linearity(cubic, images[:1], 1.0)
    with pytest.raises(DataError, match="12 different labels"):
        linearity(lambda x, sigma, y: x, images, 1.0, labels=range(12))
    with pytest.raises(DataError, match="12 integers"):
        linearity(cubic, images, 1.0, labels=[1, 2])
    with pytest.raises(DataError, match=r"\[-1, 1\]"):
        linearity(cubic, images * 4, 1.0)
    with pytest.raises(DataError, match=r"sigma = 3"):
        linearity(lambda x, sigma: x / 0, images, SIGMAS)
    assert linearity(cubic, images * 4, 1.0, bounds=None).count == 6
