"""Whether two models agree for what any two sets of images have in common: their mean colour and power spectrum.

Two networks of few images each, stopped early or narrow, make alike images though the Gaussians of their images do not. The
stationary Gaussians of these do (see `denoisers.stationary`). In a study's file:

    Part("early, stationary", stationary_compared(plan, both))

The cell's arrays `first` and `second` are samples of the stationary Gaussians, uint8 (noises, c, h, w).
"""

from collections.abc import Iterator, Sequence

from .cells import Cell, Record, Task, versioned
from .describing import LOADING, loaded
from .plans import Plan

_OWN = ("gaussian", "multidelta")


def stationary_compared(plan: Plan, both: Sequence[Cell]) -> Cell:
    """The cell that compares two models' samples with those of the stationary Gaussians of their training images.

    Args:
        plan: the study's.
        both: two cells of `sample_model`, of models of the plan.

    Returns:
        The cell; equal for equal arguments.
    """
    splits = [cell.needs[0].options["config"]["split"] for cell in both]
    told = {name: plan.training.get(name) for name in LOADING}
    return plan.on_model("compare_with_stationary", *both, module=__name__, splits=splits, **told)


@versioned(1)
def compare_with_stationary(task: Task) -> Iterator[Record]:
    """Compare samples noise by noise. Options: `splits`, the training set of either model, and those of `loaded`.

    Yields:
        agreement_rmse, agreement_nmse, agreement_correlation and agreement_ssim with `noise` same: of the `denoiser`
        stationary, one set's with the other's; and of the first network with the samples of its own images' stationary
        Gaussian, Gaussian and multi-delta denoiser, the `reference`.
    """
    import torch

    from ..denoisers.stationary import StationaryDenoiser
    from ..generation import best_device, generate
    from ..images import as_tensor
    from ..measures.similarity import agreement
    from ..measuring.records import of_similarity
    from .agreements import in_common

    device = best_device(cpu=task.options.get("cpu", False))
    pixels, splits = loaded(task)
    network = torch.as_tensor(task.inputs[0].arrays["network"])
    samples = []
    for split in task.options["splits"]:
        denoiser = StationaryDenoiser(pixels[as_tensor(splits.named(split))]).to(device, torch.float32)
        made = generate(denoiser, tuple(network.shape[1:]), len(network), device=device, dtype=torch.float32)
        samples.append(made)
    task.save_arrays(first=samples[0], second=samples[1])
    tags = {"noise": "same", **in_common(*task.inputs)}
    yield from of_similarity(agreement(*samples).same_noise, denoiser="stationary", **tags)
    controls = {"stationary": samples[0], **{name: task.inputs[0].arrays[name] for name in _OWN}}
    for name, control in controls.items():
        yield from of_similarity(agreement(network, control).same_noise, denoiser="network", reference=name, **tags)
