"""What several claims compare: the ends of a tag, two curves level by level, and gaps in the unit of the paper's images."""

from typing import Any

from .evidence import Evidence, MissingError, Number, mean_at


def largest(evidence: Evidence, tag: str = "n") -> Any:
    """The largest value of a tag; None without any."""
    return max((record[tag] for record in evidence.records if record.get(tag) is not None), default=None)


def ends(records: Evidence, tag: str, every_seed: Evidence) -> tuple[Evidence, Evidence]:
    """One seed's records at the smallest and at the largest value of a tag, of those that any seed has."""
    values = [*every_seed.by(tag)]
    if len(values) < 2:
        raise MissingError(f"two values of {tag} are needed, 1 found")
    return records.where(**{tag: values[0]}), records.where(**{tag: values[-1]})


def mean_difference(first: Evidence, second: Evidence) -> Number:
    """The mean over noise levels of a curve minus that of another at the same levels."""
    return first.mean() - mean_at(second.curve(), [*first.curve()])
