"""The preconditionings are those of the papers, whatever the network and its precision."""

import math

import pytest
import torch
from torch import nn

from gausslens import ConfigError, DataError, Preconditioned, TrainConfig, gap, karras_sigmas, sample
from gausslens.nn import build_network
from gausslens.training.objective import noise_levels

KINDS = ["edm", "vp", "ve", "none"]
SIGMAS = karras_sigmas(20)


class Probe(nn.Module):
    """Keeps what it is called with, and answers with a fixed function of it."""

    def forward(self, x, noise):
        self.x, self.noise = x, noise
        return x.flip(3) + noise[:, None, None, None]


def tiny(seed=0, **options):
    torch.manual_seed(seed)
    network = build_network("unet", (1, 4, 4), width=8, multipliers=(1,), **options)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2)
    return network


def test_levels_in_training_lie_in_the_range_of_their_kind_and_fill_it():
    normals = torch.linspace(-8, 8, 10_001, dtype=torch.float64)
    for kind in ("vp", "ve"):
        config = TrainConfig(data="digits", preconditioning=kind)
        levels = noise_levels(config, normals)
        low, high = Preconditioned(Probe(), kind).sigma_range
        assert float(levels.min()) == pytest.approx(low, rel=1e-3)
        assert float(levels.max()) == pytest.approx(high, rel=1e-3)
    assert Preconditioned(Probe(), "edm").sigma_range == (0.0, math.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_are_the_published_formulas(kind):
    found = Preconditioned(Probe(), kind, sigma_data=0.3).coefficients(SIGMAS)
    for sigma, skip, out, scale, noise in zip(SIGMAS.tolist(), *(value.tolist() for value in found), strict=True):
        time = (math.sqrt(0.01 + 39.8 * math.log(1 + sigma**2)) - 0.1) / 19.9
        expected = {
            "edm": (
                0.09 / (sigma**2 + 0.09),
                sigma * 0.3 / math.sqrt(sigma**2 + 0.09),
                1 / math.sqrt(sigma**2 + 0.09),
                math.log(sigma) / 4,
            ),
            "vp": (1, -sigma, 1 / math.sqrt(sigma**2 + 1), 999 * time),
            "ve": (1, sigma, 1, math.log(sigma / 2)),
            "none": (0, 1, 1, math.log(sigma) / 4),
        }[kind]
        assert (skip, out, scale, noise) == pytest.approx(expected, rel=1e-12, abs=1e-10)


def test_the_vp_time_inverts_its_noise_schedule():
    time = Preconditioned(Probe(), "vp").coefficients(SIGMAS).noise / 999
    torch.testing.assert_close(torch.expm1(9.95 * time**2 + 0.1 * time).sqrt(), SIGMAS, rtol=1e-9, atol=0)


def test_the_vp_label_is_good_to_a_thousandth_of_a_step_in_float32():
    denoiser = Preconditioned(Probe(), "vp")
    sigma = torch.logspace(-4, 2, 50)
    exact = denoiser.coefficients(sigma.double()).noise
    torch.testing.assert_close(denoiser.coefficients(sigma).noise.double(), exact, rtol=0, atol=1e-3)


def test_edm_inputs_and_targets_have_unit_variance():
    """Var(c_in·x) = 1, and Var((x0 − c_skip·x)/c_out) = 1, for data of variance σ_d²."""
    sigma_data = 0.7
    skip, out, scale, _ = Preconditioned(Probe(), "edm", sigma_data).coefficients(SIGMAS)
    torch.testing.assert_close(scale**2 * (SIGMAS**2 + sigma_data**2), torch.ones_like(SIGMAS), rtol=1e-12, atol=0)
    target = ((1 - skip) ** 2 * sigma_data**2 + skip**2 * SIGMAS**2) / out**2
    torch.testing.assert_close(target, torch.ones_like(SIGMAS), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("kind", "power"), [("vp", -2), ("ve", -2), ("none", 0)])
def test_loss_weights_are_the_published_ones(kind, power):
    torch.testing.assert_close(Preconditioned(Probe(), kind).loss_weight(SIGMAS), SIGMAS**power)


def test_the_edm_loss_weight_makes_the_network_loss_uniform():
    denoiser = Preconditioned(Probe(), "edm", 0.4)
    weight = denoiser.loss_weight(SIGMAS)
    torch.testing.assert_close(weight, (SIGMAS**2 + 0.16) / (0.4 * SIGMAS) ** 2)
    torch.testing.assert_close(weight * denoiser.coefficients(SIGMAS).out ** 2, torch.ones_like(SIGMAS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_denoiser_is_the_network_between_its_coefficients(kind):
    denoiser = Preconditioned(Probe(), kind)
    x = torch.randn(3, 1, 2, 4, dtype=torch.float64)
    sigma = torch.tensor([0.1, 1.0, 20.0], dtype=torch.float64)
    skip, out, scale, noise = (value[:, None, None, None] for value in denoiser.coefficients(sigma))
    expected = skip * x + out * ((scale * x).flip(3) + noise)
    torch.testing.assert_close(denoiser(x, sigma), expected)
    torch.testing.assert_close(denoiser.network.x, scale * x)
    assert torch.equal(denoiser.network.noise, noise.flatten())


@pytest.mark.parametrize("kind", ["edm", "vp", "ve"])
def test_without_noise_nothing_changes(kind):
    denoiser = Preconditioned(tiny(), kind).double().eval()
    x = torch.randn(2, 1, 4, 4, dtype=torch.float64)
    errors = [float((denoiser(x, sigma) - x).detach().abs().max()) for sigma in (1e-2, 1e-4, 1e-6)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4


def test_coefficients_are_at_least_float32_and_the_network_keeps_its_dtype():
    for dtype, wide in [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ]:
        probe = Probe()
        denoised = Preconditioned(probe, "edm")(torch.ones(2, 1, 2, 2, dtype=dtype), 0.002)
        assert (probe.x.dtype, probe.noise.dtype, denoised.dtype) == (wide, wide, dtype)
    probe = Probe()
    probe.weight = nn.Parameter(torch.ones(1))
    Preconditioned(probe, "edm")(torch.ones(2, 1, 2, 2, dtype=torch.float64), 0.5)
    assert probe.x.dtype == torch.float32


def test_a_float32_network_leaves_the_skip_in_float64():
    """At σ = 0.002 the denoiser is nearly x; what float32 costs is scaled by c_out."""
    denoiser = Preconditioned(tiny()).eval()
    x = torch.randn(2, 1, 4, 4, dtype=torch.float64)
    denoised = denoiser(x, 0.002)
    exact = denoiser.double()(x, 0.002)
    assert not torch.equal(denoised, exact)
    torch.testing.assert_close(denoised, exact, rtol=0, atol=1e-7)


def test_labels_and_augmentation_reach_the_network():
    denoiser = Preconditioned(tiny(classes=3, augment_inputs=2)).eval()
    x, labels, augment = torch.randn(3, 1, 4, 4), torch.tensor([0, 1, 2]), torch.randn(3, 2)
    base = denoiser(x, 0.5, labels)
    assert not torch.allclose(denoiser(x, 0.5, labels.flip(0))[0], base[0])
    assert not torch.allclose(denoiser(x, 0.5, labels, augment), base)
    assert torch.equal(denoiser(x, 0.5, labels.tolist()), base)
    scaled = x / math.sqrt(0.5)
    raw = denoiser.network(scaled, torch.full((3,), math.log(0.5) / 4), labels, augment)
    torch.testing.assert_close(denoiser(x, 0.5, labels, augment), 0.5 * x + 0.25 / math.sqrt(0.5) * raw)


def test_augmentation_needs_no_labels():
    denoiser = Preconditioned(tiny(augment_inputs=2)).eval()
    x = torch.randn(3, 1, 4, 4)
    assert not torch.allclose(denoiser(x, 0.5, augment=torch.ones(3, 2)), denoiser(x, 0.5))


def test_bad_labels_are_named():
    denoiser = Preconditioned(tiny(classes=12)).eval()
    x = torch.randn(3, 1, 4, 4)
    with pytest.raises(DataError, match="among 0, 1, …, 11; got 12"):
        denoiser(x, 0.5, torch.tensor([0, 12, 2]))
    with pytest.raises(DataError, match="3 integers"):
        denoiser(x, 0.5, torch.tensor([0, 1]))
    with pytest.raises(ConfigError, match="12 classes"):
        denoiser(x, 0.5)
    with pytest.raises(ConfigError, match="no labels"):
        Preconditioned(tiny()).eval()(x, 0.5, torch.tensor([0, 1, 2]))


def test_bad_arguments_are_named():
    with pytest.raises(ConfigError, match="edm, vp, ve, none; got 'ddpm'"):
        Preconditioned(Probe(), "ddpm")
    with pytest.raises(ConfigError, match="sigma_data"):
        Preconditioned(Probe(), sigma_data=0.0)
    with pytest.raises(DataError, match=r"\(b, 1, 4, 4\); got shape \(2, 1, 8, 8\)"):
        Preconditioned(tiny())(torch.zeros(2, 1, 8, 8), 0.5)
    with pytest.raises(DataError, match="uint8"):
        Preconditioned(Probe())(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), 0.5)


def test_training_does_not_look_at_the_levels():
    """Looking would wait for a GPU's queue; a meta tensor has no values to look at."""
    network = build_network("unet", (1, 4, 4), width=8, multipliers=(1,)).to("meta")
    denoiser = Preconditioned(network).train()
    x, sigma = torch.zeros(2, 1, 4, 4, device="meta"), torch.ones(2, device="meta")
    assert denoiser(x, sigma).shape == x.shape
    with pytest.raises((NotImplementedError, RuntimeError)):
        denoiser.eval()(x, sigma)


def test_it_can_be_measured_and_sampled():
    denoiser = Preconditioned(tiny())
    images = torch.rand(6, 1, 4, 4) * 2 - 1
    curve = gap(denoiser, Preconditioned(tiny(1)), images, [0.1, 1.0])
    assert bool((curve.values > 0).all())
    assert sample(denoiser, torch.randn(2, 1, 4, 4), steps=4).shape == (2, 1, 4, 4)
    assert denoiser.training


def test_training_fits_a_gaussian_denoiser():
    """Eq. (3) at one level: a linear network without preconditioning learns the Wiener gain λ/(λ+σ²)."""
    torch.manual_seed(0)
    denoiser = Preconditioned(build_network("linear", (1, 1, 2)), "none").double()
    deviations, sigma = torch.tensor([1.0, 0.2], dtype=torch.float64).reshape(1, 1, 2), 0.5
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=0.02)
    for _ in range(300):
        x0 = deviations * torch.randn(256, 1, 1, 2, dtype=torch.float64)
        loss = (denoiser(x0 + sigma * torch.randn_like(x0), sigma) - x0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gains = torch.tensor([1 / 1.25, 0.04 / 0.29], dtype=torch.float64).diag()
    torch.testing.assert_close(denoiser.network.map.weight.detach(), gains, rtol=0, atol=0.05)
