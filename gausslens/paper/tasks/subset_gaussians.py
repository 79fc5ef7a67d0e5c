"""Gaussians of subsets: whether a few images suffice to know the Gaussian that all of them have."""

from collections.abc import Iterator, Sequence

import torch

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.moments import Moments
from ...evaluation.records import of_similarity
from ...experiments.task import Task, TaskContext, task
from ...generation import best_device, generate
from ...measures.agreement import agreement
from ...noise import draw_order
from ...store.records import Record
from ..plan import Plan
from .dataset_stats import available_images, on_images

_PICTURES = 10

CURVE = "curve"
"""The role of records at other sizes than the one that is judged."""


def subset_gaussians_task(plan: Plan, seed: int, sizes: Sequence[int]) -> Task:
    """The task that compares the Gaussians of random subsets with that of all images; it needs no model."""
    told = {"sizes": tuple(sizes), "judged": plan.subset, "samples": plan.samples}
    return on_images(plan, compare_gaussians, {"seed": seed, **told})


@task("compare_gaussians", version=1)
def compare_gaussians(context: TaskContext) -> Iterator[Record]:
    """Sample the Gaussians of random subsets and that of all images from the same noise, and compare.

    Options: `sizes`; `judged`, the size whose records have no `role`; `seed`; `samples`; and those of `available_images`.
    Its arrays hold a few samples, uint8 (noises, c, h, w): `all`, and for each size its number.

    Yields:
        agreement_rmse, agreement_nmse, agreement_correlation and agreement_ssim of `denoiser` gaussian with `reference`
        gaussian_full, with `noise` same and shuffled, at each `n`.
    """
    options, device = context.options, best_device(cpu=context.options.get("cpu", False))
    images, sizes = available_images(context), options["sizes"]

    def samples_of(chosen: torch.Tensor) -> torch.Tensor:
        gaussian = GaussianDenoiser(Moments.fit(chosen, device=device)).to(device, torch.float32)
        return generate(gaussian, tuple(images.shape[1:]), options["samples"], device=device, dtype=torch.float32)

    order, whole = draw_order(options["seed"], len(images), stream="subsets"), samples_of(images)
    kept = {"all": whole[:_PICTURES]}
    for done, n in enumerate(sizes):
        context.report(done / len(sizes))
        samples = samples_of(images[order[:n]])
        kept[str(n)] = samples[:_PICTURES]
        found = agreement(samples, whole, seed=options["seed"])
        role = {} if n == options["judged"] else {"role": CURVE}
        tags = {"denoiser": "gaussian", "reference": "gaussian_full", "n": n, "seed": options["seed"], **role}
        for noise, likeness in (("same", found.same_noise), ("shuffled", found.shuffled)):
            yield from of_similarity(likeness, noise=noise, **tags)
    context.save_arrays(**kept)
