"""How alike samples from the same noise are: of two models, of a model and its controls, and of Gaussians.

Two networks of few images each, stopped early or narrow, make alike images though the Gaussians of their images do not. The
stationary Gaussians of these do (see `denoisers.stationary`): any few images have nearly one mean colour and power spectrum.
So would networks near the Gaussian of all images, whichever they were shown.

Layouts are what is left of samples once details are taken out: means over a grid of fields, half as many as pixels a side
and at most 8, so 4×4 fields of an 8×8 image and 8×8 of larger ones. A pair of layouts has Pearson's correlation, of all
fields and channels. Samples that are training images have a layout too, and it may resemble the Gaussian's: so the
multi-delta denoiser's correlation with the Gaussian is taken off, noise by noise.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.stationary import StationaryDenoiser
from ...evaluation.config import MeasureConfig
from ...evaluation.records import of_agreement, of_similarity
from ...evaluation.references import moments_of
from ...experiments.task import Result, Task, TaskContext, task
from ...generation import generate
from ...images import dequantize, quantize
from ...measures.agreement import agreement
from ...noise import draw_noise, draw_order
from ...store.records import Record
from ..plan import Plan
from .dataset_stats import split_images

CURVE = "curve"
"""The role of records at other sizes than the one that is judged."""

_CONTROLS = ("gaussian", "multidelta")
_MODEL = ("network", "width", "n", "kimg", "preconditioning")
# The noise in a sample of a network that answers 0: the standard deviation that images are taken to have.
_UNTRAINED = 0.5
_FIELDS = 8  # a side, at most
_PICTURES = 10


def agreement_task(plan: Plan, both: Sequence[Task]) -> Task:
    """The task that compares two models' samples."""
    return plan.on_model(compare_samples, *both)


def lowpass_agreement_task(plan: Plan, sampled: Task) -> Task:
    """The task that compares the layouts of a model's samples with those of its Gaussian."""
    return plan.on_model(compare_layouts, sampled)


def stationary_task(plan: Plan, both: Sequence[Task]) -> Task:
    """The task that compares two models' samples with those of the stationary Gaussians of their training images."""
    splits = [task.needs[0].options["config"]["split"] for task in both]
    return plan.on_model(compare_with_stationary, *both, splits=splits, **plan.loading)


def subset_gaussians_task(plan: Plan, seed: int, sizes: Sequence[int]) -> Task:
    """The task that compares the Gaussians of random subsets with that of all images; it needs no model."""
    return plan.on_images(compare_gaussians, seed=seed, sizes=tuple(sizes), judged=plan.subset, samples=plan.samples)


@task("compare_samples", version=1)
def compare_samples(context: TaskContext) -> Iterator[Record]:
    """Compare the samples of two models, and of their controls, noise by noise.

    Its inputs are two of `sample_model`, with as many samples each: their noises are then the same. Records carry the
    tags that both models have in common; which pair it is, the study adds.

    Yields:
        The records of `of_agreement` for the `denoiser` network, whose excess is that over the multi-delta denoisers; and
        with `noise` same for multidelta and gaussian. With `noise` itself, what is compared are the first network's samples
        and the noises that they began with, which a network that has learned nothing hands on.
    """
    context.tags.update(_in_common(*context.inputs))
    first, second = (sampled.arrays for sampled in context.inputs)
    copies = first["multidelta"], second["multidelta"]
    yield from of_agreement(agreement(first["network"], second["network"], multi_delta=copies), denoiser="network")
    shape = first["network"].shape
    noises = draw_noise(MeasureConfig.seed, torch.arange(len(first["network"])), shape[1:], stream="latents")
    began = agreement(first["network"], quantize(_UNTRAINED * noises)).same_noise
    yield from of_similarity(began, denoiser="network", noise="itself")
    for control in _CONTROLS:
        alike = agreement(first[control], second[control]).same_noise
        yield from of_similarity(alike, denoiser=control, noise="same")


@task("compare_layouts", version=1)
def compare_layouts(context: TaskContext) -> Iterator[Record]:
    """Compare layouts with the Gaussian's. Its input is of `sample_model`.

    Yields:
        agreement_lowpass_correlation with the `reference` gaussian: for the `denoiser` network as `of_agreement` has it, and
        for multidelta with `noise` same.
    """
    (sampled,) = context.inputs
    context.tags.update(_model_tags(sampled, (*_MODEL, "seed", "split")))
    network, gaussian, memory = (lowpass(sampled.arrays[name]) for name in ("network", "gaussian", "multidelta"))
    found = agreement(network, gaussian, multi_delta=(memory, gaussian))
    assert found.multi_delta is not None
    what = "agreement_lowpass", ("correlation",)
    yield from of_agreement(found, *what, denoiser="network", reference="gaussian")
    yield from of_similarity(found.multi_delta, *what, denoiser="multidelta", reference="gaussian", noise="same")


@task("compare_with_stationary", version=2)
def compare_with_stationary(context: TaskContext) -> Iterator[Record]:
    """Compare samples noise by noise. Options: `splits`, the training set of either model, and those of `split_images`.

    Its arrays `first` and `second` are samples of the stationary Gaussians, uint8 (noises, c, h, w).

    Yields:
        With `noise` same of the `denoiser` stationary, the agreement of one set's samples with the other's; and that of the
        first network with the samples of a `reference`: the stationary Gaussian, Gaussian and multi-delta denoiser of its
        own images, and gaussian_full, the Gaussian of all that could have been trained on.
    """
    context.tags.update(_in_common(*context.inputs))
    images, own = split_images(context), context.inputs[0].arrays
    network = own["network"]
    first, second = (
        _samples(context, StationaryDenoiser(images(split)), network.shape) for split in context.options["splits"]
    )
    context.save_arrays(first=first, second=second)
    yield from of_similarity(agreement(first, second).same_noise, denoiser="stationary", noise="same")
    full = _samples(context, GaussianDenoiser(moments_of(images("all"), device=context.device)), network.shape)
    references = {"stationary": first, "gaussian_full": full} | {name: own[name] for name in _CONTROLS}
    for name, samples in references.items():
        yield from of_agreement(agreement(network, samples), denoiser="network", reference=name)


@task("compare_gaussians", version=1)
def compare_gaussians(context: TaskContext) -> Iterator[Record]:
    """Sample the Gaussians of random subsets and that of all images from the same noise, and compare.

    Options: `sizes`; `judged`, the size whose records have no `role`; `seed`; `samples`; and those of `split_images`.
    Its arrays hold a few samples, uint8 (noises, c, h, w): `all`, and for each size its number.

    Yields:
        The records of `of_agreement` of `denoiser` gaussian with `reference` gaussian_full, at each `n`.
    """
    images, seed = split_images(context)("all"), context.options["seed"]
    context.tags.update(denoiser="gaussian", reference="gaussian_full", seed=seed)

    def samples_of(chosen: Tensor) -> Tensor:
        gaussian = GaussianDenoiser(moments_of(chosen, device=context.device))
        return _samples(context, gaussian, (context.options["samples"], *images.shape[1:]))

    order, whole = draw_order(seed, len(images), stream="subsets"), samples_of(images)
    kept = {"all": whole[:_PICTURES]}
    for n in context.each(context.options["sizes"]):
        samples = samples_of(images[order[:n]])
        kept[str(n)] = samples[:_PICTURES]
        role = {} if n == context.options["judged"] else {"role": CURVE}
        yield from of_agreement(agreement(samples, whole, seed=seed), n=n, **role)
    context.save_arrays(**kept)


def lowpass(images: Tensor) -> Tensor:
    """Means over fields."""
    from torch.nn.functional import adaptive_avg_pool2d

    fields = [max(1, min(_FIELDS, side // 2)) for side in images.shape[2:]]
    return adaptive_avg_pool2d(dequantize(images, torch.float64), (fields[0], fields[1]))


def _samples(context: TaskContext, denoiser: nn.Module, shape: Sequence[int]) -> Tensor:
    """Images of a closed-form denoiser, uint8 of this shape, from the noises that models are sampled from."""
    device = context.device
    moved = denoiser.to(device, torch.float32)
    return generate(moved, tuple(shape[1:]), shape[0], device=device, dtype=torch.float32)


def _model_tags(sampled: Result, names: Sequence[str] = _MODEL) -> Record:
    """What the records of `sample_model` say of their model."""
    return {name: sampled.records[0][name] for name in names if sampled.records[0].get(name) is not None}


def _in_common(first: Result, second: Result) -> Record:
    """What the records of both say alike of their models."""
    other = _model_tags(second)
    return {name: value for name, value in _model_tags(first).items() if other.get(name) == value}
