"""The Fréchet distance: closed forms, invariance, and what sampling error alone gives."""

import pytest
import torch

from gausslens import ConfigError, Moments
from gausslens.measures.frechet import frechet_distance

SHAPE = (1, 4, 4)


def _images(n, seed, scales=None, shift=0.0):
    rng = torch.Generator().manual_seed(seed)
    scales = torch.linspace(1, 0.1, 16, dtype=torch.float64) if scales is None else scales
    return (torch.randn(n, 16, generator=rng, dtype=torch.float64) * scales + shift).reshape(n, *SHAPE)


def _with_moments(images, mean, roots):
    """The images, moved to have exactly this mean and a diagonal covariance with these square roots."""
    rows = images.flatten(1) - images.flatten(1).mean(0)
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    return ((rows @ vectors) / values.sqrt() * roots + mean).reshape(-1, *SHAPE)


def test_gaussians_with_commuting_covariances_have_the_closed_form():
    roots = torch.rand(2, 16, dtype=torch.float64) + 0.1
    means = torch.randn(2, 16, dtype=torch.float64)
    a, b = (_with_moments(_images(400, k), means[k], roots[k]) for k in range(2))
    reference = Moments.fit(_images(50, 9), bounds=None)
    expected = (means[0] - means[1]).square().sum() + (roots[0] - roots[1]).square().sum()
    assert frechet_distance(a, b, reference, rank=16, bounds=None) == pytest.approx(float(expected), rel=1e-9)


def test_covariances_that_do_not_commute_match_the_definition():
    a, b = _images(300, 0), (_images(300, 1).flatten(1) @ torch.randn(16, 16, dtype=torch.float64)).reshape(-1, *SHAPE)
    reference = Moments.fit(a, bounds=None)
    first, second = (torch.cov(x.flatten(1).T, correction=0) for x in (a, b))
    cross = torch.linalg.eigvals(first @ second).real.clamp_min(0).sqrt().sum()
    means = (a.flatten(1).mean(0) - b.flatten(1).mean(0)).square().sum()
    expected = float(means + first.trace() + second.trace() - 2 * cross)
    assert frechet_distance(a, b, reference, rank=16, bounds=None) == pytest.approx(expected, rel=1e-8)
    assert frechet_distance(b, a, reference, rank=16, bounds=None) == pytest.approx(expected, rel=1e-8)


def test_only_the_leading_components_count():
    a = _images(400, 0)
    reference = Moments.fit(a, bounds=None)
    moved = (a.flatten(1) + 5 * reference.eigvecs[:, 12]).reshape(-1, *SHAPE)
    assert frechet_distance(a, moved, reference, rank=12, bounds=None) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(a, moved, reference, rank=13, bounds=None) == pytest.approx(25, rel=1e-9)


def test_more_samples_of_one_law_are_nearer():
    reference = Moments.fit(_images(20000, 0), bounds=None)
    few, many = (frechet_distance(_images(n, 1), _images(n, 2), reference, rank=16, bounds=None) for n in (100, 10000))
    assert 0 < many < few / 20


@pytest.mark.parametrize("rank", [0, 17])
def test_a_rank_out_of_range_is_refused(rank):
    images = _images(40, 0)
    with pytest.raises(ConfigError, match=str(rank)):
        frechet_distance(images, images, Moments.fit(images, bounds=None), rank=rank, bounds=None)
