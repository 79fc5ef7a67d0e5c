"""The Fréchet distance: closed forms, invariance, and what sampling error alone gives."""

import pytest
import torch

from gausslens.measures.frechet import frechet_distances


def _features(n, seed):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 16, generator=rng, dtype=torch.float64) * torch.linspace(1, 0.1, 16, dtype=torch.float64)


def _with_moments(features, mean, roots):
    """The features, moved to have exactly this mean and a diagonal covariance with these square roots."""
    rows = features - features.mean(0)
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    return (rows @ vectors) / values.sqrt() * roots + mean


def test_gaussians_with_commuting_covariances_have_the_closed_form():
    roots = torch.rand(2, 16, dtype=torch.float64) + 0.1
    means = torch.randn(2, 16, dtype=torch.float64)
    a, b = (_with_moments(_features(400, k), means[k], roots[k]) for k in range(2))
    expected = (means[0] - means[1]).square().sum() + (roots[0] - roots[1]).square().sum()
    assert frechet_distances([a, b], b) == [pytest.approx(float(expected), rel=1e-9), pytest.approx(0, abs=1e-9)]


def test_covariances_that_do_not_commute_match_the_definition():
    a, b = _features(300, 0), _features(300, 1) @ torch.randn(16, 16, dtype=torch.float64)
    first, second = (torch.cov(x.T, correction=0) for x in (a, b))
    cross = torch.linalg.eigvals(first @ second).real.clamp_min(0).sqrt().sum()
    expected = float((a.mean(0) - b.mean(0)).square().sum() + first.trace() + second.trace() - 2 * cross)
    assert frechet_distances([a], b)[0] == pytest.approx(expected, rel=1e-8)
    assert frechet_distances([b], a)[0] == pytest.approx(expected, rel=1e-8)


def test_a_shift_adds_its_square():
    a = _features(400, 0)
    moved = a + 5 * torch.eye(16, dtype=torch.float64)[12]
    assert frechet_distances([moved], a)[0] == pytest.approx(25, rel=1e-9)


def test_more_samples_of_one_law_are_nearer():
    few, many = (frechet_distances([_features(n, 1)], _features(n, 2))[0] for n in (100, 10000))
    assert 0 < many < few / 20
