"""What curves show, along which axis: `COPIES.by(SIZE)`, `RMSE.where(reference="gaussian").at(0.0, 1.0)`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ..measures.memorization import MEMORIZED
from ..report import Axis
from ..report import Threshold as Level
from .claims.claim import PAPER_GENERALIZATION, Threshold, pixel_scale
from .claims.evidence import Evidence, MissingError
from .claims.inference import ANY, Range, Real

Tags: TypeAlias = dict[str, Any]
"""Tags that records must have, by their names."""

POSITIVE, SHARE, CORRELATION = (0.0, math.inf), (0.0, 1.0), (-1.0, 1.0)
"""Ranges of possible values."""


class Along(NamedTuple):
    """The x axis of curves: the numbers of a tag, or things with certain tags, at 1, 2, …."""

    axis: Axis
    tag: str = "place"
    things: Sequence[Tags] = ()

    def place(self, evidence: Evidence) -> Evidence:
        """The records, with their place on the axis as a tag."""
        if not self.things:
            return evidence
        places = enumerate((evidence.where(**tags).records for tags in self.things), 1)
        return Evidence({**record, self.tag: place} for place, records in places for record in records)


def among(label: str, things: Mapping[str, Tags]) -> Along:
    """An x axis of things: their names, and the tags of their records."""
    return Along(Axis(label, names=tuple(things)), things=[*things.values()])


SIGMA = Along(Axis("noise level σ", "pixel range [−1, 1]", log=True), "sigma")
LOW_SIGMA = Along(Axis("noise level σ", "pixel range [−1, 1]"), "sigma")
TIME = Along(Axis("length of training", "thousand images", log=True), "kimg")
SIZE = Along(Axis("training images N", log=True), "n")
WIDTH = Along(Axis("width", "channels", log=True), "width")
EPOCH = Along(Axis("epoch"), "epoch")


class Quantity(NamedTuple):
    """What curves show: the records with these tags. A line may replace some of the tags."""

    tags: Tags
    y: Axis
    x: Along = SIGMA
    levels: tuple[Level, ...] = ()  # horizontal lines
    sigmas: tuple[Real, Real] | None = None  # the lowest and the highest noise level; None for all levels

    def by(self, x: Along) -> "Quantity":
        """The same along another x axis."""
        return self._replace(x=x)

    def where(self, **tags: Any) -> "Quantity":
        """The same of records that also have these tags."""
        return self._replace(tags={**self.tags, **tags})

    def at(self, low: Real, high: Real = math.inf) -> "Quantity":
        """The same at noise levels in this range."""
        return self._replace(sigmas=(low, high))

    def select(self, evidence: Evidence, **tags: Any) -> Evidence:
        """Its records; the given tags replace its own."""
        found = evidence.where(**{**self.tags, **tags})
        return self.x.place(found if self.sigmas is None else found.at(*self.sigmas))

    def against(self, threshold: Threshold, label: str, evidence: Evidence | None = None) -> "Quantity":
        """The same with a claim's threshold as a horizontal line.

        With `evidence`, the threshold is that of a gap, in the data's unit; there is no line where this is not known.
        """
        try:
            scale = 1.0 if evidence is None else pixel_scale(evidence)
        except MissingError:
            return self
        return self._replace(levels=(*self.levels, Level(threshold.level * scale, label)))


def quantity(name: str, label: str, unit: str = "", *, log: bool = False, bounds: Range = ANY, **tags: Any) -> Quantity:
    """What curves show: the records of a quantity with these tags."""
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
