"""Tasks on one model besides those of `evaluation/model_tasks.py`.

They are: a quick look at a snapshot, linearity with unequal weights, explained variance, and training a little longer.
"""

import copy
import math
from collections.abc import Iterator
from itertools import product

import torch

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.moments import Moments
from ...denoisers.multidelta import MultiDeltaDenoiser
from ...evaluation.evaluators import of_gap, of_samples
from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import Task, TaskContext, task
from ...images import dequantize
from ...measures.gap import gap
from ...measures.linearity import linearity
from ...measures.neighbors import nearest
from ...noise import draw_noise, generator, karras_sigmas
from ...store.records import Record, of_curve
from ..plan import Plan
from .dataset_stats import split_images

EXPLAINED = "explained_variance"

_LEVELS = 10
_SAMPLES = 256  # of a snapshot, which suffice to see copies appear
_SAMPLING_CALLS = 35  # of Heun's method on 18 levels
_SQUARES = (0.5, 0.6225, 0.745, 0.8675, 0.99)  # α² as in the paper; the others are compared with the first
_PUBLISHED = (10.0, 5.0, 2.0, 1.0, 0.5)  # noise levels of published explained variances; none is among the ten
_MANY = 2000  # images behind the control of explained variance, which calls no network
_PLACES = (1, 5)  # of ten levels at which training continues: σ = 42 and, as a control, 1.5
_BATCH, _STEPS, _LOOKS = 32, 64, 4
_STEP_SIZE, _RISE = 2e-4, 5  # of Adam, and the steps over which it rises before it falls


def checkpoint_task(plan: Plan, model: Task, kimg: float) -> Task:
    """The task that evaluates a snapshot."""
    samples = sample_count(plan)
    calls = _LEVELS * plan.count + _SAMPLING_CALLS * samples
    return plan.on_model(look_at_snapshot, model, calls=calls, kimg=kimg, samples=samples)


def sample_count(plan: Plan) -> int:
    """How many samples of each snapshot are generated."""
    return min(plan.samples, _SAMPLES)


@task("look_at_snapshot", version=1, of_0_1="studies.snapshots")
def look_at_snapshot(context: TaskContext) -> Iterator[Record]:
    """Measure the distance of a network to its references on held-out images, sample it, and search for copies.

    This costs a fraction of all measures. Controls do not change during training, so they are measured only at its end.
    Options are those of `evaluation_of`. The arrays are uint8 (samples, c, h, w): the samples `network`, and `nearest`, the
    training image nearest to each.

    Yields:
        `rmse` of the network to gaussian, multidelta and gaussian_full, on held-out images; and the records of `of_samples`.
    """
    evaluation = evaluation_of(context)
    references = {**evaluation.references, **evaluation.full_gaussian}
    denoisers = {**references, "network": evaluation.cached_denoisers["network"]}
    for reference in references:
        yield from of_gap(evaluation, evaluation.inputs["held_out"], denoisers, "network", reference)
    samples = evaluation.sampled("network")
    _, indices = nearest(samples, evaluation.images.train, device=evaluation.device)
    context.save_arrays(network=samples, nearest=evaluation.images.train[indices[:, 0]])
    yield from of_samples(evaluation, "network", samples)


@task("vary_weights", version=1, of_0_1="studies.superposing")
def vary_weights(context: TaskContext) -> Iterator[Record]:
    """Linearity with other weights α and β = √(1 − α²), on noisy held-out images and on pure noise.

    Options are those of `evaluation_of`.

    Yields:
        `linearity_cosine` and `linearity_nmse` with `alpha`, and `linearity_difference`: the cosine at α² = ½ minus that at
        `alpha`, pair by pair. `on` is held_out, or noise for inputs σ·eps.
    """
    evaluation = evaluation_of(context)
    asked = [
        *(("network", inputs, False, ("cosine", "nmse")) for inputs in ("images", "noise")),
        ("network", "images", True, ("cosine",)),
        *((name, "images", False, ("cosine",)) for name in evaluation.references),
    ]
    alphas = [math.sqrt(square) for square in _SQUARES]
    for name, inputs, affine, metrics in context.each(asked):
        said = {"denoiser": name, "on": "held_out" if inputs == "images" else inputs, "affine": affine}
        # Both measures of one weight follow each other, while the answers that they share are remembered.
        curves = {
            (metric, alpha): evaluation.curve(
                *(linearity, evaluation.inputs["held_out"], evaluation.cached_denoisers[name]),
                metric=metric,
                affine=affine,
                alpha=alpha,
                inputs=inputs,
            )
            for alpha in alphas
            for metric in metrics
        }
        for (metric, alpha), curve in curves.items():
            yield from of_curve(f"linearity_{metric}", curve, alpha=alpha, **said)
            if metric == "cosine" and not affine and alpha != alphas[0]:
                difference = curves[metric, alphas[0]] - curve
                yield from of_curve("linearity_difference", difference, alpha=alpha, **said)


def explained_variance_task(plan: Plan, model: Task) -> Task:
    """The task that compares a model with its references."""
    return plan.on_model(explain_variance, model, calls=2 * len(_PUBLISHED) * plan.count, sigmas=_PUBLISHED)


def gaussian_variance_task(plan: Plan) -> Task:
    """The task that compares the Gaussian and the multi-delta denoiser of all images; it needs no model."""
    return plan.on_images(explain_gaussian, sigmas=_PUBLISHED, count=_MANY)


@task("explain_variance", version=1, of_0_1="studies.explaining")
def explain_variance(context: TaskContext) -> Iterator[Record]:
    """Explained variance of the network by the Gaussian and the multi-delta denoiser of its training images.

    Public models of CIFAR-10 were compared by it: 1 − Σ‖D − R‖²/Σ‖D − D̄‖² over noisy images.
    """
    evaluation = evaluation_of(context)
    for on, reference in product(("train", "held_out"), ("gaussian", "multidelta")):
        inputs, denoisers = evaluation.inputs[on], evaluation.cached_denoisers
        for record in of_gap(evaluation, inputs, denoisers, "network", reference, metric="ev"):
            yield {**record, "quantity": EXPLAINED}


@task("explain_gaussian", version=1, of_0_1="studies.explaining")
def explain_gaussian(context: TaskContext) -> Iterator[Record]:
    """Explained variance of the Gaussian denoiser by the multi-delta denoiser of the same images, all available ones.

    This is the control, which needs no network. On noisy training images the multi-delta denoiser retrieves the image x, so
    the share is 1 − E‖x − D‖²/Var D = 2 − Var x/Var D for any D whose error is orthogonal to it, such as a posterior mean or
    the Gaussian denoiser: the better D denoises, the larger.
    """
    device, images = context.device, split_images(context)
    train = images("all")
    gaussian = GaussianDenoiser(Moments.fit(train, device=device)).to(device, torch.float32)
    memory = MultiDeltaDenoiser(train).to(device, torch.float32)
    context.tags.update(n=len(train), denoiser="gaussian", reference="multidelta")
    for name, inputs in context.each((("train", train), ("held_out", images("held-out")))):
        count = min(context.options["count"], len(inputs))
        curve = gap(gaussian, memory, inputs, context.options["sigmas"], metric="ev", count=count, device=device)
        yield from of_curve(EXPLAINED, curve, on=name)


def finetune_task(plan: Plan, model: Task) -> Task:
    """The task that trains a model further at each of two levels."""
    sigmas = tuple(karras_sigmas(_LEVELS)[list(_PLACES)].tolist())
    calls = len(sigmas) * (3 * _BATCH * _STEPS + (_LOOKS + 1) * plan.count)
    return plan.on_model(refine_at_levels, model, calls=calls, sigmas=sigmas)


@task("refine_at_levels", version=2, of_0_1="studies.refining")
def refine_at_levels(context: TaskContext) -> Iterator[Record]:
    """Train the network on its own training images at one level after the other, each time from its final weights.

    Is a network far from the Gaussian at high noise because it is undertrained there? Training draws few such levels: of 512
    thousand images about ten have σ > 42. So training continues at one level alone, by Adam on the plain denoising loss with
    fresh noise and a step size that falls to 0. A middle level, which training draws often, is the control. A distance that
    shrinks at high noise but not at the control was a lack of training.

    Yields:
        `refined_rmse` between the network and the Gaussian of its training images, on held-out images after `further` ones.
    """
    evaluation = evaluation_of(context)
    train, held_out, seed = evaluation.images.train, evaluation.inputs["held_out"], evaluation.config.seed
    context.tags.update(on="held_out", denoiser="network", reference="gaussian")
    for place, sigma in enumerate(evaluation.sigmas.tolist()):
        network = copy.deepcopy(evaluation.network).requires_grad_(True)
        optimizer = torch.optim.Adam(network.parameters(), lr=_STEP_SIZE)
        chosen = torch.randint(len(train), (_STEPS, _BATCH), generator=generator(seed, "refine"), device="cpu")
        for step in range(_STEPS + 1):
            if step % (_STEPS // _LOOKS) == 0:
                context.report((place + step / _STEPS) / len(evaluation.sigmas))
                curve = evaluation.curve(gap, held_out, network, evaluation.references["gaussian"], sigmas=[sigma])
                yield from of_curve("refined_rmse", curve, further=step * _BATCH)
            if step == _STEPS:
                break
            for group in optimizer.param_groups:
                group["lr"] = _STEP_SIZE * min((step + 1) / _RISE, 1 - step / _STEPS)
            draws = torch.arange(step * _BATCH, (step + 1) * _BATCH)
            noise = draw_noise(seed, draws, evaluation.images.shape, stream="refine").to(evaluation.device)
            clean = dequantize(train[chosen[step]]).to(evaluation.device)
            network.train()
            denoised = network(clean + sigma * noise, clean.new_full((_BATCH,), sigma))
            optimizer.zero_grad()
            (denoised - clean).square().mean().backward()
            optimizer.step()
