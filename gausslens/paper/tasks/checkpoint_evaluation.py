"""Snapshots: what is looked at of a model while it is trained, at a fraction of the cost of all measures.

In a study's file:

    Part("snapshot", seen_at(plan, model, 6.0))     # in its parts
    findings.array("snapshot", "network")           # in its drawing: samples; "nearest": the training images nearest to them

Controls do not change while a network is trained; those of its end are measured there.
"""

from collections.abc import Iterator
from typing import Any

from ...evaluation.evaluators import of_samples
from ...evaluation.model_tasks import subject_of
from ...evaluation.records import of_curve
from ...experiments.task import Record, Task, TaskContext, task
from ...measures.gap import gap
from ...measures.neighbors import nearest
from ..plan import Plan

_LEVELS = 10
_SAMPLES = 256  # which suffice to see copies appear
_SAMPLING_CALLS = 35  # of Heun's method on 18 levels


def seen_at(plan: Plan, model: Task, kimg: float) -> Task:
    """The task that looks at a snapshot.

    Args:
        plan: the study's.
        model: the task that trains the model.
        kimg: which of its snapshots.

    Returns:
        The task; equal for equal arguments.
    """
    samples = sampled_of(plan)
    calls = _LEVELS * plan.count + _SAMPLING_CALLS * samples
    return plan.on_model(look_at_snapshot, model, calls=calls, kimg=kimg, samples=samples)


def sampled_of(plan: Plan) -> int:
    """How many samples of each snapshot are looked at."""
    return min(plan.samples, _SAMPLES)


@task("look_at_snapshot", version=1)
def look_at_snapshot(context: TaskContext) -> Iterator[Record]:
    """Measure how far a network is from its references on held-out images, sample it, and look for copies.

    Options are those that `subject_of` reads. Its arrays hold, uint8 (samples, c, h, w), `network` and `nearest`, the
    training image nearest to each of its samples.

    Yields:
        gap_rmse of the network to gaussian, multidelta and gaussian_full, on held-out images; and those of `of_samples`.
    """
    subject, tags = subject_of(context)
    network = subject.remembering["network"]
    references: dict[str, Any] = {**subject.controls}
    if subject.full_gaussian is not None:
        references["gaussian_full"] = subject.full_gaussian
    for name, reference in references.items():
        curve = gap(
            *(network, reference, subject.images.held_out, subject.sigmas),
            count=subject.config.count,
            seed=subject.config.seed,
            device=subject.device,
        )
        for record in of_curve("gap_rmse", curve, on="held_out", denoiser="network", reference=name):
            yield {**tags, **record}
    samples = subject.sampled("network")
    _, indices = nearest(samples, subject.images.train, device=subject.device)
    context.save_arrays(network=samples, nearest=subject.images.train[indices[:, 0]])
    for record in of_samples(subject, "network", samples):
        yield {**tags, **record}
