"""Layouts: whether samples resemble those of the Gaussian from the same noise once details are taken out.

The low-pass is fixed: means over a grid of fields, half as many as pixels a side and at most 8, so 4×4 fields of an 8×8
image and 8×8 of larger ones. A pair of layouts has Pearson's correlation, of all fields and channels. Samples that are
training images have a layout too, and it may resemble the Gaussian's: so the multi-delta denoiser's correlation with the
Gaussian is taken off, noise by noise.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ...evaluation.records import of_estimate
from ...experiments.task import Task, TaskContext, task
from ...images import dequantize
from ...measures.agreement import agreement
from ...store.records import Record
from ..plan import Plan

_FIELDS = 8  # a side, at most


def lowpass_agreement_task(plan: Plan, sampled: Task) -> Task:
    """The task that compares the layouts of a model's samples with those of its Gaussian."""
    return plan.on_model(compare_layouts, sampled)


@task("compare_layouts", version=1)
def compare_layouts(context: TaskContext) -> Iterator[Record]:
    """Compare layouts with the Gaussian's. Its input is of `sample_model`.

    Yields:
        agreement_lowpass_correlation with the `reference` gaussian, for the `denoiser` network with `noise` same, shuffled
        (samples of different noises) and excess (minus that of the multi-delta denoiser, paired by noise), and for
        multidelta with `noise` same.
    """
    (sampled,) = context.inputs
    said = ("network", "width", "n", "kimg", "seed", "split", "preconditioning")
    tags = {tag: value for tag, value in sampled.records[0].items() if tag in said}
    network, gaussian, memory = (lowpass(sampled.arrays[name]) for name in ("network", "gaussian", "multidelta"))
    found = agreement(network, gaussian, multi_delta=(memory, gaussian))
    for denoiser, noise, likeness in (
        ("network", "same", found.same_noise),
        ("network", "shuffled", found.shuffled),
        ("network", "excess", found.excess),
        ("multidelta", "same", found.multi_delta),
    ):
        assert likeness is not None
        told = {"denoiser": denoiser, "reference": "gaussian", "noise": noise}
        yield {**tags, **of_estimate("agreement_lowpass_correlation", likeness.correlation, **told)}


def lowpass(images: Tensor) -> Tensor:
    """Means over fields."""
    from torch.nn.functional import adaptive_avg_pool2d

    fields = [max(1, min(_FIELDS, side // 2)) for side in images.shape[2:]]
    return adaptive_avg_pool2d(dequantize(images, torch.float64), (fields[0], fields[1]))
