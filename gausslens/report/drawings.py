"""Figures drawn in SVG, for the page and for papers.

On the page, a click on a name in a legend hides its line. `data-series` and `data-legend` say to which line an element
belongs. `data-value` holds the text that appears when the mouse is over a point.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .axes import Scale, fit_scale, tick_text
from .canvas import FAINT, FONT, GREY, INK, Canvas, look, text_width
from .figures import CurveFigure, Figure, HeatMap, ImageGrid, NoiseSlider, Series
from .pictures import colorize, image_uri

_WIDTH, _HEIGHT = 640.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 68.0, 16.0, 14.0, 52.0
_LEGEND_LINE = 18.0
_TILE, _GAP, _HEADING_LINE = 56.0, 4.0, 14.0
_PANEL, _ACROSS = 180.0, 5
_APART = 0.08  # between series where the x axis has names, which are 1 apart


def draw_svg(figure: Figure) -> str | None:
    """A figure as the text of an SVG file; None for a table and for images that are withheld."""
    canvas = draw(figure)
    return None if canvas is None else canvas.document(figure.title, figure.reading)


@singledispatch
def draw(figure: Figure) -> Canvas | None:
    """A figure on a canvas."""
    return None


@draw.register
def _(figure: CurveFigure) -> Canvas:
    canvas = Canvas()
    lines = [drawable(series, figure) for series in figure.series]
    x, y = curve_scales(figure, lines)
    _frame(canvas, figure, x, y)
    for threshold in figure.thresholds:
        canvas.line(x.start, y(threshold.value), x.end, y(threshold.value), stroke=GREY, stroke_dasharray="2 3")
    for index, columns in enumerate(lines):
        colour, _ = look(index)
        for band in stretches(columns[[0, 2, 3]]):
            if figure.x.names:
                for place, bottom, top in band.T:
                    ends = (x(place), y(bottom), x(place), y(top))
                    canvas.line(*ends, stroke=colour, stroke_width=1.5, data_series=str(index))
                continue
            lower, upper = band[[0, 1]].T, band[[0, 2]].T
            corners = [(x(place), y(end)) for place, end in (*lower, *upper[::-1])]
            canvas.polygon(corners, fill=colour, fill_opacity=0.18, data_series=str(index))
    for index, (series, columns) in enumerate(zip(figure.series, lines, strict=True)):
        colour, mark = look(index)
        for stretch in stretches(columns[:2]) if not figure.x.names else ():
            points = [(x(place), y(value)) for place, value in stretch.T]
            dashes = "6 4" if series.dashed else "none"
            canvas.polyline(points, stroke=colour, stroke_width=1.8, stroke_dasharray=dashes, data_series=str(index))
        for point, words in zip(columns[:2].T, _words(series, figure), strict=True):
            if np.isfinite(point).all():
                shape, fill = (mark, colour) if series.markers or figure.x.names else ("circle", "transparent")
                canvas.mark(x(point[0]), y(point[1]), shape, fill, data_series=str(index), data_value=words)
    canvas.width, canvas.height = _WIDTH, _legend(canvas, figure)
    return canvas


@draw.register
def _(figure: HeatMap) -> Canvas:
    canvas = Canvas()
    across = min(len(figure.panels), _ACROSS)
    n_rows, n_columns = figure.values.shape[1:]
    width, height = _PANEL, _PANEL * n_rows / n_columns
    for index, (panel, matrix) in enumerate(zip(figure.panels, figure.values, strict=True)):
        row, column = divmod(index, across)
        left, top = 24 + column * (width + 24), 24 + row * (height + 48)
        uri = image_uri(colorize(matrix, figure.low, figure.high))
        canvas.picture(left, top, width, height, uri, panel)
        canvas.text(left + width / 2, top - 7, panel, text_anchor="middle")
        canvas.text(left + width / 2, top + height + 16, figure.x_label, text_anchor="middle", size=11.0)
        middle = top + height / 2
        canvas.text(
            *(left - 8, middle, figure.y_label), size=11.0, text_anchor="middle",
            transform=f"rotate(-90 {left - 8:.2f} {middle:.2f})",
        )  # fmt: skip
    bottom = 24 + -(-len(figure.panels) // across) * (height + 48)
    bar = colorize(np.linspace(figure.low, figure.high, 64)[None], figure.low, figure.high)
    canvas.picture(60.0, bottom - 12, 128.0, 10.0, image_uri(bar), figure.value_label)
    canvas.text(54.0, bottom - 3, tick_text(figure.low), text_anchor="end")
    canvas.text(194.0, bottom - 3, f"{tick_text(figure.high)}  {figure.value_label}")
    needed = 220 + text_width(figure.value_label)
    canvas.width, canvas.height = max(24 + across * (width + 24), needed), bottom + 10
    return canvas


@draw.register
def _(figure: ImageGrid) -> Canvas | None:
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
            uri = image_uri(figure.images[row, column])
            canvas.picture(left + column * (tile + _GAP), top, tile, height, uri, f"{label}, {heading}")
    canvas.width = left + len(figure.columns) * (tile + _GAP) + 8
    canvas.height = head + len(figure.rows) * (height + _GAP) + 8
    return canvas


@draw.register
def _(figure: NoiseSlider) -> Canvas | None:
    if figure.images is None:
        return None
    rows = tuple(f"{row}, σ = {sigma:.3g}" for sigma in figure.sigmas for row in figure.rows)
    images = figure.images.reshape(len(rows), *figure.images.shape[2:])
    return draw(ImageGrid(title=figure.title, caption=figure.caption, rows=rows, columns=figure.columns, images=images))


def drawable(series: Series, figure: CurveFigure) -> NDArray[np.float64]:
    """x, y, low and high as (4, n), with NaN for what cannot be drawn, such as zero on a logarithmic axis.

    Intervals end at the figure's `band_limits`. Where the x axis has names, series are moved apart, so that none hides
    another.
    """
    columns = series.columns.copy()
    columns[2:] = columns[2:].clip(*figure.band_limits)
    if figure.x.names:
        columns[0] += _APART * (figure.series.index(series) - (len(figure.series) - 1) / 2)
    for log, rows in ((figure.x.log, columns[:1]), (figure.y.log, columns[1:])):
        rows[~np.isfinite(rows) | (log & (rows <= 0))] = np.nan
    columns[2:, np.isnan(columns[1])] = np.nan
    return columns


def stretches(rows: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The parts of (rows, n) between gaps, in which every row has a value."""
    known: NDArray[np.bool_] = np.isfinite(rows.sum(0))
    for stretch in np.split(np.arange(len(known)), np.flatnonzero(np.diff(known)) + 1):
        if known[stretch].any():
            yield rows[:, stretch]


def _words(series: Series, figure: CurveFigure) -> Iterator[str]:
    """The text of each point of a series."""
    for place, value, low, high in series.columns.T:
        where = figure.x.names[round(place) - 1] if figure.x.names else f"{figure.x.label} {place:.4g}"
        interval = f" [{low:.4g}, {high:.4g}]" if np.isfinite([low, high]).all() else ""
        yield f"{series.name}, {where}: {value:.4g}{interval}"


def _wrapped(label: str, width: float) -> list[str]:
    """A heading in lines of at most this width, unless a word is longer."""
    lines = [""]
    for word in label.split():
        joined = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def curve_scales(figure: CurveFigure, lines: list[NDArray[np.float64]]) -> tuple[Scale, Scale]:
    """The scales of both axes, on which everything that is drawn has a place."""
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
    """Write the names under the plot, as many per line as fit. Returns where the drawing ends."""
    left, top = _LEFT, _HEIGHT + 8
    names = [series.name for series in figure.series] + [threshold.text for threshold in figure.thresholds]
    for index, name in enumerate(names):
        needed = 38 + text_width(name) + 12
        if left > _LEFT and left + needed > _WIDTH:
            left, top = _LEFT, top + _LEGEND_LINE
        own: dict[str, Any] = {"data_legend": str(index)} if index < len(figure.series) else {}
        if own:
            series, (colour, mark) = figure.series[index], look(index)
            dashes = "6 4" if series.dashed else "none"
            if not figure.x.names:
                canvas.line(left, top, left + 28, top, stroke=colour, stroke_width=1.8, stroke_dasharray=dashes, **own)
            if series.markers or figure.x.names:
                canvas.mark(left + 14, top, mark, colour, **own)
        else:
            canvas.line(left, top, left + 28, top, stroke=GREY, stroke_dasharray="2 3")
        canvas.text(left + 34, top + FONT / 3, name, **own)
        left += needed
    return top + 16
