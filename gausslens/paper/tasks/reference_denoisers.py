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

from ...evaluation.context import Subject
from ...evaluation.model_tasks import subject_of
from ...experiments.task import Record, Task, TaskContext, Work
from ..plan import Plan

COUNTERPARTS = ("network", "multidelta", "gaussian", "linear")
"""Names of all, in the order of the paper's figures."""

LABELS = {"network": "network", "multidelta": "multi-delta", "gaussian": "Gaussian", "linear": "linear"}
"""What figures call them."""


def on_counterparts(
    plan: Plan,
    work: Work,
    model: Task,
    *,
    denoisers: Sequence[str] = COUNTERPARTS,
    kimg: float | None = None,
    **options: Any,
) -> Task:
    """A task that works on a model and its counterparts.

    Args:
        plan: the study's.
        work: its function, which calls `counterparts_of`.
        model: the task that trains the model.
        denoisers: which of `COUNTERPARTS`. With "linear", the task also needs the measures of the model, which distil it and
            leave the map beside the model.
        kimg: which snapshot; None is the last.
        options: what else `Plan.on_model` takes.

    Returns:
        The task.
    """
    measured = (plan.measured(model, "linear_gap", kimg=kimg),) if "linear" in denoisers else ()
    return plan.on_model(work, model, *measured, kimg=kimg, denoisers=tuple(denoisers), **options)


def counterparts_of(context: TaskContext) -> tuple[Subject, Record, dict[str, nn.Module]]:
    """What a task made by `on_counterparts` works on.

    Args:
        context: the task's.

    Returns:
        The subject, the tags of its records, and the denoisers by name.
    """
    subject, tags = subject_of(context)
    names = context.options["denoisers"]
    found = {
        name: subject.network if name == "network" else subject.controls[name] for name in names if name != "linear"
    }
    if "linear" in names and subject.calls is not None:
        found["linear"] = subject.linear("network", subject.inputs[0])
    return subject, tags, found
