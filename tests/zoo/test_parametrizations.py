"""Whatever a network predicts, on whatever schedule, its denoiser is the same."""

import math

import pytest
import torch
from torch import nn

from gausslens import ConfigError, DataError, GaussianDenoiser, Moments, karras_sigmas, sample
from gausslens.denoisers.schedules import VE, VP, Discrete, LinearFlow
from gausslens.zoo.parametrizations import from_eps, from_flow, from_v, from_x0

ALPHAS = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)
CONVERT = {"x0": from_x0, "eps": from_eps, "v": from_v, "flow": from_flow}
SIGMAS = karras_sigmas(25)  # 80 … 0.002


def vp(t, beta_min=0.1, beta_max=20.0):
    log = -((beta_max - beta_min) * t**2 / 4 + beta_min * t / 2)
    return log.exp(), (-torch.expm1(2 * log)).sqrt()


# Each schedule with its own a(t) and s(t), written as in the papers, and how the network's time becomes that t.
SCHEDULES = {
    "vp": ("vp", vp, 1.0),
    "vp of other betas": (VP(0.2, 25.0, time_scale=999), lambda t: vp(t, 0.2, 25.0), 1 / 999),
    "ve": ("ve", lambda t: (torch.ones_like(t), t), 1.0),
    "ve, geometric": (VE(0.002, 80.0), lambda t: (torch.ones_like(t), 0.002 * (80 / 0.002) ** t), 1.0),
    "flow": ("flow", lambda t: (1 - t, t), 1.0),
    "flow, images at 1": (LinearFlow(data_at=1, time_scale=1000), lambda t: (t, 1 - t), 1e-3),
}


@pytest.fixture(scope="module")
def gaussian():
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(60, 1, 4, 4, generator=generator, dtype=torch.float64).cumsum(3) / 4 * 2 - 1
    return GaussianDenoiser(Moments.fit(images)).double()


def field_of(denoiser, target, functions, unit):
    """The exact prediction of a denoiser's data, from a(t), s(t) and their derivatives by automatic differentiation."""

    def field(x_t, time):
        t = (time.double() * unit).reshape(-1, 1, 1, 1).requires_grad_()
        signal, noise = functions(t + 0)
        signal_rate, noise_rate = (
            torch.autograd.grad(value.sum(), t, retain_graph=True, materialize_grads=True, allow_unused=True)[0]
            for value in (signal + 0 * t, noise)
        )
        signal, noise = signal.detach(), noise.detach()
        x0 = denoiser(x_t / signal, (noise / signal).flatten())
        eps = (x_t - signal * x0) / noise
        return {
            "x0": x0,
            "eps": eps,
            "v": signal * eps - noise * x0,
            "flow": signal_rate * x0 + noise_rate * eps,
        }[target]

    return field


@pytest.mark.parametrize("target", CONVERT)
@pytest.mark.parametrize("name", SCHEDULES)
def test_exact_fields_of_a_gaussian_give_back_its_denoiser(gaussian, name, target):
    schedule, functions, unit = SCHEDULES[name]
    denoiser = CONVERT[target](field_of(gaussian, target, functions, unit), schedule)
    low, high = denoiser.sigma_range
    assert low <= 0.002
    assert high >= 80
    for sigma in SIGMAS.tolist():
        x = torch.randn(5, 1, 4, 4, dtype=torch.float64) * math.sqrt(1 + sigma**2)
        torch.testing.assert_close(denoiser(x, sigma), gaussian(x, sigma), rtol=0, atol=1e-8)


@pytest.mark.parametrize("target", ["x0", "eps", "v"])
def test_discrete_fields_of_a_gaussian_give_back_its_denoiser(gaussian, target):
    def table(t):
        assert bool((t == t.round()).all())  # at its own levels the network is told whole steps
        square = ALPHAS[t.long()]
        return square.sqrt(), (1 - square).sqrt()

    def field(x_t, time):
        signal, noise = table(time.reshape(-1, 1, 1, 1))
        x0 = gaussian(x_t / signal, (noise / signal).flatten())
        eps = (x_t - signal * x0) / noise
        return {"x0": x0, "eps": eps, "v": signal * eps - noise * x0}[target]

    steps = torch.tensor([0, 1, 2, 10, 300, 777, 998, 999])
    sigmas = ((1 - ALPHAS) / ALPHAS).sqrt()[steps]
    denoiser = CONVERT[target](field, Discrete.from_alphas(ALPHAS))
    x = torch.randn(8, 1, 4, 4, dtype=torch.float64) * (1 + sigmas**2).sqrt().reshape(-1, 1, 1, 1)
    torch.testing.assert_close(denoiser(x, sigmas), gaussian(x, sigmas), rtol=0, atol=1e-8)
    torch.testing.assert_close(  # and in float32, whose rounding of σ must not move the step
        denoiser(x.float(), sigmas.float()), gaussian(x, sigmas).float(), rtol=1e-4, atol=1e-4
    )


def test_discrete_flow_of_a_gaussian_gives_back_its_denoiser(gaussian):
    times = torch.arange(1, 1000, dtype=torch.float64) / 1000
    denoiser = from_flow(
        lambda x, step: field_of(gaussian, "flow", lambda t: (1 - t, t), 1e-3)(x, step + 1),
        Discrete(times / (1 - times), "flow", rounded=True),
    )
    sigmas = (times / (1 - times))[[0, 1, 500, 985, 998]]
    x = torch.randn(5, 1, 4, 4, dtype=torch.float64) * (1 + sigmas**2).sqrt().reshape(-1, 1, 1, 1)
    torch.testing.assert_close(denoiser(x, sigmas), gaussian(x, sigmas), rtol=0, atol=1e-8)


def test_between_steps_the_time_is_linear_in_the_logarithm_or_rounded():
    sigmas = torch.tensor([0.01, 0.1, 1.0])
    halfway = torch.tensor([0.01 * 10**0.5, 10**-0.75], dtype=torch.float64)
    torch.testing.assert_close(Discrete(sigmas).time(halfway), torch.tensor([0.5, 1.25], dtype=torch.float64))
    rounded = Discrete(sigmas, rounded=True).time(torch.tensor([0.011, 10**-0.75, 1.0], dtype=torch.float64))
    assert rounded.dtype == torch.int64
    assert rounded.tolist() == [0, 1, 2]


def test_the_network_sees_the_scaled_input_its_dtype_and_its_time():
    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))

        def forward(self, x, t, labels):
            self.seen = x, t, labels
            return x

    probe = Probe()
    x = torch.ones(2, 1, 2, 2)
    denoised = from_eps(probe, LinearFlow(time_scale=1000))(x, torch.tensor([1.0, 3.0]), torch.tensor([4, 2]))
    seen, time, labels = probe.seen
    assert seen.dtype == torch.bfloat16
    assert seen[:, 0, 0, 0].tolist() == [0.5, 0.25]
    assert time.dtype == torch.float32
    assert time.tolist() == [500, 750]
    assert labels.tolist() == [4, 2]
    assert denoised.dtype == torch.float32
    assert denoised[:, 0, 0, 0].tolist() == [0.5, 0.25]


def test_outside_its_range_a_denoiser_says_what_its_range_is():
    denoiser = from_eps(lambda x, t: x, Discrete.from_alphas(ALPHAS))
    low, high = denoiser.sigma_range
    assert (low, high) == pytest.approx((0.01, 157.4), rel=1e-3)
    x = torch.zeros(2, 1, 2, 2)
    for sigma in (0.002, 200.0, torch.tensor([1.0, 200.0])):
        with pytest.raises(ConfigError, match=r"levels, 0.01 to 157.4; got (0.002|200)"):
            denoiser(x, sigma)
    for sigma in (low, high):  # rounded to float32 and back, the ends are still inside
        assert denoiser(x, torch.tensor(sigma, dtype=torch.float32)).isfinite().all()
    assert sample(denoiser, x, sigmas=karras_sigmas(3, low, high)).isfinite().all()
    with pytest.raises(ConfigError, match="levels, 0 to 152"):
        from_eps(lambda x, t: x)(x, 160.0)


def test_steps_without_signal_are_left_out():
    schedule = Discrete.from_alphas([0.9, 0.5, 0.0])
    assert schedule.sigma_range == pytest.approx((1 / 3, 1.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_eps(lambda x, t: x, "cosine"), "one of vp, ve, flow, or a schedule of .*; got 'cosine'"),
        (lambda: from_eps(lambda x, t: x, ALPHAS), "Discrete.from_alphas"),
        (lambda: from_eps(3), r"expected a network F\(x, t\)"),
        (lambda: from_flow(lambda x, t: x, Discrete.from_alphas(ALPHAS)), "no known speed"),
        (lambda: Discrete(ALPHAS), "strictly ascending"),
        (lambda: Discrete([1.0]), "at least 2"),
        (lambda: Discrete([1.0, 2.0], "linear"), "scaling must be one of"),
        (lambda: VP(2.0, 1.0), "beta_min < beta_max"),
        (lambda: VE(0.01), "or neither"),
        (lambda: LinearFlow(data_at=2), "data_at must be 0 or 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_answer_that_is_no_prediction_is_refused():
    x = torch.zeros(2, 1, 2, 2)
    with pytest.raises(DataError, match="got tuple"):
        from_v(lambda x, t: (x,))(x, 1.0)
    with pytest.raises(DataError, match=r"got \(2, 2, 2, 2\)"):
        from_v(lambda x, t: x.repeat(1, 2, 1, 1))(x, 1.0)
