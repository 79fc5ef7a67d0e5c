"""Collapse: a training that has lost again what it had learned, though every number is finite.

With steps that are too large Adam may throw a network back to where it began, and leave it there: ADM on CIFAR-10 fell from
a loss of .91 to .25 in 45 thousand images, was at .94 after 58, and at .77 after 512. What has been learned is how far the
loss L has fallen since training began, L₀ − L. A training has collapsed if it once had learned half of L₀ or more, and over
its last records has kept less than half of the most that it had learned. Spikes that pass are no collapse, nor is a loss
that rises while the averaged weights, which are what is used, keep what was learned. Not noticed is a training that learns
most of what it will before its first record.
"""

import statistics
from collections.abc import Iterable
from typing import Any

_LAST = 5  # records, of 50 steps each
_HALF = 0.5


def collapse_told(records: Iterable[dict[str, Any]]) -> str | None:
    """What to say of a training that has collapsed.

    Args:
        records: of the run.

    Returns:
        A sentence, or None if it has not.
    """
    records = list(records)
    losses = [record for record in records if record["quantity"] == "loss"]
    losses = [record for record in losses if record["count"] == losses[0]["count"]]  # the last may be of a few steps
    if len(losses) <= _LAST:
        return None
    first, best = losses[0]["value"], min(losses, key=lambda record: float(record["value"]))
    averaged = [
        record["value"] for record in records if record["quantity"] == "denoising_loss" and record["on"] == "train"
    ]
    now = min([statistics.median(record["value"] for record in losses[-_LAST:]), *averaged[-1:]])
    learned = first - best["value"]
    if learned < _HALF * first or first - now >= _HALF * learned:
        return None
    return (
        f"training has collapsed: its loss, {first:.3g} to begin with, was {best['value']:.3g} after {best['kimg']:g} kimg, "
        f"and is {now:.3g} now. Try a smaller learning rate or a longer ramp."
    )
