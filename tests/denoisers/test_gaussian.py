"""The Gaussian denoiser and its flow against explicit solves and an independent integration."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import as_rows, integrate_flow, mean_and_covariance, truncated_covariance, wiener

from gausslens import ConfigError, DataError, GaussianDenoiser, Moments, PerClassDenoiser

SHAPE = (1, 3, 4)
DIM = 12
SIGMAS = [0.02, 0.1, 0.5, 2.0, 80.0]


def images_of(n, seed=0):
    """Correlated images: a few strong directions, many weak ones, a mean of their own."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64))
    scales = torch.logspace(0, -2, DIM, dtype=torch.float64)
    rows = torch.randn(n, DIM, generator=generator, dtype=torch.float64) * scales @ basis.T
    return (0.25 * rows + 0.3 * basis[:, 3]).reshape(n, *SHAPE)


def queries(n, sigma, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return 0.5 + max(sigma, 1) * torch.randn(n, *SHAPE, generator=generator, dtype=torch.float64)


def relative_error(found, expected):
    rows, truth = found.double().reshape(len(found), -1), expected.reshape(len(expected), -1)
    return float(((rows - truth).norm(dim=1) / truth.norm(dim=1)).max())


CASES = {
    "full": (50, None),
    "barely full": (DIM + 1, None),
    "barely not": (DIM, None),
    "few images": (5, None),
    "one image": (1, None),
    "rank with floor": (50, 4),
    "rank of few images": (8, 3),
}


@pytest.fixture(params=CASES, name="case")
def make_case(request):
    """A denoiser with the mean and covariance it stands for."""
    n, rank = CASES[request.param]
    images = images_of(n)
    mean, covariance = mean_and_covariance(as_rows(images))
    if rank is not None:
        covariance = truncated_covariance(covariance, rank)
    return GaussianDenoiser(Moments.fit(images, rank=rank)), mean, covariance


@pytest.mark.parametrize("sigma", SIGMAS)
def test_denoiser_is_the_wiener_filter(case, sigma):
    denoiser, mean, covariance = case
    x = queries(6, sigma)
    expected = wiener(x.flatten(1), sigma, mean, covariance)
    assert relative_error(denoiser(x, sigma), expected) <= 1e-10
    assert (
        relative_error(denoiser(x.float(), sigma), wiener(x.float().double().flatten(1), sigma, mean, covariance))
        <= 1e-6
    )
    assert relative_error(denoiser.float()(x.float(), sigma), expected) <= 1e-5


@pytest.mark.parametrize(("sigma_from", "sigma_to"), [(80.0, 0.02), (0.5, 3.0), (2.0, 0.1)])
def test_flow_solves_the_ode(case, sigma_from, sigma_to):
    denoiser, mean, covariance = case
    x = queries(3, sigma_from)
    expected = integrate_flow(
        lambda rows, sigma: wiener(rows, sigma, mean, covariance), x.flatten(1), sigma_from, sigma_to
    )
    assert relative_error(denoiser.flow(x, sigma_from, sigma_to), expected) <= 1e-8
    assert relative_error(denoiser.float().flow(x.float(), sigma_from, sigma_to), expected) <= 1e-5


@given(st.lists(st.floats(0.002, 80.0), min_size=3, max_size=5), st.sampled_from(sorted(CASES)))
def test_flow_composes(sigmas, name):
    n, rank = CASES[name]
    denoiser = GaussianDenoiser(Moments.fit(images_of(n), rank=rank))
    x = queries(3, sigmas[0])
    state = x
    for start, stop in pairwise(sigmas):
        state = denoiser.flow(state, start, stop)
    direct = denoiser.flow(x, sigmas[0], sigmas[-1])
    assert relative_error(state, direct) <= 1e-12


def test_flow_to_its_own_level_is_the_identity_and_to_zero_the_limit(case):
    denoiser, mean, covariance = case
    x = queries(4, 2.0)
    assert relative_error(denoiser.flow(x, 2.0, 2.0), x) <= 1e-14
    at_zero = denoiser.flow(x, 2.0, 0.0)
    torch.testing.assert_close(denoiser.flow(x, 2.0, 1e-9), at_zero, rtol=0, atol=1e-8)
    # Whitened by Σ + σ²I before and by Σ after, the state is the same: x(0) − μ = Σ^½ (Σ+σ²I)^−½ (x − μ).
    eigvals, eigvecs = torch.linalg.eigh(covariance)
    gains = (eigvals.clamp_min(0) / (eigvals + 4)).sqrt()
    expected = mean + (x.flatten(1) - mean) @ (eigvecs * gains) @ eigvecs.T
    # The square root of a zero eigenvalue is of the size of the square root of its rounding.
    torch.testing.assert_close(at_zero.flatten(1), expected, rtol=0, atol=1e-7)


def test_flow_is_the_map_between_gaussians():
    moments = Moments.fit(images_of(200))
    denoiser = GaussianDenoiser(moments)
    basis = torch.eye(DIM, dtype=torch.float64).reshape(DIM, *SHAPE)
    mean = moments.mean.reshape(SHAPE)
    jacobian = (denoiser.flow(mean + basis, 3.0, 0.2) - mean).flatten(1)
    _, covariance = mean_and_covariance(as_rows(images_of(200)))
    identity = torch.eye(DIM, dtype=torch.float64)
    moved = jacobian.T @ (covariance + 9 * identity) @ jacobian
    torch.testing.assert_close(moved, covariance + 0.04 * identity, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_weight_and_bias_are_the_call(case, sigma):
    denoiser, mean, covariance = case
    x = queries(6, sigma)
    by_matrix = x.flatten(1) @ denoiser.weight(sigma).T + denoiser.bias(sigma)
    torch.testing.assert_close(denoiser(x, sigma).flatten(1), by_matrix, rtol=1e-12, atol=1e-12)
    identity = torch.eye(DIM, dtype=torch.float64)
    explicit = torch.linalg.solve(covariance + sigma**2 * identity, covariance)
    torch.testing.assert_close(denoiser.weight(sigma), explicit, rtol=0, atol=1e-11)
    torch.testing.assert_close(denoiser.bias(sigma), (identity - explicit) @ mean, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", [40, 8])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 10.0])
def test_no_linear_denoiser_does_better(n, sigma):
    """Theorem 1: the gradient of E‖W(x0 + σε) + b − x0‖² over the images and ε vanishes at the Wiener filter."""
    images = images_of(n)
    denoiser = GaussianDenoiser(Moments.fit(images))
    weight = denoiser.weight(sigma).requires_grad_()
    bias = denoiser.bias(sigma).requires_grad_()
    rows = as_rows(images)
    # The expectation over ε in closed form: E‖W(x0 + σε) + b − x0‖² = ‖Wx0 + b − x0‖² + σ²‖W‖².
    loss = (rows @ weight.T + bias - rows).square().sum(1).mean() + sigma**2 * weight.square().sum()
    loss.backward()
    size = 1 + sigma**2
    assert float(weight.grad.abs().max()) <= 1e-10 * size
    assert float(bias.grad.abs().max()) <= 1e-10


def test_limits_of_the_noise():
    images = images_of(60)
    denoiser = GaussianDenoiser(Moments.fit(images))
    x = queries(3, 1.0)
    torch.testing.assert_close(denoiser(x, 1e-9), x, rtol=0, atol=1e-12)
    torch.testing.assert_close(denoiser(x, 1e9), images.mean(0).expand_as(x), rtol=0, atol=1e-12)


def test_directions_without_variance_go_to_the_mean():
    images = images_of(4)
    denoiser = GaussianDenoiser(Moments.fit(images))
    centred = as_rows(images) - as_rows(images).mean(0)
    outside = torch.linalg.svd(centred).Vh[-1].reshape(1, *SHAPE)
    mean = images.mean(0, keepdim=True)
    torch.testing.assert_close(denoiser(mean + 5 * outside, 0.02), mean, rtol=0, atol=1e-12)
    # Along the flow such a direction is noise and nothing else: it shrinks as σ does.
    torch.testing.assert_close(denoiser.flow(mean + outside, 4.0, 1.0), mean + outside / 4, rtol=0, atol=1e-12)


def test_levels_may_differ_between_images():
    denoiser = GaussianDenoiser(Moments.fit(images_of(30), rank=5))
    x = queries(4, 1.0)
    starts, ends = torch.tensor([0.1, 1.0, 2.0, 80.0]), torch.tensor([1.0, 0.0, 2.0, 0.5])
    together = denoiser.flow(x, starts, ends)
    singly = [denoiser.flow(x[i : i + 1], float(starts[i]), float(ends[i])) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(singly), rtol=1e-13, atol=1e-13)


def test_each_class_has_a_gaussian_of_its_own():
    images, labels = images_of(40), torch.arange(40) % 3 + 5
    denoiser = GaussianDenoiser.per_class(images, labels)
    assert isinstance(denoiser, PerClassDenoiser)
    x, classes = queries(6, 1.0), torch.tensor([5, 7, 6, 6, 5, 7])
    denoised = denoiser(x, 0.5, classes)
    for i, label in enumerate(classes):
        mean, covariance = mean_and_covariance(as_rows(images[labels == label]))
        assert relative_error(denoised[i : i + 1], wiener(x[i : i + 1].flatten(1), 0.5, mean, covariance)) <= 1e-10
    limited = GaussianDenoiser.per_class(images, labels.tolist(), rank=2)
    assert limited.denoisers["6"].eigvals.shape == (2,)
    assert float(limited.denoisers["6"].floor) > 0


def test_bad_input_is_named():
    denoiser = GaussianDenoiser(Moments.fit(images_of(30)))
    x = queries(3, 1.0)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="positive and finite"):
            denoiser(x, wrong)
        with pytest.raises(ConfigError, match="positive and finite"):
            denoiser.flow(x, wrong, 1.0)
    for wrong in (-0.1, float("nan"), float("inf"), torch.ones(2), torch.ones(3, 1)):
        with pytest.raises(ConfigError, match="sigma_to"):
            denoiser.flow(x, 1.0, wrong)
    with pytest.raises(ConfigError, match=r"\(3,\)"):
        denoiser(x, torch.ones(2))
    with pytest.raises(DataError, match=r"\(b, 1, 3, 4\)"):
        denoiser(x.flatten(1), 1.0)
    with pytest.raises(DataError, match="int64"):
        denoiser(x.long(), 1.0)


def test_labels_that_do_not_match_are_named():
    images, labels = images_of(40), torch.arange(40) % 2
    with pytest.raises(DataError, match="40 integers"):
        GaussianDenoiser.per_class(images, labels[:30])
    with pytest.raises(DataError, match="float"):
        GaussianDenoiser.per_class(images, labels.double())
    denoiser = GaussianDenoiser.per_class(images, labels)
    x = queries(3, 1.0)
    with pytest.raises(DataError, match="3 integers"):
        denoiser(x, 1.0, labels[:2])
    with pytest.raises(DataError, match="0, 1; got 4"):
        denoiser(x, 1.0, [0, 4, 1])
    with pytest.raises(ConfigError, match="at least one class"):
        PerClassDenoiser({})


def test_one_basis_diagonalises_the_filter_at_all_levels(case):
    denoiser, _, _ = case
    basis = denoiser.basis
    torch.testing.assert_close(basis.T @ basis, torch.eye(DIM, dtype=torch.float64), rtol=0, atol=1e-10)
    for sigma in SIGMAS:
        rotated = basis.T @ denoiser.weight(sigma) @ basis
        gains = rotated.diagonal()
        assert float((rotated - gains.diag()).abs().max()) < 1e-10
        assert bool((gains.diff() < 1e-10).all())
