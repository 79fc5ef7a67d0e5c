import math

import pytest
import torch
from torch import nn

from gausslens import ConfigError, DataError, Step, karras_sigmas, sample

SOLVERS = ("euler", "heun", "dpmpp_2m")


class Gaussian:
    """The Wiener filter of N(mean, U diag(eigvals) Uᵀ) and its exact flow, written out in float64."""

    def __init__(self, eigvals, seed=0):
        generator = torch.Generator().manual_seed(seed)
        dim = len(eigvals)
        self.eigvals = torch.tensor(eigvals, dtype=torch.float64)
        self.eigvecs = torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64, generator=generator)).Q
        self.mean = torch.randn(dim, dtype=torch.float64, generator=generator)
        self.latents = torch.randn(6, dim, 1, 1, dtype=torch.float64, generator=generator)

    def scale(self, x, factors):
        return (self.mean + (x.flatten(1) - self.mean) @ self.eigvecs * factors @ self.eigvecs.T).reshape(x.shape)

    def __call__(self, x, sigma):
        return self.scale(x, self.eigvals / (self.eigvals + sigma[:, None] ** 2))

    def flow(self, x, sigma_from, sigma_to):
        return self.scale(x, ((self.eigvals + sigma_to**2) / (self.eigvals + sigma_from**2)).sqrt())


def convergence_order(solver, eigvals, sigma_min, sigma_max, rho):
    gaussian = Gaussian(eigvals)
    exact = gaussian.flow(sigma_max * gaussian.latents, sigma_max, sigma_min)
    log_steps, log_errors = [], []
    for n in (65, 181, 513):
        trajectory = []
        sigmas = karras_sigmas(n, sigma_min, sigma_max, rho)
        sample(gaussian, gaussian.latents, sigmas=sigmas, solver=solver, callback=trajectory.append)
        log_steps.append(math.log(n - 1))
        log_errors.append(float((trajectory[-1].x - exact).norm().log()))
    design = torch.tensor([[step, 1.0] for step in log_steps], dtype=torch.float64)
    return -float(torch.linalg.lstsq(design, torch.tensor(log_errors, dtype=torch.float64)[:, None]).solution[0])


@pytest.mark.parametrize(("solver", "order", "tolerance"), [("euler", 1, 0.1), ("heun", 2, 0.1), ("dpmpp_2m", 2, 0.15)])
@pytest.mark.parametrize(
    ("eigvals", "sigma_min", "sigma_max", "rho"),
    [
        ([300.0, 100.0, 10.0, 1.0, 0.1, 0.01, 0.001], 0.002, 80.0, 7.0),
        pytest.param([100 / k**2 for k in range(1, 17)], 0.02, 80.0, 3.0, marks=pytest.mark.slow),
        ([1.0, 0.25, 0.0], 0.1, 20.0, 7.0),
        pytest.param([4.0, 1.0, 0.5], 0.5, 10.0, 10.0, marks=pytest.mark.slow),
        ([4.0, 1.0, 0.5], 1.0, 5.0, 1.0),
    ],
)
def test_error_against_the_exact_flow_falls_at_the_order_of_the_solver(
    solver, order, tolerance, eigvals, sigma_min, sigma_max, rho
):
    assert convergence_order(solver, eigvals, sigma_min, sigma_max, rho) == pytest.approx(order, abs=tolerance)


@pytest.mark.parametrize(
    ("steps", "published"),
    [(10, (0.832, 0.816, 0.785, 0.751, 0.712, 0.674, 0.634)), (40, (0.958, 0.954, 0.946, 0.936, 0.925, 0.912, 0.896))],
)
def test_euler_shrinks_each_principal_component_by_the_published_factor(steps, published):
    gaussian = Gaussian([300.0, 100.0, 10.0, 1.0, 0.1, 0.01, 0.001])
    samples = sample(gaussian, gaussian.latents, steps=steps, solver="euler")
    exact = gaussian.flow(80 * gaussian.latents, 80.0, 0.0)
    components = [(x.flatten(1) - gaussian.mean) @ gaussian.eigvecs for x in (samples, exact)]
    shrink = components[0] / components[1]
    torch.testing.assert_close(
        shrink, torch.tensor(published, dtype=torch.float64).expand_as(shrink), atol=6e-4, rtol=0
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_samples_are_the_denoised_state_at_the_last_level(solver):
    gaussian = Gaussian([2.0, 0.5, 0.1])
    trajectory = []
    samples = sample(gaussian, gaussian.latents, steps=7, solver=solver, callback=trajectory.append)
    sigma_min = torch.full((6,), 0.002, dtype=torch.float64)
    assert torch.equal(samples, gaussian(trajectory[-1].x, sigma_min))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_single_image_is_sampled_exactly(solver):
    x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(1, 3, 2, 2)
    latents = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    trajectory = []
    samples = sample(lambda x, sigma: x0.expand_as(x), latents, steps=5, solver=solver, callback=trajectory.append)
    assert torch.equal(samples, x0.expand(4, 3, 2, 2))
    for step in trajectory:  # the flow of a point mass is the straight line x0 + σ/σ_max (x_max − x0)
        line = x0 + step.sigma / 80 * (80 * latents - x0)
        torch.testing.assert_close(step.x, line, atol=1e-12, rtol=0)


@pytest.mark.parametrize("steps", [1, 2, 18])
@pytest.mark.parametrize("solver", SOLVERS)
def test_callback_sees_every_level_with_its_state(solver, steps):
    gaussian = Gaussian([2.0, 0.5, 0.1])
    trajectory = []
    sample(gaussian, gaussian.latents, steps=steps, solver=solver, callback=trajectory.append, batch_size=4)
    assert [step.index for step in trajectory] == list(range(steps))
    assert [step.sigma for step in trajectory] == karras_sigmas(steps).tolist()
    assert torch.equal(trajectory[0].x, 80 * gaussian.latents)
    for step in trajectory:
        assert isinstance(step, Step)
        whole = gaussian(step.x, torch.full((6,), step.sigma, dtype=torch.float64))
        torch.testing.assert_close(step.denoised, whole, atol=1e-12, rtol=1e-14)  # parts and whole round differently


def test_solvers_make_the_documented_number_of_calls():
    for solver, calls in (("euler", 9), ("dpmpp_2m", 9), ("heun", 17)):
        seen = []
        sample(lambda x, sigma, seen=seen: seen.append(sigma) or 0 * x, torch.zeros(2, 1, 2, 2), steps=9, solver=solver)
        assert len(seen) == calls


@pytest.mark.parametrize("solver", SOLVERS)
def test_samples_do_not_depend_on_the_batch_size(solver):
    gaussian = Gaussian([2.0, 0.5, 0.1])
    whole = sample(gaussian, gaussian.latents, solver=solver)
    for batch_size in (1, 4, 6, 100):
        parts = sample(gaussian, gaussian.latents, solver=solver, batch_size=batch_size)
        torch.testing.assert_close(parts, whole, atol=1e-13, rtol=0)


def test_labels_travel_with_their_latents():
    centres = torch.tensor([-1.0, 0.0, 1.0])
    labels = torch.tensor([2, 0, 1, 1, 2])
    samples = sample(
        lambda x, sigma, labels: centres[labels][:, None, None, None].expand_as(x),
        torch.randn(5, 1, 2, 2),
        labels=labels,
        steps=3,
        batch_size=2,
    )
    assert torch.equal(samples[:, 0, 0, 0], centres[labels])


class Network(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.mix = nn.Linear(4, 4, dtype=dtype)
        self.dropout = nn.Dropout(0.5)
        self.seen = []

    def forward(self, x, sigma):
        self.seen.append((x.dtype, sigma.dtype, tuple(sigma.shape), torch.is_grad_enabled(), self.training))
        return self.dropout(self.mix(x.flatten(1))).reshape(x.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("latents_dtype", [torch.float32, torch.float64])
def test_network_is_called_in_its_dtype_while_the_state_is_float64(dtype, latents_dtype):
    network, trajectory = Network(dtype), []
    samples = sample(network, torch.randn(3, 1, 2, 2, dtype=latents_dtype), steps=4, callback=trajectory.append)
    assert set(network.seen) == {(dtype, dtype, (3,), False, False)}
    assert {step.x.dtype for step in trajectory} == {step.denoised.dtype for step in trajectory} == {torch.float64}
    assert samples.dtype == dtype
    assert not samples.requires_grad


def test_dtype_argument_overrides_the_network_and_a_function_follows_the_latents():
    network = Network(torch.float32).double()
    sample(network, torch.randn(3, 1, 2, 2), steps=2, dtype=torch.float64, device="cpu")
    assert {call[0] for call in network.seen} == {torch.float64}
    for dtype in (torch.float32, torch.float64):
        assert sample(lambda x, sigma: x / 2, torch.randn(3, 1, 2, 2, dtype=dtype), steps=2).dtype == dtype


def test_training_mode_is_restored_even_after_an_error():
    network = Network(torch.float32)
    network.mix.eval()
    sample(network, torch.randn(3, 1, 2, 2), steps=2)
    with pytest.raises(RuntimeError, match="stop"):
        sample(network, torch.randn(3, 1, 2, 2), callback=lambda step: (_ for _ in ()).throw(RuntimeError("stop")))
    assert network.training
    assert network.dropout.training
    assert not network.mix.training


def test_samples_are_never_clipped_and_latents_are_left_alone():
    latents = torch.randn(2, 1, 2, 2)
    kept = latents.clone()
    samples = sample(lambda x, sigma: torch.full_like(x, 7.0), latents, steps=3)
    assert torch.equal(samples, torch.full_like(latents, 7.0))
    assert torch.equal(latents, kept)


def test_progress_bar_changes_nothing(capsys):
    latents = torch.randn(2, 1, 2, 2)
    plain, shown = (sample(lambda x, sigma: x / 2, latents, steps=3, progress=progress) for progress in (False, True))
    assert torch.equal(plain, shown)
    assert "sampling" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"solver": "rk45"}, ConfigError, "euler, heun, dpmpp_2m; got 'rk45'"),
        ({"steps": 0}, ConfigError, "steps must be at least 1; got 0"),
        ({"sigmas": [1.0, 2.0]}, ConfigError, "strictly descending; got 2 after 1"),
        ({"sigmas": [2.0, 1.0, 1.0]}, ConfigError, "strictly descending; got 1 after 1"),
        ({"sigmas": [2.0, 1.0, 0.0]}, ConfigError, "positive and finite"),
        ({"sigmas": [math.nan, 1.0]}, ConfigError, "positive and finite"),
        ({"sigmas": []}, ConfigError, "empty"),
        ({"batch_size": 0}, ConfigError, "batch_size"),
        ({"labels": [0, 1, 2]}, DataError, "2 integers"),
        ({"latents": torch.zeros(2, 1, 2, 2, dtype=torch.uint8)}, DataError, r"floats; got dtype torch\.uint8"),
        ({"latents": torch.full((2, 1, 2, 2), math.inf)}, DataError, "finite"),
        ({"latents": torch.zeros(4)}, DataError, "latents of shape"),
        ({"latents": torch.zeros(0, 1, 2, 2)}, DataError, "empty"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    arguments = {"latents": torch.zeros(2, 1, 2, 2)} | arguments
    with pytest.raises(error, match=message):
        sample(lambda x, sigma: x, **arguments)
