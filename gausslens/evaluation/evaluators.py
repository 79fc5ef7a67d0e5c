"""The measures of `gausslens measure`: each is a function of a `MeasureContext` that returns tidy records.

A record is one number: `quantity`, `value`, `low`, `high` (its 95 % interval, None if there is none), `count` (independent
units), and tags: `sigma`, `on` (train, held_out or surrogate images), `denoiser` (network, gaussian, multidelta),
`reference` (the denoiser it is compared with; gaussian_full is the Gaussian of all available images), and others.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from torch import Tensor

from ..data.duplicates import find_duplicates
from ..denoisers.linear import LinearDenoiser
from ..denoisers.moments import Moments
from ..denoisers.preconditioned import Preconditioned
from ..images import dequantize, select
from ..measures.agreement import agreement
from ..measures.alignment import Alignment, alignment
from ..measures.gap import gap, identity_gap
from ..measures.intervals import mean_estimate
from ..measures.jacobian import jacobian_spectrum
from ..measures.linearity import linearity
from ..measures.memorization import memorization
from ..noise import draw_noise, draw_order
from ..store.records import Record, of_agreement, of_curve, of_estimate, of_levels, record_of
from ..training.objective import denoising_losses
from .context import Inputs, MeasureContext

_OVERLAPS = (1, 2, 5, 10, 20, 50, 100)
_MOST_DIRECTIONS = 1024  # singular vectors compared
_JACOBIANS = 4  # images
_SINGULAR_VALUES = 10
DENSE_DIM = 256  # dimensions up to which whole Jacobians are cheaper than an iteration
ITERATIONS = 15  # to find the leading singular vectors of larger Jacobians
# Multiplications that distilling the multi-delta denoiser may cost at each level: minutes on a CPU, seconds on a GPU.
_CONTROL_COST = {"cpu": 2e10, "cuda": 2e13}


def take_duplicates(evaluation: MeasureContext) -> Iterator[Record]:
    """How many held-out images repeat a training image."""
    images = evaluation.images
    if len(images.held_out):
        report = find_duplicates(images.train, images.held_out, device=evaluation.device)
        for kind, pairs in (("exact", report.exact), ("near", report.near)):
            yield {"quantity": "duplicates", "value": len(pairs), "count": report.n_held_out, "kind": kind}


def take_denoising_loss(evaluation: MeasureContext) -> Iterator[Record]:
    """The training objective on training and on held-out images."""
    network = evaluation.network
    assert isinstance(network, Preconditioned)  # only a network that was trained has this objective
    for inputs in _real(evaluation):
        chosen = draw_order(evaluation.config.seed, len(inputs.images))[: 10 * evaluation.config.count]
        images, labels = select(chosen, inputs.images, inputs.labels)
        losses = denoising_losses(network, images, evaluation.training, labels=labels)
        yield of_estimate("denoising_loss", mean_estimate(losses.double()), on=inputs.name, denoiser="network")


def take_linearity(evaluation: MeasureContext) -> Iterator[Record]:
    """How linear each denoiser is."""
    for inputs, (name, denoiser) in product(evaluation.inputs.values(), evaluation.cached_denoisers.items()):
        for metric, affine in product(("cosine", "nmse"), (False, True)):
            curve = evaluation.curve(linearity, inputs, denoiser, metric=metric, affine=affine)
            yield from of_curve(f"linearity_{metric}", curve, on=inputs.name, denoiser=name, affine=affine)


def take_gap(evaluation: MeasureContext) -> Iterator[Record]:
    """The distance of the network to each closed form and, as a control, of the multi-delta denoiser to the Gaussian."""
    full = evaluation.full_gaussian
    pairs = [("network", "gaussian"), ("network", "multidelta"), ("multidelta", "gaussian")]
    yield from _gaps(evaluation, {**evaluation.cached_denoisers, **full}, pairs + [("network", name) for name in full])


def take_linear_gap(evaluation: MeasureContext) -> Iterator[Record]:
    """The distance of the network's linear denoiser, distilled on training images, to the network and to the Gaussian.

    Records are of plain least squares (`shrunk` False), since a fit shrunk toward the Gaussian is close to it. There are
    none if nothing is distilled, or with too few calls.
    """
    if evaluation.calls is None:
        return
    fit = evaluation.linear("network", evaluation.inputs["train"])
    if fit.has_unshrunk:
        denoisers = {**evaluation.cached_denoisers, "linear": fit.unshrunk}
        yield from _gaps(evaluation, denoisers, [("network", "linear"), ("linear", "gaussian")], shrunk=False)


def take_identity_gap(evaluation: MeasureContext) -> Iterator[Record]:
    """The distance of each denoiser to the identity."""
    for inputs, (name, denoiser) in product(evaluation.inputs.values(), evaluation.cached_denoisers.items()):
        for metric in ("nmse", "cosine"):
            curve = evaluation.curve(identity_gap, inputs, denoiser, metric=metric)
            yield from of_curve(f"identity_{metric}", curve, on=inputs.name, denoiser=name)


def take_distillation(evaluation: MeasureContext) -> Iterator[Record]:
    """The variance of each denoiser that an affine map does not explain, and the distance of its matrix to a Gaussian's."""
    for name, inputs in product(distilled(evaluation), _real(evaluation)):
        yield from of_distillation(evaluation, name, inputs)


def take_alignment(evaluation: MeasureContext) -> Iterator[Record]:
    """The alignment of the distilled matrices with the principal components of the training images.

    There are no records with too few calls for a fit without shrinkage.
    """
    halves = half_moments(evaluation)
    for name, inputs in product(distilled(evaluation), _real(evaluation)):
        fit = evaluation.linear(name, inputs)
        if fit.has_unshrunk:
            yield from of_alignment(name, inputs, fit.calls, aligned(evaluation, fit, halves))


def take_memorization(evaluation: MeasureContext) -> Iterator[Record]:
    """Whether samples of each denoiser are copies of training images."""
    for name, samples in evaluation.samples.items():
        yield from of_samples(evaluation, name, samples)


def take_agreement(evaluation: MeasureContext) -> Iterator[Record]:
    """The agreement of the network's samples with each control's, from the same noise and from different noises."""
    samples = dict(evaluation.samples)
    generated = samples.pop("network", None)
    for reference, others in samples.items():
        found = agreement(generated, others, seed=evaluation.config.seed)
        yield from of_agreement(found, denoiser="network", reference=reference)


def take_jacobian(evaluation: MeasureContext) -> Iterator[Record]:
    """The largest singular values of the network's and the Gaussian's Jacobian at a few noisy images."""
    k, seed = min(_SINGULAR_VALUES, evaluation.dim), evaluation.config.seed
    for inputs in _real(evaluation):
        chosen = draw_order(seed, len(inputs.images), stream="jacobian")[:_JACOBIANS]
        images, labels = select(chosen, inputs.images, inputs.labels)
        x0, eps = dequantize(images), draw_noise(seed, chosen, evaluation.images.shape)
        for name, sigma in product(("network", "gaussian"), evaluation.sigmas.tolist()):
            spectrum = jacobian_spectrum(
                *(evaluation.denoisers[name], x0 + sigma * eps, sigma, k),
                full=evaluation.dim <= DENSE_DIM,
                iterations=ITERATIONS,
                labels=labels,
            )
            tags = {"sigma": sigma, "on": inputs.name, "denoiser": name}
            for index, values in enumerate(spectrum.singular_values.T.cpu()):
                yield of_estimate("singular_value", mean_estimate(values), **tags, k=index + 1)


TAKE: dict[str, Callable[[MeasureContext], Iterator[Record]]] = {
    "duplicates": take_duplicates,
    "denoising_loss": take_denoising_loss,
    "linearity": take_linearity,
    "gap": take_gap,
    "linear_gap": take_linear_gap,
    "identity_gap": take_identity_gap,
    "distillation": take_distillation,
    "alignment": take_alignment,
    "memorization": take_memorization,
    "agreement": take_agreement,
    "jacobian": take_jacobian,
}


def _gaps(
    evaluation: MeasureContext, denoisers: dict[str, Any], pairs: Sequence[tuple[str, str]], **tags: Any
) -> Iterator[Record]:
    """The distances between pairs of denoisers, by name."""
    for inputs, pair, metric in product(evaluation.inputs.values(), pairs, ("rmse", "nmse", "ev")):
        yield from of_gap(evaluation, inputs, denoisers, *pair, metric=metric, **tags)


def of_gap(
    evaluation: MeasureContext, inputs: Inputs, denoisers: dict[str, Any], *pair: str, metric: str = "rmse", **tags: Any
) -> Iterator[Record]:
    """The records of the distance between two denoisers, by name, on a set of images."""
    curve = evaluation.curve(gap, inputs, *(denoisers[name] for name in pair), metric=metric)
    yield from of_curve(metric, curve, on=inputs.name, denoiser=pair[0], reference=pair[1], **tags)


def of_samples(evaluation: MeasureContext, name: str, samples: Tensor) -> Iterator[Record]:
    """The records of whether samples are copies of the training images.

    There are none of the copy test for a network trained on mirror images too: these are not independent of their originals,
    so they cannot be compared with held-out images. An audit handles this case.
    """
    images = evaluation.images
    found = memorization(
        *(samples, images.train, images.held_out if len(images.held_out) else None),
        groups=images.train_groups,
        seed=evaluation.config.seed,
        device=evaluation.device,
    )
    for quantity, estimate in (
        ("gl", found.gl),
        ("gl_held_out", found.gl_held_out),
        ("relative_gl", found.relative_gl),
        ("memorized_fraction", found.ratio_fraction),
        ("memorized_fraction_held_out", found.ratio_fraction_held_out),
    ):
        if estimate is not None:
            yield of_estimate(quantity, estimate, denoiser=name)
    if found.copy_test is not None and not evaluation.training.flip:
        tested = found.copy_test
        numbers = {"copy_test_p": tested.p_value, "nearer_train": tested.nearer_train}
        numbers |= {"nearer_held_out": tested.nearer_held_out, "copies_named": len(tested.copies)}
        for quantity, value in numbers.items():
            yield record_of(quantity, value, count=len(samples), denoiser=name)


def of_distillation(evaluation: MeasureContext, name: str, inputs: Inputs) -> Iterator[Record]:
    """The records of one denoiser distilled on one set of images."""
    fit = evaluation.linear(name, inputs)
    tags = {"on": inputs.name, "denoiser": name, "count": fit.calls}
    for quantity in ("fvu", "fvu_floor", "fvu_held_out", "weight_error_floor", "shrinkage"):
        if (values := getattr(fit, quantity)) is not None:
            yield from of_levels(quantity, evaluation.sigmas, values.tolist(), **tags)
    for reference, values in fit.weight_error.items():
        of_inputs = inputs.name if reference == "distillation" else reference
        if reference == "distillation" or reference != inputs.name:
            tags["reference"] = f"gaussian of {of_inputs}"
            yield from of_levels("weight_error", evaluation.sigmas, values.tolist(), **tags)


def aligned(evaluation: MeasureContext, fit: LinearDenoiser, halves: tuple[Moments, Moments] | None) -> list[Alignment]:
    """The alignment of a distilled denoiser with the principal components of the training images, at every noise level."""
    found = []
    for sigma in evaluation.sigmas.tolist():
        passed = int((evaluation.moments.eigvals > sigma**2).sum())  # with gains above ½; one more shows how many
        k = min(max(_OVERLAPS[-1], passed + 1), _MOST_DIRECTIONS)
        found.append(alignment(fit, evaluation.moments, sigma, k, halves=halves))
    return found


def of_alignment(name: str, inputs: Inputs, calls: int, levels: Sequence[Alignment]) -> Iterator[Record]:
    """The records of the alignment of one distilled denoiser with principal components.

    `separated` says whether the Gaussian's gains separate the first `k` components from the others. `passed` marks the cut
    after the components with a gain above ½.
    """
    for found in levels:
        tags = {"sigma": found.sigma, "on": inputs.name, "denoiser": name, "count": calls}
        yield record_of("asymmetry", found.asymmetry, **tags)
        passed = int((found.gaussian_singular_values > 0.5).sum())
        cuts: dict[int, dict[str, bool]] = {k: {} for k in _OVERLAPS if k <= len(found.overlap)}
        if 0 < passed < len(found.overlap):  # where gains fall most steeply
            cuts[passed] = {"passed": True}
        columns = {"overlap": found.overlap, "overlap_chance": found.chance, "overlap_ceiling": found.ceiling}
        for (k, marked), (quantity, values) in product(cuts.items(), columns.items()):
            if values is not None:
                cut = {**tags, "k": k, "separated": bool(found.separated[k - 1]), **marked}
                yield record_of(quantity, float(values[k - 1]), **cut)


def distilled(evaluation: MeasureContext) -> list[str]:
    """The names of the denoisers to distil: the network, and the multi-delta denoiser unless that takes too long."""
    if evaluation.calls is None:
        return []
    limit = _CONTROL_COST.get(evaluation.device.type, _CONTROL_COST["cpu"])
    affordable = evaluation.calls * evaluation.dim * len(evaluation.images.train) <= limit
    return ["network", "multidelta"] if affordable else ["network"]


def half_moments(evaluation: MeasureContext) -> tuple[Moments, Moments] | None:
    """The moments of two random halves of the training images; None if there are too few."""
    order = draw_order(evaluation.config.seed, len(evaluation.images.train), stream="halves")
    if len(order) <= 3:
        return None
    first, second = (evaluation.images.train[half.sort().values] for half in order.chunk(2))
    return Moments.fit(first, device=evaluation.device), Moments.fit(second, device=evaluation.device)


def _real(evaluation: MeasureContext) -> list[Inputs]:
    """The sets of images that are not surrogates."""
    return [inputs for inputs in evaluation.inputs.values() if inputs.name != "surrogate"]
