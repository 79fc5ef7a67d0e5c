"""What curves run along, their axes, and the levels that are drawn across several figures."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..measures.memorization import MEMORIZED
from ..report import Axis
from ..report import Threshold as Level
from .claims.evidence import Evidence
from .claims.thresholds import PAPER_GENERALIZATION


class Along(NamedTuple):
    """What curves run along: a tag of records, or several, and its axis."""

    tag: str | tuple[str, ...]  # the tag
    axis: Axis  # the axis
    things: Sequence[Any] = ()  # the values of the tag that stand at 1, 2, …, where they are no numbers

    def place(self, evidence: Evidence) -> tuple[str, Evidence]:
        """The tag that says where records stand, and the records that have it."""
        if isinstance(self.tag, str) and not self.things:
            return self.tag, evidence
        tags = (self.tag,) if isinstance(self.tag, str) else self.tag
        found = []
        for record in evidence.records:
            value = record.get(tags[0]) if len(tags) == 1 else tuple(map(record.get, tags))
            if value in self.things:
                found.append({**record, "place": self.things.index(value) + 1})
        return "place", Evidence(found)


SIGMA = Along("sigma", Axis("noise level σ", "pixel range [−1, 1]", log=True))
LOW_SIGMA = Along("sigma", replace(SIGMA.axis, log=False))
TIME = Along("kimg", Axis("length of training", "thousand images", log=True))
SIZE = Along("n", Axis("training images N", log=True))
WIDTH = Along("width", Axis("width", "channels", log=True))
EPOCH = Along("epoch", Axis("epoch"))

RMSE = Axis("RMSE", "pixel range [−1, 1]", bounds=(0.0, math.inf))
MEAN_RMSE = replace(RMSE, label="mean RMSE")
COPIES = Axis("memorised fraction", bounds=(0.0, 1.0))
CORRELATION = Axis("correlation of pixels", bounds=(-1.0, 1.0))
OVERLAP = Axis("overlap", bounds=(0.0, 1.0))
GL = Axis("GL score", bounds=(0.0, math.inf))

MEMORIZING = Level(MEMORIZED, "memorising")
PAPER_RULE = Level(PAPER_GENERALIZATION, "the paper's rule")
