"""The study of references: its claims find their numbers, and trajectories and outputs are what they are said to be."""

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from small_studies import check_drawing, missing, run_small

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, karras_sigmas, load_denoiser
from gausslens.evaluation import references
from gausslens.evaluation.model_tasks import run_of
from gausslens.evaluation.references import load_run_images
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.images import dequantize, quantize
from gausslens.measures.gap import gap
from gausslens.noise import draw_noise, draw_order
from gausslens.paper.claims import judge
from gausslens.paper.plan import Plan
from gausslens.paper.registry import find_study
from gausslens.paper.study import Findings, Part
from gausslens.paper.tasks.denoised_outputs import COUNTERPARTS, denoised_outputs_task, follow, trajectory_task
from gausslens.paper.tasks.one_model import explained_variance_task, gaussian_variance_task
from gausslens.report import ImageGrid, NoiseSlider

SIGMAS = karras_sigmas(10)


@pytest.fixture(name="folder", scope="module")
def make_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(name="findings", scope="module")
def run_the_study(folder):
    return run_small("references", folder, seeds=1)


@pytest.fixture(name="model", scope="module")
def load_the_model(findings, folder):
    run = run_of(TaskStore(folder).result(findings.plan.model(64, 0)))
    images = load_run_images(run)
    return {
        "network": load_denoiser(run),
        "gaussian": GaussianDenoiser(Moments.fit(images.train)).float(),
        "multidelta": MultiDeltaDenoiser(images.train).float(),
    }, images


def test_no_claim_lacks_a_record(findings):
    found = missing(findings, "C5", "C7")
    assert len(found) == 3
    assert set(found.values()) == {None}


def test_more_training_at_one_level_begins_where_training_ended(findings, model):
    refined = findings.evidence.where(quantity="refined_rmse")
    denoisers, images = model
    for sigma, at_level in refined.by("sigma").items():
        further = {record["further"]: record["value"] for record in at_level.records}
        assert list(further) == [0, 512, 1024, 1536, 2048]
        count = at_level.records[0]["count"]
        began = gap(denoisers["network"], denoisers["gaussian"], images.held_out, [sigma], metric="rmse", count=count)
        assert further[0] == pytest.approx(float(began.values[0]), rel=1e-5)
        assert further[2048] != further[0]
    # A network that has hardly seen high noise has something to learn there.
    high = [record["value"] for record in refined.at(low=20).records]
    assert high == sorted(high, reverse=True)


def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("references", findings, tmp_path)
    distances = figures["Distance of the network to its reference denoisers"]
    assert len(distances.series) == 6
    assert len(distances.thresholds) == 1
    assert sum(type(figure) is ImageGrid for figure in figures.values()) == 2
    (slider,) = (figure for figure in figures.values() if isinstance(figure, NoiseSlider))
    assert slider.images.shape == (10, 6, 5, 1, 8, 8)
    assert slider.columns == ("input", "network", "linear", "Gaussian", "multi-delta")


def test_the_limit_is_the_papers_times_the_contrast_of_the_data(findings, model):
    _, images = model
    contrast = float(dequantize(images.available, torch.float64).square().mean().sqrt())
    (rms,) = findings.evidence.where(quantity="data_rms").records
    assert rms["value"] == pytest.approx(contrast, rel=1e-12)
    assert rms["low"] < rms["value"] < rms["high"]
    assert findings.evidence.where(quantity="dim").one().value == 64


def test_trajectories_are_eulers_from_one_noise(findings, model):
    denoisers, _ = model
    latents = draw_noise(0, torch.arange(10), (1, 8, 8), stream="latents").double()
    for name, denoiser in denoisers.items():
        x, expected = 80 * latents, []
        for sigma, after in zip(SIGMAS.tolist(), [*SIGMAS.tolist()[1:], 0.0], strict=True):
            with torch.no_grad():
                expected.append(denoiser(x.float(), sigma).double())
            x = x + (after - sigma) / sigma * (x - expected[-1])
        torch.testing.assert_close(x, expected[-1], atol=1e-9, rtol=0)
        found = findings.array("trajectories, seed 0", name)
        wanted = quantize(torch.stack(expected, 1)).numpy()
        assert abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_likeness_along_the_way_is_of_the_paths_and_falls_with_other_noises(findings, model):
    denoisers, _ = model
    latents = draw_noise(0, torch.arange(10), (1, 8, 8), stream="latents")
    network, gaussian = (follow(denoisers[name], latents, SIGMAS).flatten(2) for name in ("network", "gaussian"))
    expected = [
        sum(float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in zip(network[:, k], gaussian[:, k], strict=True))
        / 10
        for k in range(10)
    ]
    pairs = findings.evidence.where(quantity="trajectory_correlation", reference="gaussian")
    found = pairs.where(noise="same").over("sigma")
    assert [found[sigma].value for sigma in SIGMAS.tolist()] == pytest.approx(expected, abs=1e-4)
    assert pairs.where(noise="shuffled").over("sigma")[0.002].value < found[0.002].value


def test_outputs_are_of_held_out_images_with_the_noise_of_the_gaps(findings, model):
    denoisers, images = model
    chosen = images.held_out[draw_order(0, len(images.held_out))[:6]]
    assert (findings.array("outputs", "clean") == chosen.numpy()).all()
    noise = draw_noise(0, torch.arange(6), (1, 8, 8)).double()
    for level, sigma in enumerate(SIGMAS.tolist()):
        x = dequantize(chosen, torch.float64) + sigma * noise
        assert (findings.array("outputs", "inputs")[level] == quantize(x / (1 + 2 * sigma)).numpy()).all()
        for name, denoiser in denoisers.items():
            with torch.no_grad():
                wanted = quantize(denoiser(x.float(), sigma)).numpy()
            assert abs(findings.array("outputs", name)[level].astype(int) - wanted.astype(int)).max() <= 1


def test_explained_variance_is_that_of_the_networks_outputs(findings, model, folder):
    """1 − Σ‖D − R‖²/Σ‖D − D̄‖², at the levels that others have published, beside published networks alone."""
    denoisers, images = model
    task = explained_variance_task(findings.plan, findings.plan.model(64, 0))
    assert not run_tasks([task], folder, on="here").failed
    records = TaskStore(folder).result(task).records
    assert {(record["sigma"], record["on"], record["reference"]) for record in records} == {
        (sigma, on, reference)
        for sigma in (10.0, 5.0, 2.0, 1.0, 0.5)
        for on in ("train", "held_out")
        for reference in ("gaussian", "multidelta")
    }
    for record in records:
        clean = images.train if record["on"] == "train" else images.held_out
        chosen = dequantize(clean[draw_order(0, len(clean))[:6]], torch.float64)
        x = (chosen + record["sigma"] * draw_noise(0, torch.arange(6), (1, 8, 8)).double()).float()
        with torch.no_grad():
            own, other = (denoisers[name](x, record["sigma"]).double() for name in ("network", record["reference"]))
        expected = 1 - float((own - other).square().sum() / (own - own.mean(0)).square().sum())
        assert record["value"] == pytest.approx(expected, abs=1e-4)
    keys = [part.key for part in find_study("references").parts(findings.plan)]
    assert not any("explained" in key for key in keys)
    published = replace(findings.plan, training={**findings.plan.training, "network": "ncsnpp"})
    keys = [part.key for part in find_study("references").parts(published)]
    assert {"explained variance, seed 0", "explained variance of the Gaussian"} <= {*keys}


def test_what_multidelta_explains_of_the_gaussian_is_said_by_its_own_variance(findings, model, folder):
    """2 − Var x/Var D where it retrieves the training image, since the error of D is orthogonal to D."""
    task = gaussian_variance_task(findings.plan)
    assert not run_tasks([task], folder, on="here").failed
    records = TaskStore(folder).result(task).records
    assert [record["on"] for record in records] == 5 * ["train"] + 5 * ["held_out"]
    _, images = model
    pixels = dequantize(images.available, torch.float64).flatten(1)
    spread = torch.linalg.eigvalsh(pixels.T.cov(correction=0)).clamp_min(0)
    found = {record["sigma"]: record["value"] for record in records if record["on"] == "train"}
    kept = {sigma: float((spread**2 / (spread + sigma**2)).sum() / spread.sum()) for sigma in found}
    assert found[0.5] == pytest.approx(2 - 1 / kept[0.5], abs=0.05)
    of_network = explained_variance_task(findings.plan, findings.plan.model(64, 0))
    assert not run_tasks([of_network], folder, on="here").failed
    parts = [*findings.parts, Part("explained variance", of_network), Part("control", task)]
    drawn = Findings(findings.plan, "references", parts, TaskStore(folder))
    (figure,) = (figure for figure in find_study("references").draw(drawn) if "references explain" in figure.title)
    assert figure.series[-1].name == "control: multi-delta of the Gaussian"


def test_pictures_need_the_measures_for_the_linear_denoiser_alone(findings):
    plan: Plan = findings.plan
    model = plan.model(64, 0)
    measured = plan.measured(model, "linear_gap")
    for task in (trajectory_task(plan, model), denoised_outputs_task(plan, model, pictures=6)):
        assert task.needs == (model, measured)
    for task in (
        trajectory_task(plan, model, denoisers=COUNTERPARTS[:3]),
        denoised_outputs_task(plan, model, pictures=6, denoisers=("network",), sigmas=(4.0,), inputs="noise"),
    ):
        assert task.needs == (model,)


@pytest.mark.slow
def test_three_seeds_are_enough_to_judge(tmp_path):
    findings = run_small("references", tmp_path, seeds=3)
    judged = {verdict.claim: verdict for verdict in judge(findings.records)}
    assert [statistic.lacks for claim in ("C5", "C7") for statistic in judged[claim].statistics] == [None] * 3


def test_moments_of_the_same_images_are_computed_once(monkeypatch):
    fits, fit = [], Moments.fit
    monkeypatch.setattr(Moments, "fit", lambda images, **how: fits.append(images) or fit(images, **how))
    monkeypatch.setattr(references, "_moments", OrderedDict())
    images = torch.randint(0, 256, (3, 5, 1, 4, 4), dtype=torch.uint8)
    everything = references.moments_of(images[0])
    for part in (images[1], images[2]):
        references.moments_of(part)
        assert references.moments_of(images[0].clone()) is everything
    assert len(fits) == 3
    references.moments_of(images[1])  # two are kept
    references.moments_of(images[1].reshape(5, 1, 2, 8))
    assert len(fits) == 5
