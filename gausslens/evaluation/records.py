"""Numbers as tidy records: dictionaries with `quantity`, `value`, if known `low`, `high` and `count`, and tags."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..measures.agreement import Agreement, Similarity
from ..measures.curve import Curve
from ..measures.intervals import Estimate
from ..store.records import Record, finite

_SIMILARITIES = ("rmse", "nmse", "correlation", "ssim")


def of_estimate(quantity: str, estimate: Estimate, **tags: Any) -> Record:
    """The record of one number with its interval."""
    interval = {"low": estimate.low, "high": estimate.high, "count": estimate.count}
    return record_of(quantity, estimate.value, **interval, **tags)


def of_curve(quantity: str, curve: Curve, **tags: Any) -> Iterator[Record]:
    """The records of a curve, one for each noise level."""
    columns = (column.tolist() for column in (curve.sigmas, curve.values, curve.low, curve.high))
    for sigma, value, low, high in zip(*columns, strict=True):
        yield of_estimate(quantity, Estimate(value, low, high, curve.count), sigma=sigma, **tags)


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
