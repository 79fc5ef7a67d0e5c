"""The study of idleness at low noise: its claim finds its numbers for every architecture."""

import pytest
from small_studies import check_drawing, missing, run_small

pytestmark = pytest.mark.slow  # networks of all sizes or kinds


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    return run_small("identity", tmp_path_factory.mktemp("cells"), seeds=1)


def test_no_claim_lacks_a_record_of_any_architecture(findings):
    found = missing(findings, "C19")
    assert [name.rpartition(", ")[2] for name in found] == ["adm", "ddpmpp", "ncsnpp", "unet"]
    assert set(found.values()) == {None}


def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("identity", findings, tmp_path)
    for figure in figures.values():
        assert figure.series[0].name == "small U-Net"
        assert [series.dashed for series in figure.series] == [False] * 4 + [True] * 2
    assert max(figures["Distance of outputs from inputs at low noise"].series[0].x) <= 2
