"""Sensitivity: which changes of a noisy image a denoiser keeps, along sampling trajectories, and what becomes of them.

From a few noises the network is followed down 20 noise levels with Euler's method, as in Appendix H of arXiv:2410.24060. At
every other x_t the left singular vectors of the Jacobian ∇D(x_t; σ_t) are held against the principal components of the
training images, and sampling goes on from x_t ± 3σ_t·u₁ too. Controls are given the same x_t. The Gaussian's Jacobian is
the Wiener filter at every x: its overlap is below 1 only where single precision does not tell its singular values apart.

The arrays of a task: `sigmas` (s,); of the first noise `path`, D(x_t), uint8 (s, c, h, w), `vectors`, the first three
singular vectors, uint8 (s, 3, c, h, w), and `correlation`, |UᵀU_data|, (s, k, k); `mean` and `components`, uint8 (1 and 3,
c, h, w); `steered`, for three noises the samples after each of `STEERS`, uint8 (s, 3, 5, c, h, w).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ...denoisers.moments import Moments
from ...denoisers.protocol import Denoiser
from ...evaluation.context import MeasureContext
from ...evaluation.model_tasks import evaluation_of
from ...evaluation.records import of_estimate
from ...experiments.task import Task, TaskContext, task
from ...images import quantize
from ...measures.alignment import subspace_overlap
from ...measures.intervals import mean_estimate
from ...measures.jacobian import jacobian_spectrum
from ...noise import draw_noise, karras_sigmas
from ...sampling import Step, sample
from ...store.records import Record
from ..directions import as_pictures, signed_like
from ..plan import Plan

STEERS = ("−u₁", "none", "+u₁", "−random", "+random")
"""Where x_t is moved to, in the order of the array `steered`."""

_LEVELS = 20
_DISTANCE = 3.0  # in units of σ: no further than noise itself may lead
_CUTS = (1, 2, 3, 5, 10, 20)
_DENSE_DIM = 256
_DENSE_NOISES, _NOISES = 16, 4
_LARGEST_MAP = 100

SPARSE_VECTORS, ITERATIONS = 10, 15
"""Singular vectors of large images' Jacobians, and iterations to find them."""

PICTURED = 3
"""Singular vectors that are drawn."""


def jacobian_task(plan: Plan, model: Task) -> Task:
    """The task that follows a model's Jacobians; equal for equal arguments."""
    products = _NOISES * 2 * ITERATIONS * (SPARSE_VECTORS + 10)
    if is_dense(plan.dim):
        products = _DENSE_NOISES * plan.dim
    return plan.on_model(follow_jacobians, model, calls=2 * _LEVELS * products)


@task("follow_jacobians", version=2)
def follow_jacobians(context: TaskContext) -> Iterator[Record]:
    """Follow the network's trajectories. Options are those that `evaluation_of` reads.

    Yields:
        `jacobian_overlap` of the `k` leading left singular vectors with as many principal components, for the network and
        its controls, at those k after which eigenvalues are told apart; and `steering_response`, how far the sample
        moves, ‖Δx_0‖/‖Δx_t‖, by `direction`, the "first" singular vector or a "random" one.
    """
    evaluation, tags = evaluation_of(context)
    dense, shape, seed = is_dense(evaluation.dim), evaluation.images.shape, evaluation.config.seed
    latents = draw_noise(seed, torch.arange(_DENSE_NOISES if dense else _NOISES), shape, stream="latents")
    steps: list[Step] = []
    sigmas = karras_sigmas(_LEVELS)
    sample(evaluation.network, latents, sigmas=sigmas, solver="euler", callback=steps.append)
    steps = [step for step in steps if step.index % 2 == 0 or step.index == _LEVELS - 1]
    names = ("network", "gaussian", "multidelta") if dense else ("network", "gaussian")
    cuts = [k for k in separated_cuts(evaluation.moments) if dense or k <= SPARSE_VECTORS]
    components = evaluation.moments.eigvecs
    found: dict[str, list[Tensor]] = {"vectors": [], "correlation": [], "steered": []}
    for done, step in enumerate(steps):
        context.report(done / len(steps))
        for name in names:
            left = singular_vectors(evaluation, name, step)
            said = {**tags, "sigma": step.sigma, "on": "noise", "denoiser": name}
            for k, overlaps in overlaps_at(left, components, cuts).items():
                yield of_estimate("jacobian_overlap", mean_estimate(overlaps), k=k, **said)
            if name == "multidelta":
                continue
            samples = steer(evaluation.denoisers[name], step, sigmas, left[:, :, 0], seed=seed)
            for direction, moved in responses(samples, step.sigma).items():
                yield of_estimate("steering_response", mean_estimate(moved), direction=direction, **said)
            if name == "network":
                for of, picture in portrait(left[0], components, shape).items():
                    found[of].append(picture)
                found["steered"].append(quantize(samples[:PICTURED]).cpu())
    context.save_arrays(
        sigmas=torch.tensor([step.sigma for step in steps]),
        path=torch.stack([quantize(step.denoised[0]).cpu() for step in steps]),
        mean=quantize(evaluation.moments.mean.reshape(1, *shape)).cpu(),
        components=as_pictures(components[:, :PICTURED], shape),
        **{name: torch.stack(parts) for name, parts in found.items()},
    )


def is_dense(dim: int) -> bool:
    """Whether whole Jacobians of images of so many numbers are cheaper than an iteration."""
    return dim <= _DENSE_DIM


def singular_vectors(evaluation: MeasureContext, name: str, step: Step) -> Tensor:
    """The leading left singular vectors of a denoiser's Jacobian where a path has come to."""
    dense = is_dense(evaluation.dim)
    return jacobian_spectrum(
        *(evaluation.denoisers[name], step.x, step.sigma, evaluation.dim if dense else SPARSE_VECTORS),
        full=dense,
        iterations=ITERATIONS,
        seed=evaluation.config.seed,
    ).left


def portrait(left: Tensor, components: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
    """What a page shows of one Jacobian."""
    kept = min(left.shape[1], components.shape[1], _LARGEST_MAP)
    leading, principal = left[:, :PICTURED], components[:, :PICTURED]
    return {
        "correlation": (left[:, :kept].T @ components[:, :kept]).abs().float().cpu(),
        "vectors": as_pictures(signed_like(leading, principal), shape),
    }


def separated_cuts(moments: Moments) -> list[int]:
    """Numbers of leading principal components that are told apart from those that follow.

    An eigenvalue λ of N images has a standard error of about λ√(2/N), and the difference of two neighbours √2 times that.
    Where it is less than twice its standard error, the images do not say which of the two leads, and no network can know.
    """
    carrying = moments.eigvals[moments.eigvals > 1e-9 * moments.eigvals[0]].tolist()
    values = [*carrying, 0.0][: moments.dim]  # there is nothing to part all dimensions from
    gaps = [1 - following / value for value, following in pairwise(values)]
    clear = [k for k in _CUTS if k <= len(gaps) and gaps[k - 1] > 4 / moments.count**0.5]
    return clear or [gaps.index(max(gaps[: _CUTS[-1]])) + 1]


def overlaps_at(left: Tensor, components: Tensor, cuts: Sequence[int]) -> dict[int, Tensor]:
    """The overlap of leading subspaces at each cut."""
    widest = max(cuts)
    curves = torch.stack([subspace_overlap(one[:, :widest], components[:, :widest]) for one in left]).cpu()
    return {k: curves[:, k - 1] for k in cuts}


def steer(denoiser: Denoiser, step: Step, sigmas: Tensor, first: Tensor, *, seed: int = 0) -> Tensor:
    """Samples that go on from x_t and from where it is moved to, by 3σ_t along each direction."""
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
