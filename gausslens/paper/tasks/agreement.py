"""Whether two models make the same images from the same noise, beside what their controls make of it."""

from collections.abc import Iterator, Sequence

import torch

from ...evaluation.config import MeasureConfig
from ...evaluation.records import of_similarity
from ...experiments.task import Result, Task, TaskContext, task
from ...images import quantize
from ...measures.agreement import agreement
from ...noise import draw_noise
from ...store.records import Record
from ..plan import Plan

_CONTROLS = ("multidelta", "gaussian")
# The noise in a sample of a network that answers 0: the standard deviation that images are taken to have.
_UNTRAINED = 0.5


def agreement_task(plan: Plan, both: Sequence[Task]) -> Task:
    """The task that compares two models' samples."""
    return plan.on_model(compare_samples, *both)


@task("compare_samples", version=1)
def compare_samples(context: TaskContext) -> Iterator[Record]:
    """Compare the samples of two models, and of their controls, noise by noise.

    Its inputs are two of `sample_model`, with as many samples each: their noises are then the same. Records carry the
    tags that both models have in common; which pair it is, the study adds.

    Yields:
        agreement_rmse, agreement_nmse, agreement_correlation and agreement_ssim, with `noise` same, shuffled (between
        samples of different noises) and excess (minus that of the multi-delta denoisers, paired by noise) for the
        `denoiser` network, and with `noise` same for multidelta and gaussian. With `noise` itself, what is compared are the
        first network's samples and the noises that they began with, which a network that has learned nothing hands on.
    """
    first, second = context.inputs
    tags = in_common(first, second)
    copies = first.arrays["multidelta"], second.arrays["multidelta"]
    found = agreement(first.arrays["network"], second.arrays["network"], multi_delta=copies)
    for noise, likeness in (("same", found.same_noise), ("shuffled", found.shuffled), ("excess", found.excess)):
        assert likeness is not None
        yield from of_similarity(likeness, denoiser="network", noise=noise, **tags)
    samples = torch.as_tensor(first.arrays["network"])
    noises = draw_noise(MeasureConfig.seed, torch.arange(len(samples)), tuple(samples.shape[1:]), stream="latents")
    began = agreement(samples, quantize(_UNTRAINED * noises)).same_noise
    yield from of_similarity(began, denoiser="network", noise="itself", **tags)
    for control in _CONTROLS:
        alike = agreement(first.arrays[control], second.arrays[control]).same_noise
        yield from of_similarity(alike, denoiser=control, noise="same", **tags)


def in_common(first: Result, second: Result) -> Record:
    """What the records of both say alike of their models."""
    models = [
        {tag: result.records[0].get(tag) for tag in ("network", "width", "n", "kimg", "preconditioning")}
        for result in (first, second)
    ]
    return {tag: value for tag, value in models[0].items() if value is not None and models[1][tag] == value}
