"""Colours and marks that every reader can distinguish, and colour maps.

The colours are those of Okabe and Ito, which differ for every kind of colour blindness. Yellow is left out, since it cannot
be read on white. Each line also has a mark. Dashes are left to carry a meaning.
"""

from .figures import Real

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKS = ("circle", "square", "diamond", "cross", "triangle-up")  # coprime to the number of colours

SEQUENTIAL = ("#00204D", "#414D6B", "#7C7B78", "#BCAF6F", "#FFEA46")  # cividis
DIVERGING = ("#0072B2", "#F7F7F7", "#D55E00")


def look(index: int) -> tuple[str, str]:
    """Colour and mark of the line with this index; the first 35 all differ."""
    return COLOURS[index % len(COLOURS)], MARKS[index % len(MARKS)]


def scale(low: Real, high: Real) -> tuple[str, ...]:
    """The colours of a heat-map: white in the middle where values go from below to above zero."""
    return DIVERGING if low < 0 < high else SEQUENTIAL
