"""From records to the figures of a report: lines with intervals over seeds and images, and grids of images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report import Axis, ImageGrid, Series
from .claims.evidence import HALF_WIDTH, Evidence, Measure, is_finite
from .claims.inference import combine
from .plan import OTHER_HALF
from .study import Findings

NOISE = Axis("noise level σ", "pixel range [−1, 1]", log=True)
TRAINED = Axis("length of training", "thousand images", log=True)
RMSE = Axis("RMSE", "pixel range [−1, 1]", bounds=(0.0, math.inf))
MEAN_RMSE = replace(RMSE, label="mean RMSE")
COPIES = Axis("memorised fraction", bounds=(0.0, 1.0))
CORRELATION = Axis("correlation of pixels", bounds=(-1.0, 1.0))
OVERLAP = Axis("overlap", bounds=(0.0, 1.0))
GL = Axis("GL score", bounds=(0.0, math.inf))

# Records that differ in none of these are of trainings of one model.
_MODEL = ("network", "preconditioning", "width", "n", "role")


def line(
    name: str, evidence: Evidence, *, x: str = "sigma", dashed: bool = False, number: Measure = Evidence.one
) -> Series:
    """One line: at each x the mean over training seeds, with its 95 % interval over seeds and images.

    Intervals of records need not be symmetric, nor then is their mean's: of no copy among 256 samples it is [0, .015].
    """
    points = [
        (place, *_mean(group.seeds(), number)) for place, group in (evidence.by(x) if len(evidence) else {}).items()
    ]
    columns = list(zip(*points, strict=True)) or [(), (), (), ()]
    return Series(name, columns[0], columns[1], columns[2], columns[3], dashed=dashed)


def _mean(seeds: list[Evidence], number: Measure) -> tuple[float, float | None, float | None]:
    """The mean over seeds of a number, with the ends of its interval, where something says how large its error is."""
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
    return ((value - end) / HALF_WIDTH) ** 2 if is_finite(end) else 0.0


def lines(
    evidence: Evidence,
    by: str,
    name: Callable[[Any], str],
    *,
    x: str = "sigma",
    dashed: Callable[[Any], bool] | None = None,
) -> tuple[Series, ...]:
    """A line for each value of a tag."""
    groups = evidence.by(by) if len(evidence) else {}
    return tuple(
        line(name(value), group, x=x, dashed=dashed is not None and dashed(value)) for value, group in groups.items()
    )


def trainings(evidence: Evidence) -> str:
    """How often models were trained for these records, in words: "3 training seeds", or "1 to 3" where models differ.

    The two of a pair count once.
    """
    seeds: dict[tuple[Any, ...], set[int]] = {}
    for record in evidence.records:
        if record.get("seed") is not None:
            model = tuple(record.get(tag) for tag in _MODEL)
            seeds.setdefault(model, set()).add(record["seed"] % OTHER_HALF)
    counts = sorted({len(of_model) for of_model in seeds.values()}) or [0]
    told = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{told} training seed" if counts == [1] else f"{told} training seeds"


def trainings_behind(evidence: Evidence) -> str:
    """The same for captions: where some models were trained once and others more often, intervals do not compare."""
    told = trainings(evidence)
    return told + (" (of one, intervals are over images alone, and narrow for it)" if told.startswith("1 to") else "")


def non_empty_series(*series: Series) -> tuple[Series, ...]:
    """Those lines that have points."""
    return tuple(one for one in series if len(one.x))


def non_empty_figures(*figures: Any) -> list[Any]:
    """Those figures that have something to show: at least one point or picture."""
    return [figure for figure in figures if figure is not None and getattr(figure, "series", True) != ()]


def sample_grid(
    findings: Findings, rows: Sequence[tuple[str, str, str]], *, columns: int = 10, **words: Any
) -> ImageGrid | None:
    """Samples of several models from the same noise, a row for each."""
    found = [(label, findings.array(key, name)) for label, key, name in rows]
    there = [(label, images[:columns]) for label, images in found if images is not None]
    if not there:
        return None
    width = min(len(images) for _, images in there)
    pictures: NDArray[Any] = np.stack([images[:width] for _, images in there])
    labels = tuple(f"noise {index + 1}" for index in range(width))
    return ImageGrid(
        rows=tuple(label for label, _ in there),
        columns=labels,
        images=pictures,
        command=findings.command,
        **words,
    )
