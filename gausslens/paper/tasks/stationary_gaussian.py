"""Which Gaussian models of a pair are near: that of their own few images, that of all, or one that knows no place.

Two networks of few images each, stopped early or narrow, make alike images though the Gaussians of their images do not. The
stationary Gaussians of these do (see `denoisers.stationary`): any few images have nearly one mean colour and power spectrum.
So would networks near the Gaussian of all images, whichever they were shown. In a study's file:

    Part("early, stationary", stationary_compared(plan, both))

The task's arrays `first` and `second` are samples of the stationary Gaussians, uint8 (noises, c, h, w).
"""

from collections.abc import Iterator, Sequence

import torch

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.stationary import StationaryDenoiser
from ...evaluation.records import of_similarity
from ...evaluation.references import moments_of
from ...experiments.task import Task, TaskContext, task
from ...generation import best_device, generate
from ...images import as_tensor
from ...measures.agreement import agreement
from ...store.records import Record
from ..plan import Plan
from .agreement import in_common
from .dataset_stats import LOADING, load_split_images

_OWN = ("gaussian", "multidelta")


def stationary_task(plan: Plan, both: Sequence[Task]) -> Task:
    """The task that compares two models' samples with those of the stationary Gaussians of their training images."""
    splits = [task.needs[0].options["config"]["split"] for task in both]
    told = {name: plan.training.get(name) for name in LOADING}
    return plan.on_model(compare_with_stationary, *both, splits=splits, **told)


@task("compare_with_stationary", version=2)
def compare_with_stationary(context: TaskContext) -> Iterator[Record]:
    """Compare samples noise by noise. Options: `splits`, the training set of either model, and those of `load_split_images`.

    Yields:
        agreement_rmse, agreement_nmse, agreement_correlation and agreement_ssim: with `noise` same of the `denoiser`
        stationary, one set's with the other's; and with `noise` same and shuffled of the first network with the samples
        of a `reference`: the stationary Gaussian, Gaussian and multi-delta denoiser of its own images, and gaussian_full,
        the Gaussian of all that could have been trained on.
    """
    device = best_device(cpu=context.options.get("cpu", False))
    pixels, splits = load_split_images(context)
    network = torch.as_tensor(context.inputs[0].arrays["network"])

    def chosen(split: str) -> "torch.Tensor":
        return pixels[as_tensor(splits.named(split))]

    def samples_of(denoiser: "torch.nn.Module") -> "torch.Tensor":
        moved = denoiser.to(device, torch.float32)
        return generate(moved, tuple(network.shape[1:]), len(network), device=device, dtype=torch.float32)

    first, second = (samples_of(StationaryDenoiser(chosen(split))) for split in context.options["splits"])
    context.save_arrays(first=first, second=second)
    tags = in_common(*context.inputs)
    yield from of_similarity(agreement(first, second).same_noise, denoiser="stationary", noise="same", **tags)
    full = samples_of(GaussianDenoiser(moments_of(chosen("all"), device=device)))
    references = {"stationary": first, "gaussian_full": full} | {name: context.inputs[0].arrays[name] for name in _OWN}
    for name, samples in references.items():
        found = agreement(network, samples)
        for noise, likeness in (("same", found.same_noise), ("shuffled", found.shuffled)):
            yield from of_similarity(likeness, denoiser="network", reference=name, noise=noise, **tags)
