"""All studies together: every figure of the paper is redrawn, every claim is judged, and one page holds it all."""

from html import escape

import pytest
from small_studies import SMALL

from gausslens.paper.claims import judge
from gausslens.paper.config import STUDIES, StudyConfig
from gausslens.paper.page import make_page
from gausslens.paper.registry import find_study
from gausslens.paper.run import findings_of, study
from gausslens.report import render

SIZES = {"sizes": (16, 24, 32, 48, 64)}  # C14 asks for five
FIGURES, CLAIMS = set(range(1, 31)), {f"C{number}" for number in range(1, 22)}


def test_the_studies_name_every_figure_and_every_claim_of_the_paper():
    assert {number for one in map(find_study, STUDIES) for number in one.figures} == FIGURES
    assert {claim for one in map(find_study, STUDIES) for claim in one.claims} == CLAIMS


@pytest.fixture(scope="module", name="done")
def do_everything(tmp_path_factory):
    config = StudyConfig(
        "digits", full=True, seeds=1, on="pool", out=str(tmp_path_factory.mktemp("all")), **SMALL | SIZES
    )
    done = study(config)
    assert not done.outcome.failed, done.outcome.failed
    return done


@pytest.mark.slow
def test_thirty_of_thirty_figures_have_data_points(done):
    page = make_page(findings_of(done.run)[0].plan, findings_of(done.run), done.verdicts, done.run.provenance)
    redrawn = set()
    for figure in page.figures:
        series = getattr(figure, "series", None)
        points = [y for line in series for y in line.y if y is not None] if series is not None else [1]
        pictures = getattr(figure, "images", True)
        if points and pictures is not None:
            redrawn |= set(figure.redraws)
    assert redrawn == FIGURES


# Curves without a line that is called a control, and why.
WITHOUT_CONTROL = {
    "The theorem, on these images": "exact",
    "Agreement beyond retrieval": "the control is taken off",
    "Agreement along trajectories": "its controls are different noises",
    "What samples of the pairs are like": "what they are compared with are the controls",
    "A little more training at one noise level": "the other level is one",
    "Gaps of autoencoders and of a network of all levels, RMSE": "the linear autoencoder is one",
    "Gaps of autoencoders and of a network of all levels, NMSE": "the linear autoencoder is one",
    "Overlap of the Jacobian's leading singular vectors with principal components": "the figure after it has them",
    "Singular values of the linear map and of the Gaussian": "the Gaussian is one",
    "Weight error while Adam learns the map": "the figure after it has least squares beside it",
    "Where Adam ends, and least squares": "least squares is one",
    "How symmetric the matrix becomes while Adam learns it": "of least squares, in a figure of its own",
    "Linearity by weight of the superposition, on pure noise": "controls are defined by images",
    "Error of linearity by weight of the superposition, on pure noise": "controls are defined by images",
}


@pytest.mark.slow
def test_every_curve_has_controls_beside_it(done):
    page = make_page(findings_of(done.run)[0].plan, findings_of(done.run), done.verdicts, done.run.provenance)
    lacking = {
        figure.title
        for figure in page.figures
        if getattr(figure, "series", ()) and not any("control" in series.name for series in figure.series)
    }
    assert lacking <= WITHOUT_CONTROL.keys()


@pytest.mark.slow
def test_no_statistic_of_any_claim_lacks_records(done):
    lacking = {
        (verdict.claim, part.name): part.missing
        for verdict in judge(done.run.records())
        for part in verdict.statistics
        if part.missing
    }
    assert lacking.keys() <= {
        ("C11", "log time from the minimum to memorising"),  # nothing is memorised in so short a time
        ("C9", "lowest overlap, as a share of the ceiling"),  # nor is anything aligned
    }


@pytest.mark.slow
def test_the_page_holds_all_of_it_and_stays_below_15_mb(done):
    text = done.page.read_text()
    assert len(text.encode()) < 15e6
    for one in map(find_study, STUDIES):
        assert escape(one.title).replace("&#x27;", "&#39;") in text
    assert [finding.study for finding in findings_of(done.run)] == list(STUDIES)
    assert all(finding.finished for finding in findings_of(done.run))
    assert len(render(make_page(findings_of(done.run)[0].plan, findings_of(done.run), done.verdicts, {}))) > 1e6
