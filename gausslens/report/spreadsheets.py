"""The numbers of a figure as comma-separated values. They are the numbers that are drawn."""

import csv
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from functools import singledispatch
from typing import Any

import numpy as np

from .figures import ClaimRow, CurveFigure, Figure, HeatMap, ImageGrid, NoiseSlider, Table

_MOST_PIXELS = 200_000


def as_csv(figure: Figure) -> str | None:
    """The numbers of a figure.

    Curves: series, x, y, low, high. Heat-maps: one line for each row of each panel. Image grids: one line for each
    picture, with its pixels in the order channel, row, column, separated by spaces. Tables: one line per claim.
    """
    lines = list(_lines(figure))
    if not lines:
        return None
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


@singledispatch
def _lines(figure: Figure) -> Iterable[Iterable[Any]]:
    raise TypeError(f"{type(figure).__name__} has no numbers")  # pragma: no cover


@_lines.register
def _(figure: CurveFigure) -> Iterator[Iterable[Any]]:
    yield ("series", figure.x.text, figure.y.text, "low", "high")
    for series in figure.series:
        for place, *point in series.columns.T:
            where = figure.x.names[round(place) - 1] if figure.x.names else _written(place)
            yield (series.name, where, *(_written(value) for value in point))


@_lines.register
def _(figure: HeatMap) -> Iterator[Iterable[Any]]:
    yield ("panel", figure.y_label, *(f"{figure.x_label} {column + 1}" for column in range(figure.values.shape[2])))
    decimals = 3 - math.floor(math.log10(figure.high - figure.low))  # a thousandth of the colour range or finer
    values = figure.values.astype(np.float64).round(decimals).tolist()
    for panel, matrix in zip(figure.panels, values, strict=True):
        for index, row in enumerate(matrix):
            yield (panel, index + 1, *row)


@_lines.register
def _(figure: ImageGrid) -> Iterator[Iterable[Any]]:
    if figure.images is None or figure.images.size > _MOST_PIXELS:
        return
    axes: dict[str, Sequence[Any]] = {"sigma": figure.sigmas} if isinstance(figure, NoiseSlider) else {}
    axes |= {"row": figure.rows, "column": figure.columns}
    yield (*axes, "channels", "height", "width", "pixels")
    images = figure.images.reshape(-1, *figure.images.shape[-3:])
    for place, image in zip(itertools.product(*axes.values()), images, strict=True):
        yield (*place, *image.shape, " ".join(map(str, image.ravel())))


@_lines.register
def _(figure: Table) -> Iterator[Iterable[Any]]:
    yield (field.name for field in fields(ClaimRow))
    yield from ((*astuple(row)[:-1], "; ".join(row.controls)) for row in figure.rows)


def _written(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))
