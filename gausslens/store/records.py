"""The vocabulary of records: one name for each quantity, and the names that older versions wrote."""

from math import isfinite
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]
"""One number with what it is the number of: {"quantity": "loss", "value": 0.41, "kimg": 12.8, …}."""

_DISTANCES = {
    "distance_gaussian": ("network", "gaussian"),
    "distance_multidelta": ("network", "multidelta"),
    "distance_linear": ("network", "linear"),
    "distance_references": ("multidelta", "gaussian"),
}
"""Distances in audits of version 0.1, by the two denoisers between which they are."""

_RENAMED = {
    "gap_rmse": "rmse",
    "gap_nmse": "nmse",
    "gap_ev": "ev",
    "gl_relative": "relative_gl",
    "memorised_fraction": "memorized_fraction",
    "memorised_fraction_held_out": "memorized_fraction_held_out",
}
"""Quantities of version 0.1 by the names they have now."""


def with_current_names(record: Record) -> Record:
    """The record as this version would write it.

    >>> with_current_names({"quantity": "gap_rmse", "value": 0.1})
    {'quantity': 'rmse', 'value': 0.1}
    """
    quantity = record.get("quantity")
    if quantity in _DISTANCES:
        denoiser, reference = _DISTANCES[quantity]
        return {**record, "quantity": "rmse", "denoiser": denoiser, "reference": reference}
    return {**record, "quantity": _RENAMED[quantity]} if quantity in _RENAMED else record


def finite(record: Record) -> Record:
    """The record with None in place of NaN and infinity, which JSON has not."""
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in record.items()}
