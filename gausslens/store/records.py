"""Numbers as tidy records: dictionaries with `quantity`, `value`, if known `low`, `high` and `count`, and tags.

Each quantity has one name; names that older versions wrote are read as those of today.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, TypeAlias

from torch import Tensor

from ..measures.agreement import Agreement, Similarity
from ..measures.curve import Curve
from ..measures.intervals import Estimate

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

_SIMILARITIES = ("rmse", "nmse", "correlation", "ssim")


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


def of_estimate(quantity: str, estimate: Estimate, **tags: Any) -> Record:
    """The record of one number with its interval."""
    interval = {"low": estimate.low, "high": estimate.high, "count": estimate.count}
    return record_of(quantity, estimate.value, **interval, **tags)


def of_curve(quantity: str, curve: Curve, **tags: Any) -> Iterator[Record]:
    """The records of a curve, one for each noise level."""
    columns = (column.tolist() for column in (curve.sigmas, curve.values, curve.low, curve.high))
    for sigma, value, low, high in zip(*columns, strict=True):
        yield of_estimate(quantity, Estimate(value, low, high, curve.count), sigma=sigma, **tags)


def of_levels(quantity: str, sigmas: Tensor, values: Sequence[Any], **tags: Any) -> Iterator[Record]:
    """The records of estimates or numbers, one for each noise level; none where the value is None."""
    for sigma, value in zip(sigmas.tolist(), values, strict=True):
        if isinstance(value, Estimate):
            yield of_estimate(quantity, value, sigma=sigma, **tags)
        elif value is not None:
            yield record_of(quantity, value, sigma=sigma, **tags)


def of_agreement(
    found: Agreement, quantity: str = "agreement", measures: Iterable[str] = _SIMILARITIES, **tags: Any
) -> Iterator[Record]:
    """The records of an agreement.

    `noise` is same, shuffled (samples of different noises) and, if there are multi-delta denoisers, excess: the agreement
    minus theirs, paired by noise.
    """
    for noise, likeness in (("same", found.same_noise), ("shuffled", found.shuffled), ("excess", found.excess)):
        if likeness is not None:
            yield from of_similarity(likeness, quantity, measures, noise=noise, **tags)


def of_similarity(
    likeness: Similarity, quantity: str = "agreement", measures: Iterable[str] = _SIMILARITIES, **tags: Any
) -> Iterator[Record]:
    """The records of the similarity of pairs of images, one for each measure."""
    for name in measures:
        yield of_estimate(f"{quantity}_{name}", getattr(likeness, name), **tags)


def record_of(quantity: str, value: float | int, **tags: Any) -> Record:
    """The record of one number, with None in place of values that are not finite."""
    return finite({"quantity": quantity, "value": value, **tags})
