"""Names of `claim`, for files that still look for them here."""

from .claim import CORRELATION, HIGH_NOISE, LOW_NOISE, PAPER_GENERALIZATION, POSITIVE, SIGN, Threshold

__all__ = ["CORRELATION", "HIGH_NOISE", "LOW_NOISE", "PAPER_GENERALIZATION", "POSITIVE", "SIGN", "Threshold"]
