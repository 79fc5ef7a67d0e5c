"""The page: one file, well-formed, with the very pictures and numbers it was given."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from html_reader import Reader, content
from PIL import Image
from sample_page import claims, curves, grid, heat, page, slider

from gausslens import ConfigError, DataError
from gausslens.report import (
    Axis,
    ClaimRow,
    CurveFigure,
    ImageGrid,
    NoiseSlider,
    Page,
    Section,
    Series,
    render,
    rendering,
    save_report,
)
from gausslens.report.drawings import draw_svg, drawable, stretches
from gausslens.report.spreadsheets import as_csv


@pytest.fixture(scope="module")
def whole():
    return render(page())


@pytest.fixture(scope="module")
def read(whole):
    return Reader(whole)


def test_every_element_closes_and_every_name_is_one_place(read):
    assert read.open == []
    names = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(names) == len(set(names))
    links = [attributes["href"] for attributes in read.all("a") if attributes["href"].startswith("#")]
    assert len(links) == 5  # two claims and three sections
    assert {link[1:] for link in links} <= set(names)


def test_the_summary_and_its_claims_come_first_then_contents_then_studies(read):
    places = [
        read.text.index(words)
        for words in (
            "are training images",
            "Summary",
            "does not hold",
            "Contents",
            "How linear",
            "Training-set size Figure 3",
        )
    ]
    assert places == sorted(places)


def test_plots_are_the_drawings_of_the_svg_files(whole):
    for figure in (curves(), heat()):
        told = draw_svg(figure).splitlines()
        assert "\n".join(told[3:]) in whole  # all but its head, its title and its description
    assert len(whole.encode()) < 200_000


def test_nothing_is_fetched(read):
    addresses = [attributes.get("src") or attributes.get("href", "") for _, attributes in read.elements]
    assert all(address.startswith(("data:", "#")) or not address for address in addresses)
    (policy,) = read.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert "default-src 'none'" in policy["content"]


def test_pictures_are_the_ones_given(read):
    shown = [np.asarray(Image.open(io.BytesIO(content(image["src"])))) for image in read.all("img")]
    given = [*grid().images.reshape(-1, 8, 8), *slider().images.reshape(-1, 8, 8)]
    assert len(shown) == len(given) == 85
    assert all(np.array_equal(*pair) for pair in zip(shown, given, strict=True))
    assert all(image["alt"] for image in read.all("img"))


def test_colour_pictures_keep_their_channels():
    images = np.random.default_rng(0).integers(0, 256, (1, 1, 3, 5, 4), np.uint8)
    colour = ImageGrid(title="t", caption="c", rows=("r",), columns=("c",), images=images)
    (image,) = Reader(render(Page("p", "s", sections=(Section("x", "", (colour,)),)))).all("img")
    decoded = np.asarray(Image.open(io.BytesIO(content(image["src"]))))
    assert np.array_equal(decoded.transpose(2, 0, 1), images[0, 0])


def test_data_links_hold_the_numbers_that_are_drawn(read):
    texts = [content(link["href"]).decode() for link in read.all("a", class_="csv")]
    assert texts == [as_csv(figure) for figure in (claims(), curves(), heat(), grid(), slider())]


def test_curves_are_written_to_the_last_digit():
    lines = list(csv.reader(io.StringIO(as_csv(curves()))))
    assert lines[0] == ["series", "noise level σ", "linearity (cosine)", "low", "high"]
    for series in curves().series:
        written = np.array([line[1:] for line in lines if line[0] == series.name], float)
        assert np.array_equal(written.T, series.columns)


def test_what_is_missing_is_empty_and_not_drawn():
    figure = CurveFigure(
        title="t", caption="c", x=Axis("σ", log=True), y=Axis("gap", log=True),
        series=(Series("one", [0, 1, 2, 3], [1, None, 0.0, 4], [None, None, -1, 3], [None, None, 1, 5]),),
    )  # fmt: skip
    assert as_csv(figure).splitlines()[1:3] == ["one,0.0,1.0,,", "one,1.0,,,"]
    columns = drawable(figure.series[0], figure)
    np.testing.assert_array_equal(columns[:2], [[np.nan, 1, 2, 3], [1, np.nan, np.nan, 4]])
    assert [band.tolist() for band in stretches(columns[[0, 2, 3]])] == [[[3.0], [3.0], [5.0]]]
    assert re.findall('data-value="(.*?)"', draw_svg(figure)) == ["one, σ 3: 4 [3, 5]"]


@pytest.mark.parametrize("log", [False, True])
def test_intervals_far_wider_than_what_is_drawn_end_at_the_edge(log):
    narrow = Series("narrow", [1, 2], [0.1, 0.4], [0.05, 0.35], [0.2, 0.5])
    wide = Series("wide", [1, 2], [0.2, 0.3], [-20.0, 0.2], [20.0, 0.4])
    one, both = (
        CurveFigure(title="t", caption="c", x=Axis("σ"), y=Axis("gap", log=log), series=series)
        for series in ((narrow,), (narrow, wide))
    )
    assert (one.reading, both.reading) == ("c", "c A band that reaches the edge of the plot is cut off there.")
    for figure in (one, both):
        np.testing.assert_allclose(drawable(narrow, figure)[2:], [[0.05, 0.35], [0.2, 0.5]])
    (_, low, high), *_ = stretches(drawable(wide, both)[[0, 2, 3]])
    assert (low[0], high[0]) == pytest.approx(
        (0.05, 0.8) if log else (-0.05, 0.55)
    )  # half as far again as the points lie apart
    assert "wide, σ 1: 0.2 [-20, 20]" in draw_svg(both)
    assert "-20.0,20.0" in as_csv(both)  # what is written is not cut
    bounded = replace(both, y=replace(both.y, bounds=(0.0, 0.5)))
    assert drawable(wide, bounded)[3].max() == 0.5


def test_things_are_written_and_drawn_with_their_names():
    axis = Axis("pair", names=("large", "<small>"))
    series = (Series("a", [1, 2], [0.5, 0.25], [0.25, None], [1.0, None]), Series("b", [2], [0.5]))
    figure = CurveFigure(title="t", caption="c", x=axis, y=Axis("gap"), series=series)
    assert as_csv(figure).splitlines()[1:] == ["a,large,0.5,0.25,1.0", "a,<small>,0.25,,", "b,<small>,0.5,,"]
    told = re.findall('data-series="(.)" data-value="(.*?)"', draw_svg(figure))
    assert told == [
        ("0", "a, large: 0.5 [0.25, 1]"),
        ("0", "a, &lt;small&gt;: 0.25"),
        ("1", "b, &lt;small&gt;: 0.5"),
    ]
    first, second = (drawable(one, figure) for one in series)
    assert first[0, 1] < 2 < second[0, 0]


def test_heat_maps_write_the_numbers_they_draw():
    lines = list(csv.reader(io.StringIO(as_csv(heat()))))[1:]
    written = np.array([line[2:] for line in lines], float).reshape(heat().values.shape)
    np.testing.assert_allclose(written, heat().values, atol=5e-4)


def test_pixels_are_numbers_too():
    lines = list(csv.reader(io.StringIO(as_csv(slider()))))[1:]
    pixels = np.array([line[-1].split() for line in lines], int)
    assert np.array_equal(pixels, slider().images.reshape(len(lines), -1))
    assert [float(line[0]) for line in lines[::10]] == slider().sigmas


def test_a_figure_names_its_sources(read):
    assert "Redraws figures 1, 13 of the paper. Informs C1, C14. data as CSV gausslens study digits" in read.text
    assert "C1 Linearity rises with the number of training images. figure 1" in read.text
    assert "0.0213 [0.018, 0.0246]" in read.text


def test_texts_are_never_read_as_marks():
    evil = "</script><script>alert('&')</script>"
    series = Series(evil, [1, 2], [1, 2])
    figure = CurveFigure(title=evil, caption=evil, command=evil, x=Axis(evil), y=Axis(evil), series=(series,))
    told = Reader(render(Page(evil, evil, sections=(Section(evil, evil, (figure,)),))))
    assert len(told.all("script")) == 1
    # In the tab and the heading, the summary, the contents, the section and its text, the figure's title, caption, command,
    # both axes and the legend.
    assert told.text.count(evil) == 12


def test_the_page_grows_as_studies_finish():
    empty = Reader(render(Page("digits", "Nothing is finished yet.")))
    assert empty.open == []
    assert "Contents" not in empty.text
    sections = (Section("Size", "", finished=False), Section("Time", "", (curves(),), finished=False))
    told = Reader(render(page(claims=None, sections=sections)))
    assert told.text.count("Not yet finished:") == 2
    assert "Linearity over noise levels" in told.text


def test_controls_of_a_claim_unfold_below_it():
    text = render(page())
    assert text.count('<tr class="explained">') == text.count('<tr class="beside">') == 1
    assert "<summary>2 controls</summary>" in text
    assert "<li>of multi-delta: 0.27 [0.25, 0.29]</li>" in text
    assert "of multi-delta: 0.27 [0.25, 0.29]; on surrogates: 0.02" in as_csv(claims())


def test_places_on_the_page_have_names_of_their_own_whatever_the_titles():
    figures = (claims(), curves(), curves())
    read = Reader(render(page(sections=(Section("Summary", "", figures), Section("Summary", "", figures)))))
    names = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(names) == len(set(names))
    assert len(read.all("table", class_="claims")) == 3


def test_a_large_page_compresses_its_pictures_and_says_so(monkeypatch):
    y, x = np.mgrid[:64, :64]
    smooth = (127 + 60 * np.sin(x / 9) + 60 * np.cos(y / 7) + np.random.default_rng(0).normal(0, 3, (64, 64))).astype(
        np.uint8
    )
    images = np.broadcast_to(smooth, (5, 5, 1, 64, 64))
    large = Page("p", "s", sections=(Section("x", "", (ImageGrid(
        title="t", caption="c", rows=("",) * 5, columns=("",) * 5, images=images
    ),)),))  # fmt: skip
    whole = render(large)
    assert "compressed" not in Reader(whole).text
    monkeypatch.setattr(rendering, "LARGEST", len(whole) // 2)
    compressed = render(large)
    assert len(compressed) < len(whole) // 2
    assert "compressed with loss" in Reader(compressed).text
    assert "image/png" not in compressed
    assert not Reader(compressed).all("a", class_="csv")
    monkeypatch.setattr(rendering, "LARGEST", 1000)
    with pytest.raises(ConfigError, match="--no-images"):
        render(large)


def test_a_report_is_saved_with_its_figures_beside_it(tmp_path):
    written = save_report(tmp_path / "new" / "digits.html", page(), svg=True)
    assert [path.relative_to(tmp_path / "new").as_posix() for path in written] == [
        "digits.html",
        "digits/01-linearity-over-noise-levels.svg",
        "digits/02-singular-vectors-against-principal-components.svg",
        "digits/03-samples-and-their-nearest-neighbours.svg",
        "digits/04-what-each-denoiser-makes-of-one-image.svg",
    ]
    assert written[0].read_text(encoding="utf-8") == render(page())


def test_figures_that_cannot_be_drawn_are_refused_when_made():
    with pytest.raises(DataError, match=r"lengths \[2, 3\]"):
        Series("s", [1, 2], [1, 2, 3])
    with pytest.raises(DataError, match="both or neither"):
        Series("s", [1], [1], low=[0])
    with pytest.raises(DataError, match=r"float64 of shape \(1, 1, 1, 2, 2\)"):
        ImageGrid(title="t", caption="c", rows=("a",), columns=("b",), images=np.zeros((1, 1, 1, 2, 2)))
    images = np.zeros((2, 1, 1, 1, 2, 2), np.uint8)
    with pytest.raises(DataError, match="as its labels say"):
        NoiseSlider(title="t", caption="c", sigmas=[1.0], rows=("a",), columns=("b",), images=images)
    with pytest.raises(DataError, match="one of holds, does not hold, not enough evidence; got 'maybe'"):
        ClaimRow("C1", "s", "s", None, None, None, "> 0", "", "maybe")
    with pytest.raises(DataError, match="low < high"):
        type(heat())(**(vars(heat()) | {"low": 1.0}))


def test_print_and_phone_have_their_own_style(whole):
    assert re.search(r"@media print \{", whole)
    assert re.search(r"@media \(max-width: 42rem\)", whole)


def test_names_that_no_text_can_hold_are_shown_with_a_question_mark():
    assert "caf?" in render(Page("caf\udce9", "s", sections=()))
