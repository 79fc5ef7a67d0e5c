"""What curves show, along which axis: `COPIES.by(SIZE)`, `RMSE.where(reference="gaussian").at(0.0, 1.0)`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ..measures.memorization import MEMORIZED
from ..report import Axis
from ..report import Threshold as Level
from .claims.evidence import Evidence
from .claims.inference import Real
from .claims.thresholds import PAPER_GENERALIZATION, Threshold

Tags: TypeAlias = dict[str, Any]
"""Tags that records must have, by their names."""

FREE, POSITIVE, SHARE, CORRELATION = (-math.inf, math.inf), (0.0, math.inf), (0.0, 1.0), (-1.0, 1.0)
"""The values that there can be."""


class Along(NamedTuple):
    """What curves run along: a tag of records, or several."""

    tag: str | tuple[str, ...]
    axis: Axis
    things: Sequence[Any] = ()  # the values of the tag that stand at 1, 2, …, where they are no numbers

    def place(self, evidence: Evidence) -> tuple[str, Evidence]:
        """The tag that says where records stand, and the records that have it."""
        if isinstance(self.tag, str):
            if not self.things:
                return self.tag, evidence
            values = [record.get(self.tag) for record in evidence.records]
        else:
            values = [tuple(map(record.get, self.tag)) for record in evidence.records]
        return "place", Evidence(
            {**record, "place": self.things.index(value) + 1}
            for record, value in zip(evidence.records, values, strict=True)
            if value in self.things
        )


def along(
    tag: str | tuple[str, ...],
    label: str,
    unit: str = "",
    *,
    log: bool = False,
    things: Mapping[str, Any] | None = None,
) -> Along:
    """What curves run along; `things` stand at 1, 2, … under their names."""
    named = things or {}
    return Along(tag, Axis(label, unit, log, names=tuple(named)), [*named.values()])


SIGMA = along("sigma", "noise level σ", "pixel range [−1, 1]", log=True)
LOW_SIGMA = Along("sigma", replace(SIGMA.axis, log=False))
TIME = along("kimg", "length of training", "thousand images", log=True)
SIZE = along("n", "training images N", log=True)
WIDTH = along("width", "width", "channels", log=True)
EPOCH = along("epoch", "epoch")


class Quantity(NamedTuple):
    """What curves show: records with these tags, unless a line says otherwise."""

    tags: Tags
    y: Axis
    x: Along = SIGMA
    levels: tuple[Level, ...] = ()  # drawn across
    sigmas: tuple[Real, Real] | None = None  # the noise levels that count, from and to; None is all

    def by(self, x: Along) -> "Quantity":
        """The same along another axis."""
        return self._replace(x=x)

    def where(self, **tags: Any) -> "Quantity":
        """Of records that have these tags as well."""
        return self._replace(tags={**self.tags, **tags})

    def at(self, low: Real, high: Real = math.inf) -> "Quantity":
        """At these noise levels."""
        return self._replace(sigmas=(low, high))

    def against(self, threshold: Threshold, label: str, scale: float | None = 1.0) -> "Quantity":
        """With a claim's threshold drawn across, in units of `scale`; without it where None says that this is not known."""
        level = () if scale is None else (Level(threshold.level * scale, label),)
        return self._replace(levels=(*self.levels, *level))


def quantity(
    name: str, label: str, unit: str = "", *, log: bool = False, bounds: tuple[float, float] = FREE, **tags: Any
) -> Quantity:
    """What curves show: the records of a quantity that have these tags."""
    return Quantity({"quantity": name, **tags}, Axis(label, unit, log, bounds=bounds))


RMSE = quantity("rmse", "RMSE", "pixel range [−1, 1]", bounds=POSITIVE, on="held_out")
MEAN_RMSE = RMSE._replace(y=replace(RMSE.y, label="mean RMSE"))
COPIES = quantity("memorized_fraction", "memorised fraction", bounds=SHARE)._replace(
    levels=(Level(MEMORIZED, "memorising"),)
)
GL = quantity("gl", "GL score", bounds=POSITIVE)._replace(levels=(Level(PAPER_GENERALIZATION, "the paper's rule"),))
AGREEMENT = quantity("agreement_correlation", "correlation of pixels", bounds=CORRELATION)
LINEARITY = quantity("linearity_cosine", "linearity, cosine", bounds=SHARE, on="held_out")
LINEARITY_ERROR = quantity("linearity_nmse", "error of linearity, ratio of norms", bounds=POSITIVE, on="held_out")
JACOBIAN_OVERLAP = quantity("jacobian_overlap", "overlap", bounds=SHARE)
