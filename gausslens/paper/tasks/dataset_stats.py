"""What is known of the images themselves, before any model: numbers that claims are measured by."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...data.duplicates import find_duplicates
from ...data.loading import load_images
from ...data.splits import Splits
from ...experiments.task import Task, TaskContext, Work, task
from ...generation import best_device
from ...images import as_tensor, dequantize
from ...measures.intervals import mean_estimate
from ...measures.originals import near_duplicates
from ...store.records import Record
from ..claims.evidence import Evidence
from ..plan import Plan

LOADING = ("size", "value_range", "skip_broken", "held_out", "split_seed")
"""Fields of a training that say how images are loaded and split."""


def dataset_stats_task(plan: Plan) -> Task:
    """The task that describes the images that may be trained on; it needs no model."""
    return on_images(plan, describe_images, {})


def on_images(plan: Plan, work: Work, options: Mapping[str, Any]) -> Task:
    """A task that works on images alone."""
    told = {**{name: plan.training.get(name) for name in LOADING}, **options}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}
    return Task(
        work,
        {"content_hash": plan.content_hash, **listed},
        runtime={"data": plan.data, "cpu": plan.cpu},
    )


def available_images(context: TaskContext) -> Tensor:
    """The images that may be trained on, uint8 (n, c, h, w), of a task made by `on_images`."""
    return available_and_held_out(context)[0]


def available_and_held_out(context: TaskContext) -> tuple[Tensor, Tensor]:
    """The images that may be trained on, and those held out, uint8 (n, c, h, w), of a task made by `on_images`."""
    pixels, splits = load_split_images(context)
    return pixels[as_tensor(splits.named("all"))], pixels[as_tensor(splits.held_out)]


def load_split_images(context: TaskContext) -> tuple[Tensor, Splits]:
    """All images, uint8 (n, c, h, w), and how they are split, of a task whose options say so (`LOADING`)."""
    told: dict[str, Any] = {name: context.options.get(name) for name in LOADING}
    images = load_images(
        context.options["data"],
        size=told["size"],
        value_range=None if told["value_range"] is None else (told["value_range"][0], told["value_range"][1]),
        skip_broken=told["skip_broken"],
    )
    return as_tensor(images.images), Splits(len(images), held_out=told["held_out"], seed=told["split_seed"])


@task("describe_images", version=2)
def describe_images(context: TaskContext) -> Iterator[Record]:
    """Describe the images that may be trained on. Options: the images' `content_hash`, and how they are loaded and split.

    Yields:
        `data_rms`, the root mean square of their pixels in [-1, 1], with its interval over images; `dim`, pixels times
        channels; and `duplicates`, how many of them repeat another one, and how many held-out images repeat one of them.
    """
    device = best_device(cpu=context.options.get("cpu", False))
    chosen, unseen = available_and_held_out(context)
    squares = [dequantize(part, torch.float64).square().flatten(1).mean(1) for part in chosen.split(1024)]
    found = mean_estimate(torch.cat(squares))
    low, value, high = (max(number, 0.0) ** 0.5 for number in (found.low, found.value, found.high))
    yield {"quantity": "data_rms", "value": value, "low": low, "high": high, "count": found.count}
    yield {"quantity": "dim", "value": chosen[0].numel()}
    repeated = near_duplicates(chosen, device=device)
    yield {"quantity": "duplicates", "value": len(repeated), "count": len(chosen), "on": "train"}
    shared = find_duplicates(chosen, unseen, device=device)
    yield {"quantity": "duplicates", "value": shared.count, "count": len(unseen), "on": "held_out"}


def format_duplicates(evidence: Evidence) -> str:
    """How many images repeat others, as a sentence with a space before it; empty if it is not known."""
    found = {record["on"]: record for record in evidence.where(quantity="duplicates").records}
    if not found:
        return ""
    (count, own), (held_out, shared) = (
        (f"{found[on]['count']:,}", f"{found[on]['value']:,}" if found[on]["value"] else "none")
        for on in ("train", "held_out")
    )
    return (
        f" Of the {count} images that may be trained on, {own} repeat another one; of {held_out} held out, {shared} repeat "
        "one of them, exactly or nearly."
    )
