"""Distillation of models for studies: affine maps of a network and of a control on several sets of images.

All results are of fits without shrinkage, since shrinkage toward the Gaussian assumes what is to be shown. The arrays of a
task are of the network's map on held-out images: `sigmas` (s,); `correlation`, |U_Wᵀ U| of its left singular vectors and
the principal components, (s, k, k); its `singular_values`, and the Gaussian's, `gains`, (s, k); `vectors` and `components`,
uint8 (m, c, h, w), at the level nearest to σ = 4, each with the sign of its principal component.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...denoisers.distillation import distill
from ...denoisers.fitting import BATCH
from ...denoisers.gaussian import GaussianDenoiser
from ...evaluation.context import Inputs, MeasureContext
from ...evaluation.evaluators import aligned, distilled, half_moments, of_alignment, of_distillation, of_gap
from ...evaluation.model_tasks import evaluation_of
from ...evaluation.references import moments_of
from ...experiments.task import Task, TaskContext, task
from ...measures.alignment import Alignment
from ...noise import karras_sigmas
from ...store.records import Record, record_of
from ..plan import Plan
from .jacobians import as_pictures, signed_like

_PICTURED_SIGMA = 4.0
_PICTURED, _MAPPED = 25, 100  # singular vectors shown as images, and in maps
_LEVELS = 10
_ALL_LEVELS_DIM = 3072
_SOME_LEVELS = (0, 2, 4, 5, 6, 8)  # σ = 80, 21, 4.1, 1.5, .47 and .02
# By Adam: epochs, and the calls at each level that these may cost; on a GPU as many as 3,072 dimensions need.
_ADAM_EPOCHS, _ADAM_CALLS = 60, {"cpu": 24_000, "cuda": 123_000}
_TRAVEL = 3.0  # how far Adam could move a weight in all its steps, in units of the Gaussian's largest


def distillation_task(plan: Plan, model: Task, *, denoisers: Sequence[str], images: Sequence[str]) -> Task:
    """The task that distils a model."""
    sigmas = some_levels(plan)
    calls = 10 * plan.dim * len(sigmas or range(_LEVELS)) * len(denoisers) * len(images)
    what = {"denoisers": tuple(denoisers), "images": tuple(images), "sigmas": sigmas}
    return plan.on_model(distill_model, model, calls=calls, **what)


def adam_distillation_task(plan: Plan, model: Task) -> Task:
    """The task that distils a model on held-out images by Adam, as the paper does."""
    calls = _ADAM_CALLS["cpu"] * _LEVELS
    return plan.on_model(distill_by_adam, model, calls=calls, sigmas=some_levels(plan))


def some_levels(plan: Plan) -> tuple[float, ...] | None:
    """The noise levels to distil at where images have many dimensions; None for all ten levels."""
    return tuple(karras_sigmas(_LEVELS)[list(_SOME_LEVELS)].tolist()) if plan.dim > _ALL_LEVELS_DIM else None


@task("distill_model", version=2, of_0_1="studies.distilling")
def distill_model(context: TaskContext) -> Iterator[Record]:
    """Distil in closed form. Options: `denoisers` and `images`, names; and those of `evaluation_of`.

    The multi-delta denoiser, which retrieves training images, is not distilled on surrogates.

    Yields:
        The records of the measures `distillation` and `alignment`; and the `rmse` between the distilled denoiser, its linear
        map (denoiser linear, `of` the distilled denoiser, `shrunk` False) and the Gaussian.
    """
    evaluation = evaluation_of(context)
    names = [name for name in distilled(evaluation) if name in context.options["denoisers"]]
    sets = [inputs for name, inputs in evaluation.inputs.items() if name in context.options["images"]]
    halves = half_moments(evaluation) if names else None
    pairs = [(name, inputs) for inputs in sets for name in names if (name, inputs.name) != ("multidelta", "surrogate")]
    for name, inputs in context.each(pairs):
        fit = evaluation.linear(name, inputs)
        levels = aligned(evaluation, fit, halves)
        yield from of_distillation(evaluation, name, inputs)
        yield from of_alignment(name, inputs, fit.calls, levels)
        yield from _gaps(evaluation, name, inputs)
        if (name, inputs.name) == ("network", "held_out"):
            context.save_arrays(**_pictures(evaluation, levels))


@task("distill_by_adam", version=2, of_0_1="studies.distilling")
def distill_by_adam(context: TaskContext) -> Iterator[Record]:
    """Distil the network on the held-out images by Adam. Options are those of `evaluation_of`.

    Yields:
        `weight_error`, from the Gaussian of the same images, and `asymmetry` by `epoch`, with `method` adam; `count` is of
        images, `step_size` Adam's.
    """
    evaluation = evaluation_of(context)
    if evaluation.calls is None:
        return
    images = evaluation.images.held_out  # those of the closed form, so that both have one Gaussian to be compared with
    affordable = _ADAM_CALLS.get(evaluation.device.type, _ADAM_CALLS["cpu"])
    epochs = max(2, min(_ADAM_EPOCHS, affordable // len(images)))
    steps = epochs * -(-len(images) // BATCH)
    gaussian = GaussianDenoiser(moments_of(images, device=evaluation.device)).to(evaluation.device)
    for sigma in context.each(evaluation.sigmas.tolist()):
        # Inputs are divided by √d, so weights are √d times the matrix that they stand for.
        step_size = _TRAVEL * float(gaussian.weight(sigma).abs().max()) * evaluation.dim**0.5 / steps
        fit = distill(
            *(evaluation.fast_network, images, [sigma]),
            method="adam",
            calls=epochs * len(images),
            seed=evaluation.config.seed,
            learning_rate=step_size,
        )
        said = {"sigma": sigma, "on": "held_out", "denoiser": "network", "method": "adam"}
        said |= {"count": len(images), "step_size": step_size}
        for epoch in fit.history[0]:
            for quantity, more in (("weight_error", {"reference": "gaussian of held_out"}), ("asymmetry", {})):
                yield record_of(quantity, epoch[quantity], epoch=int(epoch["epoch"]), **more, **said)


def _gaps(evaluation: MeasureContext, name: str, inputs: Inputs) -> Iterator[Record]:
    """Distances between a distilled denoiser, its linear map and the Gaussian, on the images of the distillation."""
    denoisers = {**evaluation.cached_denoisers, "linear": evaluation.linear(name, inputs).unshrunk}
    yield from of_gap(evaluation, inputs, denoisers, "linear", "gaussian", of=name, shrunk=False)
    yield from of_gap(evaluation, inputs, denoisers, name, "linear", shrunk=False)
    yield from of_gap(evaluation, inputs, denoisers, name, "gaussian")


def _pictures(evaluation: MeasureContext, levels: Sequence[Alignment]) -> dict[str, Tensor]:
    """The arrays of a task; see the module."""
    pictured = int((evaluation.sigmas.log() - torch.tensor(_PICTURED_SIGMA).log()).abs().argmin())
    vectors, components = levels[pictured].left[:, :_PICTURED], evaluation.moments.eigvecs[:, :_PICTURED]
    return {
        "sigmas": evaluation.sigmas,
        "correlation": torch.stack([level.correlation[:_MAPPED, :_MAPPED] for level in levels]).float().cpu(),
        "singular_values": torch.stack([level.singular_values[:_MAPPED] for level in levels]).cpu(),
        "gains": torch.stack([level.gaussian_singular_values[:_MAPPED] for level in levels]).cpu(),
        "vectors": as_pictures(signed_like(vectors, components), evaluation.images.shape),
        "components": as_pictures(components, evaluation.images.shape),
    }
