"""The figures of a report as data: numbers and pictures, without how they are drawn.

    Figure         title, caption, the paper's figures that it redraws, the claims that it informs, the command that made it
    ├── CurveFigure   lines with bands over one axis
    ├── HeatMap       matrices with one colour scale
    ├── ImageGrid     pictures in labelled rows and columns
    ├── NoiseSlider   such a grid for every noise level, one of them shown at a time
    └── Table         claims with their verdicts

A figure knows nothing of the study that made it. It is checked when it is made, and not again when it is drawn.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Real: TypeAlias = float | int
Numbers: TypeAlias = Sequence[Real | None] | NDArray[Any]
VERDICTS = ("holds", "does not hold", "not enough evidence")
# In units of the range of the points: the greatest range of a drawing with its intervals, and how far intervals are drawn
# beyond the points where that range would be greater.
_WIDEST, _ROOM = 3.0, 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """What every figure has."""

    title: str  # a few words
    caption: str  # what it shows, in sentences
    redraws: tuple[int, ...] = ()  # the numbers of the paper's figures that it redraws
    claims: tuple[str, ...] = ()  # the claims that it informs, such as "C11"
    command: str = ""  # the command that made it; empty for none

    @property
    def reading(self) -> str:
        """The caption, with a note on the drawing where it needs one."""
        return self.caption


@dataclass(frozen=True)
class Axis:
    """What an axis measures."""

    label: str  # what it measures
    unit: str = ""  # its unit; empty for none
    log: bool = False  # whether it is logarithmic; values that are not positive are then not drawn
    # For an x axis of things rather than numbers: the names at 1, 2, …. Points are then not joined, and series stand next to
    # each other.
    names: tuple[str, ...] = ()
    bounds: tuple[float, float] = (-math.inf, math.inf)  # of possible values; intervals are drawn no further

    @property
    def text(self) -> str:
        """Label and unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a `CurveFigure`."""

    name: str  # its name in the legend
    x: Numbers  # places of the points
    y: Numbers  # their values; None or NaN leaves a gap
    low: Numbers | None = None  # the lower end of the interval at each x; None where there is none
    high: Numbers | None = None  # the upper end
    dashed: bool = False  # whether the line is dashed, as for models that memorise and for controls
    markers: bool = True  # whether the points have marks

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.x, self.y, self.low, self.high) if part is not None}
        if len(lengths) > 1 or (self.low is None) != (self.high is None):
            raise DataError(
                f"the series {self.name!r} needs x, y and either both or neither of low and high, of one length; "
                f"got lengths {sorted(lengths)}. Give one value for each x."
            )

    @property
    def columns(self) -> NDArray[np.float64]:
        """x, y, low and high as (4, n), with NaN for what is missing."""
        missing = np.full(len(self.x), np.nan)
        parts = (self.x, self.y, self.low, self.high)
        return np.stack([missing if part is None else np.asarray(part, np.float64) for part in parts])


@dataclass(frozen=True)
class Threshold:
    """A level on the y axis that a claim is about."""

    value: Real  # the level
    label: str  # what it is

    @property
    def text(self) -> str:
        """The label with the value, for legends: all thresholds have the same line."""
        return f"{self.label}: {self.value:g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class CurveFigure(Figure):
    """Lines with bands over one axis."""

    x: Axis  # the horizontal axis
    y: Axis  # the vertical axis
    series: tuple[Series, ...]  # the lines
    thresholds: tuple[Threshold, ...] = ()  # levels drawn across

    @property
    def band_limits(self) -> tuple[float, float]:
        """The range in which intervals are drawn: possible values, and not so far that the points cannot be told apart.

        The interval over two training runs can be a hundred times as wide as the range of the points.
        """
        least, most = self.y.bounds
        points = self._places([*(one.columns[1] for one in self.series), [line.value for line in self.thresholds]])
        points = points[np.isfinite(points)]
        ends = self._places([one.columns[2:].clip(least, most) for one in self.series])
        if not len(points) or not len(ends) or points.min() == points.max():
            return least, most
        low, high, span = points.min(), points.max(), np.ptp(points)
        if max(high, ends.max()) - min(low, ends.min()) > _WIDEST * span:
            limits = np.array([low - _ROOM * span, high + _ROOM * span])
            below, above = np.exp(limits) if self.y.log else limits
            least, most = max(least, float(below)), min(most, float(above))
        return least, most

    def _places(self, parts: Iterable[Any]) -> NDArray[np.float64]:
        """The places of all finite values along the y axis; on a logarithmic one, −∞ for values that are not positive."""
        values: NDArray[np.float64] = np.concatenate([np.empty(0), *map(np.ravel, parts)])
        values = values[np.isfinite(values)]
        with np.errstate(divide="ignore"):
            return np.log(values.clip(0.0)) if self.y.log else values

    @property
    def reading(self) -> str:
        """The caption, with a note if intervals continue beyond the drawing."""
        (low, high), (least, most) = self.band_limits, self.y.bounds
        ends = [series.columns[2:] for series in self.series]
        beyond = any(((part < low) & (low > least) | (part > high) & (high < most)).any() for part in ends)
        return f"{self.caption} A band that reaches the edge of the plot is cut off there." if beyond else self.caption


@dataclass(frozen=True, kw_only=True, eq=False)
class HeatMap(Figure):
    """Matrices with one colour scale."""

    panels: tuple[str, ...]  # a name for each matrix
    values: NDArray[Any]  # (panels, rows, columns)
    x_label: str  # what the columns are
    y_label: str  # what the rows are
    value_label: str  # what the colour is
    low: Real = 0.0  # the value of the first colour; a scale from below to above zero is white at its middle
    high: Real = 1.0  # the value of the last colour

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or len(self.values) != len(self.panels) or not self.low < self.high:
            raise DataError(
                f"the heat-map {self.title!r} needs values (panels, rows, columns) for {len(self.panels)} panels and "
                f"low < high; got shape {self.values.shape}, low {self.low}, high {self.high}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageGrid(Figure):
    """Pictures in labelled rows and columns."""

    rows: tuple[str, ...]  # a label for each row; may be empty texts
    columns: tuple[str, ...]  # a label for each column
    images: NDArray[Any] | None  # uint8, (rows, columns, c, h, w), c = 1 or 3; None where they are withheld
    training: bool = True  # whether training images may be among them, copies by a model included

    def __post_init__(self) -> None:
        if self.images is None:
            return
        places, c_h_w = self.images.shape[:-3], self.images.shape[-3:]
        if self.images.dtype != np.uint8 or places != self.places or c_h_w[0] not in (1, 3):
            raise DataError(
                f"{self.title!r} needs uint8 images of shape {self.places} + (c, h, w) with c = 1 or 3, as its labels say; "
                f"got {self.images.dtype} of shape {self.images.shape}."
            )

    @property
    def places(self) -> tuple[int, ...]:
        """How many images there are along each axis."""
        return len(self.rows), len(self.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseSlider(ImageGrid):
    """An image grid for each noise level, one shown at a time; images are (sigmas, rows, columns, c, h, w)."""

    sigmas: Sequence[Real]  # the noise levels

    @property
    def places(self) -> tuple[int, ...]:
        """How many images there are along each axis."""
        return len(self.sigmas), *super().places


@dataclass(frozen=True)
class ClaimRow:
    """One claim, judged."""

    claim: str  # its short name, such as "C11"
    statement: str  # what it says
    statistic: str  # what was computed
    value: Real | None  # the statistic; None where it could not be computed
    low: Real | None  # the lower end of its interval
    high: Real | None  # the upper end
    threshold: str  # what it is compared with, such as "> 0"
    source: str  # where the threshold comes from
    verdict: str  # one of `VERDICTS`
    note: str = ""  # a remark on the verdict
    controls: tuple[str, ...] = ()  # numbers for comparison, each with its name

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise DataError(f"the verdict on {self.claim} must be one of {', '.join(VERDICTS)}; got {self.verdict!r}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Figure):
    """Claims with their verdicts."""

    rows: tuple[ClaimRow, ...]  # the claims
