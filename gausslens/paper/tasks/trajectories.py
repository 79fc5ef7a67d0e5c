"""Trajectories: what denoisers make of one noise on the way to an image, level by level.

From the same latents, each denoiser is followed down its own path of the probability-flow ODE with Euler's method on ten
noise levels, as in the paper. Kept is D(x_t; σ_t); at the last level it is the sample. In a study's file:

    Part("trajectories", followed(plan, model))                           # in its parts
    trajectory_grid(findings, [("network", "trajectories", "network")])   # in its drawing

The task's arrays are `sigmas` and, for each denoiser by its name, uint8 (noises, levels, c, h, w), clipped to [-1, 1] so
that all can be compared; the paper scales each image to its own range. Its records say how alike the network and each
counterpart are at every level, from the same noise and, as a control, from different ones (`noise` shuffled).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...denoisers.protocol import Denoiser
from ...evaluation.records import of_estimate
from ...experiments.task import Task, TaskContext, task
from ...images import quantize
from ...measures.agreement import agreement
from ...noise import draw_noise
from ...report import ImageGrid
from ...sampling import sample
from ...store.records import Record
from ..plan import Plan
from ..study import Findings
from .reference_denoisers import COUNTERPARTS, references_of, task_on_references

_NOISES = 10
_LEVELS = 10


def trajectory_task(
    plan: Plan,
    model: Task,
    *,
    denoisers: Sequence[str] = COUNTERPARTS,
    kimg: float | None = None,
    noises: int = _NOISES,
) -> Task:
    """The task that follows a model and its counterparts."""
    return task_on_references(
        *(plan, follow_trajectories, model),
        denoisers=denoisers,
        kimg=kimg,
        calls=_LEVELS * max(plan.count, noises),
        noises=noises,
    )


@task("follow_trajectories", version=1)
def follow_trajectories(context: TaskContext) -> Iterator[Record]:
    """Follow denoisers from the same noises. Options: `noises`, `denoisers`, and those that `subject_of` reads.

    Yields:
        `trajectory_correlation` and `trajectory_rmse` of the network's D(x_t; σ_t) and each counterpart's, at each `sigma`.
    """
    subject, tags, denoisers = references_of(context)
    kept, seed = context.options["noises"], subject.config.seed
    latents = draw_noise(seed, torch.arange(max(kept, subject.config.count)), subject.images.shape, stream="latents")
    paths = {}
    for done, (name, denoiser) in enumerate(denoisers.items()):
        context.report(done / len(denoisers))
        paths[name] = follow(denoiser, latents, subject.sigmas, device=subject.device)
    context.save_arrays(sigmas=subject.sigmas, **{name: quantize(path[:kept]) for name, path in paths.items()})
    network = paths.pop("network", None)
    if network is None:
        return
    for reference, path in paths.items():
        for level, sigma in enumerate(subject.sigmas.tolist()):
            found = agreement(network[:, level], path[:, level], seed=seed)
            for noise, likeness in (("same", found.same_noise), ("shuffled", found.shuffled)):
                said = {"sigma": sigma, "denoiser": "network", "reference": reference, "noise": noise}
                for metric in ("correlation", "rmse"):
                    yield {**tags, **of_estimate(f"trajectory_{metric}", getattr(likeness, metric), **said)}


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
        command=findings.command,
        **words,
    )
