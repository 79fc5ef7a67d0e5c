"""The study of distillation: its claims find their numbers, and its maps and pictures are what they are said to be."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_studies import check_drawing, missing, run_small

from gausslens import GaussianDenoiser, LinearDenoiser, Moments, load_denoiser
from gausslens.denoisers import fitting
from gausslens.evaluation.model_tasks import run_of
from gausslens.evaluation.references import load_run_images
from gausslens.experiments.task import TaskStore
from gausslens.noise import draw_noise, draw_order
from gausslens.paper.studies.distillation import STUDY
from gausslens.paper.tasks import distillation as distilling
from gausslens.paper.tasks import theorem
from gausslens.paper.tasks.jacobians import as_pictures, signed_like
from gausslens.report import HeatMap, ImageGrid

LARGE = "distilled 64, seed 0"


@pytest.fixture(name="folder", scope="module")
def make_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(name="findings", scope="module")
def run_the_study(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distilling, "_ADAM_EPOCHS", 3)
        patch.setattr(fitting, "_EVALUATION_CALLS", 64)
        patch.setattr(theorem, "_STEPS", 5000)
        return run_small("distillation", folder, seeds=1)


def test_no_claim_lacks_a_record(findings):
    found = missing(findings, "C6", "C8", "C9", "C10", "C21")
    assert len(found) == 7
    assert set(found.values()) == {None}


def test_controls_stand_beside_what_is_almost_automatic(findings):
    from gausslens.paper.claims import judge

    controls = {verdict.claim: len(verdict.controls) for verdict in judge(findings.records)}
    assert (controls["C6"], controls["C8"], controls["C9"]) == (2, 4, 3)


def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("distillation", findings, tmp_path)
    (heat_map,) = (figure for figure in figures.values() if isinstance(figure, HeatMap))
    assert heat_map.values.shape == (10, 51, 51)
    vectors, outputs = (figure for figure in figures.values() if isinstance(figure, ImageGrid))
    assert vectors.images.shape == (10, 5, 1, 8, 8)
    assert outputs.images.shape == (4, 6, 1, 8, 8)
    epochs = figures["Weight error while Adam learns the map"]
    assert len(epochs.series) == 10
    assert list(epochs.series[0].x) == [1, 2, 3]


def stored_map(findings, folder):
    """The network's map on held-out images, beside the model of most."""
    model = TaskStore(folder).result(findings.plan.model(64, 0)).folder
    (path,) = model.glob("maps-*/distilled-network-held_out.safetensors")
    return LinearDenoiser.load(path)


def test_what_retrieves_the_fewest_images_stands_beside_the_network_of_these(findings):
    drawn = {figure.title: figure for figure in STUDY.draw(findings)}
    both = {"held-out images", "training images"}
    for title, quantity in (
        ("What no affine map explains", "fvu"),
        ("Weight error: most and fewest images", "weight_error"),
    ):
        controls = {
            line.name: line for line in drawn[title].series if line.name.startswith("control: multi-delta, N = ")
        }
        assert {name.rpartition(", ")[2] for name in controls} == both
        least = findings.evidence.where(quantity=quantity, denoiser="multidelta", n=findings.plan.sizes[0], on="train")
        least = least.where(reference="gaussian of train") if quantity == "weight_error" else least
        line = next(line for name, line in controls.items() if name.endswith("training images"))
        assert sorted(line.y) == pytest.approx(sorted(record["value"] for record in least.records))
    for on in ("", " on training images"):
        series = drawn[f"Linear, Gaussian and network{on}: most and fewest images"].series
        assert sum(line.name.startswith("control: L–G of multi-delta, N = ") for line in series) == 1


def test_the_gap_of_the_linear_map_is_that_of_its_matrix(findings, folder):
    """Against Wx + b at the same inputs, with W and b fitted here."""
    store = TaskStore(folder)
    run = run_of(store.result(findings.plan.model(64, 0)))
    images, network = load_run_images(run), load_denoiser(run)
    sigma = float(findings.array(LARGE, "sigmas")[4])
    fit = stored_map(findings, folder)
    chosen = images.held_out[draw_order(0, len(images.held_out))[: findings.plan.count]]
    x = (chosen.double() / 127.5 - 1) + sigma * draw_noise(0, torch.arange(len(chosen)), (1, 8, 8)).double()
    gaussian = GaussianDenoiser(Moments.fit(images.train))
    answers = {
        "linear": x.flatten(1) @ fit.weight(sigma).double().T + fit.bias(sigma).double(),
        "gaussian": gaussian(x, sigma),
    }
    with torch.no_grad():
        answers["network"] = network(x.float(), torch.full((len(x),), sigma))
    for a, b in (("linear", "gaussian"), ("network", "linear"), ("network", "gaussian")):
        records = findings.evidence.where(quantity="rmse", on="held_out", denoiser=a, reference=b, n=64)
        found = records.where(of=(None, "network")).at(sigma * 0.999, sigma * 1.001).one().value
        apart = (answers[a].double().flatten(1) - answers[b].double().flatten(1)).square().mean(1).sqrt().mean()
        assert found == pytest.approx(float(apart), rel=1e-4)


def test_singular_values_and_vectors_are_of_the_unshrunk_matrix(findings, folder):
    sigmas = findings.array(LARGE, "sigmas")
    weight = stored_map(findings, folder).weight(sigmas[4]).double()
    left, values, _ = torch.linalg.svd(weight)
    assert np.allclose(findings.array(LARGE, "singular_values")[4], values[:51], rtol=1e-5, atol=1e-7)
    run = run_of(TaskStore(folder).result(findings.plan.model(64, 0)))
    components = Moments.fit(load_run_images(run).train).eigvecs
    map_here = (left[:, :5].T @ components[:, :5]).abs().numpy()
    assert np.allclose(findings.array(LARGE, "correlation")[4][:5, :5], map_here, atol=1e-3)
    pictures = as_pictures(signed_like(left[:, :3], components[:, :3]), (1, 8, 8)).numpy().astype(int)
    assert np.abs(findings.array(LARGE, "vectors")[:3].astype(int) - pictures).max() <= 1


def test_overlaps_are_cut_where_gains_pass_one_half(findings, folder):
    run = run_of(TaskStore(folder).result(findings.plan.model(64, 0)))
    eigvals = Moments.fit(load_run_images(run).train).eigvals
    cuts = findings.evidence.where(quantity="overlap", on="held_out", denoiser="network", n=64, passed=True)
    found = {round(float(sigma), 6): list(group.over("k")) for sigma, group in cuts.by("sigma").items()}
    counts = {round(float(sigma), 6): int((eigvals > sigma**2).sum()) for sigma in findings.array(LARGE, "sigmas")}
    assert found == {sigma: [count] for sigma, count in counts.items() if 0 < count < len(eigvals)}
    assert found


def test_directions_are_grey_where_they_are_zero_and_take_the_sign_of_others():
    directions = torch.tensor([[0.0, -0.6], [0.5, 0.8]]).double()
    pictures = as_pictures(directions, (1, 1, 2))
    assert pictures.flatten(1).tolist() == [[128, 255], [32, 255]]
    assert torch.equal(signed_like(-directions, directions), directions)


def test_images_of_many_dimensions_are_distilled_at_fewer_levels(findings):
    large = replace(findings.plan, shape=(3, 64, 64), training={"network": "ncsnpp", "width": 8})
    tasks = [part.task for part in STUDY.parts(large) if "distill" in part.task.kind.name]
    assert len(tasks) == 2 * large.seeds + 1
    for task in tasks:
        assert len(task.options["sigmas"]) == 6
        assert task.options.get("images", ("held_out",)) == ("held_out",)
    assert all("sigmas" not in part.task.options for part in findings.parts if "distill" in part.task.kind.name)
