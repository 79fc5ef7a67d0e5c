"""Numbers as tidy records: plain dictionaries with `quantity`, `value`, where known `low`, `high` and `count`, and tags."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from ..measures.agreement import Agreement, Similarity
from ..measures.curve import Curve
from ..measures.intervals import Estimate
from ..store.records import Record

_SIMILARITIES = ("rmse", "nmse", "correlation", "ssim")


def of_estimate(quantity: str, estimate: Estimate, **tags: Any) -> Record:
    """The record of one number with its interval."""
    interval = {"low": _finite(estimate.low), "high": _finite(estimate.high), "count": estimate.count}
    return record_of(quantity, estimate.value, **interval, **tags)


def of_curve(quantity: str, curve: Curve, **tags: Any) -> Iterator[Record]:
    """The records of a curve, one for each noise level.

    Yields:
        The records.
    """
    columns = (column.tolist() for column in (curve.sigmas, curve.values, curve.low, curve.high))
    for sigma, value, low, high in zip(*columns, strict=True):
        yield of_estimate(quantity, Estimate(value, low, high, curve.count), sigma=sigma, **tags)


def of_agreement(
    found: Agreement, quantity: str = "agreement", measures: Iterable[str] = _SIMILARITIES, **tags: Any
) -> Iterator[Record]:
    """The records of how alike samples of two models are.

    Yields:
        Those with `noise` same, with `noise` shuffled, between samples of different noises, and where that was asked for
        with `noise` excess: minus that of two multi-delta denoisers, paired by noise.
    """
    for noise, likeness in (("same", found.same_noise), ("shuffled", found.shuffled), ("excess", found.excess)):
        if likeness is not None:
            yield from of_similarity(likeness, quantity, measures, noise=noise, **tags)


def of_similarity(
    likeness: Similarity, quantity: str = "agreement", measures: Iterable[str] = _SIMILARITIES, **tags: Any
) -> Iterator[Record]:
    """The records of how alike pairs of images are, one for each measure.

    Yields:
        The records.
    """
    for name in measures:
        yield of_estimate(f"{quantity}_{name}", getattr(likeness, name), **tags)


def record_of(quantity: str, value: float | int, **tags: Any) -> Record:
    """One number with its tags; None if it is not finite, since JSON has no other numbers."""
    return {"quantity": quantity, "value": _finite(value), **tags}


def _finite(value: float | int) -> float | int | None:
    """JSON has no other numbers."""
    return value if math.isfinite(value) else None
