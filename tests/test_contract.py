"""What every shipped denoiser keeps to, whatever it computes."""

import copy
import pickle

import pytest
import torch
from cases import CASES, CLASSES, COUNT, DIM, LEVELS, SHAPE, images, labels

from gausslens import ConfigError, DataError
from gausslens.denoisers.protocol import Denoiser


@pytest.fixture(scope="module", params=CASES, ids=str, name="case")
def each_case(request):
    return request.param


@pytest.fixture(scope="module", name="denoiser")
def make_denoiser(case):
    return case.build()


@pytest.fixture(name="call")
def make_call(case, denoiser):
    """D(x, σ), with labels 0, 1, 2, 0, … where it takes labels; `of` selects some of the images."""

    def call(x, sigma, of=slice(None), module=denoiser):
        return module(x[of], sigma, labels(len(x))[of]) if case.conditional else module(x[of], sigma)

    return call


def noisy(n=5, dtype=torch.float64, sigma=0.7):
    generator = torch.Generator().manual_seed(3)
    clean = images(n, seed=1).to(dtype) / 127.5 - 1
    return clean + sigma * torch.randn(n, *SHAPE, generator=generator, dtype=torch.float64).to(dtype)


def test_it_is_a_denoiser(denoiser):
    assert isinstance(denoiser, Denoiser)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 5, 0])
def test_shape_and_dtype_are_those_of_x(call, dtype, n):
    x = noisy(n, dtype)
    before = x.clone()
    for sigma in LEVELS[:1] if dtype == torch.bfloat16 else LEVELS:
        denoised = call(x, sigma)
        assert (denoised.shape, denoised.dtype, denoised.device) == (x.shape, x.dtype, x.device)
        assert bool(denoised.isfinite().all())
    assert torch.equal(x, before)


def test_lower_precision_costs_no_more_than_its_rounding(call):
    x = noisy(dtype=torch.float32)
    exact = call(x.double(), 0.7)
    torch.testing.assert_close(call(x, 0.7).double(), exact, rtol=0, atol=2e-6)
    torch.testing.assert_close(call(x.bfloat16(), 3.0).double(), call(x.bfloat16().double(), 3.0), rtol=0, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_images_do_not_influence_each_other(case, call, dtype):
    x = noisy(7, dtype)
    tolerance = 2e-6 if dtype == torch.float32 or "in float32" in case.name else 1e-12
    levels = torch.tensor(LEVELS, dtype=dtype)[torch.arange(7) % 3]
    together = call(x, levels)
    for i in range(7):
        alone = call(x, levels[i : i + 1], slice(i, i + 1))
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=tolerance)
    order = torch.tensor([4, 2, 6, 0, 1, 5, 3])
    torch.testing.assert_close(call(x, levels[order], order), together[order], rtol=0, atol=tolerance)


def test_a_broken_image_breaks_no_other(call):
    x = noisy(6)
    expected = call(x, 0.7)
    x[2] = float("nan")
    denoised = call(x, 0.7)
    whole = [0, 1, 3, 4, 5]
    torch.testing.assert_close(denoised[whole], expected[whole], rtol=0, atol=1e-12)
    assert bool(denoised[2].isnan().any())


def test_any_memory_layout_will_do(call):
    x = noisy()
    strided = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    torch.testing.assert_close(call(strided, 0.7), call(x, 0.7), rtol=0, atol=1e-14)


def test_sigma_comes_in_many_forms(call, case):
    x = noisy()
    expected = call(x, 3.0)
    forms = [3, torch.tensor(3.0), torch.tensor([3.0]), torch.full((5,), 3.0), torch.tensor(3.0, dtype=torch.float64)]
    for sigma in forms if case.any_level else forms[1:]:
        assert torch.equal(call(x, sigma), expected)


def test_the_same_call_has_the_same_answer(call, case, denoiser):
    x = noisy()
    expected = call(x, 0.7)
    assert torch.equal(call(x, 0.7), expected)
    assert torch.equal(call(x, 0.7, module=case.build()), expected)
    denoiser.train()
    with torch.no_grad():
        assert torch.equal(call(x, 0.7), expected)
    denoiser.eval()
    with torch.inference_mode():
        assert torch.equal(call(x, 0.7), expected)
    assert all(module.training is False for module in denoiser.modules())


def test_the_state_can_be_stored_and_copied(call, case, denoiser):
    x = noisy()
    expected = call(x, 0.7)
    other = case.build()
    for buffer in other.buffers():
        if buffer.is_floating_point() and case.name.startswith(("Gaussian", "linear")):
            buffer.zero_()
    other.load_state_dict(denoiser.state_dict())
    for twin in (other, copy.deepcopy(denoiser), pickle.loads(pickle.dumps(denoiser))):
        assert torch.equal(call(x, 0.7, module=twin), expected)


def test_moving_to_float64_and_back_keeps_it_working(call, case):
    x = noisy(dtype=torch.float32)
    expected = call(x, 0.7)
    moved = case.build().double().float()
    torch.testing.assert_close(call(x, 0.7, module=moved), expected, rtol=0, atol=5e-6)


def test_no_noise_is_no_change(case, call):
    if not case.identity:
        pytest.skip("not in the image of this denoiser")
    x = noisy(sigma=0.0)
    torch.testing.assert_close(call(x, 1e-6), x, rtol=0, atol=1e-5 if "in float32" in case.name else 1e-7)


def test_all_noise_is_the_mean(case, call):
    if not case.any_level or not case.fitted:
        pytest.skip("fitted at its levels only, or not at all")
    pixels = images(9 if "few" in case.name else COUNT).double() / 127.5 - 1
    x = noisy(6)
    denoised = call(x, 1e6)
    for i, label in enumerate(labels(6)):
        chosen = pixels[labels(len(pixels)) == label] if case.conditional else pixels
        torch.testing.assert_close(denoised[i], chosen.mean(0), rtol=0, atol=2e-7)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 3.0])
def test_a_posterior_mean_obeys_tweedie(case, call, sigma):
    """D(x; σ) = x + σ² ∇ log p_σ(x), so that ∇D = I + σ²∇² log p is symmetric; as Cov(x0 | x)/σ² it is positive."""
    if case.log_density is None:
        pytest.skip("not the posterior mean of one law")
    x = noisy(sigma=sigma)
    rows = x.flatten(1).requires_grad_()
    (score,) = torch.autograd.grad(case.log_density(rows, sigma).sum(), rows)
    torch.testing.assert_close(call(x, sigma).flatten(1), (rows + sigma**2 * score).detach(), rtol=0, atol=1e-9)
    jacobian = torch.autograd.functional.jacobian(lambda v: call(v.reshape(1, *SHAPE), sigma).flatten(), x[0].flatten())
    hessian = torch.autograd.functional.hessian(lambda v: case.log_density(v[None], sigma).sum(), x[0].flatten())
    torch.testing.assert_close(jacobian, torch.eye(DIM, dtype=torch.float64) + sigma**2 * hessian, rtol=0, atol=1e-8)
    torch.testing.assert_close(jacobian, jacobian.T, rtol=0, atol=1e-11)
    assert float(torch.linalg.eigvalsh(jacobian).min()) >= -1e-11


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own, on the first use of forward mode
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_are_those_of_small_changes(case, call, dtype):
    x = noisy(6, dtype)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    step = 0.1 if "in float32" in case.name else 1e-6  # a linear denoiser allows any step
    up, down = (call(x.double() + sign * step * direction, 0.7) for sign in (1, -1))
    slope = ((up - down) / (2 * step) * direction).sum((1, 2, 3))
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((call(leaf, 0.7) * direction).sum(), leaf)
    found = (gradient * direction).double().sum((1, 2, 3))
    torch.testing.assert_close(found, slope, rtol=1e-4 if dtype == torch.float32 else 1e-6, atol=1e-5)
    pushed = torch.func.jvp(lambda v: call(v, 0.7), (x,), (direction,))[1]
    torch.testing.assert_close((pushed * direction).double().sum((1, 2, 3)), slope, rtol=1e-4, atol=1e-5)


def test_bad_input_is_named(case, call, denoiser):
    x = noisy()
    with pytest.raises(DataError, match=r"\(b, 2, 3, 4\)"):
        call(x[:, :1], 0.7)
    with pytest.raises(DataError, match="uint8"):
        call(images(5), 0.7)
    for wrong in (0.0, -0.7, float("nan"), float("inf"), torch.tensor([1.0, 1, 1, 1, 0])):
        with pytest.raises(ConfigError, match="positive and finite"):
            call(x, wrong)
    with pytest.raises(ConfigError, match=r"\(5,\)"):
        call(x, torch.ones(3))
    with pytest.raises(ConfigError, match=r"\(5,\)"):
        call(x, torch.ones(5, 1))
    if case.conditional:
        with pytest.raises(DataError, match=f"0, 1, 2; got {CLASSES}"):
            denoiser(x, 0.7, torch.tensor([0, 1, 2, CLASSES, 0]))
    if not case.any_level:
        with pytest.raises(ConfigError, match=r"0\.5"):
            call(x, 0.5)
