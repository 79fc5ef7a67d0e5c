"""Statistics of the images themselves, which claims are measured by."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...data.duplicates import find_duplicates
from ...data.loading import load_images
from ...data.splits import Splits
from ...experiments.task import TaskContext, task
from ...images import as_tensor, dequantize
from ...measures.intervals import mean_estimate
from ...measures.originals import near_duplicates
from ...store.records import Record
from ..claims.evidence import Evidence
from ..plan import READING


def read_images(context: TaskContext) -> Tensor:
    """All images, uint8 (n, c, h, w), as the task's options say how to read them."""
    how: dict[str, Any] = {name: context.options.get(name) for name in READING}
    return as_tensor(load_images(context.options["data"], **how).images)


def split_images(context: TaskContext) -> Callable[[str], Tensor]:
    """A function that returns the images of a split by its name, uint8 (n, c, h, w), for a task of `Plan.on_images`."""
    images, options = read_images(context), context.options
    splits = Splits(len(images), held_out=options["held_out"], seed=options["split_seed"])
    return lambda name: images[as_tensor(splits.named(name))]


@task("describe_images", version=2, of_0_1="studies.describing")
def describe_images(context: TaskContext) -> Iterator[Record]:
    """Describe the images available for training. Options: their `content_hash`, and how they are loaded and split.

    Yields:
        `data_rms`, the root mean square of their pixels in [-1, 1], with its interval over images; `dim`, pixels times
        channels; and `duplicates`: how many of them repeat another one, and how many held-out images repeat one of them.
    """
    images = split_images(context)
    chosen, unseen = images("all"), images("held-out")
    squares = [dequantize(part, torch.float64).square().flatten(1).mean(1) for part in chosen.split(1024)]
    found = mean_estimate(torch.cat(squares))
    low, value, high = (max(number, 0.0) ** 0.5 for number in (found.low, found.value, found.high))
    yield {"quantity": "data_rms", "value": value, "low": low, "high": high, "count": found.count}
    yield {"quantity": "dim", "value": chosen[0].numel()}
    repeated = len(near_duplicates(chosen, device=context.device))
    yield {"quantity": "duplicates", "value": repeated, "count": len(chosen), "on": "train"}
    shared = find_duplicates(chosen, unseen, device=context.device).count
    yield {"quantity": "duplicates", "value": shared, "count": len(unseen), "on": "held_out"}


def format_duplicates(evidence: Evidence) -> str:
    """How many images repeat others, as a sentence with a space before it; empty if it is not known."""
    found = {record["on"]: record for record in evidence.where(quantity="duplicates").records}
    if not found:
        return ""
    train, held_out = found["train"], found["held_out"]
    if not train["value"] and not held_out["value"]:
        return (
            f" No exact or near duplicates were found among the {train['count']:,} images available for training, nor "
            f"between them and the {held_out['count']:,} held-out images."
        )
    own, shared = (f"{record['value']:,}" if record["value"] else "none" for record in (train, held_out))
    return (
        f" Exact or near duplicates: of the {train['count']:,} images available for training, {own} repeat another "
        f"one; of the {held_out['count']:,} held-out images, {shared} repeat a training image."
    )
