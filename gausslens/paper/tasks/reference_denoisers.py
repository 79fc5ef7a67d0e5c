"""A network and its counterparts, which are given the same inputs: what pictures of several denoisers are made with.

network     the trained model
gaussian    the Wiener filter of its training images
multidelta  the exact posterior mean over its training images, which retrieves them
linear      the affine map closest to the network, distilled on its training images; it knows the ten levels of the
            measures only, and is left out where images have too many pixels to distil by default
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from ...evaluation.context import MeasureContext
from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import Task, TaskContext, Work
from ...store.records import Record
from ..plan import Plan

COUNTERPARTS = ("network", "multidelta", "gaussian", "linear")
"""Names of all, in the order of the paper's figures."""

LABELS = {"network": "network", "multidelta": "multi-delta", "gaussian": "Gaussian", "linear": "linear"}
"""What figures call them."""


def task_on_references(
    plan: Plan,
    work: Work,
    model: Task,
    *,
    denoisers: Sequence[str] = COUNTERPARTS,
    kimg: float | None = None,
    **options: Any,
) -> Task:
    """A task that works on a model and its counterparts."""
    measured = (plan.measured(model, "linear_gap", kimg=kimg),) if "linear" in denoisers else ()
    return plan.on_model(work, model, *measured, kimg=kimg, denoisers=tuple(denoisers), **options)


def references_of(context: TaskContext) -> tuple[MeasureContext, Record, dict[str, nn.Module]]:
    """What a task made by `task_on_references` works on."""
    evaluation, tags = evaluation_of(context)
    names = context.options["denoisers"]
    found = {
        name: evaluation.network if name == "network" else evaluation.references[name]
        for name in names
        if name != "linear"
    }
    if "linear" in names and evaluation.calls is not None:
        found["linear"] = evaluation.linear("network", evaluation.inputs[0])
    return evaluation, tags, found
