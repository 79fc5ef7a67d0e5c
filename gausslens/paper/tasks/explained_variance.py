"""How much of a network's variance its references explain, at noise levels for which such numbers are published.

Public models of CIFAR-10 were compared by their explained variance, 1 − Σ‖D − R‖²/Σ‖D − D̄‖² over noisy images, at five
levels that are not among the ten of the other measures.

The control needs no network: how much of the Gaussian denoiser the multi-delta denoiser explains. On noisy training images
the latter retrieves the image x, so this is 1 − E‖x − D‖²/Var D = 2 − Var x/Var D for any D whose error is orthogonal to it,
such as a posterior mean or the Gaussian denoiser: the better D denoises, the larger.
"""

from collections.abc import Iterator
from itertools import product

import torch

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.moments import Moments
from ...denoisers.multidelta import MultiDeltaDenoiser
from ...evaluation.evaluators import of_gap
from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import Task, TaskContext, task
from ...measures.gap import gap
from ...store.records import Record, of_curve
from ..plan import Plan
from .dataset_stats import split_images

QUANTITY = "explained_variance"
_LEVELS = (10.0, 5.0, 2.0, 1.0, 0.5)
_MANY = 2000  # images behind the control, which calls no network


def explained_variance_task(plan: Plan, model: Task) -> Task:
    """The task that compares a model with its references."""
    calls = 2 * len(_LEVELS) * plan.count
    return plan.on_model(explain_variance, model, calls=calls, sigmas=_LEVELS)


def gaussian_variance_task(plan: Plan) -> Task:
    """The task that compares the Gaussian and the multi-delta denoiser of all images; it needs no model."""
    return plan.on_images(explain_gaussian, sigmas=_LEVELS, count=_MANY)


@task("explain_gaussian", version=1, of_0_1="studies.explaining")
def explain_gaussian(context: TaskContext) -> Iterator[Record]:
    """Explained variance of the Gaussian denoiser by the multi-delta denoiser of the same images, all available ones."""
    device, images = context.device, split_images(context)
    train = images("all")
    gaussian = GaussianDenoiser(Moments.fit(train, device=device)).to(device, torch.float32)
    memory = MultiDeltaDenoiser(train).to(device, torch.float32)
    context.tags.update(n=len(train), denoiser="gaussian", reference="multidelta")
    for name, inputs in context.each((("train", train), ("held_out", images("held-out")))):
        count = min(context.options["count"], len(inputs))
        curve = gap(gaussian, memory, inputs, context.options["sigmas"], metric="ev", count=count, device=device)
        yield from of_curve(QUANTITY, curve, on=name)


@task("explain_variance", version=1, of_0_1="studies.explaining")
def explain_variance(context: TaskContext) -> Iterator[Record]:
    """Explained variance of the network by the Gaussian and the multi-delta denoiser of its training images."""
    evaluation = evaluation_of(context)
    for on, reference in product(("train", "held_out"), ("gaussian", "multidelta")):
        inputs, denoisers = evaluation.inputs[on], evaluation.cached_denoisers
        for record in of_gap(evaluation, inputs, denoisers, "network", reference, metric="ev"):
            yield {**record, "quantity": QUANTITY}
