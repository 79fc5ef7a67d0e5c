"""The study of autoencoders: one network a level, stitched; its claims find their numbers and its figures are drawn."""

from dataclasses import replace

import pytest
import torch
from small_studies import check_drawing, missing, run_small, small_plan

from gausslens.evaluation.model_tasks import run_of
from gausslens.evaluation.references import gaussian_denoiser, load_run_images
from gausslens.experiments.task import TaskStore
from gausslens.images import dequantize
from gausslens.nn import build_network
from gausslens.noise import draw_noise, draw_order, karras_sigmas
from gausslens.paper.architectures import AUTOENCODERS, autoencoder, kinds
from gausslens.store.run import load_trained

SIGMAS = karras_sigmas(10).tolist()


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    return run_small("autoencoders", tmp_path_factory.mktemp("cells"), seeds=1)


@pytest.mark.slow
def test_no_claim_lacks_a_record(findings):
    found = missing(findings, "C17", "C21")
    assert set(found.values()) == {None}
    assert [name for name in found if "minus EDM" in name] == [
        f"RMSE to G at σ ≥ 42, {name} minus EDM" for name in ("dit", "ncsnpp", "skipnet")
    ]


@pytest.mark.slow
def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("autoencoders", findings, tmp_path)
    curves = figures["Distance of autoencoders to the Gaussian denoiser"].series
    assert [series.name.partition(",")[0] for series in curves[:4]] == [*AUTOENCODERS.values()]
    assert all(len(series.x) == 10 for series in curves)
    grid = figures["Trajectories of autoencoders"]
    assert grid.images.shape[:2] == (7, 10)


@pytest.mark.slow
def test_every_level_is_measured_with_its_own_network(findings):
    (part,) = [part for part in findings.parts if part.key == "dit, seed 0"]
    store = TaskStore(findings.result(part.key).folder.parent)
    gaps = findings.evidence.where(quantity="rmse", on="held_out", denoiser="network", reference="gaussian")
    for need in part.task.needs[::4]:
        run = run_of(store.result(need))
        images, sigma = load_run_images(run), run.config.sigma
        chosen = draw_order(0, len(images.held_out))[: findings.plan.count]
        x = dequantize(images.held_out[chosen])
        x = x + sigma * draw_noise(0, torch.arange(len(x)), images.shape)
        with torch.no_grad():
            difference = load_trained(run)(x, sigma) - gaussian_denoiser(images).float()(x, sigma)
        expected = difference.double().square().flatten(1).mean(1).sqrt().mean().item()
        found = gaps.where(network="dit", preconditioning="none", sigma=sigma).one()
        assert found.value == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_stitched_path_ends_in_the_last_network(findings):
    """The path of Euler's method, written out."""
    (part,) = [part for part in findings.parts if part.key == "skipnet, followed"]
    store = TaskStore(findings.result(part.key).folder.parent)
    networks = [load_trained(run_of(store.result(need))) for need in part.task.needs]
    x = SIGMAS[0] * draw_noise(0, torch.arange(1), findings.plan.shape, stream="latents").double()
    for sigma, after, network in zip(SIGMAS, [*SIGMAS[1:], 0.0], networks, strict=True):
        with torch.no_grad():
            denoised = network(x.float(), sigma).double()
        x = x + (after - sigma) * (x - denoised) / sigma
    shown = dequantize(torch.from_numpy(findings.array(part.key, "path")[-1])).double()
    torch.testing.assert_close(shown, x[0].clamp(-1, 1), atol=0.006, rtol=0)


@pytest.mark.parametrize("name", [*AUTOENCODERS])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 64, 64)])
def test_recipes_fit_their_networks_and_are_not_preconditioned(name, shape):
    plan = small_plan("autoencoders")
    if shape != plan.shape:
        plan = replace(
            plan, shape=shape, training={"network": "unet", "width": 24, "batch": 128, "learning_rate": 5e-3}
        )
    options = autoencoder(plan, name, 64, 0, SIGMAS[0]).options["config"]
    assert options["sigma"] == 80
    assert "preconditioning" not in options
    layout = {key: options[key] for key in ("width", "multipliers", "blocks", "attention") if key in options}
    with torch.device("meta"):
        network = build_network(name, shape, **layout)
    if name != "linear":
        assert sum(weight.numel() for weight in network.parameters()) < 3_000_000


def test_a_transformer_is_left_out_where_its_patches_do_not_fit():
    plan = small_plan("autoencoders")
    assert kinds(plan) == ("linear", "skipnet", "dit", "ncsnpp")
    assert kinds(replace(plan, shape=(1, 9, 8))) == ("linear", "skipnet", "ncsnpp")
    assert kinds(replace(plan, shape=(3, 34, 64))) == ("linear", "skipnet", "ncsnpp")


def test_the_linear_one_takes_smaller_steps_at_high_noise_and_more_of_them_in_many_dimensions():
    plan = replace(small_plan("autoencoders"), kimg=96.0)
    high, low = (autoencoder(plan, "linear", 64, 0, sigma).options["config"] for sigma in (80.0, 0.002))
    assert high["learning_rate"] < low["learning_rate"] / 4
    assert high["kimg"] == 384
    larger = autoencoder(replace(plan, shape=(3, 32, 32), kimg=180.0), "linear", 64, 0, 80.0).options["config"]
    assert larger["kimg"] == 15400
