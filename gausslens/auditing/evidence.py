"""What an audit measured: its records, found by quantity. The verdict, the text, the JSON and the page all read these."""

from collections.abc import Iterable
from typing import Any

from ..measures.intervals import Estimate
from ..store.records import Record
from .membership import lower_limit

DISTANCES = {
    "gaussian": {"denoiser": "network", "reference": "gaussian"},
    "multidelta": {"denoiser": "network", "reference": "multidelta"},
    "references": {"denoiser": "multidelta", "reference": "gaussian"},
}
"""Between which two denoisers a distance is."""

FEWEST_ORIGINALS = 3
"""With fewer, a copy cannot be distinguished from a likeness."""


class Evidence:
    """The records of an audit; what was not measured is not among them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._of_quantity: dict[str, list[Record]] = {}
        for record in records:
            self._of_quantity.setdefault(record["quantity"], []).append(record)

    def find(self, quantity: str, **tags: Any) -> list[Record]:
        """The records of a quantity, and of these tags."""
        found = self._of_quantity.get(quantity, [])
        return [record for record in found if all(record.get(name) == value for name, value in tags.items())]

    def first(self, quantity: str) -> Record | None:
        """The first record of a quantity, or None."""
        return next(iter(self.find(quantity)), None)

    def value(self, quantity: str) -> Any:
        """The value of the first record of a quantity, or None."""
        record = self.first(quantity)
        return None if record is None else record["value"]

    def estimate(self, quantity: str) -> Estimate | None:
        """The same with its interval."""
        record = self.first(quantity)
        return None if record is None or record["value"] is None else estimate_of(record)

    def by_level(self, quantity: str, **tags: Any) -> dict[float, Estimate]:
        """The values with their intervals by noise level, descending; only where they are known."""
        return {one["sigma"]: estimate_of(one) for one in self.find(quantity, **tags) if one["value"] is not None}

    def where(self, flag: str) -> list[float]:
        """The noise levels at which a flag is set."""
        return [record["sigma"] for record in self.find(flag) if record["value"]]

    @property
    def refused(self) -> str | None:
        """Why training and held-out images cannot be compared; None if nothing speaks against it."""
        record = self.first("refused")
        return None if record is None else record["reason"]

    @property
    def auc_low(self) -> list[float]:
        """Lower limits of the AUC that hold at all noise levels together."""
        aucs = self.by_level("auc").values()
        found = [record["value"] for record in self.find("auc_low")]
        return found or [lower_limit(auc, auc.count // 2, len(aucs)) for auc in aucs]  # version 0.1 wrote none


def estimate_of(record: Record) -> Estimate:
    """The number of a record with its interval; an end that is not known is NaN."""
    low, high = (float("nan") if record.get(end) is None else float(record[end]) for end in ("low", "high"))
    return Estimate(float(record["value"]), low, high, record["count"])
