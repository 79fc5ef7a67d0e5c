"""Snapshots: what is looked at of a model while it is trained, at a fraction of the cost of all measures.

In a study's file:

    Part("snapshot", checkpoint_task(plan, model, 6.0))   # in its parts
    findings.array("snapshot", "network")                 # in its drawing: samples

Controls do not change while a network is trained; those of its end are measured there.
"""

from collections.abc import Iterator
from typing import Any

from ...evaluation.evaluators import of_samples
from ...evaluation.model_tasks import evaluation_of
from ...evaluation.records import of_curve
from ...experiments.task import Task, TaskContext, task
from ...measures.gap import gap
from ...measures.neighbors import nearest
from ...store.records import Record
from ..plan import Plan

_LEVELS = 10
_SAMPLES = 256  # which suffice to see copies appear
_SAMPLING_CALLS = 35  # of Heun's method on 18 levels


def checkpoint_task(plan: Plan, model: Task, kimg: float) -> Task:
    """The task that looks at a snapshot."""
    samples = sample_count(plan)
    calls = _LEVELS * plan.count + _SAMPLING_CALLS * samples
    return plan.on_model(look_at_snapshot, model, calls=calls, kimg=kimg, samples=samples)


def sample_count(plan: Plan) -> int:
    """How many samples of each snapshot are looked at."""
    return min(plan.samples, _SAMPLES)


@task("look_at_snapshot", version=1)
def look_at_snapshot(context: TaskContext) -> Iterator[Record]:
    """Measure how far a network is from its references on held-out images, sample it, and look for copies.

    Options are those that `evaluation_of` reads. Its arrays hold, uint8 (samples, c, h, w), `network` and `nearest`, the
    training image nearest to each of its samples.

    Yields:
        rmse of the network to gaussian, multidelta and gaussian_full, on held-out images; and those of `of_samples`.
    """
    evaluation = evaluation_of(context)
    network, held_out = evaluation.cached_denoisers["network"], evaluation.on("held_out")
    references: dict[str, Any] = {**evaluation.references, "gaussian_full": evaluation.full_gaussian}
    for name, reference in references.items():
        if reference is not None:
            curve = gap(*(network, reference, held_out.images, evaluation.sigmas), **evaluation.curve_options(held_out))
            yield from of_curve("rmse", curve, on="held_out", denoiser="network", reference=name)
    samples = evaluation.sampled("network")
    _, indices = nearest(samples, evaluation.images.train, device=evaluation.device)
    context.save_arrays(network=samples, nearest=evaluation.images.train[indices[:, 0]])
    yield from of_samples(evaluation, "network", samples)
