"""The alignment of a linear map with the principal components, on maps whose answer is known."""

import pytest
import torch

import gausslens
from gausslens.measures import alignment as spectrum
from gausslens.measures.alignment import alignment, subspace_overlap


def _moments(n=400, shape=(1, 6, 6), seed=0):
    generator = torch.Generator().manual_seed(seed)
    dim = torch.Size(shape).numel()
    scales = torch.linspace(2.0, 0.1, dim, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(7), dtype=torch.float64))[
        0
    ]
    rows = (torch.randn(n, dim, generator=generator, dtype=torch.float64) * scales) @ rotation.T
    return gausslens.Moments.fit(rows.reshape(n, *shape), bounds=None)


class _Map:
    def __init__(self, weight):
        self._weight = weight

    def weight(self, sigma):
        return self._weight


def test_gaussian_is_perfectly_aligned_with_itself():
    moments = _moments()
    result = alignment(gausslens.GaussianDenoiser(moments), moments, 0.7, k=10)
    torch.testing.assert_close(result.correlation, torch.eye(10, dtype=torch.float64), atol=1e-7, rtol=0)
    torch.testing.assert_close(result.overlap, torch.ones(10, dtype=torch.float64))
    torch.testing.assert_close(result.singular_values, moments.eigvals[:10] / (moments.eigvals[:10] + 0.49))
    torch.testing.assert_close(result.singular_values, result.gaussian_singular_values)
    assert result.weight_error < 1e-12
    assert result.asymmetry < 1e-12


def test_singular_values_and_vectors_match_a_dense_svd():
    moments = _moments()
    weight = torch.randn(36, 36, dtype=torch.float64)
    result = alignment(_Map(weight), moments, 1.0, k=5)
    left, values, _ = torch.linalg.svd(weight)
    torch.testing.assert_close(result.singular_values, values[:5])
    torch.testing.assert_close(
        result.left.T.mm(left[:, :5]).abs(), torch.eye(5, dtype=torch.float64), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(result.correlation, (left[:, :5].T @ moments.eigvecs[:, :5]).abs(), atol=1e-6, rtol=0)
    wiener = gausslens.GaussianDenoiser(moments).weight(1.0)
    assert result.weight_error == pytest.approx(float((weight - wiener).norm() / wiener.norm()))
    assert result.asymmetry == pytest.approx(float((weight - weight.T).norm() / weight.norm()))


def test_rotation_inside_a_subspace_changes_the_map_but_not_the_overlap():
    moments = _moments()
    u = moments.eigvecs
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    mixed = torch.cat([u[:, :3] @ rotation, u[:, 3:]], 1)
    weight = mixed @ torch.diag(torch.linspace(1, 0.1, 36, dtype=torch.float64)) @ mixed.T
    result = alignment(_Map(weight), moments, 1.0, k=5)
    assert result.overlap[0] < 0.999
    torch.testing.assert_close(result.overlap[2:], torch.ones(3, dtype=torch.float64))


def test_unrelated_subspaces_overlap_by_chance():
    dim, k = 60, 12
    draws = [
        subspace_overlap(*(torch.linalg.qr(torch.randn(dim, k, dtype=torch.float64))[0] for _ in range(2)))
        for _ in range(200)
    ]
    chance = torch.arange(1, k + 1, dtype=torch.float64) / dim
    torch.testing.assert_close(torch.stack(draws).mean(0), chance, atol=0.02, rtol=0)
    result = alignment(gausslens.GaussianDenoiser(_moments()), _moments(), 1.0, k=4)
    torch.testing.assert_close(result.chance, torch.arange(1, 5, dtype=torch.float64) / 36)


def test_half_split_ceiling_is_the_overlap_of_the_halves_and_rises_with_data():
    def ceiling(n):
        halves = _moments(n, seed=1), _moments(n, seed=2)
        result = alignment(gausslens.GaussianDenoiser(_moments()), _moments(), 1.0, k=6, halves=halves)
        expected = (halves[0].eigvecs[:, :6].T @ halves[1].eigvecs[:, :6]).square().sum() / 6
        assert float(result.ceiling[5]) == pytest.approx(float(expected))
        return float(result.ceiling[5])

    assert ceiling(50) < ceiling(20_000) - 0.05


def test_equal_eigenvalues_do_not_separate_a_subspace():
    rows = torch.cat([torch.eye(4), -torch.eye(4)]).double() * torch.tensor([3.0, 2.0, 2.0, 1.0]).double()
    moments = gausslens.Moments.fit(rows.reshape(8, 1, 2, 2), bounds=None)
    result = alignment(gausslens.GaussianDenoiser(moments), moments, 1.0, k=4)
    assert result.separated.tolist() == [True, False, True, True]


def test_k_is_lowered_to_the_rank():
    few = _moments(n=5)
    assert alignment(gausslens.GaussianDenoiser(few), few, 1.0, k=100).overlap.shape == (4,)


def test_wrong_sizes_are_refused():
    with pytest.raises(gausslens.DataError, match="4 dimensions, the moments have 36"):
        alignment(_Map(torch.eye(4)), _moments(), 1.0)
    with pytest.raises(gausslens.ConfigError, match="at least 1; got 0"):
        alignment(_Map(torch.eye(36)), _moments(), 1.0, k=0)


def test_leading_vectors_of_large_maps_are_iterated_to_those_of_a_dense_svd(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    sides = [torch.linalg.qr(torch.randn(300, 300, generator=generator, dtype=torch.float64))[0] for _ in range(2)]
    weight = sides[0] * torch.linspace(1, 0.01, 300, dtype=torch.float64) ** 4 @ sides[1].T
    monkeypatch.setattr(spectrum, "_WHOLE", 100)
    left, values = spectrum._leading(weight, 20)
    dense_left, dense_values, _ = torch.linalg.svd(weight)
    torch.testing.assert_close(values, dense_values[:20], rtol=1e-4, atol=0)
    torch.testing.assert_close(left.T @ left, torch.eye(20, dtype=torch.float64), atol=1e-10, rtol=0)
    assert float(subspace_overlap(left, dense_left[:, :20])[:10].min()) > 1 - 1e-6
