"""Agreement of samples from the same noise: between two models, between a model and its controls, and between Gaussians.

Two networks on few images each, stopped early or narrow, generate similar images although the Gaussians of their images do
not. Two explanations are tested: the stationary Gaussians of small sets (see `denoisers.stationary`) agree, because any few
images have nearly the same mean colour and power spectrum; or both networks are close to the Gaussian of all images.

A layout is a sample averaged over a grid of fields, half as many as pixels a side and at most 8: 4×4 fields of an 8×8 image,
8×8 fields of larger images. Two layouts are compared by Pearson's correlation over fields and channels. Copies of training
images have layouts too, so the multi-delta denoiser's correlation with the Gaussian is subtracted, noise by noise.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.stationary import StationaryDenoiser
from ...evaluation.config import MeasureConfig
from ...evaluation.references import moments_of
from ...experiments.task import Result, TaskContext, task
from ...generation import generate
from ...images import dequantize, quantize
from ...measures.agreement import agreement
from ...noise import draw_noise, draw_order
from ...store.records import Record, of_agreement, of_similarity
from .dataset_stats import split_images

CURVE = "curve"
"""The role of records at sizes that no claim is judged by."""

_CONTROLS = ("gaussian", "multidelta")
_MODEL = ("network", "width", "n", "kimg", "preconditioning")
# The noise in a sample of a network that answers 0: the standard deviation that images are taken to have.
_UNTRAINED = 0.5
_FIELDS = 8  # a side, at most
_PICTURES = 10


@task("compare_samples", version=1, of_0_1="studies.agreements")
def compare_samples(context: TaskContext) -> Iterator[Record]:
    """Compare the samples of two models, and of their controls, noise by noise. The inputs are two of `sample_model`.

    Records carry the tags that both models share.

    Yields:
        The records of `of_agreement` for the `denoiser` network, with the excess over the multi-delta denoisers; and with
        `noise` same for multidelta and gaussian. With `noise` itself, the first network's samples are compared with their
        initial noises, which an untrained network returns.
    """
    context.tags.update(_model_tags(context.inputs))
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


@task("compare_layouts", version=1, of_0_1="studies.layouts")
def compare_layouts(context: TaskContext) -> Iterator[Record]:
    """Compare the layouts of a model's samples with those of its Gaussian. The input is of `sample_model`.

    Yields:
        agreement_lowpass_correlation with the `reference` gaussian: for the `denoiser` network as in `of_agreement`, and for
        multidelta with `noise` same.
    """
    context.tags.update(_model_tags(context.inputs, (*_MODEL, "seed", "split")))
    arrays, what = context.inputs[0].arrays, ("agreement_lowpass", ("correlation",))
    network, gaussian, memory = (lowpass(arrays[name]) for name in ("network", "gaussian", "multidelta"))
    found = agreement(network, gaussian, multi_delta=(memory, gaussian))
    assert found.multi_delta is not None
    yield from of_agreement(found, *what, denoiser="network", reference="gaussian")
    yield from of_similarity(found.multi_delta, *what, denoiser="multidelta", reference="gaussian", noise="same")


@task("compare_with_stationary", version=2, of_0_1="studies.stationarity")
def compare_with_stationary(context: TaskContext) -> Iterator[Record]:
    """Compare samples noise by noise. Options: `splits`, the training set of each model, and those of `split_images`.

    The arrays `first` and `second` are samples of the stationary Gaussians, uint8 (noises, c, h, w).

    Yields:
        For the `denoiser` stationary, the agreement of the two sets' samples with `noise` same. For the first network, its
        agreement with each `reference`: the stationary Gaussian, the Gaussian and the multi-delta denoiser of its own
        images, and gaussian_full, the Gaussian of all available images.
    """
    context.tags.update(_model_tags(context.inputs))
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


@task("compare_gaussians", version=1, of_0_1="studies.subsets")
def compare_gaussians(context: TaskContext) -> Iterator[Record]:
    """Sample the Gaussians of random subsets and that of all images from the same noise, and compare.

    Options: `sizes`; `judged`, the size whose records have no `role`; `seed`; `samples`; and those of `split_images`.
    The arrays hold a few samples, uint8 (noises, c, h, w): `all`, and one array named by each size.

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
    """Layouts of images, uint8: means over fields."""
    from torch.nn.functional import adaptive_avg_pool2d

    fields = [max(1, min(_FIELDS, side // 2)) for side in images.shape[2:]]
    return adaptive_avg_pool2d(dequantize(images, torch.float64), (fields[0], fields[1]))


def _samples(context: TaskContext, denoiser: nn.Module, shape: Sequence[int]) -> Tensor:
    """Images of a closed-form denoiser, uint8 of this shape, from the noises that models are sampled with."""
    device = context.device
    moved = denoiser.to(device, torch.float32)
    return generate(moved, tuple(shape[1:]), shape[0], device=device, dtype=torch.float32)


def _model_tags(samples: Sequence[Result], names: Sequence[str] = _MODEL) -> Record:
    """The tags of their model, or those that their models share, in the records of `sample_model`."""
    found = [{name: sampled.records[0].get(name) for name in names} for sampled in samples]
    return {
        name: value for name, value in found[0].items() if value is not None and all(of[name] == value for of in found)
    }
