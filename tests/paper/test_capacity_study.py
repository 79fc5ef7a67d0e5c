"""The study of width: its records, and what is drawn of them."""

from statistics import fmean

import numpy as np
import pytest
from small_studies import check_drawing, missing, run_small

from gausslens.evaluation import context as subject

pytestmark = pytest.mark.slow  # networks of all sizes or kinds


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subject, "_LEVELS", 4)
        patched.setattr(subject, "_DISTILLED_DIM", 1)  # no linear maps, which take long
        yield run_small("capacity", tmp_path_factory.mktemp("cells"), widths=(2, 4), kimg=0.4, seeds=1)


@pytest.fixture(name="figures")
def draw_the_study(findings, tmp_path):
    return check_drawing("capacity", findings, tmp_path)


def test_nothing_is_missing_for_its_claims(findings):
    found = missing(findings, "C11", "C12", "C13")
    for name in (
        "slope of RMSE(θ, G) on log width",
        "slope of RMSE(θ, G) on log width, σ ≥ 20",
        "what longer training adds to the slope",
        "RMSE(θ, G) at the lowest σ, narrowest over widest, minus 1",
    ):
        assert found[name] is None, name


def test_the_reference_is_marked_as_such(findings):
    of_many = [record for record in findings.records if record.get("n") == 64]
    assert of_many
    assert {record["role"] for record in of_many} == {"reference"}
    assert {record.get("role") for record in findings.records if record.get("n") == 16} == {None}


def test_high_noise_is_drawn_after_both_lengths_of_training(findings, figures):
    figure = figures["Distance at high noise, by width and length of training"]
    names = ["0.1 thousand images", "0.4 thousand images", "control: multi-delta"]
    assert [series.name for series in figure.series] == names
    gaps = findings.evidence.where(quantity="rmse", on="held_out", reference="gaussian", sigma=80.0, n=16)
    for series, kimg, who in zip(figure.series, (0.1, 0.4, 0.4), ("network", "network", "multidelta"), strict=True):
        assert tuple(series.x) == (2, 4)
        for width, value in zip(series.x, series.y, strict=True):
            records = gaps.where(kimg=kimg, width=width, denoiser=who).records
            assert len(records) == 1
            assert value == pytest.approx(fmean(record["value"] for record in records))


def test_curves_are_of_the_end_and_beside_them_is_the_model_of_many_images(findings, figures):
    figure = figures["Distance to the Gaussian denoiser, by width, N = 16"]
    names = [series.name for series in figure.series]
    assert names == ["2 channels", "4 channels", "control: 4 channels, N = 64", "control: multi-delta"]
    gaps = findings.evidence.where(quantity="rmse", on="held_out", denoiser="network", reference="gaussian")
    for series, tags in zip(figure.series, ({"width": 2, "n": 16}, {"width": 4, "n": 16}, {"n": 64}), strict=False):
        records = gaps.where(**tags, kimg=0.4, sigma=80.0).records
        at = list(series.x).index(80.0)
        assert series.y[at] == pytest.approx(fmean(record["value"] for record in records))


def test_rows_are_of_the_models_they_name(findings, figures):
    grid = figures["Samples by width, N = 16"]
    rows = dict(zip(grid.rows, grid.images, strict=True))
    assert np.array_equal(rows["2 channels"], findings.array("2, seed 0", "network"))
    assert np.array_equal(rows["4 channels, N = 64"], findings.array("reference", "network"))
    sizes = figures["Outputs at σ = 60, by number of images"]
    assert len(sizes.rows) == 1 + 3 * 2
    outputs = dict(zip(sizes.rows, sizes.images, strict=True))
    for name, label in (("gaussian", "Gaussian"), ("multidelta", "multi-delta"), ("network", "network")):
        for n in (16, 64):
            found = findings.array(f"images denoised by N = {n}", name)[0]
            assert np.array_equal(outputs[f"{label}, N = {n}"], found)
