"""Names of `claim`, for files that still look for them here."""

from .claim import (
    Claim,
    Control,
    Finding,
    Statistic,
    bound,
    claim,
    control,
    controls,
    of_the_papers_images,
    pixel_scale,
    rank_statistic,
    statistic,
    unit_words,
)

__all__ = [
    "Claim",
    "Control",
    "Finding",
    "Statistic",
    "bound",
    "claim",
    "control",
    "controls",
    "of_the_papers_images",
    "pixel_scale",
    "rank_statistic",
    "statistic",
    "unit_words",
]
