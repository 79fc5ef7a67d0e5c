"""The objective: the laws of noise levels, the weights, and the loss on other images."""

import math

import pytest
import torch

from gausslens import Preconditioned, TrainConfig
from gausslens.measures.sweep import squared_errors
from gausslens.training.objective import denoising_losses, noise_levels, weighted_errors

NORMALS = torch.randn(200_000, generator=torch.Generator().manual_seed(0))


def resolved(**options):
    return TrainConfig("digits", **options).resolve((1, 8, 8))


@pytest.mark.parametrize(
    ("options", "mean", "spread"),
    [({"network": "ncsnpp"}, -1.2, 1.2), ({"level_mean": 0.5, "level_spread": 2.0}, 0.5, 2.0)],
)
def test_the_levels_of_edm_are_log_normal(options, mean, spread):
    logs = noise_levels(resolved(**options), NORMALS).log()
    assert float(logs.mean()) == pytest.approx(mean, abs=0.01)
    assert float(logs.std()) == pytest.approx(spread, abs=0.01)


def test_the_levels_of_ve_are_log_uniform():
    logs = noise_levels(resolved(preconditioning="ve"), NORMALS).log()
    low, high = math.log(0.02), math.log(100)
    assert low <= float(logs.min()) < low + 0.01
    assert high - 0.01 < float(logs.max()) <= high + 1e-5
    assert float(logs.mean()) == pytest.approx((low + high) / 2, abs=0.02)
    assert float(logs.std()) == pytest.approx((high - low) / 12**0.5, abs=0.02)


def test_the_levels_of_vp_are_those_of_uniform_times():
    sigma = noise_levels(resolved(preconditioning="vp"), NORMALS).double()
    # σ² + 1 = exp(9.95t² + 0.1t) has the root t, which must be uniform.
    t = (-0.1 + (0.01 + 4 * 9.95 * (sigma**2).log1p()).sqrt()) / (2 * 9.95)
    quantiles = t.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)[:, None].flatten())
    torch.testing.assert_close(quantiles, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), atol=0.01, rtol=0)


def weights(config, sigma):
    """What errors of 1 per pixel count."""
    x0 = torch.zeros(len(sigma), 1, 2, 2)
    return weighted_errors(config, Preconditioned(torch.nn.Identity()), x0 + 1, x0, sigma)


def test_one_level_is_one_level_with_weight_one():
    config = resolved(sigma=0.7)
    sigma = noise_levels(config, NORMALS[:5])
    assert sigma.tolist() == pytest.approx([0.7] * 5)
    assert weights(config, sigma).tolist() == [1.0] * 5


def test_the_weights_are_those_of_equation_52():
    sigma = torch.tensor([0.01, 0.5, 20.0])
    expected = (sigma**2 + 0.25) / (sigma * 0.5) ** 2
    torch.testing.assert_close(weights(resolved(), sigma), expected)


def test_errors_are_per_image_and_pixel():
    x0 = torch.zeros(2, 3, 4, 4)
    assert squared_errors(torch.stack([x0[0] + 2, x0[1] - 3]), x0).tolist() == [4.0, 9.0]


class Zero(torch.nn.Module):
    """F = 0, so that D = c_skip·x."""

    def __init__(self):
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, noise):
        return self.nothing * x


def test_the_denoising_loss_is_its_formula_and_always_the_same():
    config, denoiser = resolved(), Preconditioned(Zero())
    images = torch.randint(0, 256, (3000, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    losses = denoising_losses(denoiser, images, config)
    assert torch.equal(losses, denoising_losses(denoiser, images, config))
    assert torch.equal(losses[:10], denoising_losses(denoiser, images[:10], config))
    # λ·E‖c_skip·x − x0‖² = σ_d²·(1 + (m − σ_d²)·σ²/(σ²+σ_d²)/σ_d⁴·…) with m = E[x0²]: written out per level below.
    second_moment = ((images.double() / 127.5 - 1) ** 2).mean()
    sigma = noise_levels(config, NORMALS).double()
    skip = 0.25 / (sigma**2 + 0.25)
    weight = (sigma**2 + 0.25) / (0.5 * sigma) ** 2
    expected = (weight * (skip**2 * sigma**2 + (1 - skip) ** 2 * second_moment)).mean()
    assert float(losses.double().mean()) == pytest.approx(float(expected), rel=0.03)
    assert denoiser.training  # put back
