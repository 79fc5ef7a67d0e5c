"""Networks of one noise level each, stitched together: a denoiser for exactly the levels that it has a network for.

In a study's file:

    stitched(plan, models, measure_levels) # the measure `gap`, at those levels
    stitched(plan, models, follow_levels) # a trajectory, and Jacobians along it

where `models` are tasks of `train_model`, one for each noise level, alike in all else. The arrays of `follow_levels` are
named as those of `sensitivity`: `sigmas` (s,); `network`, D(x_t; σ_t) of several noises, uint8 (noises, s, c, h, w); of the
first noise `path`, uint8 (s, c, h, w), `vectors`, uint8 (s, 3, c, h, w), and `correlation`, (s, k, k); and `mean` and
`components`, uint8 (1 and 3, c, h, w).
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...denoisers.composite import LevelwiseDenoiser
from ...evaluation.config import MeasureConfig
from ...evaluation.context import MeasureContext
from ...evaluation.evaluators import take_gap
from ...evaluation.model_tasks import run_of, tags_of
from ...evaluation.records import of_estimate
from ...evaluation.references import load_run_images
from ...experiments.task import Task, TaskContext, Work, task
from ...generation import best_device
from ...images import quantize
from ...measures.intervals import mean_estimate
from ...noise import draw_noise
from ...sampling import Step, sample
from ...store.records import Record
from ...store.run import load_trained
from ..directions import as_pictures
from ..plan import Plan
from .jacobians import (
    ITERATIONS,
    PICTURED,
    SPARSE_VECTORS,
    is_dense,
    overlaps_at,
    portrait,
    separated_cuts,
    singular_vectors,
)

_DENSE_NOISES, _NOISES = 8, 4


def per_level_task(plan: Plan, models: Sequence[Task], work: Work) -> Task:
    """The task that works on networks of one noise level each."""
    products = _DENSE_NOISES * plan.dim if is_dense(plan.dim) else _NOISES * 2 * ITERATIONS * SPARSE_VECTORS
    calls = 2 * products if work is follow_levels else 3 * plan.count
    return plan.on_model(work, *models, calls=calls * len(models))


@task("measure_levels", version=1)
def measure_levels(context: TaskContext) -> Iterator[Record]:
    """Measure the distances of stitched networks. Options: `count`.

    Yields:
        The records of the measure `gap`.
    """
    evaluation, tags = _subject_of(context)
    for record in take_gap(evaluation):
        yield {**tags, **record}


@task("follow_levels", version=1)
def follow_levels(context: TaskContext) -> Iterator[Record]:
    """Follow the Euler path of stitched networks from a few noises, with the Jacobians along it.

    Yields:
        `jacobian_overlap` of the `k` leading left singular vectors with as many principal components at each `sigma`, for
        the network and, at the same inputs, the Gaussian as control.
    """
    evaluation, tags = _subject_of(context)
    dense, shape, seed = is_dense(evaluation.dim), evaluation.images.shape, evaluation.config.seed
    latents = draw_noise(seed, torch.arange(_DENSE_NOISES if dense else _NOISES), shape, stream="latents")
    steps: list[Step] = []
    sample(evaluation.network, latents, sigmas=evaluation.sigmas, solver="euler", callback=steps.append)
    components = evaluation.moments.eigvecs
    cuts = [k for k in separated_cuts(evaluation.moments) if dense or k <= SPARSE_VECTORS]
    found: dict[str, list[Tensor]] = {"vectors": [], "correlation": []}
    for done, step in enumerate(steps):
        context.report(done / len(steps))
        for name in ("network", "gaussian"):
            left = singular_vectors(evaluation, name, step)
            said = {**tags, "sigma": step.sigma, "on": "noise", "denoiser": name}
            for k, overlaps in overlaps_at(left, components, cuts).items():
                yield of_estimate("jacobian_overlap", mean_estimate(overlaps), k=k, **said)
            if name == "network":
                for of, picture in portrait(left[0], components, shape).items():
                    found[of].append(picture)
    outputs = torch.stack([quantize(step.denoised).cpu() for step in steps], 1)
    context.save_arrays(
        sigmas=torch.tensor([step.sigma for step in steps]),
        network=outputs,
        path=outputs[0].clone(),
        mean=quantize(evaluation.moments.mean.reshape(1, *shape)).cpu(),
        components=as_pictures(components[:, :PICTURED], shape),
        **{name: torch.stack(parts) for name, parts in found.items()},
    )


def _subject_of(context: TaskContext) -> tuple[MeasureContext, Record]:
    """The stitched networks with their images and references, and the tags of their records."""
    runs = sorted((run_of(result) for result in context.inputs), key=lambda run: -(run.config.sigma or 0.0))
    device = best_device(cpu=context.options.get("cpu", False))
    sigmas = tuple(run.config.sigma or 0.0 for run in runs)
    network = LevelwiseDenoiser([load_trained(run, device=device) for run in runs], sigmas)
    images = load_run_images(runs[0], data=context.options.get("data"))
    config = MeasureConfig(run=str(runs[0].path), sigmas=sigmas, count=context.options["count"])
    return MeasureContext(network, runs[0].config, images, config, context.folder), tags_of(runs[0])
