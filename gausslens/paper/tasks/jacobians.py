"""Jacobians along sampling trajectories: which changes of a noisy image a denoiser keeps, and how they change the sample.

From a few noises a network follows its trajectory with Euler's method, as in Appendix H of arXiv:2410.24060. At each x_t the
left singular vectors of the Jacobian ∇D(x_t; σ_t) are compared with the principal components of the training images.
Controls get the same x_t. The Gaussian's Jacobian is the Wiener filter at every x: its overlap is below 1 only where single
precision cannot separate its singular values.

The network is one for all levels, followed on 20 of them, or a `LevelwiseDenoiser` of networks for one level each.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ..._typing import Float
from ...denoisers.composite import LevelwiseDenoiser
from ...denoisers.moments import Moments
from ...denoisers.protocol import Denoiser
from ...evaluation.config import MeasureConfig
from ...evaluation.context import MeasureContext
from ...evaluation.evaluators import DENSE_DIM, ITERATIONS, take_gap
from ...evaluation.model_tasks import evaluation_of, run_of, tags_of
from ...evaluation.references import load_run_images
from ...experiments.task import Task, TaskContext, Work, task
from ...images import quantize
from ...measures.alignment import subspace_overlap
from ...measures.intervals import mean_estimate
from ...measures.jacobian import jacobian_spectrum
from ...noise import draw_noise, karras_sigmas
from ...sampling import Step, sample
from ...store.records import Record, of_estimate
from ...store.run import load_trained
from ..plan import Plan

STEERS = ("−u₁", "none", "+u₁", "−random", "+random")
"""The steps from x_t, in the order of the array `steered`."""

_LEVELS = 20
_DISTANCE = 3.0  # in units of σ: no further than noise itself may lead
_CUTS = (1, 2, 3, 5, 10, 20)
_DENSE_NOISES, _DENSE_NOISES_PER_LEVEL, _NOISES = 16, 8, 4
_LARGEST_MAP = 100
_VECTORS = 10  # singular vectors of large images' Jacobians
_PICTURED = 3  # singular vectors that are drawn


def jacobian_task(plan: Plan, model: Task) -> Task:
    """The task that follows a model's Jacobians."""
    products = _DENSE_NOISES * plan.dim if plan.dim <= DENSE_DIM else _NOISES * 2 * ITERATIONS * (_VECTORS + 10)
    return plan.on_model(follow_jacobians, model, calls=2 * _LEVELS * products)


def per_level_task(plan: Plan, models: Sequence[Task], work: Work) -> Task:
    """A task on networks that differ in their one noise level alone; the work is `measure_levels` or `follow_levels`."""
    products = _DENSE_NOISES_PER_LEVEL * plan.dim if plan.dim <= DENSE_DIM else _NOISES * 2 * ITERATIONS * _VECTORS
    calls = 2 * products if work is follow_levels else 3 * plan.count
    return plan.on_model(work, *models, calls=calls * len(models))


@task("follow_jacobians", version=2, of_0_1="studies.sensitivity")
def follow_jacobians(context: TaskContext) -> Iterator[Record]:
    """Follow a network's trajectories, and from every other x_t also sample from x_t ± 3σ_t·u₁; see `follow_path`."""
    return follow_path(context, evaluation_of(context), karras_sigmas(_LEVELS), noises=_DENSE_NOISES, steered=True)


@task("follow_levels", version=1, of_0_1="studies.levels")
def follow_levels(context: TaskContext) -> Iterator[Record]:
    """Follow the trajectories of networks of one level each; see `follow_path`."""
    evaluation = stitched_networks(context)
    return follow_path(context, evaluation, evaluation.sigmas, noises=_DENSE_NOISES_PER_LEVEL, steered=False)


@task("measure_levels", version=1, of_0_1="studies.levels")
def measure_levels(context: TaskContext) -> Iterator[Record]:
    """Take the measure `gap` of networks of one level each. Options: `count`."""
    return take_gap(stitched_networks(context))


def stitched_networks(context: TaskContext) -> MeasureContext:
    """Networks of one noise level each as one denoiser, with their images and references; sets the tags of the records."""
    runs = sorted((run_of(result) for result in context.inputs), key=lambda run: -(run.config.sigma or 0.0))
    context.tags.update(tags_of(runs[0]))
    sigmas = tuple(run.config.sigma or 0.0 for run in runs)
    network = LevelwiseDenoiser([load_trained(run, device=context.device) for run in runs], sigmas)
    images = load_run_images(runs[0], data=context.options["data"])
    config = MeasureConfig(run=str(runs[0].path), sigmas=sigmas, count=context.options["count"])
    return MeasureContext(network, runs[0].config, images, config, context.folder)


def follow_path(
    context: TaskContext, evaluation: MeasureContext, sigmas: Tensor, *, noises: int, steered: bool
) -> Iterator[Record]:
    """Follow the Euler path of a network from a few noises, with the Jacobians along it.

    The arrays are `sigmas` (s,); of the first noise `path`, D(x_t), uint8 (s, c, h, w), `vectors`, the first three singular
    vectors, uint8 (s, 3, c, h, w), and `correlation`, |UᵀU_data|, (s, k, k); `mean` and `components`, uint8 (1 and 3, c, h,
    w). If the path is steered, `steered`, for three noises the samples after each of `STEERS`, uint8 (s, 3, 5, c, h, w);
    else `network`, D(x_t) of all noises, uint8 (noises, s, c, h, w).

    Yields:
        `jacobian_overlap` of the `k` leading left singular vectors with as many principal components, for the network and
        its controls, at those k after which eigenvalues are told apart; and `steering_response`, how far the sample
        moves, ‖Δx_0‖/‖Δx_t‖, by `direction`, the "first" singular vector or a "random" one.
    """
    dense, shape, seed = evaluation.dim <= DENSE_DIM, evaluation.images.shape, evaluation.config.seed
    latents = draw_noise(seed, torch.arange(noises if dense else _NOISES), shape, stream="latents")
    steps: list[Step] = []
    sample(evaluation.network, latents, sigmas=sigmas, solver="euler", callback=steps.append)
    if steered:
        steps = [step for step in steps if step.index % 2 == 0 or step is steps[-1]]
    names = ("network", "gaussian", "multidelta") if steered and dense else ("network", "gaussian")
    components = evaluation.moments.eigvecs
    cuts = [k for k in separated_cuts(evaluation.moments) if dense or k <= _VECTORS]
    found: dict[str, list[Tensor]] = {"vectors": [], "correlation": []}
    context.tags["on"] = "noise"
    for step in context.each(steps):
        for name in names:
            left = jacobian_spectrum(
                *(evaluation.denoisers[name], step.x, step.sigma, evaluation.dim if dense else _VECTORS),
                full=dense,
                iterations=ITERATIONS,
                seed=seed,
            ).left
            said = {"sigma": step.sigma, "denoiser": name}
            for k, overlaps in overlaps_at(left, components, cuts).items():
                yield of_estimate("jacobian_overlap", mean_estimate(overlaps), k=k, **said)
            if name == "network":
                kept = min(left.shape[2], components.shape[1], _LARGEST_MAP)
                leading = signed_like(left[0, :, :_PICTURED], components[:, :_PICTURED])
                found["vectors"].append(as_pictures(leading, shape))
                found["correlation"].append((left[0, :, :kept].T @ components[:, :kept]).abs().float().cpu())
            if steered and name != "multidelta":
                samples = steer(evaluation.denoisers[name], step, sigmas, left[:, :, 0], seed=seed)
                for direction, moved in responses(samples, step.sigma).items():
                    yield of_estimate("steering_response", mean_estimate(moved), direction=direction, **said)
                if name == "network":
                    found.setdefault("steered", []).append(quantize(samples[:_PICTURED]).cpu())
    outputs = torch.stack([quantize(step.denoised).cpu() for step in steps], 1)
    context.save_arrays(
        sigmas=torch.tensor([step.sigma for step in steps]),
        path=outputs[0].clone(),
        mean=quantize(evaluation.moments.mean.reshape(1, *shape)).cpu(),
        components=as_pictures(components[:, :_PICTURED], shape),
        **{name: torch.stack(parts) for name, parts in found.items()},
        **({} if steered else {"network": outputs}),
    )


def separated_cuts(moments: Moments) -> list[int]:
    """Numbers k of leading principal components that are separated from the following ones.

    An eigenvalue λ of N images has a standard error of about λ√(2/N), and the difference of two neighbours √2 times that.
    A difference below twice its standard error does not determine which of the two comes first.
    """
    carrying = moments.eigvals[moments.eigvals > 1e-9 * moments.eigvals[0]].tolist()
    values = [*carrying, 0.0][: moments.dim]  # there is nothing to part all dimensions from
    gaps = [1 - following / value for value, following in pairwise(values)]
    clear = [k for k in _CUTS if k <= len(gaps) and gaps[k - 1] > 4 / moments.count**0.5]
    return clear or [gaps.index(max(gaps[: _CUTS[-1]])) + 1]


def overlaps_at(left: Tensor, components: Tensor, cuts: Sequence[int]) -> dict[int, Tensor]:
    """The overlap of the leading subspaces of each dimension in `cuts`."""
    widest = max(cuts)
    curves = torch.stack([subspace_overlap(one[:, :widest], components[:, :widest]) for one in left]).cpu()
    return {k: curves[:, k - 1] for k in cuts}


def steer(denoiser: Denoiser, step: Step, sigmas: Tensor, first: Tensor, *, seed: int = 0) -> Tensor:
    """Samples from x_t and from x_t moved by 3σ_t along each direction, in the order of `STEERS`."""
    x, count = step.x, len(step.x)
    random = draw_noise(seed, torch.arange(count), (x[0].numel(),), stream="steering").to(x)
    u, v = (way.to(x).reshape(x.shape) for way in (first, random / random.norm(dim=1, keepdim=True)))
    move = _DISTANCE * step.sigma
    starts = torch.stack([x - move * u, x, x + move * u, x - move * v, x + move * v], 1)
    samples = sample(denoiser, starts.flatten(0, 1) / step.sigma, sigmas=sigmas[step.index :], solver="euler")
    return samples.reshape(starts.shape)


def responses(samples: Tensor, sigma: float) -> dict[str, Tensor]:
    """‖Δx_0‖/‖Δx_t‖ for the first singular vector and for a random direction, mean of both signs, (b,) each."""
    flat = samples.double().flatten(2).cpu()
    moved = (flat - flat[:, 1:2]).norm(dim=2) / (_DISTANCE * sigma)
    return {"first": moved[:, [0, 2]].mean(1), "random": moved[:, [3, 4]].mean(1)}


def as_pictures(directions: Float[Tensor, "d k"], shape: tuple[int, ...]) -> Tensor:
    """Columns as uint8 images, (k, *shape): zero is grey, the largest entry of each white or black."""
    rows = directions.T.cpu()
    return quantize((rows / rows.abs().amax(1, keepdim=True).clamp_min(1e-30)).reshape(-1, *shape))


def signed_like(directions: Float[Tensor, "... d k"], others: Float[Tensor, "d k"]) -> Float[Tensor, "... d k"]:
    """Columns with the signs that agree with those of `others`: the signs of singular vectors are arbitrary."""
    return directions * torch.where((directions * others).sum(-2, keepdim=True) < 0, -1.0, 1.0)
