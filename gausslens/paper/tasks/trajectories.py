"""Trajectories: the outputs of denoisers on the way from one noise to an image, level by level.

From the same latents, each denoiser follows its own path of the probability-flow ODE with Euler's method on ten noise
levels, as in the paper. D(x_t; σ_t) is kept; at the last level it is the sample.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...denoisers.protocol import Denoiser
from ...evaluation.records import of_agreement
from ...experiments.task import Task, TaskContext, task
from ...images import quantize
from ...measures.agreement import agreement
from ...noise import draw_noise
from ...report import ImageGrid
from ...sampling import sample
from ...store.records import Record
from ..plan import Plan
from ..study import Findings
from .denoised_outputs import COUNTERPARTS, counterparts_of, task_on_counterparts

_NOISES = 10
_LEVELS = 10


def trajectory_task(plan: Plan, model: Task, denoisers: Sequence[str] = COUNTERPARTS) -> Task:
    """The task that follows the trajectories of a model and its counterparts."""
    calls = _LEVELS * max(plan.count, _NOISES)
    return task_on_counterparts(plan, follow_trajectories, model, denoisers, calls=calls, noises=_NOISES)


@task("follow_trajectories", version=1, of_0_1="studies.trajectories")
def follow_trajectories(context: TaskContext) -> Iterator[Record]:
    """Follow denoisers from the same noises. Options: `noises`, `denoisers`, and those of `evaluation_of`.

    The arrays are `sigmas` and, named by each denoiser, uint8 (noises, levels, c, h, w), clipped to [-1, 1] so that all can
    be compared; the paper scales each image to its own range.

    Yields:
        `trajectory_correlation` and `trajectory_rmse` of the network's D(x_t; σ_t) and each counterpart's, at each `sigma`,
        with `noise` same and, as a control, shuffled.
    """
    evaluation, denoisers = counterparts_of(context)
    kept, seed = context.options["noises"], evaluation.config.seed
    draws = torch.arange(max(kept, evaluation.config.count))
    latents = draw_noise(seed, draws, evaluation.images.shape, stream="latents")
    paths = {
        name: follow(denoiser, latents, evaluation.sigmas, device=evaluation.device)
        for name, denoiser in context.each(denoisers.items())
    }
    context.save_arrays(sigmas=evaluation.sigmas, **{name: quantize(path[:kept]) for name, path in paths.items()})
    network = paths.pop("network")
    for reference, path in paths.items():
        for level, sigma in enumerate(evaluation.sigmas.tolist()):
            found = agreement(network[:, level], path[:, level], seed=seed)
            said = {"sigma": sigma, "denoiser": "network", "reference": reference}
            yield from of_agreement(found, "trajectory", ("correlation", "rmse"), **said)


def follow(denoiser: Denoiser, latents: Tensor, sigmas: Tensor, *, device: Any = None) -> Tensor:
    """D(x_t; σ_t) at every level of an Euler path, x_{t+1} = x_t + (σ_{t+1} − σ_t)(x_t − D(x_t; σ_t))/σ_t."""
    seen: list[torch.Tensor] = []
    sample(
        *(denoiser, latents),
        sigmas=sigmas,
        solver="euler",
        callback=lambda step: seen.append(step.denoised.float().cpu()),
        device=device,
        dtype=torch.float32,
    )
    return torch.stack(seen, 1)


def trajectory_grid(
    findings: Findings, rows: Sequence[tuple[str, str, str]], *, noises: Sequence[int] = (0,), **words: Any
) -> ImageGrid | None:
    """Trajectories as rows of images, a column for each noise level."""
    found = [(label, key, findings.array(key, name)) for label, key, name in rows]
    there = [(label, key, paths) for label, key, paths in found if paths is not None]
    if not there:
        return None
    sigmas = findings.array(there[0][1], "sigmas")
    several = len(noises) > 1
    return ImageGrid(
        rows=tuple(f"noise {noise + 1}, {label}" if several else label for noise in noises for label, _, _ in there),
        columns=tuple(f"σ = {sigma:.3g}" for sigma in sigmas),
        images=np.stack([paths[noise] for noise in noises for _, _, paths in there]),
        **words,
    )
