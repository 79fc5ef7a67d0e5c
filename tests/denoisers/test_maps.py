"""Maps kept as a Gaussian plus low rank against the same maps kept whole."""

import pytest
import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, distill
from gausslens.denoisers import linear as maps
from gausslens.denoisers.regression import Affine

SHAPE = (1, 4, 5)
DIM = 20
SIGMAS = (1.0, 0.3)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def images_of(n):
    return (0.3 * normal(n, *SHAPE).cumsum(2).cumsum(3) / 3).clamp(-1, 1)


def bent(images):
    """A denoiser whose map is near a Gaussian's, and of full rank."""
    memory = MultiDeltaDenoiser(images)
    return lambda x, sigma: memory(x, sigma) + 0.1 * torch.tanh(x.flip(3))


@pytest.mark.parametrize("n", [8, 60])  # fewer and more images than dimensions: principal components (d, 7) and (d, d)
@pytest.mark.parametrize("stored_rank", [3, 10])
def test_the_low_rank_form_is_near_the_whole_one_by_as_much_as_it_says(monkeypatch, n, stored_rank):
    images = images_of(n)
    monkeypatch.setattr(maps, "_FULL_DIM", DIM - 1)
    monkeypatch.setattr(maps, "_STORED_RANK", stored_rank)
    kept, whole = (distill(bent(images), images, SIGMAS, calls=600, full=full) for full in (None, True))
    gaussian = GaussianDenoiser(Moments.fit(images))
    x = normal(5, *SHAPE, seed=3)
    for i, sigma in enumerate(SIGMAS):
        exact = whole.weight(sigma)
        lost = float((kept.weight(sigma) - exact).norm() / exact.norm())
        assert lost == pytest.approx(float(kept.truncation[i]), rel=1e-6)
        rest = torch.linalg.svdvals(exact - gaussian.weight(sigma))
        best = float(rest[stored_rank:].norm() / exact.norm())
        assert best * (1 - 1e-9) <= lost <= best * 1.05
        assert torch.allclose(kept.bias(sigma), whole.bias(sigma))
        assert float((kept(x, sigma) - whole(x, sigma)).norm() / whole(x, sigma).norm()) < 2 * lost
    assert not whole.truncation.any()


def test_enough_rank_loses_nothing(monkeypatch):
    monkeypatch.setattr(maps, "_STORED_RANK", DIM + 5)
    images = images_of(60)
    kept, whole = (distill(bent(images), images, SIGMAS, calls=600, full=full) for full in (False, True))
    assert float(kept.truncation.max()) < 1e-12
    x = normal(5, *SHAPE, seed=3)
    for sigma in SIGMAS:
        assert torch.allclose(kept.weight(sigma), whole.weight(sigma), atol=1e-12)
        assert torch.allclose(kept(x, sigma), whole(x, sigma), atol=1e-12)


def test_only_large_images_are_truncated_unless_asked(monkeypatch):
    images = images_of(60)
    monkeypatch.setattr(maps, "_STORED_RANK", 2)
    gaussian = GaussianDenoiser(Moments.fit(images))
    fit = Affine(gaussian.weight(0.5) + normal(DIM, DIM), normal(DIM))
    for full_dim, full, truncated in (
        (DIM, None, False),
        (DIM - 1, None, True),
        (DIM - 1, True, False),
        (DIM, False, True),
    ):
        monkeypatch.setattr(maps, "_FULL_DIM", full_dim)
        _, lost = maps.level_maps(gaussian, 0.5, fit, fit, full, torch.float64)
        assert (lost > 0.1) == truncated
    assert maps._FULL_DIM == DIM


def test_without_an_unshrunk_fit_truncation_is_of_the_prediction_fit(monkeypatch):
    monkeypatch.setattr(maps, "_STORED_RANK", 2)
    gaussian = GaussianDenoiser(Moments.fit(images_of(60)))
    unshrunk, prediction = (Affine(gaussian.weight(0.5) + size * normal(DIM, DIM), normal(DIM)) for size in (1.0, 0.1))
    lost = {
        given: maps.level_maps(gaussian, 0.5, prediction, given, False, torch.float64)[1]
        for given in (unshrunk, prediction, None)
    }
    assert lost[None] == lost[prediction] < lost[unshrunk]


def test_principal_components_are_kept_once(monkeypatch):
    monkeypatch.setattr(maps, "_STORED_RANK", 2)
    images = images_of(60)
    kept = distill(bent(images), images, SIGMAS, calls=600, full=False)
    numbers = sum(tensor.numel() for tensor in kept.state_dict().values())
    n_maps = 2 * len(SIGMAS)
    assert numbers == DIM * DIM + n_maps * (2 * 2 * DIM + DIM) + len(SIGMAS) * DIM


def test_half_precision_denoisers_have_float32_maps():
    images = images_of(30)
    gaussian = GaussianDenoiser(Moments.fit(images)).to(torch.bfloat16)
    kept = distill(gaussian, images, SIGMAS, calls=400)
    assert {tensor.dtype for tensor in kept.state_dict().values()} == {torch.float32}
