"""The stages of an audit: each measures one thing of an `AuditContext` and returns tidy records.

A record is one number: `quantity`, `value`, `low`, `high`, `count`, and what it is the number of. Quantities named as a
field of `Evidence` are what the verdict rests on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ..denoisers.distillation import distill
from ..evaluation.records import of_curve, of_estimate, record_of
from ..measures.gap import gap
from ..measures.intervals import Estimate
from ..measures.linearity import linearity
from ..store.records import Record
from .context import AuditContext
from .evidence import DISTANCES
from .exchangeability import check_exchangeability
from .losses import BASELINE, LossGap, measure_losses
from .membership import membership_records
from .preprocessing_check import Foreignness, check_foreignness

# Calls of the network that its linear denoiser may cost, ten for each dimension and level.
_LINEAR_CALLS = {"cpu": 20_000, "cuda": 100_000}
NOT_EXCHANGEABLE = "not exchangeable"
_NOISY_IMAGES, _MOST_NOISES, _LEAST_NOISES = 3200, 16, 4  # of one set and level, by default
_DISTANCE_IMAGES = 200


def take_premises(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Whether the sets can be compared: repeats, overlap, and whether they may come from one distribution."""
    images = context.images
    repeats = int((context.repeats.pairs[:, 1] < len(images.train)).sum())
    yield {"quantity": "train_duplicates", "value": repeats, "count": len(images.train)}
    if not len(images.held_out):
        return
    overlap = int(context.repeats.overlap.sum())
    yield {"quantity": "overlap", "value": overlap, "count": len(images.held_out)}
    found = check_exchangeability(
        *(images.train, images.held_out, images.train_groups, images.held_out_groups),
        repeats=context.repeats.pairs,
        rmse=context.duplicate_rmse,
        seed=context.config.seed,
        device=context.device,
        progress=progress,
    )
    if found is not None:
        for quantity in ("neighbors_p", "neighbors_share", "detail_p", "contrast", "fineness"):
            yield {"quantity": quantity, "value": getattr(found, quantity), "count": found.n_train + found.n_held_out}
    if found is not None and found.refused is not None:
        yield {"quantity": "refused", "value": NOT_EXCHANGEABLE, "reason": found.refused}
    elif 2 * overlap > len(images.held_out):
        reason = (
            f"{overlap:,} of the {len(images.held_out):,} held-out images repeat training images or share a group with "
            "them, so too few are new to the model. Name images that it has not seen."
        )
        yield {"quantity": "refused", "value": "overlap", "reason": reason}


def take_losses(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Denoising losses on training and held-out images, and where the network's lie between the references'."""
    losses = measure_losses(
        *(context.denoisers, context.images.train, context.held_out, context.sigmas),
        noises=_noises(context),
        count=context.config.count,
        seed=context.config.seed,
        bounds=context.bounds,
        progress=progress,
        **context.labels,
        groups=context.images.train_groups,
        held_out_groups=context.compared.held_out_groups,
    )
    levels = losses.sigmas.tolist()
    for name in (*context.denoisers, BASELINE):
        for on in ("train", "held_out") if losses.calibrated else ("train",):
            for sigma, estimate in zip(levels, losses.loss(name, on), strict=True):
                yield of_estimate("loss", estimate, sigma=sigma, denoiser=name, on=on)
    yield from loss_records(losses)
    if losses.calibrated:
        for sigma, p_value in zip(levels, losses.p_values("network").tolist(), strict=True):
            yield record_of("auc_p", p_value, sigma=sigma)


def loss_records(losses: LossGap, name: str = "network") -> Iterator[Record]:
    """What the losses of a denoiser say, and at which noise levels.

    Yields:
        Records of each level: where the gap lies between the references' (`rho`, `position`), `retrieval`, losses in units
        of the baseline's, whether it is in the `window` and `intermediate`, and what is known of membership.
    """
    levels = losses.sigmas.tolist()
    known: dict[str, Sequence[Any]] = {
        "train_loss": losses.relative(name, BASELINE, "train"),
        "intermediate": losses.intermediate(),
    }
    if losses.calibrated:
        known |= {
            "rho": losses.position(name),
            "position": losses.position(name, BASELINE),
            "retrieval": losses.retrieval(name),
            "held_out_loss": losses.relative(name, BASELINE),
            "window": losses.window(),
            "near_gaussian": losses.near_gaussian(name),
        }
    for quantity, values in known.items():
        for sigma, value in zip(levels, values, strict=True):
            if isinstance(value, Estimate):
                yield of_estimate(quantity, value, sigma=sigma)
            elif value is not None:
                yield record_of(quantity, value, sigma=sigma)
    if losses.calibrated:
        yield from membership_records(losses, name)


def _noises(context: AuditContext) -> int:
    """Noises for each image: as asked for, or so that the numbers of calls stay the same."""
    if context.config.noises is not None:
        return context.config.noises
    most = max(len(context.images.train), 0 if context.held_out is None else len(context.held_out))
    used = min(context.config.count, most)
    return max(_LEAST_NOISES, min(_MOST_NOISES, _NOISY_IMAGES // used))


def take_foreignness(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Whether the images look foreign to the model."""
    found = check_foreignness(
        *(context.fast_network, context.images.train, context.held_out, context.sigmas),
        seed=context.config.seed,
        bounds=context.bounds,
        sigma_range=context.model.sigma_range,
        **context.labels,
    )
    yield foreignness_record(found)


def foreignness_record(found: Foreignness) -> Record:
    """What a model makes of its images prepared otherwise, as a record."""
    interval = {"value": None} if found.gain is None else asdict(found.gain)
    return {"quantity": "foreignness", **interval, "expected": found.expected, "sigma": found.sigma}


def take_distances(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """How far the network is from the Gaussian, the multi-delta and its linear denoiser, and how linear it is."""
    images, on, labels = context.images.train, "train", context.images.train_labels
    if context.held_out is not None:
        images, on, labels = context.held_out, "held_out", context.compared.held_out_labels
    count, seed = min(_DISTANCE_IMAGES, context.config.count, len(images)), context.config.seed
    how: dict[str, Any] = {"seed": seed, "bounds": context.bounds, "dtype": torch.float32}
    inputs: dict[str, Any] = {"count": count, "labels": labels, **how}
    network = context.cached_denoisers["network"]
    for which in DISTANCES.values():
        denoiser, reference = (context.cached_denoisers[which[role]] for role in ("denoiser", "reference"))
        yield from of_curve("rmse", gap(denoiser, reference, images, context.sigmas, **inputs), on=on, **which)
    for name, denoiser in context.cached_denoisers.items():
        curve = linearity(denoiser, images, context.sigmas, affine=True, **inputs)
        yield from of_curve("linearity", curve, on=on, denoiser=name)
    levels = _affordable(context)
    if len(levels) and labels is None:
        calls = 10 * context.dim
        fit = distill(context.fast_network, context.images.train, levels, calls=calls, device=context.device, **how)
        curve = gap(network, fit, images, levels, **inputs)
        yield from of_curve("rmse", curve, on=on, denoiser="network", reference="linear")
        explained = of_curve("fvu", gap(network, fit, images, levels, metric="ev", **inputs), on=on)
        for record in explained:  # FVU is what is left
            yield {**record, "value": 1 - record["value"], "low": 1 - record["high"], "high": 1 - record["low"]}
        for sigma, floor in zip(levels.tolist(), fit.fvu_floor.tolist(), strict=True):
            yield {"quantity": "fvu_floor", "value": floor, "sigma": sigma, "count": fit.calls, "on": "train"}


STAGES: dict[str, Callable[..., Iterator[Record]]] = {
    "premises": take_premises,
    "losses": take_losses,
    "foreignness": take_foreignness,
    "distances": take_distances,
}
"""The stages that need no samples, in their order."""


def _affordable(context: AuditContext) -> Tensor:
    """The levels at which the linear denoiser can be had at a bearable cost: those in the middle first."""
    most = _LINEAR_CALLS.get(context.device.type, _LINEAR_CALLS["cpu"]) // (10 * context.dim)
    levels, surplus = context.sigmas, max(0, len(context.sigmas) - most)
    return levels[surplus // 2 : len(levels) - (surplus - surplus // 2)]
