"""Outputs of a network and its counterparts: for the same noisy images or pure noise, and along sampling trajectories.

A trajectory starts from a noise and follows the denoiser's own path of the probability-flow ODE with Euler's method on ten
noise levels, as in the paper. D(x_t; σ_t) is kept; at the last level it is the sample. The denoisers are

    network     the trained model
    gaussian    the Wiener filter of its training images
    multidelta  the exact posterior mean over its training images, which retrieves them
    linear      the affine map closest to the network, distilled on its training images; it exists at the ten levels of the
                measures only, and is left out where images have too many pixels to distil by default
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...denoisers.protocol import Denoiser, eval_mode
from ...evaluation.context import MeasureContext
from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import Task, TaskContext, Work, task
from ...images import quantize
from ...measures.agreement import agreement
from ...measures.sweep import NoisyInputs, PlacedDenoiser
from ...noise import draw_noise, draw_order
from ...sampling import sample
from ...store.records import Record, of_agreement
from ..plan import Plan

COUNTERPARTS = ("network", "multidelta", "gaussian", "linear")
"""Their names, in the order of the paper's figures."""

LABELS = {"network": "network", "multidelta": "multi-delta", "gaussian": "Gaussian", "linear": "linear"}
"""Their names in figures."""

_LEVELS = 10
_NOISES = 10  # that trajectories start from


def task_on_counterparts(
    plan: Plan,
    work: Work,
    model: Task,
    denoisers: Sequence[str] = COUNTERPARTS,
    kimg: float | None = None,
    **options: Any,
) -> Task:
    """A task that works on a model, or on its snapshot at `kimg`, and on its counterparts."""
    measured = (plan.measured(model, "linear_gap", kimg=kimg),) if "linear" in denoisers else ()
    return plan.on_model(work, model, *measured, kimg=kimg, denoisers=tuple(denoisers), **options)


def counterparts_of(context: TaskContext) -> tuple[MeasureContext, dict[str, nn.Module]]:
    """The model and the denoisers of a task made by `task_on_counterparts`."""
    evaluation, names = evaluation_of(context), context.options["denoisers"]
    closed_form = [name for name in names if name not in ("network", "linear")]
    found = {"network": evaluation.network} if "network" in names else {}
    found |= {name: evaluation.references[name] for name in closed_form}
    if "linear" in names and evaluation.calls is not None:
        found["linear"] = evaluation.linear("network", evaluation.inputs["train"])
    return evaluation, found


def denoised_outputs_task(
    plan: Plan, model: Task, *, pictures: int, sigmas: Sequence[float] = (), inputs: str = "images", **options: Any
) -> Task:
    """The task that denoises images with a model and its counterparts; options are those of `task_on_counterparts`."""
    options |= {"calls": pictures * (len(sigmas) or _LEVELS), "sigmas": tuple(sigmas) or None}
    return task_on_counterparts(plan, denoise_images, model, inputs=inputs, pictures=pictures, **options)


@task("denoise_images", version=1, of_0_1="studies.outputs")
def denoise_images(context: TaskContext) -> None:
    """Denoise, into arrays alone. Options: `inputs`, `pictures`, `denoisers`, and those of `evaluation_of`.

    The arrays are `sigmas` (levels,); `clean`, the held-out images, uint8 (images, c, h, w); `inputs` and, named by each
    denoiser, its outputs, uint8 (levels, images, c, h, w). All are clipped to [-1, 1]; inputs are first divided by 1 + 2σ,
    since at high noise clipping would leave only black and white.
    """
    evaluation, denoisers = counterparts_of(context)
    held_out, seed = evaluation.images.held_out, evaluation.config.seed
    chosen = held_out[draw_order(seed, len(held_out))[: context.options["pictures"]]]
    clean = chosen if context.options["inputs"] == "images" else torch.zeros(chosen.shape)
    noisy = NoisyInputs(clean, None, len(clean), seed)
    inputs = {sigma: noisy.at(sigma, 0, len(clean)) for sigma in evaluation.sigmas.tolist()}
    found: dict[str, Any] = {"sigmas": evaluation.sigmas, "clean": chosen}
    found["inputs"] = torch.stack([quantize(x / (1 + 2 * sigma)) for sigma, x in inputs.items()])
    for name, denoiser in denoisers.items():
        placed = PlacedDenoiser(denoiser, evaluation.device, torch.float32)
        with eval_mode(denoiser):
            outputs = [placed(x, sigma, None).reshape(x.shape) for sigma, x in inputs.items()]
        found[name] = torch.stack([quantize(output) for output in outputs])
    context.save_arrays(**found)


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
