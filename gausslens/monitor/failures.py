"""Failures of side work that must not end the main work: each is remembered, and told once."""

import logging
import math
import re
from dataclasses import dataclass
from typing import Any

from ..errors import GausslensError, is_short_of_memory, one_line

_LOGGER = logging.getLogger("gausslens")  # no warning: where warnings are errors, it would end the main work


@dataclass(frozen=True)
class Failure:
    """Something that went wrong.

    Attributes:
        what: what was tried, such as "The look".
        step: when; None if that is no number.
        reason: what went wrong.
    """

    what: str
    step: float | int | None
    reason: str

    def sentence(self, unit: str = "step") -> str:
        """It in plain words."""
        when = "" if self.step is None else f" at {unit} {self.step:.10g}"
        return f"{self.what}{when} failed: {self.reason}."


class Failures:
    """The failures of one monitor.

    Attributes:
        latest: the last one, unless side work has succeeded since.
    """

    def __init__(self) -> None:
        self.latest: Failure | None = None
        self._told: set[str] = set()

    def remember(self, what: str, step: Any, error: Exception) -> None:
        """Remember an error, and tell of it unless one that differs only in its numbers has been told before."""
        number = step if isinstance(step, int | float) and math.isfinite(step) else None
        self.latest = Failure(what, number, _reason(error))
        text = self.latest.sentence()
        kind = re.sub(r"\d[\d.]*", "0", text)
        if kind not in self._told:
            self._told.add(kind)
            _LOGGER.warning("%s The training goes on.", text)


def _reason(error: Exception) -> str:
    if isinstance(error, GausslensError):
        return str(error).rstrip(". ")
    if is_short_of_memory(error):
        return f"memory does not suffice ({one_line(error)})"
    return one_line(error)
