"""SVG: parsed as XML, with known values at known places."""

import base64
import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image
from sample_page import claims, curves, grid, heat, slider

from gausslens.report import Axis, CurveFigure, ImageGrid, Series, Threshold
from gausslens.report.axes import Scale, fit_scale
from gausslens.report.canvas import COLOURS, look, text_width
from gausslens.report.drawings import draw_svg
from gausslens.report.pictures import colorize

SVG = "{http://www.w3.org/2000/svg}"


def parsed(figure):
    return ElementTree.fromstring(draw_svg(figure))


def points(element):
    return np.array([pair.split(",") for pair in element.get("points").split()], float)


def pictures(root):
    for image in root.iter(f"{SVG}image"):
        uri = image.get("{http://www.w3.org/1999/xlink}href")
        yield np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))


def line_figure(**changes):
    told = {
        "title": "t",
        "caption": "c",
        "x": Axis("x"),
        "y": Axis("y"),
        "series": (Series("s", [0, 5, 10], [1, 2, 3]),),
    }
    return CurveFigure(**(told | changes))


def tick_places(root, axis):
    """Where texts that are numbers stand, by the number."""
    texts = [
        text for text in root.iter(f"{SVG}text") if text.get("text-anchor") == ("middle" if axis == "x" else "end")
    ]
    return {float(text.text.replace("−", "-")): float(text.get(axis)) for text in texts if text.text[-1].isdigit()}


def test_points_stand_where_the_ticks_say():
    root = parsed(line_figure())
    line = next(element for element in root.iter(f"{SVG}polyline") if element.get("stroke") == COLOURS[0])
    places, across, up = points(line), tick_places(root, "x"), tick_places(root, "y")
    np.testing.assert_allclose(places[:, 0], [across[0], across[0] / 2 + across[10] / 2, across[10]], atol=0.02)
    np.testing.assert_allclose(places[:, 1] + 4, [up[1], up[2], up[3]], atol=0.02)  # a text's baseline is lower by 4
    assert up[1] > up[3]


def test_logarithmic_axes_give_equal_steps_to_equal_ratios():
    figure = line_figure(x=Axis("σ", log=True), series=(Series("s", [0.01, 0.1, 1, 10, 100], [1, 2, 3, 2, 1]),))
    root = parsed(figure)
    line = next(element for element in root.iter(f"{SVG}polyline") if element.get("stroke") == COLOURS[0])
    steps = np.diff(points(line)[:, 0])
    np.testing.assert_allclose(steps, steps[0], atol=0.02)
    across = tick_places(root, "x")
    np.testing.assert_allclose(points(line)[:, 0], [across[value] for value in (0.01, 0.1, 1, 10, 100)], atol=0.02)


def test_a_band_is_the_interval_around_its_line():
    series = Series("s", [0, 1, 2], [1, 2, 1], [0.5, 1.5, 0.5], [1.5, 2.5, 1.5])
    root = parsed(line_figure(series=(series,)))
    band = points(next(iter(root.iter(f"{SVG}polygon"))))
    line = points(next(element for element in root.iter(f"{SVG}polyline") if element.get("stroke") == COLOURS[0]))
    np.testing.assert_allclose(band[:3, 0], line[:, 0])
    np.testing.assert_allclose((band[:3, 1] + band[:2:-1, 1]) / 2, line[:, 1], atol=0.02)
    assert (band[:3, 1] > band[:2:-1, 1]).all()


def test_things_stand_under_their_names_and_are_not_joined():
    series = (Series("a", [1, 2], [0.2, 0.4], [0.1, 0.3], [0.3, 0.5]), Series("b", [1, 2], [0.2, 0.6]))
    root = parsed(line_figure(x=Axis("pair", names=("large", "small")), series=series))
    assert not [line for line in root.iter(f"{SVG}polyline") if line.get("stroke") in COLOURS]
    assert not [band for band in root.iter(f"{SVG}polygon") if band.get("fill-opacity")]
    at = {text.text: float(text.get("x")) for text in root.iter(f"{SVG}text") if text.text in ("large", "small")}
    bars = [line for line in root.iter(f"{SVG}line") if line.get("stroke") == COLOURS[0]]
    assert [line.get("x1") == line.get("x2") for line in bars] == [True, True]
    dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.iter(f"{SVG}circle")][:2]
    for bar, (x, y), name in zip(bars, dots, at, strict=True):
        assert float(bar.get("x1")) == x
        assert float(bar.get("y1")) + float(bar.get("y2")) == pytest.approx(2 * y, abs=0.02)
        assert (
            0 < at[name] - x < (at["small"] - at["large"]) / 4
        )  # beside its name, since the other series is there too


def test_gaps_part_a_line_and_everything_stays_in_the_drawing():
    series = Series("s", [1, 2, 3, 4, 5], [1, 2, np.nan, 4, 5])
    root = parsed(line_figure(series=(series,), thresholds=(Threshold(9, "nine"),)))
    parts = [points(line) for line in root.iter(f"{SVG}polyline") if line.get("stroke") == COLOURS[0]]
    assert [len(part) for part in parts] == [2, 2]
    height = float(root.get("height"))
    lines = [float(line.get("y1")) for line in root.iter(f"{SVG}line") if line.get("stroke-dasharray") == "2 3"]
    assert 0 < lines[0] < min(part[:, 1].min() for part in parts) < height
    assert "nine" in "".join(root.itertext())


def test_lines_differ_in_colour_and_mark_and_dashes():
    assert len({look(index) for index in range(35)}) == 35
    root = parsed(curves())
    dashes = [line.get("stroke-dasharray") for line in root.iter(f"{SVG}polyline") if line.get("stroke") in COLOURS[:4]]
    assert dashes == ["6 4", "6 4", "none", "none"]
    assert [line.name in "".join(root.itertext()) for line in curves().series] == [True] * 4


def test_heat_maps_hold_their_values_as_colours():
    shown = list(pictures(parsed(heat())))
    assert [picture.shape for picture in shown] == [(20, 20, 3)] * 3 + [(1, 64, 3)]  # the last is the scale
    assert [tuple(shown[-1][0, end]) for end in (0, -1)] == [(0x00, 0x20, 0x4D), (0xFF, 0xEA, 0x46)]
    assert tuple(shown[0][3, 3]) == (0xFF, 0xEA, 0x46)  # the correlation is 1
    assert "|correlation|" in "".join(parsed(heat()).itertext())


def test_colours_run_from_low_to_high():
    values = np.array([[-2.0, -1.0, 0.0, 0.5, 1.0, np.nan]])
    image = colorize(values, -1.0, 1.0)
    assert image.transpose(1, 2, 0)[0].tolist() == [
        [0, 114, 178], [0, 114, 178], [247, 247, 247], [230, 170, 124], [213, 94, 0], [255, 255, 255]
    ]  # fmt: skip


def test_grids_and_sliders_embed_their_pictures():
    for figure in (grid(), slider()):
        shown = np.stack(list(pictures(parsed(figure))))
        assert np.array_equal(shown, figure.images.reshape(-1, 8, 8))
    assert "image 2, σ = 0.002" in "".join(parsed(slider()).itertext())


def test_pictures_keep_their_proportions_and_order():
    images = np.arange(6, dtype=np.uint8)[:, None, None, None].repeat(2, 2).repeat(4, 3).reshape(2, 3, 1, 2, 4)
    figure = ImageGrid(title="t", caption="c", rows=("a", "b"), columns=("1", "2", "3"), images=images)
    places = [
        tuple(float(image.get(name)) for name in ("y", "x", "height", "width"))
        for image in parsed(figure).iter(f"{SVG}image")
    ]
    assert places == sorted(places)
    assert len(set(places)) == 6
    assert all(height * 2 == width for _, _, height, width in places)


def test_texts_are_never_read_as_marks():
    evil = "<script>&\x07\"'</script>"
    root = parsed(line_figure(title=evil, caption=evil, x=Axis(evil), series=(Series(evil, [1], [1]),)))
    assert not list(root.iter(f"{SVG}script"))
    assert root.find(f"{SVG}title").text == evil.replace("\x07", "")


def test_there_is_no_drawing_of_what_is_not_drawn():
    assert draw_svg(claims()) is None
    assert draw_svg(ImageGrid(**(vars(grid()) | {"images": None}))) is None


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[], [3.0], [np.nan, 2.0, 2.0], [1e-6, 1e6], [0.051, 0.3], [70000.0, 70001.0]])
def test_every_scale_has_room_and_ticks(values, log):
    scale = fit_scale(np.array(values), 0.0, 100.0, log=log)
    there = [value for value in values if np.isfinite(value)]
    assert all(0 < scale(value) < 100 for value in there)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 9
    assert all(-1e-9 <= scale(tick) <= 100 + 1e-9 for tick in ticks)


def test_a_scale_by_hand():
    assert Scale(0.0, 10.0, 100.0, 0.0)(2.5) == 75.0
    assert Scale(0.01, 100.0, 0.0, 400.0, log=True)(1.0) == pytest.approx(200.0)
    assert Scale(0.0, 1.0, 0.0, 1.0).ticks() == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert Scale(0.002, 80.0, 0.0, 1.0, log=True).ticks() == [0.01, 0.1, 1.0, 10.0]


def test_long_headings_of_pictures_stand_in_lines_of_their_own():
    images = np.zeros((1, 3, 1, 4, 4), np.uint8)
    columns = ("input", "network, N = 50,000", "network, N = 49")
    grid = ImageGrid(title="t", caption="c", rows=("a",), columns=columns, images=images)
    texts = [(float(node.get("x")), node.text) for node in parsed(grid).iter(f"{SVG}text")]
    by_place = {x: [text for place, text in texts if place == x] for x, _ in texts}
    assert sorted(" ".join(reversed(lines)) for lines in by_place.values()) == sorted((*columns, "a"))
    assert all(text_width(text) <= 2 * 56 for _, text in texts)
