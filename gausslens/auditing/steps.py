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
from .config import AuditConfig
from .context import AuditContext
from .evidence import DISTANCES
from .exchangeability import check_exchangeability
from .losses import BASELINE, LossGap, measure_losses
from .membership import membership_records
from .pool import Pool
from .preprocessing_check import Foreignness, check_foreignness

# Calls of the network that its linear denoiser may cost, ten for each dimension and level.
_LINEAR_CALLS = {"cpu": 20_000, "cuda": 100_000}
NOT_EXCHANGEABLE = "not exchangeable"
_NOISY_IMAGES, _MOST_NOISES, _LEAST_NOISES = 3200, 16, 4  # of one set and level, by default
_DISTANCE_IMAGES = 200


def take_premises(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Whether the sets can be compared: repeats, overlap, and whether they may come from one distribution."""
    pool = context.pool
    yield {"quantity": "train_duplicates", "value": len(pool.train_repeats), "count": len(pool.train)}
    if pool.held_out is None:
        return
    overlap, count = int(pool.overlap.sum()), len(pool.held_out)
    yield {"quantity": "overlap", "value": overlap, "count": count}
    found = check_exchangeability(pool, seed=context.config.seed)
    if found is not None:
        for quantity in ("neighbors_p", "neighbors_share", "detail_p", "contrast", "fineness"):
            yield {"quantity": quantity, "value": getattr(found, quantity), "count": found.n_train + found.n_held_out}
    if found is not None and found.refused is not None:
        yield {"quantity": "refused", "value": NOT_EXCHANGEABLE, "reason": found.refused}
    elif 2 * overlap > count:
        reason = (
            f"{overlap:,} of the {count:,} held-out images repeat training images or share a group with "
            "them, so too few are new to the model. Name images that it has not seen."
        )
        yield {"quantity": "refused", "value": "overlap", "reason": reason}


def take_losses(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Denoising losses on training and held-out images, and where the network's lie between the references'."""
    config, pool = context.config, context.pool.compared
    how: dict[str, Any] = {"count": config.count, "seed": config.seed, "progress": progress}
    losses = measure_losses(context.denoisers, pool, context.sigmas, noises=_noises(config, pool), **how)
    for name in (*context.denoisers, BASELINE):
        for on in ("train", "held_out") if losses.calibrated else ("train",):
            yield from _at_levels("loss", losses, losses.loss(name, on), denoiser=name, on=on)
    yield from loss_records(losses)
    if losses.calibrated:
        yield from _at_levels("auc_p", losses, losses.p_values("network").tolist())


def loss_records(losses: LossGap, name: str = "network") -> Iterator[Record]:
    """What the losses of a denoiser say, and at which noise levels.

    Yields:
        Records of each level: where the gap lies between the references' (`rho`, `position`), `retrieval`, losses in units
        of the baseline's, whether it is in the `window` and `intermediate`, and what is known of membership.
    """
    yield from _at_levels("train_loss", losses, losses.relative(name, "train"))
    yield from _at_levels("intermediate", losses, losses.intermediate())
    if losses.calibrated:
        yield from _at_levels("rho", losses, losses.position(name))
        yield from _at_levels("position", losses, losses.position(name, BASELINE))
        yield from _at_levels("retrieval", losses, losses.retrieval(name))
        yield from _at_levels("held_out_loss", losses, losses.relative(name))
        yield from _at_levels("window", losses, losses.window())
        yield from _at_levels("near_gaussian", losses, losses.near_gaussian(name))
        yield from membership_records(losses, name)


def _at_levels(quantity: str, losses: LossGap, values: Sequence[Any], **tags: Any) -> Iterator[Record]:
    """Records of estimates or numbers at each noise level; none where the value is None."""
    for sigma, value in zip(losses.sigmas.tolist(), values, strict=True):
        if isinstance(value, Estimate):
            yield of_estimate(quantity, value, sigma=sigma, **tags)
        elif value is not None:
            yield record_of(quantity, value, sigma=sigma, **tags)


def _noises(config: AuditConfig, pool: Pool) -> int:
    """Noises for each image: as asked for, or so many that the number of calls stays the same."""
    if config.noises is not None:
        return config.noises
    most = max(len(images) for images in (pool.train, pool.held_out) if images is not None)
    return max(_LEAST_NOISES, min(_MOST_NOISES, _NOISY_IMAGES // min(config.count, most)))


def take_foreignness(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Whether the images look foreign to the model."""
    how: dict[str, Any] = {"seed": context.config.seed, "sigma_range": context.model.sigma_range}
    yield foreignness_record(check_foreignness(context.fast_network, context.pool.compared, context.sigmas, **how))


def foreignness_record(found: Foreignness) -> Record:
    """What a model makes of its images prepared otherwise, as a record."""
    interval = {"value": None} if found.gain is None else asdict(found.gain)
    return {"quantity": "foreignness", **interval, "expected": found.expected, "sigma": found.sigma}


def take_distances(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """How far the network is from the Gaussian, the multi-delta and its linear denoiser, and how linear it is."""
    pool = context.pool.compared
    images, on, labels = pool.train, "train", pool.labels
    if pool.held_out is not None:
        images, on, labels = pool.held_out, "held_out", pool.held_out_labels
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
