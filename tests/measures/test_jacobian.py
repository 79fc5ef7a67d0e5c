import math

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian as dense_jacobian
from torch.nn.functional import scaled_dot_product_attention

from gausslens import ConfigError, DataError, jacobian_spectrum
from gausslens.measures import jacobian as module


def random_orthogonal(dim, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64, generator=generator)).Q


class Linear:
    """D(x; σ) = U diag(values) Vᵀ x + 1."""

    def __init__(self, values, symmetric=False):
        self.values = torch.tensor(values, dtype=torch.float64)
        self.left = random_orthogonal(len(values), 1)
        self.right = self.left if symmetric else random_orthogonal(len(values), 2)
        self.J = self.left * self.values @ self.right.T

    def __call__(self, x, sigma):
        return (x.flatten(1) @ self.J.T + 1).reshape(x.shape)


class Network(nn.Module):
    """A small convolutional denoiser in which the noise level matters and dropout would be noticed."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(3)
        self.into = nn.Conv2d(2, 8, 3, padding=1, dtype=dtype)
        self.norm = nn.GroupNorm(2, 8, dtype=dtype)
        self.dropout = nn.Dropout(0.5)
        self.out = nn.Conv2d(8, 2, 3, padding=1, dtype=dtype)

    def forward(self, x, sigma):
        hidden = self.dropout(torch.nn.functional.silu(self.norm(self.into(x))))
        return x / (1 + sigma[:, None, None, None] ** 2) + self.out(hidden)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24, dtype=torch.float64)

    def forward(self, x, sigma):
        heads = self.qkv(x.reshape(len(x), 1, -1, 8)).chunk(3, dim=-1)
        return scaled_dot_product_attention(*heads).reshape(x.shape)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def dense(denoiser, x, sigma):
    """J at one image (1, *shape), by torch's own dense routine."""
    J = dense_jacobian(lambda image: denoiser(image, torch.full((1,), sigma, dtype=x.dtype)), x)
    return J.reshape(x.numel(), x.numel()).detach()


def subspace_distance(a, b):
    return torch.linalg.matrix_norm(a @ a.T - b @ b.T, 2)


def assert_is_the_leading_spectrum(spectrum, i, J, k, tolerance):
    """Values as the dense SVD has them; orthonormal vectors that satisfy both defining equations."""
    expected = torch.linalg.svdvals(J)
    values, left, right = spectrum.singular_values[i], spectrum.left[i], spectrum.right[i]
    scale = float(expected[0])
    torch.testing.assert_close(values, expected[:k], atol=tolerance * scale, rtol=0)
    for vectors in (left, right):
        torch.testing.assert_close(vectors.T @ vectors, torch.eye(k, dtype=torch.float64), atol=1e-10, rtol=0)
    assert (J @ right - left * values).norm() <= 10 * tolerance * scale
    assert (J.T @ left - right * values).norm() <= 10 * tolerance * scale


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_triplets_of_a_linear_map_are_recovered(symmetric, full):
    linear = Linear([0.99 / k for k in range(1, 61)], symmetric)
    spectrum = jacobian_spectrum(linear, torch.randn(1, 60, 1, 1, dtype=torch.float64), 1.0, k=6, full=full)
    torch.testing.assert_close(spectrum.singular_values[0], linear.values[:6], atol=1e-13, rtol=0)
    signs = (spectrum.left[0] * linear.left[:, :6]).sum(0).sign()
    torch.testing.assert_close(spectrum.left[0] * signs, linear.left[:, :6], atol=1e-8, rtol=0)
    torch.testing.assert_close(spectrum.right[0] * signs, linear.right[:, :6], atol=1e-8, rtol=0)
    assert spectrum.residual.max() <= 1e-10


def test_slow_spectra_converge_through_restarts_of_the_basis():
    dim = 400
    linear = Linear([1 / (1 + 0.01 * k) for k in range(dim)])
    spectrum = jacobian_spectrum(
        linear, torch.zeros(1, dim, 1, 1, dtype=torch.float64), 1.0, k=2, iterations=100, tolerance=1e-9
    )
    assert spectrum.residual.max() <= 1e-9
    assert_is_the_leading_spectrum(spectrum, 0, linear.J, 2, 1e-9)


def test_repeated_singular_values_give_their_subspace():
    linear = Linear([0.9] * 4 + [0.5] * 3 + [0.1] * 33)
    spectrum = jacobian_spectrum(linear, torch.randn(1, 40, 1, 1, dtype=torch.float64), 1.0, k=7)
    torch.testing.assert_close(spectrum.singular_values[0], linear.values[:7], atol=1e-12, rtol=0)
    for cluster in (slice(0, 4), slice(4, 7)):
        assert subspace_distance(spectrum.left[0, :, cluster], linear.left[:, cluster]) <= 1e-9
        assert subspace_distance(spectrum.right[0, :, cluster], linear.right[:, cluster]) <= 1e-9


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("network", [Network(), Attention()], ids=["convolutions", "attention"])
def test_networks_agree_with_the_dense_jacobian_at_each_image_and_level(network, full):
    x, levels = torch.randn(3, 2, 6, 6, dtype=torch.float64), [0.3, 1.0, 5.0]
    spectrum = jacobian_spectrum(network, x, torch.tensor(levels, dtype=torch.float64), k=5, full=full)
    assert spectrum.left.shape == spectrum.right.shape == (3, 72, 5)
    assert spectrum.singular_values.shape == spectrum.residual.shape == (3, 5)
    network.eval()
    for i, sigma in enumerate(levels):
        assert_is_the_leading_spectrum(spectrum, i, dense(network, x[i : i + 1], sigma), 5, 1e-10)
    network.train()


def test_posterior_mean_has_the_posterior_covariance_for_jacobian():
    x0 = torch.randn(9, 5, dtype=torch.float64)
    x, sigma = torch.randn(1, 5, dtype=torch.float64), 0.8

    def weights(x, sigma):
        return (-(x[:, None] - x0).square().sum(2) / (2 * sigma[:, None] ** 2)).softmax(1)

    spectrum = jacobian_spectrum(lambda x, sigma: weights(x, sigma) @ x0, x, sigma, k=5)
    w = weights(x, torch.tensor([sigma], dtype=torch.float64))[0]
    centred = x0 - w @ x0
    eigvals = torch.linalg.eigvalsh(centred.T * w @ centred / sigma**2).flip(0)
    torch.testing.assert_close(spectrum.singular_values[0], eigvals, atol=1e-12, rtol=0)
    torch.testing.assert_close(spectrum.left, spectrum.right, atol=1e-9, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_all_triplets_rebuild_the_jacobian_at_any_scale(scale):
    linear = Linear([scale / k for k in range(1, 21)])
    for full in (False, True):
        spectrum = jacobian_spectrum(linear, torch.zeros(1, 20, dtype=torch.float64), 1.0, k=20, full=full)
        rebuilt = spectrum.left[0] * spectrum.singular_values[0] @ spectrum.right[0].T
        torch.testing.assert_close(rebuilt, linear.J, atol=1e-13 * scale, rtol=0)


@pytest.mark.parametrize("rank", [0, 1, 3, 20])
def test_jacobians_of_low_rank_have_zeros_after_it(rank):
    linear = Linear([1.0 - 0.01 * k for k in range(rank)] + [0.0] * (50 - rank))
    spectrum = jacobian_spectrum(linear, torch.randn(2, 50, dtype=torch.float64), 1.0, k=6)
    torch.testing.assert_close(spectrum.singular_values[0], linear.values[:6], atol=1e-12, rtol=0)
    assert spectrum.residual.max() <= 1e-10
    for vectors in (spectrum.left[1], spectrum.right[1]):
        torch.testing.assert_close(vectors.T @ vectors, torch.eye(6, dtype=torch.float64), atol=1e-12, rtol=0)


def test_forward_mode_is_used_where_it_exists(monkeypatch):
    monkeypatch.setattr(module._Jacobian, "_push_by_double_backward", None)
    jacobian_spectrum(Network(), torch.randn(1, 2, 4, 4), 1.0, k=2)


def test_operations_without_forward_mode_are_differentiated_backward_twice():
    network = Network().eval()

    def denoiser(x, sigma):
        return network(_Square.apply(x), sigma)

    x = torch.randn(2, 2, 5, 5, dtype=torch.float64)
    spectrum = jacobian_spectrum(denoiser, x, 1.0, k=4)
    for i in range(2):
        assert_is_the_leading_spectrum(spectrum, i, dense(denoiser, x[i : i + 1], 1.0), 4, 1e-10)


def test_operations_without_second_derivatives_need_the_full_jacobian():
    x0 = torch.randn(9, 5, dtype=torch.float64)
    x = torch.randn(1, 5, dtype=torch.float64)

    def denoiser(x, sigma):
        return (-torch.cdist(x, x0)).softmax(1) @ x0

    with pytest.raises(ConfigError, match=r"_cdist_backward.*full=True"):
        jacobian_spectrum(denoiser, x, 1.0, k=2)
    assert_is_the_leading_spectrum(
        jacobian_spectrum(denoiser, x, 1.0, k=2, full=True), 0, dense(denoiser, x, 1.0), 2, 1e-12
    )


def test_float32_networks_are_measured_to_float32_accuracy():
    network, x = Network(torch.float32), torch.randn(1, 2, 6, 6)
    spectrum = jacobian_spectrum(network, x, 1.0, k=5)
    assert spectrum.left.dtype == torch.float64
    assert spectrum.residual.max() <= 3e-5
    assert_is_the_leading_spectrum(spectrum, 0, dense(network.double().eval(), x.double(), 1.0), 5, 1e-5)


def test_residual_is_true_before_convergence():
    linear = Linear([1 / (1 + 0.01 * k) for k in range(100)])
    spectrum = jacobian_spectrum(linear, torch.zeros(1, 100, dtype=torch.float64), 1.0, k=3, iterations=1)
    left, values, right = spectrum.left[0], spectrum.singular_values[0], spectrum.right[0]
    true = (linear.J @ right - left * values).norm(dim=0) / values[0]
    torch.testing.assert_close(spectrum.residual[0], true, atol=1e-12, rtol=0)
    torch.testing.assert_close(linear.J.T @ left, right * values, atol=1e-12, rtol=0)
    assert true.min() > 1e-3
    for value, residual in zip(values, true * values[0], strict=True):
        assert (linear.values - value).abs().min() <= residual


def test_spectrum_depends_on_neither_batch_size_seed_nor_companions():
    network, x = Network(), torch.randn(3, 2, 5, 5, dtype=torch.float64)
    reference = jacobian_spectrum(network, x, 1.0, k=3)
    for other in (
        jacobian_spectrum(network, x, 1.0, k=3, batch_size=4),
        jacobian_spectrum(network, x, 1.0, k=3, seed=5),
    ):
        torch.testing.assert_close(other.singular_values, reference.singular_values, atol=1e-12, rtol=0)
        torch.testing.assert_close(other.left, reference.left, atol=1e-7, rtol=0)
        torch.testing.assert_close(other.right, reference.right, atol=1e-7, rtol=0)
    alone = jacobian_spectrum(network, x[1:2], 1.0, k=3)
    torch.testing.assert_close(alone.left[0], reference.left[1], atol=1e-12, rtol=0)


def test_labels_belong_to_their_images():
    gains = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    spectrum = jacobian_spectrum(
        lambda x, sigma, labels: gains[labels][:, None] * x,
        torch.randn(4, 6, dtype=torch.float64),
        1.0,
        k=2,
        labels=[2, 0, 1, 1],
        batch_size=3,
    )
    torch.testing.assert_close(spectrum.singular_values[:, 0], gains[[2, 0, 1, 1]])


def test_nothing_leaks_and_modes_are_restored():
    network, x = Network(), torch.randn(2, 2, 4, 4, dtype=torch.float64)
    network.norm.eval()
    with torch.no_grad():
        spectrum = jacobian_spectrum(network, x, 1.0, k=2)
        assert not torch.is_grad_enabled()
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    assert not x.requires_grad
    assert not any(part.requires_grad for part in vars(spectrum).values())
    assert network.training
    assert network.dropout.training
    assert not network.norm.training


def test_frozen_networks_are_measured_too():
    network, x = Network(), torch.randn(1, 2, 4, 4, dtype=torch.float64)
    trainable = jacobian_spectrum(network, x, 1.0, k=2)
    frozen = jacobian_spectrum(network.requires_grad_(False), x, 1.0, k=2)
    torch.testing.assert_close(frozen.singular_values, trainable.singular_values)


def test_large_images_need_no_matrix():
    shape = (3, 96, 96)  # a dense Jacobian would hold 6 GB
    pattern = torch.randn(2, math.prod(shape))

    def denoiser(x, sigma):
        coordinates = torch.nn.functional.normalize(pattern) @ x.flatten(1).T
        return 0.1 * x + (coordinates.T @ pattern).reshape(x.shape)

    spectrum = jacobian_spectrum(denoiser, torch.randn(1, *shape), 1.0, k=2)
    expected = torch.linalg.matrix_norm(pattern.double(), 2)
    torch.testing.assert_close(spectrum.singular_values[0, 0], expected, rtol=2e-3, atol=0)
    assert spectrum.residual.max() <= 3e-5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 0}, ConfigError, "k must lie in 1 … d = 8, the number of pixels of an image; got 0"),
        ({"k": 9}, ConfigError, "got 9"),
        ({"iterations": 0}, ConfigError, "iterations must be at least 1; got 0"),
        ({"tolerance": 0.0}, ConfigError, r"tolerance must be above 0, or None .* got 0\.0"),
        ({"sigma": 0.0}, ConfigError, "positive and finite"),
        ({"sigma": torch.ones(3)}, ConfigError, r"got shape \(3,\)"),
        ({"labels": [0]}, DataError, "2 integers"),
        ({"x": torch.full((2, 2, 2, 2), math.nan)}, DataError, "finite"),
        ({"x": torch.zeros(2, 2, 2, 2, dtype=torch.uint8)}, DataError, "dtype torch.uint8"),
        ({"denoiser": lambda x, sigma: x.detach()}, ConfigError, "carries no gradient"),
        ({"denoiser": lambda x, sigma: x.sqrt()}, DataError, "derivative at sigma = 1 must be finite"),
        ({"denoiser": lambda x, sigma: x.flatten(1)}, DataError, "input's shape"),
        ({"denoiser": lambda x, sigma: x @ torch.zeros(3, 3)}, RuntimeError, "(?i)shape"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    arguments = {"denoiser": lambda x, sigma: x, "x": torch.zeros(2, 2, 2, 2), "sigma": 1.0, "k": 2} | arguments
    with pytest.raises(error, match=message):
        jacobian_spectrum(**arguments)
