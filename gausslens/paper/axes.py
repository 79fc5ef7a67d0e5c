"""The axes of curves: what they run along, and which records they show."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ..measures.memorization import MEMORIZED
from ..report import Axis
from ..report import Threshold as Level
from .claims.evidence import Evidence
from .claims.thresholds import PAPER_GENERALIZATION

Tags: TypeAlias = dict[str, Any]
"""Tags that records must have, by their names."""


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


class Quantity(NamedTuple):
    """What curves show: records with these tags, unless a figure or a line says otherwise."""

    tags: Tags
    axis: Axis
    levels: tuple[Level, ...] = ()  # levels drawn across


SIGMA = Along("sigma", Axis("noise level σ", "pixel range [−1, 1]", log=True))
LOW_SIGMA = Along("sigma", replace(SIGMA.axis, log=False))
TIME = Along("kimg", Axis("length of training", "thousand images", log=True))
SIZE = Along("n", Axis("training images N", log=True))
WIDTH = Along("width", Axis("width", "channels", log=True))
EPOCH = Along("epoch", Axis("epoch"))

RMSE = Quantity(Tags(quantity="rmse", on="held_out"), Axis("RMSE", "pixel range [−1, 1]", bounds=(0.0, math.inf)))
MEAN_RMSE = RMSE._replace(axis=replace(RMSE.axis, label="mean RMSE"))
COPIES = Quantity(
    Tags(quantity="memorized_fraction"),
    Axis("memorised fraction", bounds=(0.0, 1.0)),
    (Level(MEMORIZED, "memorising"),),
)
GL = Quantity(
    Tags(quantity="gl"), Axis("GL score", bounds=(0.0, math.inf)), (Level(PAPER_GENERALIZATION, "the paper's rule"),)
)
AGREEMENT = Quantity(Tags(quantity="agreement_correlation"), Axis("correlation of pixels", bounds=(-1.0, 1.0)))
JACOBIAN_OVERLAP = Quantity(Tags(quantity="jacobian_overlap"), Axis("overlap", bounds=(0.0, 1.0)))
RESIDUAL = Quantity(Tags(quantity="theorem_residual"), Axis("relative distance", log=True))
