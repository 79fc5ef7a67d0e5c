"""Outputs: what denoisers return for the same noisy images, or for pure noise, level by level.

In a study's file:

    Part("outputs", denoised(plan, model))        # in its parts
    findings.array("outputs", "network")[level]   # in its drawing

The task's arrays are `sigmas` (levels,); `clean`, the held-out images, uint8 (images, c, h, w); `inputs` and, for each
denoiser by its name, uint8 (levels, images, c, h, w). Outputs are clipped to [-1, 1]. Inputs are divided by 1 + 2σ before
they are, or nothing but black and white would be left of them at high noise.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ...denoisers.protocol import eval_mode
from ...experiments.task import Task, TaskContext, task
from ...images import quantize
from ...measures.sweep import NoisyInputs, PlacedDenoiser
from ...noise import draw_order
from ..plan import Plan
from .reference_denoisers import COUNTERPARTS, references_of, task_on_references

_PICTURES = 6
_LEVELS = 10


def denoised_outputs_task(
    plan: Plan,
    model: Task,
    *,
    denoisers: Sequence[str] = COUNTERPARTS,
    sigmas: Sequence[float] | None = None,
    inputs: str = "images",
    pictures: int = _PICTURES,
    kimg: float | None = None,
) -> Task:
    """The task that denoises images with a model and its counterparts."""
    return task_on_references(
        *(plan, denoise_images, model),
        denoisers=denoisers,
        kimg=kimg,
        calls=pictures * (len(sigmas) if sigmas else _LEVELS),
        sigmas=None if sigmas is None else tuple(sigmas),
        inputs=inputs,
        pictures=pictures,
    )


@task("denoise_images", version=1)
def denoise_images(context: TaskContext) -> None:
    """Denoise, into arrays alone. Options: `inputs`, `pictures`, `denoisers`, and those that `subject_of` reads."""
    subject, _, denoisers = references_of(context)
    held_out, seed, count = subject.images.held_out, subject.config.seed, context.options["pictures"]
    chosen = held_out[draw_order(seed, len(held_out))[:count]]
    clean = chosen if context.options["inputs"] == "images" else torch.zeros(chosen.shape)
    noisy = NoisyInputs(clean, None, len(clean), seed)
    levels = subject.sigmas.tolist()
    inputs = {sigma: noisy.at(sigma, 0, len(clean)) for sigma in levels}
    found: dict[str, Any] = {"sigmas": subject.sigmas, "clean": chosen}
    found["inputs"] = torch.stack([quantize(x / (1 + 2 * sigma)) for sigma, x in inputs.items()])
    for name, denoiser in denoisers.items():
        placed = PlacedDenoiser(denoiser, torch.device(subject.device), torch.float32)
        with eval_mode(denoiser):
            outputs = [placed(x, sigma, None).reshape(x.shape) for sigma, x in inputs.items()]
        found[name] = torch.stack([quantize(output) for output in outputs])
    context.save_arrays(**found)
