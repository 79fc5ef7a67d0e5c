"""Figures in one SVG file: each under its title, none over another."""

from xml.etree import ElementTree

import pytest
from sample_page import claims, curves, grid, heat

from gausslens.errors import DataError
from gausslens.report import save_svg
from gausslens.report.drawings import draw_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_figures_stand_below_each_other_under_their_titles(tmp_path):
    figures = (curves(), heat(), grid())
    root = ElementTree.parse(save_svg(tmp_path / "new" / "figures.svg", *figures)).getroot()
    titles = {text.text: float(text.get("y")) for text in root.findall(f"{SVG}text")}
    assert list(titles) == [figure.title for figure in figures]
    below = 0.0
    for figure, nested in zip(figures, root.findall(f"{SVG}svg"), strict=True):
        top = float(nested.get("y"))
        assert below < titles[figure.title] < top
        below = top + float(nested.get("height"))
        alone = ElementTree.fromstring(draw_svg(figure))
        assert [e.tag for e in nested.iter()] == [e.tag for e in alone.iter()]
        assert float(nested.get("width")) <= float(root.get("width"))
    assert below == pytest.approx(float(root.get("height")))


@pytest.mark.parametrize(("figures", "said"), [((), "at least one"), ((claims(),), "no drawing")])
def test_what_cannot_be_drawn_is_refused(figures, said, tmp_path):
    with pytest.raises(DataError, match=said):
        save_svg(tmp_path / "x.svg", *figures)
    assert list(tmp_path.iterdir()) == []
