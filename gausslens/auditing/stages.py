"""The stages of an audit: each measures one thing of an `Auditee` and returns tidy records.

A record is one number: `quantity`, `value`, `low`, `high`, `count`, and what it is the number of. Quantities named as a
field of `Evidence` are what the verdict rests on; `evidence_of` reads them back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from ..denoisers.distillation import distill
from ..errors import DataError
from ..generation import BATCH
from ..images import quantize
from ..measures.gaps import gap
from ..measures.intervals import Estimate, proportion_estimate
from ..measures.neighbors import duplicates
from ..measures.superposition import linearity
from ..measuring.records import of_curve, of_estimate
from ..noise import draw_noise, karras_sigmas
from ..progress import measured
from ..runs import Record
from ..sampling import sample
from .auditee import Auditee
from .controls import ONCE, REPEATED, fisher_p
from .copies import FEWEST_ORIGINALS, Copies, find_copies
from .evidence import Evidence
from .exchangeability import check_exchangeability
from .families import PLAIN
from .features import compare_features
from .foreignness import Foreignness, check_foreignness
from .losses import BASELINE, GAUSSIAN, LossGap, measure_losses
from .membership import measure_membership
from .power import copy_power
from .thresholds import THRESHOLDS

SHOWN_PAIRS = 24
_SHIFTS = (1, 2)  # pixels
# Calls of the network that its linear denoiser may cost, ten for each dimension and level.
_LINEAR_CALLS = {"cpu": 20_000, "cuda": 100_000}
_BY_LEVEL = ("rho", "position", "retrieval", "train_loss", "held_out_loss", "auc", "memory_share")
_FLAGS = ("window", "intermediate", "near_gaussian")
_DISTANCES = {"gaussian": "distance_gaussian", "multidelta": "distance_multidelta"}
NOT_EXCHANGEABLE = "not exchangeable"
_NOISY_IMAGES, _MOST_NOISES, _LEAST_NOISES = 3200, 16, 4  # of one set and level, by default
_DISTANCE_IMAGES = 200


def take_premises(who: Auditee, *, progress: bool = False) -> Iterator[Record]:
    """Whether the sets can be compared: repeats, overlap, and whether they may be draws of one law.

    Yields:
        How many images repeat others; p-values; and `refused` with the reason if membership cannot be judged.
    """
    images, device = who.images, who.device
    how: dict[str, Any] = {"tolerance": who.duplicate_rmse * who.dim**0.5, "device": device, "progress": progress}
    yield {"quantity": "train_duplicates", "value": len(duplicates(images.train, **how)), "count": len(images.train)}
    if not len(images.held_out):
        return
    overlap = int(who.overlap.sum())
    yield {"quantity": "overlap", "value": overlap, "count": len(images.held_out)}
    found = check_exchangeability(
        *(images.train, images.held_out, images.train_groups, images.held_out_groups),
        rmse=who.duplicate_rmse,
        seed=who.config.seed,
        device=device,
        progress=progress,
    )
    if found is not None:
        for quantity in ("neighbors_p", "neighbors_share", "detail_p", "detail_ratio"):
            yield {"quantity": quantity, "value": getattr(found, quantity), "count": found.n_train + found.n_held_out}
    if found is not None and found.refused is not None:
        yield {"quantity": "refused", "value": NOT_EXCHANGEABLE, "reason": found.refused}
    elif 2 * overlap > len(images.held_out):
        reason = (
            f"{overlap:,} of the {len(images.held_out):,} held-out images repeat training images or share a group with them, so "
            "too few are new to the model. Name images that it has not seen."
        )
        yield {"quantity": "refused", "value": "overlap", "reason": reason}


def take_losses(who: Auditee, *, progress: bool = False) -> Iterator[Record]:
    """Denoising losses on training and held-out images, and where the network's lie between the references'.

    Yields:
        The records.
    """
    losses = measure_losses(
        *(who.denoisers, who.images.train, who.held_out, who.sigmas),
        noises=_noises(who),
        count=who.config.count,
        seed=who.config.seed,
        bounds=who.bounds,
        progress=progress,
        **who.labels,
        **who.groups,
    )
    levels = losses.sigmas.tolist()
    for name in (*who.denoisers, BASELINE):
        for on in ("train", *(["held_out"] if losses.calibrated else [])):
            for sigma, estimate in zip(levels, losses.loss(name, on), strict=True):
                yield of_estimate("loss", estimate, sigma=sigma, denoiser=name, on=on)
    found = Evidence.of_losses(losses)
    for quantity in _BY_LEVEL:
        for sigma, known in zip(levels, getattr(found, quantity) or (), strict=False):
            if known is not None:
                yield of_estimate(quantity, known, sigma=sigma)
    for quantity in (*_FLAGS, "auc_low"):
        for sigma, value in zip(levels, getattr(found, quantity) or (), strict=False):
            yield {"quantity": quantity, "value": value, "sigma": sigma}
    if losses.calibrated:
        yield from _take_membership(losses, levels)


def _take_membership(losses: LossGap, levels: list[float]) -> Iterator[Record]:
    """TPR, the curve that it is a point of, images that leak, and what is known of each class.

    Yields:
        The records.
    """
    found = measure_membership(losses)
    told = levels[found.level]
    for rate, rows in found.tpr.items():
        for sigma, estimate in zip(levels, rows, strict=True):
            yield of_estimate("tpr", estimate, sigma=sigma, false_positive_rate=rate)
    yield of_estimate("filter_auc", found.filter_auc, sigma=told)
    for sigma, p_value in zip(levels, losses.p_values("network").tolist(), strict=True):
        yield {"quantity": "auc_p", "value": p_value, "sigma": sigma}
    for denoiser, curve in (("network", found.roc), (GAUSSIAN, found.filter_roc)):
        for false, true in curve:
            yield {"quantity": "roc", "value": true, "false_positive_rate": false, "sigma": told, "denoiser": denoiser}
    images = losses.images[found.leaking]
    yield {"quantity": "leaking", "value": len(images), "count": len(losses.images), "sigma": told}
    for image in images.tolist():
        yield {"quantity": "leaking_image", "value": image, "sigma": told}
    for label, (auc, share) in found.by_class.items():
        yield of_estimate("class_auc", auc, label=label, sigma=told)
        yield of_estimate("class_memory_share", share, label=label, sigma=told)


def _noises(who: Auditee) -> int:
    """Noises for each image: as asked for, or so that the numbers of calls stay the same."""
    if who.config.noises is not None:
        return who.config.noises
    used = min(who.config.count, max(len(who.images.train), 0 if who.held_out is None else len(who.held_out)))
    return max(_LEAST_NOISES, min(_MOST_NOISES, _NOISY_IMAGES // used))


def take_foreignness(who: Auditee, *, progress: bool = False) -> Iterator[Record]:
    """Whether the images look foreign to the model.

    Yields:
        One record; `expected` says what the model seems to expect instead, if anything.
    """
    found = check_foreignness(
        *(who.fast_network, who.images.train, who.held_out, who.sigmas),
        seed=who.config.seed,
        bounds=who.bounds,
        sigma_range=who.model.sigma_range,
        **who.labels,
    )
    tags = {"expected": found.expected, "sigma": found.sigma}
    if found.gain is None:
        yield {"quantity": "foreignness", "value": None, **tags}
    else:
        yield of_estimate("foreignness", found.gain, **tags)


def take_distances(who: Auditee, *, progress: bool = False) -> Iterator[Record]:
    """How far the network is from the Gaussian, the multi-delta and its linear denoiser, and how linear it is.

    Yields:
        The records, on held-out images if there are any.
    """
    images, on, labels = who.images.train, "train", who.images.train_labels
    if who.held_out is not None:
        images, on, labels = who.held_out, "held_out", who.held_out_labels
    how: dict[str, Any] = {
        **{"count": min(_DISTANCE_IMAGES, who.config.count, len(images)), "seed": who.config.seed, "labels": labels},
        **{"bounds": who.bounds, "dtype": torch.float32},
    }
    network = who.remembering["network"]
    for reference, quantity in _DISTANCES.items():
        curve = gap(network, who.remembering[reference], images, who.sigmas, **how)
        yield from of_curve(quantity, curve, on=on)
    control = gap(who.remembering["multidelta"], who.remembering["gaussian"], images, who.sigmas, **how)
    yield from of_curve("distance_references", control, on=on)
    for name, denoiser in who.remembering.items():
        curve = linearity(denoiser, images, who.sigmas, affine=True, **how)
        yield from of_curve("linearity", curve, on=on, denoiser=name)
    levels = _affordable(who)
    if len(levels) and labels is None:
        fit = distill(
            *(who.fast_network, who.images.train, levels),
            calls=10 * who.dim,
            seed=who.config.seed,
            bounds=who.bounds,
            device=who.device,
            dtype=torch.float32,
        )
        yield from of_curve("distance_linear", gap(network, fit, images, levels, **how), on=on)
        explained = of_curve("fvu", gap(network, fit, images, levels, metric="ev", **how), on=on)
        for record in explained:  # FVU is what is left
            yield {**record, "value": 1 - record["value"], "low": 1 - record["high"], "high": 1 - record["low"]}
        for sigma, floor in zip(levels.tolist(), fit.fvu_floor.tolist(), strict=True):
            yield {"quantity": "fvu_floor", "value": floor, "sigma": sigma, "count": fit.calls, "on": "train"}


def generate_samples(
    who: Auditee, start: int, stop: int, *, denoiser: nn.Module | None = None, progress: bool = False
) -> Tensor:
    """Samples `start` … `stop` − 1 of the network: uint8 pixels, or latents in float32.

    Args:
        who: the auditee.
        start: the first.
        stop: after the last.
        denoiser: another denoiser to sample from the same latents in the same way; None is the network.
        progress: show a progress bar.

    Returns:
        The samples, on the CPU; each depends on the seed and its index alone, but for rounding.

    Raises:
        DataError: if some are NaN or infinite, which as pixels would pass for black images.
    """
    known = who.classes
    sigmas = karras_sigmas(who.config.steps, *who.sigma_range)
    parts = []
    with measured(float(stop - start), unit="images", label="sampling", enabled=progress) as show:
        for first in range(start, stop, BATCH):
            # All batches have one size, for which a GPU's work is recorded; the images too many are cut off.
            indices = torch.arange(first, first + min(BATCH, who.sample_count))
            told = None if known is None else known[indices % len(known)]
            latents = draw_noise(who.config.seed, indices, who.images.shape, stream="latents")
            made = sample(
                *(who.fast_network if denoiser is None else denoiser, latents),
                sigmas=sigmas,
                labels=told,
                device=who.device,
                dtype=torch.float32,
                batch_size=BATCH,
            )
            if not bool(made.isfinite().all()):
                raise DataError(
                    f"the model's samples must be finite; with {who.config.steps} noise levels from {sigmas[0]:g} to "
                    f"{sigmas[-1]:g} some are NaN or infinite. Sample with other --steps, or with --samples 0 not at all."
                )
            parts.append((made.float() if who.bounds is None else quantize(made)).cpu())
            show(float(min(first + BATCH, stop) - start), "")
    return torch.cat(parts)[: stop - start]


def take_copies(
    who: Auditee, samples: Tensor, *, exchangeable: bool = True, progress: bool = False
) -> Iterator[Record]:
    """Which samples are copies of training images, of which ones, how often, and how few would have been found.

    Args:
        who: the auditee.
        samples: of its network.
        exchangeable: whether held-out images may stand for new training images.
        progress: show progress bars.

    Yields:
        The records.
    """
    pixels = who.bounds is not None
    images = who.images
    gaussian = generate_samples(who, 0, len(samples), denoiser=who.denoisers["gaussian"], progress=progress)
    found = find_copies(
        *(samples, images.train, images.held_out if len(images.held_out) else None, gaussian),
        groups=images.train_groups,
        held_out_groups=images.held_out_groups,
        exchangeable=exchangeable,
        mirrored=pixels,
        shifts=tuple(shift for shift in _SHIFTS if shift < min(images.shape[1:])) if pixels else (),
        parts=pixels,
        flip=who.config.augment == "flip",
        duplicate_rmse=who.duplicate_rmse,
        seed=who.config.seed,
        bounds=who.bounds,
        device=who.device,
        progress=progress,
    )
    originals = found.matches[PLAIN].originals
    yield {"quantity": "originals", "value": originals.count, "count": len(images.train)}
    yield of_estimate("gl", found.gl)
    for quantity, estimate in (("gl_held_out", found.gl_held_out), ("relative_gl", found.gl_relative)):
        if estimate is not None:
            yield of_estimate(quantity, estimate)
    if originals.count < FEWEST_ORIGINALS:
        return
    yield {"quantity": "copies_exist", "value": found.exist}
    yield of_estimate("copied_share", found.share)
    yield {"quantity": "overlap_decides", "value": found.overlap_decides}
    plain = [one for one in (found.find(PLAIN, kind) for kind in (ONCE, REPEATED)) if one is not None]
    real = max((one.real for one in plain), key=lambda tally: tally.count)
    if real.count:
        yield of_estimate("real_share", real.share)
    if all(one.gaussian is not None for one in plain):
        copies = sum(one.gaussian.copies for one in plain if one.gaussian is not None)
        yield of_estimate("gaussian_share", proportion_estimate(copies, len(gaussian)))
    for one in found.comparisons:
        tags = {"family": one.family, "kind": one.kind, "level": one.level, "convicts": one.convicts}
        beside = {"copies": one.samples.copies, "real_copies": one.real.copies, "real_count": one.real.count}
        yield {"quantity": "copy_p", "value": one.p_value, "count": one.samples.count, **tags, **beside}
    if found.two_set is not None:
        yield {"quantity": "two_set_p", "value": found.two_set.p_value, "count": len(samples)}
    yield from _take_names(who, found, len(samples))
    for kind, count in _smallest_counts(found).items():
        yield {"quantity": "smallest_count", "value": count, "kind": kind, "count": len(samples)}
    for power in copy_power(found, seed=who.config.seed):
        yield {
            **{"quantity": "detectable", "value": power.count, "kind": power.planting.name, "count": power.samples},
            "recognised": power.recognised,
        }


def _take_names(who: Auditee, found: Copies, samples: int) -> Iterator[Record]:
    """Copies by name: samples, originals, parts and classes; and the samples most like one original.

    Yields:
        The records.
    """
    originals = found.matches[PLAIN].originals
    first = {copy.original: copy.image for copy in found.copies}
    for original, count in found.counts.items():
        repeats = int(originals.standing[original])
        yield {"quantity": "copied_original", "value": count, "image": first[original], "repeats": repeats}
    for quantity, copies in (("copy", found.copies), ("part_copy", found.part_copies)):
        for copy in copies:
            tags = {"sample": copy.sample, "image": copy.image, "family": copy.family, "ratio": copy.ratio}
            yield {"quantity": quantity, "value": copy.rmse, **tags, "transformation": str(copy.transformation)}
    for part in found.parts:
        count = sum(copy.family == part for copy in found.part_copies)
        yield {"quantity": "copied_part", "value": count, "window": part, "count": samples}
    if who.classes is not None:
        yield from _take_classes({copy.sample for copy in found.copies}, who.classes, samples)
    closest = found.closest
    ratios = closest.ratio.nan_to_num(nan=1.0)  # NaN where there is one original alone
    transformations = found.matches[PLAIN].family.transformations
    for index in ratios.argsort()[:SHOWN_PAIRS].tolist():
        tags = {"sample": index, "image": int(closest.image[index])}
        told = str(transformations[int(closest.transformation[index])])
        yield {"quantity": "closest", "value": float(ratios[index]), **tags, "transformation": told}


def _take_classes(copied: set[int], classes: Tensor, samples: int) -> Iterator[Record]:
    """Classes of which copies are more frequent than of the others, by Fisher's test at the audit's level.

    Yields:
        A record for each.
    """
    of_sample = [int(classes[index % len(classes)]) for index in range(samples)]
    for label in classes.tolist():
        own = [index for index, other in enumerate(of_sample) if other == label]
        hits = sum(index in copied for index in own)
        p_value = fisher_p(hits, len(own), len(copied) - hits, samples - len(own)) if own else 1.0
        if p_value * len(classes) <= THRESHOLDS["p"].value:
            yield of_estimate("copied_class", proportion_estimate(hits, len(own)), label=label)


def _smallest_counts(found: Copies) -> dict[str, int | None]:
    """The smallest number of copies among the samples that would have been found, by how they are spread."""
    once, repeated = found.find(PLAIN, ONCE), found.find(PLAIN, REPEATED)
    counts: dict[str, int | None] = {}
    if once is not None:
        counts["spread"] = once.smallest_count(concentrated=False)
        counts["concentrated"] = once.smallest_count(concentrated=True)
    if repeated is not None:
        counts["repeated"] = repeated.smallest_count(concentrated=True)
    return counts


def take_features(who: Auditee, samples: Tensor, *, progress: bool = False) -> Iterator[Record]:
    """What a feature network says of the samples.

    Yields:
        The records.
    """
    if who.features is None:
        return
    found = compare_features(
        who.features, samples, who.images.train, who.held_out, seed=who.config.seed, progress=progress
    )
    near, named = found.memorization, {"features": found.network}
    for quantity in ("frechet", "frechet_held_out", "mifid", "nearest_cosine"):
        estimate = getattr(found, quantity)
        if estimate is not None:
            yield of_estimate(quantity, estimate, **named)
    yield of_estimate("copied_share_features", near.ratio_fraction, **named)
    if near.gl_relative is not None:
        yield of_estimate("relative_gl_features", near.gl_relative, **named)
    if near.copy_test is not None:
        yield {"quantity": "two_set_p_features", "value": near.copy_test.p_value, "count": len(samples), **named}


def evidence_of(records: Sequence[Record]) -> Evidence:
    """What the rules judge by, from the records of all stages."""
    by: dict[str, list[Record]] = {}
    for record in records:
        by.setdefault(record["quantity"], []).append(record)
    levels = tuple(record["sigma"] for record in by.get("intermediate", ()))
    known: dict[str, Any] = {"sigmas": levels or None}
    for quantity in (*_BY_LEVEL, *_DISTANCES.values(), "distance_references"):
        if quantity in by:
            at = {record["sigma"]: _estimate(record) for record in by[quantity] if record["value"] is not None}
            known[quantity] = tuple(at.get(sigma) for sigma in levels)
    for quantity in (*_FLAGS, "auc_low"):
        if quantity in by:
            known[quantity] = tuple(record["value"] for record in by[quantity])
    for quantity in ("copied_share", "real_share", "filter_auc"):
        if quantity in by:
            known[quantity] = _estimate(by[quantity][0])
    for quantity in ("copies_exist", "overlap_decides", "two_set_p"):
        if quantity in by:
            known[quantity] = by[quantity][0]["value"]
    known["tpr"] = [_estimate(one) for one in by.get("tpr", ()) if one["false_positive_rate"] == 0.01] or None
    if "refused" in by:
        known["refused"] = by["refused"][0]["reason"]
    if "copied_original" in by:
        known["copied_originals"] = len(by["copied_original"])
    if "originals" in by:
        known["too_few_originals"] = by["originals"][0]["value"] < FEWEST_ORIGINALS
    known["copied_classes"] = tuple(record["label"] for record in by.get("copied_class", ()))
    known["parts"] = tuple(record["window"] for record in by.get("copied_part", ()))
    if "foreignness" in by:
        (found,) = by["foreignness"]
        gain = None if found["value"] is None else _estimate(found)
        known["foreignness"] = Foreignness(found["expected"], gain, found["sigma"])
    assert set(known) <= {field.name for field in fields(Evidence)}
    return Evidence(**known)


STAGES: dict[str, Callable[..., Iterator[Record]]] = {
    "premises": take_premises,
    "losses": take_losses,
    "foreignness": take_foreignness,
    "distances": take_distances,
}
"""The stages that need no samples, in their order."""


def _affordable(who: Auditee) -> Tensor:
    """The levels at which the linear denoiser can be had at a bearable cost: those in the middle first."""
    most = _LINEAR_CALLS.get(who.device.type, _LINEAR_CALLS["cpu"]) // (10 * who.dim)
    levels, surplus = who.sigmas, max(0, len(who.sigmas) - most)
    return levels[surplus // 2 : len(levels) - (surplus - surplus // 2)]


def _estimate(record: Record) -> Estimate:
    def end(name: str) -> float:
        return float("nan") if record.get(name) is None else float(record[name])

    return Estimate(float(record["value"]), end("low"), end("high"), record["count"])
