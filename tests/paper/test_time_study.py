"""The study of the length of training: its records, what is drawn of them, and the words about them."""

from statistics import fmean

import numpy as np
import pytest
from small_studies import check_drawing, missing, run_small

from gausslens.evaluation import context as subject
from gausslens.measures.memorization import MEMORIZED
from gausslens.paper import plan as plans
from gausslens.paper.studies.time import STUDY
from gausslens.paper.study import Findings

TIMES = (0.1, 0.2, 0.4)


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plans, "_TIMES", (1 / 4, 1 / 2))
        patched.setattr(subject, "_LEVELS", 4)
        patched.setattr(subject, "_DISTILLED_DIM", 1)  # no linear maps, which take long
        yield run_small("time", tmp_path_factory.mktemp("cells"), kimg=0.4, seeds=1)


@pytest.fixture(name="figures")
def draw_the_study(findings, tmp_path):
    return check_drawing("time", findings, tmp_path)


def test_both_sizes_are_seen_at_every_time(findings):
    gaps = findings.evidence.where(quantity="rmse", on="held_out", denoiser="network")
    copies = findings.evidence.where(quantity="memorized_fraction", denoiser="network")
    for records, each in ((gaps.where(reference="gaussian"), 4), (gaps.where(reference="multidelta"), 4), (copies, 1)):
        found = [(record["kimg"], record["n"], record["seed"]) for record in records.records]
        expected = [(kimg, n, 0) for kimg in TIMES for n in (16, 64)]
        assert sorted(found) == sorted(expected * each)
    assert {record["n"] for record in gaps.where(reference="gaussian_full").records} == {16, 64}


def test_nothing_is_missing_for_its_claim(findings):
    found = missing(findings, "C11")
    assert found["late rise in time, smallest minus largest N"] is None
    # Networks that have learned nothing may copy nothing.
    nothing = f"no snapshot with a memorised fraction above {MEMORIZED} after others"
    assert found["log time from the minimum to memorising"] in (None, nothing)


def test_the_curve_over_time_is_the_mean_in_the_window(findings, figures):
    figure = figures["Distance to the Gaussian denoiser against the length of training"]
    assert [series.name for series in figure.series] == [
        *("N = 16", "N = 16, to the Gaussian of all images", "N = 64, the control"),
    ]
    gaps = findings.evidence.where(quantity="rmse", on="held_out")
    control = gaps.where(denoiser="multidelta", reference="gaussian").by("sigma")
    apart = {sigma: fmean(record["value"] for record in group.records) for sigma, group in control.items()}
    window = tuple(sigma for sigma in apart if apart[sigma] > max(apart.values()) / 2 and 0.1 < sigma < 20)
    assert window
    of_few = gaps.where(denoiser="network", reference="gaussian", n=16, sigma=window)

    def mean(**tags):
        return fmean(record["value"] for record in of_few.where(**tags).records)

    line = figure.series[0]
    assert tuple(line.x) == TIMES
    assert list(line.y) == pytest.approx([mean(kimg=kimg) for kimg in TIMES])
    least = min(TIMES, key=lambda kimg: mean(kimg=kimg))
    assert f"For N = 16 it is smallest after {least:g} thousand images." in figure.caption


def test_controls_that_do_not_change_are_drawn_across(findings, figures):
    control = figures["Copies among samples as training goes on"].series[2]
    assert (control.name, control.dashed) == ("control: multi-delta", True)
    copies = findings.evidence.where(quantity="memorized_fraction", denoiser="multidelta", n=16).records
    assert tuple(control.x) == (TIMES[0], TIMES[-1])
    assert list(control.y) == pytest.approx([fmean(record["value"] for record in copies)] * 2)


@pytest.mark.parametrize(
    ("fractions", "words"),
    [
        ([{0.1: 0.0, 0.4: 0.3}], "For N = 16 the share passes 0.05 after 0.259 thousand images."),
        ([{0.1: 0.0, 0.4: 0.3}, {0.1: 0.0, 0.4: 0.05}], "thousand images, and not at all in 1 of 2 trainings."),
        ([{0.1: 0.0, 0.4: 0.04}], "For N = 16 the share has not passed 0.05."),
    ],
)
def test_the_caption_says_when_copying_begins(findings, fractions, words):
    kept = [record for record in findings.records if record["quantity"] != "memorized_fraction"]
    told = {"quantity": "memorized_fraction", "denoiser": "network", "n": 16, "study": "time"}
    made = [
        {**told, "seed": seed, "kimg": kimg, "value": value}
        for seed, of_seed in enumerate(fractions)
        for kimg, value in of_seed.items()
    ]
    changed = Findings.__new__(Findings)
    changed.__dict__.update({**findings.__dict__, "records": kept + made})
    changed.__dict__.pop("evidence", None)
    (figure,) = [figure for figure in STUDY.draw(changed) if figure.title.startswith("Copies")]
    assert words in figure.caption


def test_samples_of_every_pictured_time_are_shown(findings, figures):
    grid = figures["Samples as training goes on, N = 16"]
    assert grid.rows[:5] == (
        *("Gaussian", "0.1 thousand", "nearest training image", "0.4 thousand", "nearest training image"),
    )
    for row, kimg in ((1, 0.1), (3, 0.4)):
        for offset, name in enumerate(("network", "nearest")):
            assert np.array_equal(grid.images[row + offset], findings.array(f"samples of 16, seed 0, {kimg}", name))


def test_samples_of_many_images_alone_are_no_study_of_few(findings):
    several = Findings.__new__(Findings)
    many = {key: result for key, result in findings._results.items() if "of 16" not in key}
    several.__dict__.update({**findings.__dict__, "_results": many, "seen": {}})
    for name in ("records", "evidence"):
        several.__dict__.pop(name, None)
    assert several.array("samples of 64, seed 0, 0.4", "network") is not None
    assert not any(figure.title.startswith("Samples") for figure in STUDY.draw(several))


def test_outputs_stand_under_their_inputs(findings, figures):
    high, middle = figures["Outputs at σ = 60 as training goes on"], figures["Outputs at σ = 4 as training goes on"]
    assert high.rows == ("input", "Gaussian", "multi-delta", "0.1 thousand", "0.4 thousand")
    assert middle.rows == ("input", "Gaussian", "0.1 thousand", "0.4 thousand", "multi-delta")
    assert middle.columns == (*(f"ε {i}" for i in range(1, 6)), *(f"y {i}" for i in range(1, 6)))
    of_images, of_noise = (findings.array(f"{inputs} denoised by 0.1", "network") for inputs in ("images", "noise"))
    assert np.array_equal(high.images[3], of_images[0])
    assert np.array_equal(middle.images[2], np.concatenate([of_noise[1], of_images[1]]))
