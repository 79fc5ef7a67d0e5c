"""Figures as SVG files for papers, drawn without a browser; they show the same numbers as the page, in the same colours."""

from collections.abc import Iterator
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from .axes import Scale, fit_scale, tick_text
from .canvas import FAINT, FONT, GREY, INK, Canvas, text_width
from .figures import CurveFigure, Figure, HeatMap, ImageGrid, NoiseSlider
from .palette import look, scale
from .pictures import colorize, data_uri, png
from .plots import bands, drawable

_WIDTH, _HEIGHT = 640.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 68.0, 16.0, 14.0, 52.0
_LEGEND_LINE = 18.0
_TILE, _GAP, _HEADING_LINE = 56.0, 4.0, 14.0
_PANEL, _ACROSS = 180.0, 5


@singledispatch
def draw_svg(figure: Figure) -> str | None:
    """A figure as the text of an SVG file."""
    return None


@draw_svg.register
def _(figure: CurveFigure) -> str:
    canvas = Canvas()
    lines = [drawable(series, figure) for series in figure.series]
    x, y = curve_scales(figure, lines)
    _frame(canvas, figure, x, y)
    for threshold in figure.thresholds:
        canvas.line(x.start, y(threshold.value), x.end, y(threshold.value), stroke=GREY, stroke_dasharray="2 3")
    for index, columns in enumerate(lines):
        for at, low, high in bands(columns):
            if figure.x.names:
                for place, bottom, top in zip(at, low, high, strict=True):
                    canvas.line(x(place), y(bottom), x(place), y(top), stroke=look(index).colour, stroke_width=1.5)
                continue
            there, back = zip(at, low, strict=True), zip(at[::-1], high[::-1], strict=True)
            corners = [(x(value), y(end)) for part in (there, back) for value, end in part]
            canvas.polygon(corners, fill=look(index).colour, fill_opacity=0.18)
    for index, (series, columns) in enumerate(zip(figure.series, lines, strict=True)):
        shown = look(index)
        for stretch in _stretches(columns[:2]):
            points = [(x(value), y(height)) for value, height in stretch.T]
            if not figure.x.names:
                canvas.polyline(
                    points, stroke=shown.colour, stroke_width=1.8, stroke_dasharray="6 4" if series.dashed else "none"
                )
            for point in points if series.markers or figure.x.names else ():
                canvas.mark(*point, shown.mark, shown.colour)
    bottom = _legend(canvas, figure)
    return canvas.document(_WIDTH, bottom, figure.title, figure.reading)


@draw_svg.register
def _(figure: HeatMap) -> str:
    canvas = Canvas()
    colours = scale(figure.low, figure.high)
    across = min(len(figure.panels), _ACROSS)
    n_rows, n_columns = figure.values.shape[1:]
    width, height = _PANEL, _PANEL * n_rows / n_columns
    for index, (panel, matrix) in enumerate(zip(figure.panels, figure.values, strict=True)):
        row, column = divmod(index, across)
        left, top = 24 + column * (width + 24), 24 + row * (height + 48)
        uri = data_uri(png(colorize(matrix, figure.low, figure.high, colours)), "image/png")
        canvas.picture(left, top, width, height, uri, panel)
        canvas.text(left + width / 2, top - 7, panel, text_anchor="middle")
        canvas.text(left + width / 2, top + height + 16, figure.x_label, text_anchor="middle", size=11.0)
        middle = top + height / 2
        canvas.text(
            *(left - 8, middle, figure.y_label), size=11.0, text_anchor="middle",
            transform=f"rotate(-90 {left - 8:.2f} {middle:.2f})",
        )  # fmt: skip
    bottom = 24 + -(-len(figure.panels) // across) * (height + 48)
    for step in range(64):
        value = figure.low + (figure.high - figure.low) * step / 63
        red, green, blue = colorize(np.array([[value]]), figure.low, figure.high, colours).ravel()
        canvas.add(
            "rect", x=60.0 + 2 * step, y=bottom - 12, width=2.2, height=10.0, fill=f"#{red:02X}{green:02X}{blue:02X}"
        )
    canvas.text(54.0, bottom - 3, tick_text(figure.low), text_anchor="end")
    canvas.text(194.0, bottom - 3, f"{tick_text(figure.high)}  {figure.value_label}")
    needed = 220 + text_width(figure.value_label)
    return canvas.document(max(24 + across * (width + 24), needed), bottom + 10, figure.title, figure.reading)


@draw_svg.register
def _(figure: ImageGrid) -> str | None:
    if figure.images is None:
        return None
    canvas = Canvas()
    left = 12 + max((text_width(label) for label in figure.rows), default=0)
    widest = max((text_width(label) for label in figure.columns), default=0)
    tile = max(_TILE, min(widest, 2 * _TILE))
    height = tile * figure.images.shape[-2] / figure.images.shape[-1]
    headings = [_wrapped(label, tile) for label in figure.columns]
    head = 10 + _HEADING_LINE * max(map(len, headings), default=1)
    for column, lines in enumerate(headings):
        for place, words in enumerate(reversed(lines)):
            y = head - 8 - place * _HEADING_LINE
            canvas.text(left + column * (tile + _GAP) + tile / 2, y, words, text_anchor="middle")
    for row, label in enumerate(figure.rows):
        top = head + row * (height + _GAP)
        canvas.text(left - 6, top + height / 2 + FONT / 3, label, text_anchor="end")
        for column, heading in enumerate(figure.columns):
            uri = data_uri(png(figure.images[row, column]), "image/png")
            canvas.picture(left + column * (tile + _GAP), top, tile, height, uri, f"{label}, {heading}")
    width = left + len(figure.columns) * (tile + _GAP) + 8
    return canvas.document(width, head + len(figure.rows) * (height + _GAP) + 8, figure.title, figure.reading)


@draw_svg.register
def _(figure: NoiseSlider) -> str | None:
    if figure.images is None:
        return None
    rows = tuple(f"{row}, σ = {sigma:.3g}" for sigma in figure.sigmas for row in figure.rows)
    images = figure.images.reshape(len(rows), *figure.images.shape[2:])
    return draw_svg(
        ImageGrid(title=figure.title, caption=figure.caption, rows=rows, columns=figure.columns, images=images)
    )


def _wrapped(label: str, width: float) -> list[str]:
    """A heading in lines of at most this width, as far as its words allow."""
    lines = [""]
    for word in label.split():
        joined = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def curve_scales(figure: CurveFigure, lines: list[NDArray[np.float64]]) -> tuple[Scale, Scale]:
    """The scales of both axes, on which everything drawn has a place."""
    across = np.concatenate([columns[0] for columns in lines] or [np.empty(0)])
    if figure.x.names:
        across = np.array([0.5, len(figure.x.names) + 0.5])
    up = np.concatenate([*(columns[1:].ravel() for columns in lines), [line.value for line in figure.thresholds]])
    return (
        fit_scale(across, _LEFT, _WIDTH - _RIGHT, log=figure.x.log),
        fit_scale(up, _HEIGHT - _BOTTOM, _TOP, log=figure.y.log),
    )


def _frame(canvas: Canvas, figure: CurveFigure, x: Scale, y: Scale) -> None:
    named = {float(place): name for place, name in enumerate(figure.x.names, 1)}
    for tick, text in (named or {tick: tick_text(tick) for tick in x.ticks()}).items():
        canvas.line(x(tick), y.start, x(tick), y.end, stroke=FAINT)
        canvas.text(x(tick), y.start + 17, text, text_anchor="middle")
    for tick in y.ticks():
        canvas.line(x.start, y(tick), x.end, y(tick), stroke=FAINT)
        canvas.text(x.start - 7, y(tick) + FONT / 3, tick_text(tick), text_anchor="end")
    canvas.polyline([(x.start, y.end), (x.start, y.start), (x.end, y.start)], stroke=INK)
    canvas.text((x.start + x.end) / 2, y.start + 38, figure.x.text, text_anchor="middle")
    middle = (y.start + y.end) / 2
    canvas.text(14.0, middle, figure.y.text, text_anchor="middle", transform=f"rotate(-90 14 {middle:.2f})")


def _legend(canvas: Canvas, figure: CurveFigure) -> float:
    """Names under the plot, as many to a line as fit; returns where the drawing ends."""
    left, top = _LEFT, _HEIGHT + 8
    names = [series.name for series in figure.series] + [threshold.text for threshold in figure.thresholds]
    for index, name in enumerate(names):
        needed = 38 + text_width(name) + 12
        if left > _LEFT and left + needed > _WIDTH:
            left, top = _LEFT, top + _LEGEND_LINE
        if index < len(figure.series):
            series, shown = figure.series[index], look(index)
            dashes = "6 4" if series.dashed else "none"
            if not figure.x.names:
                canvas.line(left, top, left + 28, top, stroke=shown.colour, stroke_width=1.8, stroke_dasharray=dashes)
            if series.markers or figure.x.names:
                canvas.mark(left + 14, top, shown.mark, shown.colour)
        else:
            canvas.line(left, top, left + 28, top, stroke=GREY, stroke_dasharray="2 3")
        canvas.text(left + 34, top + FONT / 3, name)
        left += needed
    return top + 16


def _stretches(points: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The stretches of (2, n) points that are all there."""
    for stretch in bands(points[[0, 0, 1, 1]]):
        yield stretch[:2]
