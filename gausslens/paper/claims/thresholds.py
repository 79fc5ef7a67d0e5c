"""What a threshold is, and the numbers that several claims share; each claim's own thresholds are in its study's file.

A statistic must lie above `above` and below `below`, where given. Gaps are in units of [-1, 1] pixels for the data in
`PIXEL_UNITS` and relative to the root mean square of the data's pixels elsewhere. A change needs a dated entry in docs/log/.
"""

from dataclasses import dataclass

PIXEL_UNITS = ("cifar10", "celeba", "celeba64", "ffhq", "ffhq64")

HIGH_NOISE, LOW_NOISE = 20.0, 0.1
"""Where the paper's high noise levels begin and its low ones end."""

CERTAIN_SEEDS = 3
"""Training seeds that must agree before a claim holds."""

PAPER_GENERALIZATION = 0.6
"""GL above which the paper calls a model generalising (Fig. 13): shown, never judged, as new real images may score less."""

SIGN = "our choice: the sign that the paper claims"
"""The source of most thresholds at 0."""

Range = tuple[float | None, float | None]
"""The least and the greatest value that a number can have, where there is one: intervals over few seeds end there."""

ANY: Range = (None, None)
CORRELATION: Range = (-1.0, 1.0)
POSITIVE: Range = (0.0, None)


@dataclass(frozen=True)
class Threshold:
    """What a statistic must exceed, or stay below."""

    source: str  # the paper's figure, or why we chose it
    above: float | None = None  # the statistic must be above this
    below: float | None = None  # the statistic must be below this
    possible: Range = ANY  # the values that it can have

    @property
    def level(self) -> float:
        """The one number that it sets, for figures."""
        (level,) = (end for end in (self.above, self.below) if end is not None)
        return level

    def __str__(self) -> str:
        if self.above is not None and self.below is not None:
            return f"in ({self.above:.3g}, {self.below:.3g})"
        return f"> {self.above:.3g}" if self.above is not None else f"< {self.below:.3g}"
