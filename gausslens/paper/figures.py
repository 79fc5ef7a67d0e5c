"""From records to the curves of a report: a study yields `Curves`, each with its `Line`s, and one function draws them.

    Curves(
        **about("Copies among samples", 12, "C14"), caption="Share of samples …", of=axes.COPIES.by(axes.SIZE),
        lines=(Line("network", denoiser="network"), *closed_forms()),
    )

Each point is the mean over training seeds, with its 95 % interval over seeds and images. Controls are dashed. A figure whose
only lines are controls is not drawn.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ..measures.intervals import NORMAL_QUANTILE
from ..report import CurveFigure, Figure, Series
from . import axes
from .claims.evidence import Evidence, Measure, MissingError, is_finite
from .claims.inference import Real, combine
from .plan import OTHER_HALF

images_label, sigma_label = "N = {:,}".format, "σ = {:.3g}".format
"""What legends call the models of a number of images, and a noise level."""

COPIED = "whose nearest training image is less than a third as far as the second nearest"
"""What captions say of samples that are copies."""

CONTROLS = {"multidelta": "control: multi-delta", "gaussian": "control: Gaussian"}

# Records with the same values of these tags are of training runs of one model.
_MODEL = ("network", "preconditioning", "width", "n", "role")


class Line:
    """One line of a figure: the records with these tags; or a line for each value of the tag `by`."""

    def __init__(
        self,
        name: str | Callable[[Any], str],  # its name in the legend; with `by`, a function of the tag's value
        *,
        by: str | None = None,  # a tag that lines differ by
        number: Measure | None = None,  # what is drawn of one seed's records; by default that of the figure
        dashed: bool
        | Callable[[Any], bool]
        | None = None,  # with `by`, a function of the value; by default for controls
        # The ends of a horizontal line, for what was measured at one place and does not change along the axis.
        lasting: tuple[Real, Real] | None = None,
        **tags: Any,
    ) -> None:
        self.name, self.by, self.number = name, by, number
        self.dashed, self.lasting, self.tags = dashed, lasting, tags

    def draw(self, x: str, records: Evidence, number: Measure) -> Iterator[Series]:
        """Its series, without those that have no point."""
        groups = {None: records} if self.by is None else records.by(self.by) if len(records) else {}
        for value, group in groups.items():
            name = self.name(value) if callable(self.name) else self.name
            dashed = self.dashed(value) if callable(self.dashed) else self.dashed
            broken = name.startswith("control") if dashed is None else dashed
            series = line(name, group, x=x, dashed=broken, number=self.number or number)
            if len(series.x):
                yield series if self.lasting is None else _extend(series, self.lasting)


def about(title: str, *what: int | str) -> dict[str, Any]:
    """The title of a figure, the numbers of the paper's figures that it redraws, and names of claims that it informs."""
    redraws = tuple(one for one in what if isinstance(one, int))
    return {"title": title, "redraws": redraws, "claims": tuple(one for one in what if isinstance(one, str))}


def closed_forms(*denoisers: str, called: str = "", **how: Any) -> list[Line]:
    """The closed-form denoisers as controls of a network: both, or those that are named."""
    return [Line(CONTROLS[name] + called, denoiser=name, **how) for name in denoisers or CONTROLS]


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves(Figure):
    """A figure of curves, as a study describes it."""

    of: axes.Quantity = axes.RMSE  # what is shown, and along which axis
    number: Measure = Evidence.one  # what is drawn of one seed's records
    lines: Iterable[Line] = ()

    def draw(self, evidence: Evidence) -> CurveFigure | None:
        """The figure; None if only controls have data, or a number cannot be computed yet."""
        series: list[Series] = []
        try:
            for one in self.lines:
                series += one.draw(self.of.x.tag, self.of.select(evidence, **one.tags), self.number)
        except MissingError:
            return None
        if all(one.name.startswith("control") for one in series):
            return None
        shared = {field.name: getattr(self, field.name) for field in fields(Figure)}
        return CurveFigure(**shared, x=self.of.x.axis, y=self.of.y, series=tuple(series), thresholds=self.of.levels)


Drawing: TypeAlias = Figure | None
"""A figure of a study; None for what is not finished."""


def line(
    name: str, evidence: Evidence, *, x: str = "sigma", dashed: bool = False, number: Measure = Evidence.one
) -> Series:
    """One line: at each x the mean over training seeds, with its 95 % interval over seeds and images.

    Intervals of records need not be symmetric, nor is that of their mean: with no copy among 256 samples it is [0, .015].
    """
    groups = evidence.by(x) if len(evidence) else {}
    points = [_mean(group.seeds(), number) for group in groups.values()]
    y, low, high = zip(*points, strict=True) if points else ((), (), ())
    return Series(name, tuple(groups), y, low, high, dashed=dashed)


def _mean(seeds: list[Evidence], number: Measure) -> tuple[float, float | None, float | None]:
    """The mean over seeds of a number, with the ends of its interval where its error is known."""
    numbers = [number(of_seed) for of_seed in seeds]
    values = [found.value for found in numbers]
    if number is not Evidence.one:
        combined = combine(values, [found.variance for found in numbers])
        return combined.value, *(combined.interval() or (None, None))
    ends = {name: [of_seed.latest().get(name) for of_seed in seeds] for name in ("low", "high")}
    low, high = (combine(values, [_variance(*pair) for pair in zip(values, ends[name], strict=True)]) for name in ends)
    if len(seeds) == 1 and low.over_images == high.over_images == 0:
        return low.value, None, None
    return low.value, (low.interval() or (low.value,))[0], (high.interval() or (high.value,))[-1]


def _variance(value: float, end: object) -> float:
    """That of a normal error whose 95 % interval ends there; 0 where there is no end."""
    return ((value - end) / NORMAL_QUANTILE) ** 2 if is_finite(end) else 0.0


def _extend(series: Series, ends: tuple[Real, Real]) -> Series:
    _, y, low, high = ([*column] * 2 for column in series.columns)
    return Series(series.name, ends, y, low, high, dashed=series.dashed, markers=False)


def trainings(evidence: Evidence) -> str:
    """The number of training runs of each model in words: "3 training seeds", or "1 to 3" where models differ.

    The two runs of a pair count once.
    """
    seeds: dict[tuple[Any, ...], set[int]] = {}
    for record in evidence.records:
        if record.get("seed") is not None:
            seeds.setdefault(tuple(map(record.get, _MODEL)), set()).add(record["seed"] % OTHER_HALF)
    counts = sorted({len(of_model) for of_model in seeds.values()}) or [0]
    words = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{words} training seed" if counts == [1] else f"{words} training seeds"


def trainings_behind(evidence: Evidence) -> str:
    """The same for captions, with a warning where models were trained once and others more often."""
    words = trainings(evidence)
    narrow = " (with one seed, intervals are over images only, and so narrower)" if words.startswith("1 to") else ""
    return words + narrow
