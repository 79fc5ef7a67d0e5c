"""Failures of side work that must not end the main work."""

import math
from dataclasses import dataclass
from typing import Any

from ..errors import GausslensError, is_short_of_memory, one_line


@dataclass(frozen=True)
class Failure:
    """Something that went wrong."""

    what: str  # what was tried, such as "The look"
    step: float | int | None  # when; None if that is no number
    reason: str

    @classmethod
    def of(cls, what: str, step: Any, error: Exception) -> "Failure":
        """What an error says."""
        number = step if isinstance(step, int | float) and math.isfinite(step) else None
        if isinstance(error, GausslensError):
            return cls(what, number, str(error).rstrip(". "))
        reason = one_line(error)
        return cls(what, number, f"memory does not suffice ({reason})" if is_short_of_memory(error) else reason)

    def sentence(self, unit: str = "step") -> str:
        """The failure as a sentence."""
        when = "" if self.step is None else f" at {unit} {self.step:.10g}"
        return f"{self.what}{when} failed: {self.reason}."
