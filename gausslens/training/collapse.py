"""Collapse: a training that has lost what it had learned and has not regained it, though every number is finite.

With steps that are too large Adam may throw a network back to where it began: ADM on CIFAR-10 fell from a loss of .91
to .25 in 45 thousand images, was at .94 after 58, and at .77 after 512. What has been learned is how far the loss L has
fallen over a few records, L₀ − L. A training has collapsed if it had learned half of L₀ or more, lost a fifth of that,
and ends with less than it once had. A spike that passes is no collapse, nor is a loss that rises while the averaged
weights keep what was learned. A training that learns most of what it will before its first record is not noticed.
"""

import statistics
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

_FEW, _LAST = 3, 5  # records, of 50 steps each
_HALF, _FIFTH = 0.5, 0.2
_NOTHING = 0.03  # share of what was learned that noise moves the last records by; in trainings that went well, .02


def collapse_warning(records: Iterable[dict[str, Any]]) -> str | None:
    """A warning if training has collapsed, else None."""
    records = list(records)
    losses = [record for record in records if record["quantity"] == "loss"]
    losses = [record for record in losses if record["count"] == losses[0]["count"]]  # the last may be of a few steps
    if len(losses) <= _LAST:
        return None
    values = [float(record["value"]) for record in losses]
    averaged = [r["value"] for r in records if r["quantity"] == "denoising_loss" and r["on"] == "train"]
    first, now = values[0], min([statistics.median(values[-_LAST:]), *averaged[-1:]])
    levels = [statistics.median(values[end - _FEW : end]) for end in range(_FEW, len(values) + 1)]
    lowest = list(accumulate(levels, min))
    # The share of what was learned that is lost again, where half of the first loss or more was learned.
    lost = [
        (level - low) / (first - low) if 0 < first - low >= _HALF * first else 0.0
        for level, low in zip(levels, lowest, strict=True)
    ]
    worst = max(range(len(levels)), key=lost.__getitem__)
    best, learned = levels.index(lowest[worst]), first - lowest[worst]
    if lost[worst] < _FIFTH or now - levels[best] < _NOTHING * learned:
        return None
    when = [losses[index + _FEW - 1]["kimg"] for index in (best, worst)]
    return (
        f"training collapsed: its loss fell from {first:.3g} to {levels[best]:.3g} after {when[0]:g} kimg, rose to "
        f"{levels[worst]:.3g} after {when[1]:g} kimg, and is {now:.3g} now. Try a smaller learning rate or a longer ramp."
    )
