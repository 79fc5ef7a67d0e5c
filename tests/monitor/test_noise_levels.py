"""The noise levels of a monitor: all within the range that the denoiser states."""

import math

import pytest
import torch
from test_monitor import GAUSSIAN, HELD_OUT, TRAIN, multidelta

from gausslens import ConfigError, from_eps, from_flow
from gausslens.denoisers.schedules import Discrete
from gausslens.monitor.monitor import GeneralizationMonitor
from gausslens.monitor.probe import Probe, ProbeImages, ProbeOptions
from gausslens.noise import karras_sigmas

ALPHAS_BAR = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)


def ddpm(alphas_bar=ALPHAS_BAR):
    """The Gaussian denoiser as a network that predicts noise at the steps of a DDPM."""
    schedule = Discrete.from_alphas(alphas_bar)

    def predict(x_t, t):
        step = t.reshape(-1, 1, 1, 1).double()
        sigma = torch.from_numpy(schedule.sigmas.numpy())[step.round().long()]
        x = x_t.double() * (1 + sigma**2).sqrt()
        return ((x - GAUSSIAN(x, sigma.reshape(-1))) / sigma).to(x_t.dtype)

    return from_eps(predict, schedule)


def flow():
    """Likewise the velocity of a straight line from image to noise."""

    def predict(x_t, t):
        time = t.reshape(-1, 1, 1, 1).double()
        x = x_t.double() / (1 - time)
        x0 = GAUSSIAN(x, (time / (1 - time)).reshape(-1))
        return ((x_t - (1 - time) * x0) / time - x0).to(x_t.dtype)

    return from_flow(predict)


def narrow(low, high, inner=GAUSSIAN):
    """A denoiser that notes its levels and takes no others than those of its range."""

    class Narrow(torch.nn.Module):
        sigma_range = (low, high)

        def __init__(self):
            super().__init__()
            self.asked = []

        def forward(self, x, sigma):
            self.asked += sigma.tolist()
            assert low * (1 - 1e-6) <= min(self.asked)
            assert max(self.asked) <= high * (1 + 1e-6)
            return inner(x, sigma)

    return Narrow()


@pytest.mark.parametrize("model", [ddpm, flow, lambda: ddpm(ALPHAS_BAR[300:700])])
def test_models_of_other_parametrisations_are_looked_at(model):
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, count=8, samples=8)
    seen = monitor.update(model(), 10, 10)
    assert monitor.failure is None
    assert seen["gaussian_rmse"] < 0.05 * seen["multidelta_rmse"]
    assert seen["memorized_fraction"] == 0


@pytest.mark.parametrize("ends", [(0.3, 3.0), (0.01, 0.03), (30.0, 60.0), (0.5, math.inf), (0.0, 0.7)])
def test_every_level_lies_in_the_range(ends):
    denoiser, monitor = narrow(*ends), GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=4)
    monitor.look(denoiser, 1)
    low, high = max(ends[0], 0.002), min(ends[1], 80.0)
    assert (min(denoiser.asked), max(denoiser.asked)) == pytest.approx((low, high), rel=1e-6)


def test_without_a_range_levels_are_as_ever():
    watched = ProbeImages(TRAIN, HELD_OUT, None, None, (-1.0, 1.0))
    options, how = (
        ProbeOptions(count=8, noises=2, samples=4, steps=12, seed=0),
        {"sigmas": None, "device": TRAIN.device},
    )
    free, stated = Probe(watched, options, **how), Probe(watched, options, **how, sigma_range=(0.002, 80.0))
    assert torch.equal(free.sigmas, stated.sigmas)
    searched = torch.logspace(math.log10(20.0), math.log10(0.05), 12, dtype=torch.float64)
    assert torch.isin(free.sigmas, searched).all()
    assert torch.equal(free._grid, stated._grid)
    assert torch.equal(free._grid, karras_sigmas(12))


def test_levels_that_were_asked_for_must_lie_in_the_range(caplog):
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, sigmas=(5.0, 0.1), count=4, samples=4)
    denoiser = narrow(0.3, 20.0, multidelta)
    with pytest.raises(ConfigError, match=r"sigmas must lie in .* 0.3 to 20; got 0.1"):
        monitor.look(denoiser, 1)
    for step in (2, 3):
        assert monitor.finish(denoiser, step) is None
    assert "sigmas must lie in" in monitor.failure
    assert len(caplog.records) == 1
    assert denoiser.asked == []
    ends = GeneralizationMonitor(TRAIN, HELD_OUT, sigmas=torch.tensor([20.0, 0.3]), count=4, samples=4)
    assert ends.look(denoiser, 1)["rho"] is not None, "the ends belong to it, also in float32"


def test_a_range_without_levels_to_sample_through_is_told():
    with pytest.raises(ConfigError, match="samples=0"):
        GeneralizationMonitor(TRAIN, count=4).look(narrow(100.0, 200.0), 1)
    GeneralizationMonitor(TRAIN, count=4, samples=0).look(narrow(100.0, 200.0), 1)
