"""The study of linearity: its claims find their numbers, and weights are varied on the same pairs."""

import math

import pytest
from small_studies import check_drawing, missing, run_small, small_plan

from gausslens import karras_sigmas, linearity, load_denoiser
from gausslens.evaluation.model_tasks import run_of
from gausslens.evaluation.references import load_run_images
from gausslens.experiments.task import TaskStore
from gausslens.paper.registry import find_study

pytestmark = pytest.mark.slow  # networks of all sizes or kinds

SIGMAS = karras_sigmas(10)


@pytest.fixture(name="folder", scope="module")
def make_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(name="findings", scope="module")
def run_the_study(folder):
    return run_small("linearity", folder, seeds=1)


@pytest.fixture(name="model", scope="module")
def load_the_model(findings, folder):
    run = run_of(TaskStore(folder).result(findings.plan.model(64, 0)))
    return load_denoiser(run), load_run_images(run).held_out


def test_no_claim_lacks_a_record(findings):
    found = missing(findings, "C1", "C3", "C4")
    assert len(found) == 6
    assert set(found.values()) == {None}
    # A second architecture is for another study to bring.
    own = [lacking for name, lacking in missing(findings, "C2").items() if name.endswith("unet")]
    assert own == [None, None]


def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("linearity", findings, tmp_path)
    raw = figures["Linearity over noise levels, by number of images"]
    assert [(series.name, series.dashed) for series in raw.series] == [
        *(("N = 16", True), ("N = 64", False)),
        *(("control: multi-delta", True), ("control: Gaussian", True)),
    ]
    weights = figures["Linearity by weight of the superposition, on held-out images"]
    assert [series.name for series in weights.series] == [
        *(f"α² = {square}" for square in ("0.50", "0.62", "0.74", "0.87", "0.99")),
        *("control: multi-delta", "control: Gaussian"),
    ]
    assert len(figures["What equal weights cost"].series) == 4
    assert figures["Trajectories of a poorly parametrised network"].images.shape == (8, 10, 1, 8, 8)


def test_the_gaussian_is_affine_and_its_raw_score_shows_it(findings):
    figures = {figure.title: figure for figure in find_study("linearity").draw(findings)}
    least = {
        series.name: series for series in figures["Minimum linearity over noise levels, by number of images"].series
    }
    assert least["control: Gaussian, affine"].y == pytest.approx([1, 1], abs=1e-6)
    largest = figures["Largest error of linearity over noise levels, by number of images"]
    errors = {series.name: series for series in largest.series}
    assert errors["control: Gaussian, affine"].y == pytest.approx([0, 0], abs=1e-3)
    raw = {series.name: series for series in figures["Linearity over noise levels, by number of images"].series}
    assert min(raw["control: Gaussian"].y) < 0.999


def test_relative_errors_without_a_bound_are_not_drawn(findings):
    figures = {figure.title: figure for figure in find_study("linearity").draw(findings)}
    for title in ("Error of affine linearity, by number of images", "Error of linearity, by number of images"):
        assert any("multi-delta" in series.name for series in figures[title].series) == ("affine" not in title)
    largest = figures["Largest error of linearity over noise levels, by number of images"]
    assert [series.name for series in largest.series if "multi-delta" in series.name] == ["control: multi-delta, raw"]


def test_the_least_is_over_noise_levels(findings):
    figures = {figure.title: figure for figure in find_study("linearity").draw(findings)}
    curve = findings.evidence.where(
        quantity="linearity_cosine",
        denoiser="network",
        on="held_out",
        affine=True,
        alpha=None,
        preconditioning="edm",
        n=64,
    ).over("sigma")
    least = figures["Minimum linearity over noise levels, by number of images"].series[0]
    assert least.y[1] == min(number.value for number in curve.values())


def test_weights_are_varied_on_the_same_pairs(findings, model):
    network, held_out = model
    square = 0.745
    for inputs, on in (("images", "held_out"), ("noise", "noise")):
        equal, other = (
            linearity(network, held_out, SIGMAS, inputs=inputs, alpha=math.sqrt(of), count=6) for of in (0.5, square)
        )
        records = findings.evidence.where(denoiser="network", on=on, affine=False, alpha=math.sqrt(square))
        curve = records.where(quantity="linearity_cosine").over("sigma")
        assert [curve[sigma].value for sigma in SIGMAS.tolist()] == pytest.approx(other.values.tolist(), abs=1e-6)
        (first,) = records.where(quantity="linearity_difference").at(80.0).records
        paired = equal - other
        assert first["value"] == pytest.approx(float(paired.values[0]), abs=1e-6)
        assert (first["low"], first["high"]) == pytest.approx((float(paired.low[0]), float(paired.high[0])), abs=1e-6)


def test_the_baseline_is_the_same_network_parametrised_otherwise():
    plan = small_plan("linearity", seeds=1)
    tasks = {part.key: part.task for part in find_study("linearity").parts(plan)}
    edm, baseline = tasks["measures of 64, seed 0"].needs[0], tasks["baseline, seed 0"].needs[0]
    told, other = edm.options["config"], baseline.options["config"]
    differing = {name for name in told | other if told.get(name) != other.get(name)}
    assert differing - {"snapshots"} == {"preconditioning", "level_mean", "level_spread"}


def test_whatever_a_claim_rests_on_is_done_at_every_seed():
    keys = {part.key for part in find_study("linearity").parts(small_plan("linearity", seeds=3))}
    for work in ("measures of 16", "measures of 64", "weights", "baseline"):
        assert {f"{work}, seed {seed}" for seed in range(3)} <= keys
