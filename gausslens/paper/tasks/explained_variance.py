"""How much of a network its references explain, at the noise levels at which others have published it.

Explained variance, 1 − Σ‖D − R‖²/Σ‖D − D̄‖² over noisy images, is what public models of CIFAR-10 were compared by: at five
levels that are not among the ten of the other measures. In a study's file:

    Part("explained", explained_variance_task(plan, model))
    Part("control", gaussian_variance_task(plan))

The control needs no network: how much of the Gaussian denoiser itself the multi-delta one explains. On noisy training
images, where multi-delta retrieves the image x itself, that is 1 − E‖x − D‖²/Var D = 2 − Var x/Var D for any D with an error
that is orthogonal to it, as that of every posterior mean and of the Gaussian denoiser is: the better D denoises, the larger.
"""

from collections.abc import Iterator

import torch

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.moments import Moments
from ...denoisers.multidelta import MultiDeltaDenoiser
from ...evaluation.model_tasks import evaluation_of
from ...evaluation.records import of_curve
from ...experiments.task import Task, TaskContext, task
from ...measures.gap import gap
from ...store.records import Record
from ..plan import Plan
from .dataset_stats import split_images

QUANTITY = "explained_variance"
_LEVELS = (10.0, 5.0, 2.0, 1.0, 0.5)
_REFERENCES = ("gaussian", "multidelta")
_MANY = 2000  # images behind the control, which calls no network


def explained_variance_task(plan: Plan, model: Task) -> Task:
    """The task that compares a model with its references; equal for equal arguments."""
    calls = 2 * len(_LEVELS) * plan.count
    return plan.on_model(explain_variance, model, calls=calls, sigmas=_LEVELS)


def gaussian_variance_task(plan: Plan) -> Task:
    """The task that compares the Gaussian denoiser of all images with their multi-delta one; it needs no model."""
    return plan.on_images(explain_gaussian, sigmas=_LEVELS, count=_MANY)


@task("explain_gaussian", version=1)
def explain_gaussian(context: TaskContext) -> Iterator[Record]:
    """Explained variance of the Gaussian denoiser by the multi-delta one of the same images, all that may be trained on."""
    device, images = context.device, split_images(context)
    train = images("all")
    gaussian = GaussianDenoiser(Moments.fit(train, device=device)).to(device, torch.float32)
    memory = MultiDeltaDenoiser(train).to(device, torch.float32)
    context.tags.update(n=len(train), denoiser="gaussian", reference="multidelta")
    for name, inputs in context.each((("train", train), ("held_out", images("held-out")))):
        count = min(context.options["count"], len(inputs))
        curve = gap(gaussian, memory, inputs, context.options["sigmas"], metric="ev", count=count, device=device)
        yield from of_curve(QUANTITY, curve, on=name)


@task("explain_variance", version=1)
def explain_variance(context: TaskContext) -> Iterator[Record]:
    """Explained variance of the network by the Gaussian and the multi-delta denoiser of its training images."""
    evaluation = evaluation_of(context)
    for inputs in (evaluation.on("train"), evaluation.on("held_out")):
        for reference in _REFERENCES:
            network, other = evaluation.cached_denoisers["network"], evaluation.cached_denoisers[reference]
            how = evaluation.curve_options(inputs)
            curve = gap(network, other, inputs.images, evaluation.sigmas, metric="ev", **how)
            yield from of_curve(QUANTITY, curve, on=inputs.name, denoiser="network", reference=reference)
