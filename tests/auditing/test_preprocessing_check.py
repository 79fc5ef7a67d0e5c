from dataclasses import replace

import pytest
import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, karras_sigmas
from gausslens.auditing.pool import Pool
from gausslens.auditing.preprocessing_check import check_foreignness, preparations

SIGMAS = karras_sigmas(10)


def colour_images(n, seed):
    """Smooth images in which red is brighter than blue and varies more."""
    random = torch.Generator().manual_seed(seed)
    flat = torch.randn(n, 3, 1, 1, generator=random) * torch.tensor([0.3, 0.2, 0.1]).reshape(3, 1, 1)
    slope = 0.1 * torch.randn(n, 3, 1, 1, generator=random) * torch.linspace(-1, 1, 6).reshape(1, 1, 6, 1)
    return (
        flat
        + slope
        + torch.tensor([0.2, 0.0, -0.2]).reshape(3, 1, 1)
        + 0.02 * torch.randn(n, 3, 6, 6, generator=random)
    ).clamp(-1, 1)


@pytest.fixture(scope="module", params=["generalizer", "memorizer"])
def model(request):
    if request.param == "generalizer":
        return GaussianDenoiser(Moments.fit(colour_images(2000, 9))).float()
    return MultiDeltaDenoiser(colour_images(40, 1))


TRAIN, HELD_OUT = colour_images(40, 1), colour_images(60, 2)
POOL = Pool(TRAIN, HELD_OUT)


def test_images_as_the_model_expects_are_not_foreign(model):
    found = check_foreignness(model, POOL, SIGMAS)
    assert found["expected"] is None
    assert found["value"] is None or found["high"] > 0.99


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda x: x.flip(1), "BGR"),
        (lambda x: x[:, [1, 2, 0]], "BRG"),
        (lambda x: (x + 1) / 2, "seem to be in [0, 1]"),
        (lambda x: -x, "negatives"),
        (lambda x: x.transpose(2, 3), "rows and columns"),
    ],
)
def test_images_prepared_otherwise_are_foreign_and_it_says_how(model, given, said):
    found = check_foreignness(model, Pool(given(TRAIN), given(HELD_OUT)), SIGMAS)
    assert said in found["expected"]
    assert found["high"] < 0.99


def test_a_model_of_the_unit_range_is_recognised(model):
    def of_unit_range(x, sigma):
        return (model(2 * x - 1, 2 * sigma) + 1) / 2

    assert check_foreignness(of_unit_range, POOL, SIGMAS)["expected"] == "images in [0, 1]"


def test_a_model_that_cannot_tell_channels_apart_is_no_evidence():
    def shrink(x, sigma):
        return x * (0.04 / (0.04 + sigma**2)).reshape(-1, 1, 1, 1)

    symmetric = colour_images(40, 1).mean(1, keepdim=True).expand(-1, 3, -1, -1)
    assert check_foreignness(shrink, Pool(symmetric - symmetric.mean()), SIGMAS)["expected"] is None


def test_every_preparation_keeps_the_shape():
    names = [preparation.name for preparation in preparations((3, 6, 6))]
    assert len(set(names)) == len(names) == 10
    assert all(p.apply(TRAIN).shape == TRAIN.shape for p in preparations((3, 6, 6)))
    assert len(list(preparations((1, 6, 4)))) == 4


def test_labels_are_passed_on():
    seen = []

    def conditional(x, sigma, labels):
        seen.append(set(labels.tolist()))
        return x / 2

    pool = replace(POOL, labels=torch.full((40,), 1), held_out_labels=torch.full((60,), 2))
    check_foreignness(conditional, pool, 0.5)
    assert {1, 2} == set.union(*seen)


def test_without_a_level_that_matters_nothing_is_said():
    found = check_foreignness(lambda x, sigma: x, POOL, 1e-4)
    assert (found["expected"], found["value"], found["sigma"]) == (None, None, None)


def test_a_denoiser_is_called_within_its_range_alone():
    levels = []

    def narrow(x, sigma):
        levels.extend(sigma.tolist())
        return x / 2

    check_foreignness(narrow, POOL, (2.0, 0.8, 0.4, 0.2), sigma_range=(0.2, 1.6))
    assert (min(levels), max(levels)) == pytest.approx((0.2, 1.6))
