"""Evaluation of snapshots: distances to the references, samples and copies, at a fraction of the cost of all measures.

Controls do not change during training, so they are measured only at its end.
"""

from collections.abc import Iterator

from ...evaluation.evaluators import of_gap, of_samples
from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import Task, TaskContext, task
from ...measures.neighbors import nearest
from ...store.records import Record
from ..plan import Plan

_LEVELS = 10
_SAMPLES = 256  # which suffice to see copies appear
_SAMPLING_CALLS = 35  # of Heun's method on 18 levels


def checkpoint_task(plan: Plan, model: Task, kimg: float) -> Task:
    """The task that evaluates a snapshot."""
    samples = sample_count(plan)
    calls = _LEVELS * plan.count + _SAMPLING_CALLS * samples
    return plan.on_model(look_at_snapshot, model, calls=calls, kimg=kimg, samples=samples)


def sample_count(plan: Plan) -> int:
    """How many samples of each snapshot are generated."""
    return min(plan.samples, _SAMPLES)


@task("look_at_snapshot", version=1, of_0_1="studies.snapshots")
def look_at_snapshot(context: TaskContext) -> Iterator[Record]:
    """Measure the distance of a network to its references on held-out images, sample it, and search for copies.

    Options are those of `evaluation_of`. The arrays are uint8 (samples, c, h, w): the samples `network`, and `nearest`, the
    training image nearest to each.

    Yields:
        `rmse` of the network to gaussian, multidelta and gaussian_full, on held-out images; and the records of `of_samples`.
    """
    evaluation = evaluation_of(context)
    references = {**evaluation.references, **evaluation.full_gaussian}
    denoisers = {**references, "network": evaluation.cached_denoisers["network"]}
    for reference in references:
        yield from of_gap(evaluation, evaluation.inputs["held_out"], denoisers, "network", reference)
    samples = evaluation.sampled("network")
    _, indices = nearest(samples, evaluation.images.train, device=evaluation.device)
    context.save_arrays(network=samples, nearest=evaluation.images.train[indices[:, 0]])
    yield from of_samples(evaluation, "network", samples)
