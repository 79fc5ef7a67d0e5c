"""Curves and heat-maps as the plain data that plotly's JavaScript draws."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .figures import Axis, CurveFigure, HeatMap, Series, Threshold
from .palette import look, scale
from .spreadsheets import round_values

_INK = "#222222"
_FAINT = "#DDDDDD"
_APART = 0.08  # between series, where the x axis has names; its places are 1 apart


def curve_plot(figure: CurveFigure) -> dict[str, Any]:
    """The traces and the layout of a figure; a click on a legend entry hides a line with its band."""
    traces = [trace for index, series in enumerate(figure.series) for trace in _traces(index, series, figure)]
    layout = _layout() | {
        "xaxis": _axis(figure.x, [drawable(series, figure)[0] for series in figure.series]),
        "yaxis": _axis(figure.y, [drawable(series, figure)[1] for series in figure.series]),
        "shapes": [_line_across(threshold) for threshold in figure.thresholds],
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0, "xanchor": "left"},
        "showlegend": True,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def heat_plots(figure: HeatMap) -> list[dict[str, Any]]:
    """One plot for each panel, with the same colours."""
    colours = scale(figure.low, figure.high)
    steps = [[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)]
    n_rows, n_columns = figure.values.shape[1:]
    layout = _layout() | {
        "xaxis": {"title": {"text": plain(figure.x_label), "standoff": 4}, "constrain": "domain", "ticks": "outside"},
        "yaxis": {
            "title": {"text": plain(figure.y_label), "standoff": 4},
            "autorange": "reversed",
            "scaleanchor": "x",
            "constrain": "domain",
            "ticks": "outside",
        },
        "margin": {"l": 48, "r": 8, "t": 8, "b": 44},
    }
    trace = {
        "type": "heatmap",
        "x": list(range(1, n_columns + 1)),
        "y": list(range(1, n_rows + 1)),
        "zmin": figure.low,
        "zmax": figure.high,
        "colorscale": steps,
        "showscale": False,
        "hovertemplate": f"{plain(figure.y_label)} %{{y}}, {plain(figure.x_label)} %{{x}}: %{{z}}<extra></extra>",
    }
    return [
        {
            "data": [trace | {"z": [[_number(value) for value in row] for row in matrix]}],
            "layout": layout,
        }
        for matrix in round_values(figure)
    ]


def plain(text: str) -> str:
    """A text that plotly shows as it is, rather than reading mark-up in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def drawable(series: Series, figure: CurveFigure) -> NDArray[np.float64]:
    """x, y, low and high as (4, n), with NaN for what cannot be drawn, such as zero on a logarithmic axis.

    Intervals end at the figure's `band_limits`. Where the x axis has names, series are moved apart, lest one hide another.
    """
    columns = series.columns.copy()
    columns[2:] = columns[2:].clip(*figure.band_limits)
    if figure.x.names:
        columns[0] += _APART * (figure.series.index(series) - (len(figure.series) - 1) / 2)
    for log, rows in ((figure.x.log, columns[:1]), (figure.y.log, columns[1:])):
        rows[~np.isfinite(rows) | (log & (rows <= 0))] = np.nan
    columns[2:, np.isnan(columns[1])] = np.nan
    return columns


def bands(columns: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The stretches in which x, low and high are all there."""
    band = columns[[0, 2, 3]]
    there: NDArray[np.bool_] = np.isfinite(band.sum(0))
    for stretch in np.split(np.arange(len(there)), np.flatnonzero(np.diff(there)) + 1):
        if len(stretch) and there[stretch[0]]:
            yield band[:, stretch]


def _traces(index: int, series: Series, figure: CurveFigure) -> Iterator[dict[str, Any]]:
    shown = look(index)
    columns = drawable(series, figure)
    where, bars = f"{plain(figure.x.label)} %{{x:.4g}}", {}
    if figure.x.names:
        named = [plain(figure.x.names[round(place) - 1]) for place in series.columns[0]]
        where, bars = "%{customdata}", {"error_y": _bars(columns, shown.colour), "customdata": named}
    for x, low, high in bands(columns) if not figure.x.names else ():
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": [*x.tolist(), *x[::-1].tolist()],
            "y": [*low.tolist(), *high[::-1].tolist()],
            "fill": "toself",
            "fillcolor": _see_through(shown.colour),
            "line": {"width": 0},
            "hoverinfo": "skip",
            "legendgroup": str(index),
            "showlegend": False,
        }
    yield {
        "type": "scatter",
        "mode": "markers" if figure.x.names else "lines+markers" if series.markers else "lines",
        "name": plain(series.name),
        "x": [_number(value) for value in columns[0]],
        "y": [_number(value) for value in columns[1]],
        "line": {"color": shown.colour, "width": 2, "dash": "dash" if series.dashed else "solid"},
        "marker": {"symbol": shown.mark, "size": 7, "color": shown.colour},
        "legendgroup": str(index),
        "text": [_interval(*ends) for ends in np.where(np.isnan(columns[1]), np.nan, series.columns[2:]).T],
        "hovertemplate": f"{plain(series.name)}<br>{where}: %{{y:.4g}}%{{text}}<extra></extra>",
    } | bars


def _bars(columns: NDArray[np.float64], colour: str) -> dict[str, Any]:
    """Intervals as bars around points; none where there is no interval."""
    _, y, low, high = columns
    up, down = ([_number(length) for length in lengths] for lengths in (high - y, y - low))
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": colour, "thickness": 1.5}


def _layout() -> dict[str, Any]:
    return {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": _INK},
        "paper_bgcolor": "#FFFFFF",
        "plot_bgcolor": "#FFFFFF",
        "margin": {"l": 62, "r": 16, "t": 12, "b": 52},
        "autosize": True,
    }


def _axis(axis: Axis, values: list[NDArray[np.float64]]) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "linear"}
    if axis.names:
        places = range(1, len(axis.names) + 1)
        kind |= {"tickvals": [*places], "ticktext": [plain(name) for name in axis.names]}
        kind["range"] = [0.5, len(axis.names) + 0.5]
    if axis.log:
        kind = {"type": "log", "tickformat": "~g", "minor": {"ticks": "outside"}}
        there = np.concatenate([*values, [np.nan]])
        there = there[np.isfinite(there)]
        wide = len(there) and there.max() >= 100 * there.min()
        # One label for each power of ten, or at 1, 2 and 5; plotly's own choice collides on narrow screens.
        kind["dtick"] = 1 if wide else "D2"
    return kind | {
        "title": {"text": plain(axis.text), "standoff": 8},
        "gridcolor": _FAINT,
        "linecolor": _INK,
        "zeroline": False,
        "ticks": "outside",
        "automargin": True,
    }


def _line_across(threshold: Threshold) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": threshold.value,
        "y1": threshold.value,
        "line": {"color": "#555555", "width": 1.5, "dash": "dot"},
        "name": plain(threshold.text),
        "showlegend": True,
    }


def _interval(low: float, high: float) -> str:
    return f" [{low:.4g}, {high:.4g}]" if np.isfinite([low, high]).all() else ""


def _see_through(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
