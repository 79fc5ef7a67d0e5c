"""The study of Jacobians: its claim finds its numbers, and overlaps and steps are what they are said to be."""

import math
from itertools import pairwise

import pytest
import torch
from small_studies import check_drawing, missing, run_small

from gausslens import GaussianDenoiser, Moments, karras_sigmas
from gausslens.paper.tasks.jacobians import overlaps_at, responses, separated_cuts, steer
from gausslens.report import HeatMap, ImageGrid
from gausslens.sampling import Step

pytestmark = pytest.mark.slow  # networks of all sizes or kinds


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    return run_small("jacobian", tmp_path_factory.mktemp("cells"), seeds=1)


@pytest.fixture(name="moments")
def fit_moments():
    scale = torch.tensor([0.9, 0.5, 0.2, 0.1])
    draws = torch.rand(4000, 1, 2, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return Moments.fit(draws.double() * scale.reshape(1, 2, 2))


def test_no_claim_lacks_a_record(findings):
    found = missing(findings, "C20")
    assert len(found) == 2
    assert set(found.values()) == {None}


def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("jacobian", findings, tmp_path)
    (heat_map,) = (figure for figure in figures.values() if isinstance(figure, HeatMap))
    assert len(heat_map.values) == 5
    vectors, steered = (figure for figure in figures.values() if isinstance(figure, ImageGrid))
    assert vectors.images.shape == (4, 12, 1, 8, 8)
    assert steered.images.shape == (9, 5, 1, 8, 8)
    assert steered.rows[0].startswith("σ = 22.8")
    assert steered.rows[3].startswith("σ = 1.98")
    assert steered.rows[6].startswith("σ = 0.002")


def test_the_gaussian_s_jacobian_follows_the_components(findings):
    overlap = findings.evidence.where(quantity="jacobian_overlap", denoiser="gaussian").at(1.0)
    assert len(overlap) > 0
    assert all(record["value"] == pytest.approx(1, abs=1e-3) for record in overlap.records)
    assert {record["count"] for record in overlap.records} == {16}


def test_overlaps_are_those_of_rotated_subspaces():
    angle = 0.3
    turned = torch.eye(3, dtype=torch.float64)
    turned[:2, 0] = torch.tensor([math.cos(angle), math.sin(angle)])
    turned[:2, 1] = torch.tensor([-math.sin(angle), math.cos(angle)])
    found = overlaps_at(turned[None], torch.eye(3, dtype=torch.float64), [1, 2])
    assert found[1].item() == pytest.approx(math.cos(angle) ** 2)
    assert found[2].item() == pytest.approx(1)


def test_near_equal_eigenvalues_are_not_cut(moments):
    assert separated_cuts(moments) == [1, 2, 3]
    alike = torch.randn(4000, 1, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    alike[..., 0, 0] *= 2
    assert separated_cuts(Moments.fit(alike, bounds=None)) == [1]
    assert separated_cuts(Moments.fit(alike[..., :1].expand(-1, 1, 2, 2), bounds=None)) == [1, 2]


def test_a_step_along_a_component_is_shrunk_as_euler_s_method_shrinks_it(moments):
    """Each mode of a Gaussian moves by itself: factors 1 + (σ' − σ)σ/(λ + σ²), and λ/(λ + σ²) at the end."""
    sigmas = karras_sigmas(20)
    step = Step(4, float(sigmas[4]), torch.randn(3, 1, 2, 2).double() * 20, torch.zeros(3, 1, 2, 2))
    first = moments.eigvecs[:, 0].expand(3, 4)
    samples = steer(GaussianDenoiser(moments), step, sigmas, first)
    levels, value = sigmas[4:].tolist(), float(moments.eigvals[0])
    factor = value / (value + levels[-1] ** 2)
    for now, following in pairwise(levels):
        factor *= 1 + (following - now) * now / (value + now**2)
    found = responses(samples, step.sigma)
    assert found["first"].tolist() == pytest.approx([factor] * 3)
    assert bool((found["random"] < found["first"]).all())
    assert torch.allclose(samples[:, 0] + samples[:, 2], 2 * samples[:, 1])
