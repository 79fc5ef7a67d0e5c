"""The steps of an audit: each measures one thing of an `AuditContext` and yields tidy records.

A record is one number: `quantity`, `value`, `low`, `high`, `count`, and what it is the number of. Records whose quantity is
named in `verdict` decide.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..denoisers.distillation import distill
from ..generation import BATCH, sample_range
from ..images import quantize, require_finite
from ..measures.gap import gap
from ..measures.intervals import proportion_estimate
from ..measures.linearity import linearity
from ..measures.memorization import estimate_ratio
from ..noise import karras_sigmas
from ..store.records import Record, of_curve, of_estimate, of_levels, record_of
from .config import AuditConfig
from .context import AuditContext
from .controls import ONCE, fisher_p
from .copies import Copies, find_copies
from .evidence import DISTANCES, FEWEST_ORIGINALS, Evidence
from .exchangeability import check_exchangeability
from .families import families_of
from .losses import BASELINE, LossGap, measure_losses
from .membership import membership_records
from .pool import Pool
from .power import copy_power
from .preprocessing_check import check_foreignness
from .thresholds import limit

# Calls of the network that its linear denoiser may cost, ten for each dimension and level.
_LINEAR_CALLS = {"cpu": 20_000, "cuda": 100_000}
_NOISY_IMAGES, _MOST_NOISES, _LEAST_NOISES = 3200, 16, 4  # of one set and level, by default
_DISTANCE_IMAGES = 200
_CLOSEST_SAMPLES = 24


def take_premises(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Whether the sets can be compared: repeats, overlap, and whether they may come from one distribution."""
    pool = context.pool
    yield {"quantity": "train_duplicates", "value": len(pool.train_repeats), "count": len(pool.train)}
    if pool.held_out is None:
        return
    overlap, count = int(pool.overlap.sum()), len(pool.held_out)
    yield {"quantity": "overlap", "value": overlap, "count": count}
    found = list(check_exchangeability(pool, seed=context.config.seed))
    yield from found
    if not Evidence(found).refused and 2 * overlap > count:
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
            yield from of_levels("loss", losses.sigmas, losses.loss(name, on), denoiser=name, on=on)
    yield from loss_records(losses)
    if losses.calibrated:
        yield from of_levels("auc_p", losses.sigmas, losses.p_values("network").tolist())


def loss_records(losses: LossGap, name: str = "network") -> Iterator[Record]:
    """What the losses of a denoiser say, and at which noise levels.

    Yields:
        Records of each level: where the gap lies between the references' (`rho`, `position`), `retrieval`, losses in units
        of the baseline's, whether it is in the `window` and `intermediate`, and what is known of membership.
    """
    yield from of_levels("train_loss", losses.sigmas, losses.relative(name, "train"))
    yield from of_levels("intermediate", losses.sigmas, losses.intermediate())
    if losses.calibrated:
        yield from of_levels("rho", losses.sigmas, losses.position(name))
        yield from of_levels("position", losses.sigmas, losses.position(name, BASELINE))
        yield from of_levels("retrieval", losses.sigmas, losses.retrieval(name))
        yield from of_levels("held_out_loss", losses.sigmas, losses.relative(name))
        yield from of_levels("window", losses.sigmas, losses.window())
        yield from of_levels("near_gaussian", losses.sigmas, losses.near_gaussian(name))
        yield from membership_records(losses, name)


def _noises(config: AuditConfig, pool: Pool) -> int:
    """Noises for each image: as asked for, or so many that the number of calls stays the same."""
    if config.noises is not None:
        return config.noises
    most = max(len(images) for _, images, _, _ in pool.sets)
    return max(_LEAST_NOISES, min(_MOST_NOISES, _NOISY_IMAGES // min(config.count, most)))


def take_foreignness(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """Whether the images look foreign to the model."""
    how: dict[str, Any] = {"seed": context.config.seed, "sigma_range": context.model.sigma_range}
    yield check_foreignness(context.fast_network, context.pool.compared, context.sigmas, **how)


def take_distances(context: AuditContext, *, progress: bool = False) -> Iterator[Record]:
    """How far the network is from the Gaussian, the multi-delta and its linear denoiser, and how linear it is."""
    on, images, labels, _ = context.pool.compared.sets[-1]
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
        yield from of_levels("fvu_floor", levels, fit.fvu_floor.tolist(), count=fit.calls, on="train")


def _affordable(context: AuditContext) -> Tensor:
    """The levels at which the linear denoiser can be had at a bearable cost: those in the middle first."""
    most = _LINEAR_CALLS.get(context.device.type, _LINEAR_CALLS["cpu"]) // (10 * context.dim)
    levels, surplus = context.sigmas, max(0, len(context.sigmas) - most)
    return levels[surplus // 2 : len(levels) - (surplus - surplus // 2)]


def generate_samples(
    context: AuditContext, start: int, stop: int, *, denoiser: nn.Module | None = None, progress: bool = False
) -> Tensor:
    """Samples `start` … `stop` − 1 of the network: uint8 pixels, or latents in float32."""
    sigmas = karras_sigmas(context.config.steps, *context.sigma_range)
    levels = f"{context.config.steps} noise levels from {sigmas[0]:g} to {sigmas[-1]:g}"

    def finish(made: Tensor) -> Tensor:
        advice = f"They were sampled with {levels}. Use other --steps, or --samples 0 for no samples."
        require_finite(made, "the model's samples", advice)
        return made.float() if context.bounds is None else quantize(made)

    network = context.fast_network if denoiser is None else denoiser
    how: dict[str, Any] = {"seed": context.config.seed, "size": min(BATCH, context.sample_count), "progress": progress}
    how |= {"sigmas": sigmas, "device": context.device, "dtype": torch.float32, "finish": finish}
    return sample_range(network, context.images.shape, range(start, stop), context.classes, **how)


def take_copies(
    context: AuditContext, samples: Tensor, *, exchangeable: bool = True, progress: bool = False
) -> Iterator[Record]:
    """Which samples are copies of training images, of which ones, how often, and how few would have been found."""
    count, config = len(samples), context.config
    gaussian = generate_samples(context, 0, count, denoiser=context.denoisers["gaussian"], progress=progress)
    families = families_of(context.images.shape, pictures=context.bounds is not None, flip=config.augment == "flip")
    how: dict[str, Any] = {"exchangeable": exchangeable, "seed": config.seed, "progress": progress}
    found = find_copies(samples, context.pool, gaussian, families=families, **how)
    originals = found.plain.originals.count
    yield record_of("originals", originals, count=len(context.images.train))
    yield of_estimate("gl", found.gl)
    if found.gl_held_out is not None:
        yield of_estimate("gl_held_out", found.gl_held_out)
        yield of_estimate("relative_gl", estimate_ratio(found.gl, found.gl_held_out))
    if originals < FEWEST_ORIGINALS:
        return
    yield record_of("copies_exist", found.exist)
    yield of_estimate("copied_share", found.share)
    yield record_of("overlap_decides", found.overlap_decides)
    if found.undecided is not None:
        (copies, total), real = found.undecided.samples, found.undecided.real
        yield record_of("undecided_copies", copies, count=total, real_count=real.total)
    plain = found.plain.comparisons
    real = max((one.real for one in plain), key=lambda tally: tally.total)
    if real.total:
        yield of_estimate("real_share", real.share)
    by_gaussian = sum(one.gaussian.copies for one in plain if one.gaussian is not None)
    yield of_estimate("gaussian_share", proportion_estimate(by_gaussian, len(gaussian)))
    for one in found.comparisons:
        tags = {"family": one.family, "kind": one.kind, "level": one.level, "convicts": one.convicts}
        control = {"copies": one.samples.copies, "real_copies": one.real.copies, "real_count": one.real.total}
        yield record_of("copy_p", one.p_value, count=one.samples.total, **tags, **control)
    if found.two_set is not None:
        yield record_of("two_set_p", found.two_set.p_value, count=count)
    yield from _take_names(context, found, count)
    # The smallest numbers of copies among the samples that would have been found, by how they are spread.
    for one in plain:
        spreads = {"spread": False, "concentrated": True} if one.kind == ONCE else {"repeated": True}
        for kind, concentrated in spreads.items():
            smallest = one.smallest_count(concentrated=concentrated)
            yield {"quantity": "smallest_count", "value": smallest, "kind": kind, "count": count}
    yield from copy_power(found, seed=config.seed)


def _take_names(context: AuditContext, found: Copies, samples: int) -> Iterator[Record]:
    """Copies by name: samples, originals, parts and classes; and the samples most like one original."""
    plain, first = found.plain, {copy.original: copy.image for copy in found.copies}
    for original, count in found.counts.items():
        repeats = int(plain.originals.standing[original])
        yield record_of("copied_original", count, image=first[original], repeats=repeats)
    for quantity, copies in (("copy", found.copies), ("part_copy", found.part_copies)):
        for copy in copies:
            tags = {"sample": copy.sample, "image": copy.image, "family": copy.family, "ratio": copy.ratio}
            if quantity == "copy":
                tags["original"] = first[copy.original]  # the image that names it above
            yield record_of(quantity, copy.rmse, **tags, transformation=str(copy.transformation))
    for part, count in found.parts.items():
        yield record_of("copied_part", count, window=part, count=samples)
    if context.classes is not None:
        yield from _take_classes({copy.sample for copy in found.copies}, context.classes, samples)
    ratios = plain.samples.ratio.nan_to_num(nan=1.0)  # NaN where there is one original alone
    for index in ratios.argsort()[:_CLOSEST_SAMPLES].tolist():
        tags = {"sample": index, "image": int(plain.samples.image[index])}
        yield record_of("closest", float(ratios[index]), **tags, transformation=str(plain.transformation(index)))


def _take_classes(copied: set[int], classes: Tensor, samples: int) -> Iterator[Record]:
    """Classes of which copies are more frequent than of the others, by Fisher's test at the audit's level."""
    labels = classes[torch.arange(samples) % len(classes)]
    of_copies = labels[sorted(copied)]
    for label in labels.unique().tolist():
        hits, count = int((of_copies == label).sum()), int((labels == label).sum())
        p_value = fisher_p(hits, count, len(copied) - hits, samples - count)
        if p_value * len(classes) <= limit("p"):
            yield of_estimate("copied_class", proportion_estimate(hits, count), label=label)


STAGES: dict[str, Callable[..., Iterator[Record]]] = {
    "premises": take_premises,
    "losses": take_losses,
    "foreignness": take_foreignness,
    "distances": take_distances,
}
"""The steps that need no samples, in their order."""
