"""The thresholds of the claims, one table, each with its source; a change needs a dated entry in docs/log/.

A statistic must lie above `above` and below `below`, where given. Gaps are in units of [-1, 1] pixels for the data in
`PIXEL_UNITS` and relative to the root mean square of the data's pixels elsewhere.
"""

import math
from dataclasses import dataclass

PIXEL_UNITS = ("cifar10", "celeba", "celeba64", "ffhq", "ffhq64")

HIGH_NOISE, LOW_NOISE = 20.0, 0.1
"""Where the paper's high noise levels begin and its low ones end."""

CERTAIN_SEEDS = 3
"""Training seeds that must agree before a claim holds."""

Range = tuple[float | None, float | None]
"""The least and the greatest value that a number can have, where there is one: intervals over few seeds end there."""

ANY: Range = (None, None)
CORRELATION: Range = (-1.0, 1.0)
POSITIVE: Range = (0.0, None)


@dataclass(frozen=True)
class Threshold:
    """What a statistic must exceed, or stay below.

    Attributes:
        source: the paper's figure, or why we chose it.
        above: the statistic must be above this.
        below: the statistic must be below this.
        possible: the values that it can have.
    """

    source: str
    above: float | None = None
    below: float | None = None
    possible: Range = ANY

    def __str__(self) -> str:
        if self.above is not None and self.below is not None:
            return f"in ({self.above:.3g}, {self.below:.3g})"
        return f"> {self.above:.3g}" if self.above is not None else f"< {self.below:.3g}"


_SIGN = "our choice: the sign that the paper claims"

THRESHOLDS: dict[str, Threshold] = {
    "C1 slope": Threshold(_SIGN + " in Fig. 1", above=0.0),
    "C1 generalizing": Threshold("the paper, Figs. 1 and 10", above=0.96, possible=CORRELATION),
    "C1 memorizing": Threshold("the paper, Fig. 1", below=0.87, possible=CORRELATION),
    "C2 cosine": Threshold(_SIGN + " in Fig. 13", above=0.0),
    "C2 nmse": Threshold(_SIGN + " in Fig. 13; a larger error is less linear", below=0.0),
    "C3 difference": Threshold(_SIGN + " in Fig. 10", below=0.0),
    "C4 difference": Threshold(_SIGN + " in Fig. 11", above=0.0),
    "C5 gap": Threshold("the paper, Fig. 2", below=0.05, possible=POSITIVE),
    "C6 gap": Threshold("the paper, Fig. 2", below=0.05, possible=POSITIVE),
    "C7 ratio": Threshold("our choice: closer to the Gaussian than to the training images", below=0.0),
    "C7 linear": Threshold("our choice: 20 % reads as equal in Fig. 2", above=-math.log(1.2), below=math.log(1.2)),
    "C8 error": Threshold("the paper, Fig. 4", below=0.2),
    "C9 overlap": Threshold("our choice: four fifths of what two halves of the images agree on", above=0.8),
    "C10 held-out": Threshold(_SIGN + " in Fig. 5", above=0.0),
    "C10 train": Threshold("our choice: the perturbation that a fit must be able to see", below=0.1),
    "C11 size": Threshold(_SIGN + " in Fig. 6", below=0.0),
    "C11 width": Threshold(_SIGN + " in Fig. 7", above=0.0),
    "C11 late rise": Threshold("our choice: a rise without memorising occurs at large N as well", above=0.0),
    "C11 order": Threshold(_SIGN + " in Fig. 8", above=0.0),
    "C12 width": Threshold(_SIGN + " in Fig. 7", below=0.0),
    "C12 training": Threshold(_SIGN + " in Fig. 17", above=0.0),
    "C13 size": Threshold(_SIGN + " in Fig. 16", above=0.0),
    "C13 width": Threshold("our choice: 10 % reads as equal in Fig. 16", above=-0.1, below=0.1),
    "C14 slope": Threshold(_SIGN + " in Fig. 13", above=0.0),
    "C14 rank": Threshold(_SIGN + " in Fig. 13", above=0.0, possible=CORRELATION),
    "C15 agree": Threshold("our choice: two models that retrieve training images agree this much", above=0.0),
    "C15 small": Threshold(
        "our choice: a correlation that differs by less than .05 reads as equal; two models that retrieve training images "
        "have an excess of exactly 0, which could not be shown without a margin",
        below=0.05,
    ),
    "C16 correlation": Threshold("our choice: the same to the eye in Fig. 9", above=0.95, possible=CORRELATION),
    "C17 linear": Threshold("the paper, Fig. 24", below=0.04, possible=POSITIVE),
    "C17 difference": Threshold(_SIGN + " in Fig. 24", below=0.0),
    "C18 agreement": Threshold("our choice: two models that retrieve training images agree this much", above=0.0),
    "C18 layout": Threshold("our choice: samples that are training images agree this much", above=0.0),
    "C19 difference": Threshold("our choice: 2 % of an image's norm is not seen", above=-0.02, below=0.02),
    "C20 overlap": Threshold(
        "our choice: four fifths reads as the same subspace in Fig. 28", above=0.8, possible=(0.0, 1.0)
    ),
    "C20 fall": Threshold(_SIGN + " in Fig. 28", above=0.0),
    "C21 residual": Threshold("our choice: rounding in float64, with a margin", below=1e-10),
}

MUCH_CLOSER = math.log(0.5)
"""Mean log ratio below which the text of C7 says "much closer"."""

PAPER_GENERALIZATION = 0.6
"""GL above which the paper calls a model generalising (Fig. 13): shown, never judged, as new real images may score less."""
