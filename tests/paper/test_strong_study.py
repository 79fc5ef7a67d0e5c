"""The study of strong generalisation: pairs share no image and all noises; Gaussians of subsets are those of the measure."""

from statistics import fmean

import numpy as np
import pytest
import torch
from small_studies import check_drawing, findings_in, missing, run_small, small_plan

from gausslens import GaussianDenoiser, Moments
from gausslens.data import Splits, load_images
from gausslens.denoisers.stationary import StationaryDenoiser
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.generation import generate
from gausslens.measures.agreement import agreement
from gausslens.noise import draw_order
from gausslens.paper.registry import find_study
from gausslens.paper.studies.strong import pairs

pytestmark = pytest.mark.slow  # networks of all sizes or kinds

ROLES = ("large", "early", "narrow", "small")


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    return run_small("strong", tmp_path_factory.mktemp("cells"), widths=(2, 4), few=32, seeds=1)


@pytest.fixture(name="figures")
def draw_the_study(findings, tmp_path):
    return check_drawing("strong", findings, tmp_path)


def test_nothing_is_missing_for_its_claims(findings):
    found = missing(findings, "C15", "C16")
    assert len(found) == 5
    assert set(found.values()) == {None}


def test_the_two_of_a_pair_share_no_image_and_no_seed(findings):
    plan, splits = findings.plan, Splits(1797, held_out=findings.plan.training["held_out"])
    assert pairs(plan)["large"].n == plan.available // 2
    for role in ROLES:
        first, second = (
            next(
                part.task.needs[0].options["config"]
                for part in findings.parts
                if part.key == f"{role}, seed 0, half {half}"
            )
            for half in (1, 2)
        )
        images = [set(splits.named(config["split"]).tolist()) for config in (first, second)]
        assert len(images[0]) == len(images[1]) == pairs(plan)[role].n
        assert not images[0] & images[1]
        assert first["seed"] != second["seed"]
    assert first["width"] == 4
    assert pairs(plan)["narrow"].width == 2


def test_early_pairs_are_early(findings):
    kimg = {role: findings.evidence.where(quantity="gl", role=role).by("kimg") for role in ROLES}
    assert {role: list(lengths) for role, lengths in kimg.items()} == {
        **{"large": [0.3], "early": [0.1], "narrow": [0.3], "small": [0.3]}
    }


def test_points_stand_at_their_roles(findings, figures):
    figure = figures["Agreement beyond retrieval"]
    assert figure.x.names == ROLES
    (series,) = figure.series
    excess = findings.evidence.where(quantity="agreement_correlation", denoiser="network", noise="excess")
    for place, value in zip(series.x, series.y, strict=True):
        of_role = excess.where(role=ROLES[place - 1]).records
        assert sorted(record["seed"] for record in of_role) == [0]
        assert value == pytest.approx(fmean(record["value"] for record in of_role))


def test_rows_are_of_the_halves_they_name(findings, figures):
    grid = figures["Two models on disjoint images: narrow"]
    names = {"Gaussian": "gaussian", "network": "network", "nearest": "nearest", "multi-delta": "multidelta"}
    assert grid.rows[0] == "stationary of S1"
    assert np.array_equal(grid.images[0], findings.array("narrow, seed 0, stationary", "first"))
    for label, images in zip(grid.rows[1:], grid.images[1:], strict=True):
        name, half = names[label.split()[0]], int(label[-1])
        assert np.array_equal(images, findings.array(f"narrow, seed 0, half {half}", name))


def test_stationary_gaussians_are_of_the_pair_s_images(findings):
    digits = torch.as_tensor(load_images("digits").images)
    splits, n = Splits(1797, held_out=findings.plan.training["held_out"]), pairs(findings.plan)["early"].n
    made = [
        generate(
            StationaryDenoiser(digits[splits.named(f"s{half}:{n}")]).to(torch.float32),
            (1, 8, 8),
            findings.plan.samples,
            dtype=torch.float32,
        )
        for half in (1, 2)
    ]
    of_pair = findings.evidence.where(quantity="agreement_correlation", role="early")
    (both,) = of_pair.where(denoiser="stationary").records
    assert both["value"] == pytest.approx(agreement(*made).same_noise.correlation.value)
    samples = {name: findings.array("early, seed 0, half 1", name) for name in ("network", "gaussian", "multidelta")}
    everything = GaussianDenoiser(Moments.fit(digits[splits.named("all")])).to(torch.float32)
    full = generate(everything, (1, 8, 8), findings.plan.samples, dtype=torch.float32)
    own = {**samples, "stationary": made[0], "gaussian_full": full}
    network = own.pop("network")
    for reference, control in own.items():
        expected = agreement(network, control)
        for noise, likeness in (("same", expected.same_noise), ("shuffled", expected.shuffled)):
            (record,) = of_pair.where(denoiser="network", reference=reference, noise=noise).records
            assert record["value"] == pytest.approx(likeness.correlation.value)


def test_one_of_a_pair_alone_is_not_shown(findings, monkeypatch):
    result = findings.result
    monkeypatch.setattr(findings, "result", lambda key: None if key == "narrow, seed 0, half 2" else result(key))
    titles = {figure.title for figure in find_study("strong").draw(findings)}
    assert "Two models on disjoint images: narrow" not in titles
    assert "Two models on disjoint images: large" in titles


def test_subsets_are_compared_with_all_images(findings):
    digits = torch.as_tensor(load_images("digits").images)
    available = digits[Splits(1797, held_out=findings.plan.training["held_out"]).named("all")]

    def samples(images):
        gaussian = GaussianDenoiser(Moments.fit(images)).to(torch.float32)
        return generate(gaussian, (1, 8, 8), findings.plan.samples, dtype=torch.float32)

    subset = available[draw_order(0, len(available), stream="subsets")[:64]]
    expected = agreement(samples(subset), samples(available)).same_noise.correlation
    tags = {"quantity": "agreement_correlation", "reference": "gaussian_full", "noise": "same", "seed": 0}
    (judged,) = findings.evidence.where(**tags, role=None).records
    assert judged["n"] == 64 > findings.plan.few  # fewer say little of a covariance
    assert judged["value"] == pytest.approx(expected.value)
    assert judged["high"] == pytest.approx(expected.high)
    others = findings.evidence.where(**tags, role="curve")
    assert list(others.by("n")) == [8, 16, 32, 128, 256, 512]


def test_large_pairs_are_disjoint_whatever_the_sizes():
    plan = small_plan("strong", sizes=(16, 1000, 1438))
    assert 2 * pairs(plan)["large"].n <= plan.available


def test_a_pair_of_the_study_of_time_is_compared_whenever_a_snapshot_is_kept(tmp_path):
    plan = small_plan("strong", sizes=(32, 64), few=32, seeds=1)
    shown = ("early, seed 0", "small, seed 0", *(f"small after {kimg:g}, seed 0" for kimg in plan.times[-3:-1]))
    tasks = {part.key: part.task for part in find_study("strong").parts(plan)}
    assert {key for key in tasks if "after" in key} == {
        f"small after {kimg:g}, seed 0" for kimg in plan.times if kimg not in (plan.early, plan.kimg)
    }
    outcome = run_tasks([tasks[key] for key in shown], tmp_path, on="here")
    assert not outcome.failed
    findings = findings_in(plan, "strong", tmp_path)
    (figure,) = [figure for figure in find_study("strong").draw(findings) if "as training goes on" in figure.title]
    network = next(series for series in figure.series if series.name == "networks")
    assert network.x == tuple(sorted({plan.early, plan.kimg, *plan.times[-3:-1]}))
    for kimg, value in zip(network.x, network.y, strict=True):
        first, second = (
            next(
                TaskStore(tmp_path).result(task).arrays["network"]
                for task in next(tasks[key] for key in shown if _kimg(plan, key) == kimg).needs
                if task.needs[0].options["config"]["split"] == f"s{half}:32"
            )
            for half in (1, 2)
        )
        assert value == pytest.approx(agreement(first, second).same_noise.correlation.value)


def test_elsewhere_pairs_keep_no_snapshots_to_be_compared_at(findings):
    assert not [part.key for part in findings.parts if "after" in part.key]


def _kimg(plan, key):
    return {"early": plan.early, "small": plan.kimg}.get(key.split(",")[0]) or float(key.split()[2].rstrip(","))
