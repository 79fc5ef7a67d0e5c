"""The stages of an audit: each measures one thing of an `Auditee` and returns tidy records.

A record is one number: `quantity`, `value`, `low`, `high`, `count`, and what it is the number of. Quantities named as a
field of `rules.Evidence` are what the verdict rests on; `evidence_of` reads them back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ..denoisers.distillation import distill
from ..errors import DataError
from ..generation import BATCH
from ..images import quantize
from ..measures.copying import DUPLICATE_RMSE
from ..measures.gaps import gap
from ..measures.intervals import Estimate
from ..measures.neighbors import duplicates
from ..measures.superposition import linearity
from ..measuring.records import of_curve, of_estimate
from ..noise import draw_noise, karras_sigmas
from ..progress import measured
from ..runs import Record
from ..sampling import sample
from .auditee import Auditee
from .copies import Copies, find_copies
from .features import compare_features
from .foreignness import Foreignness, check_foreignness
from .losses import BASELINE, measure_losses
from .power import copy_power
from .rules import Evidence

SHOWN_PAIRS = 24
_SHIFTS = (1, 2)  # pixels
# Calls of the network that its linear denoiser may cost, ten for each dimension and level.
_LINEAR_CALLS = {"cpu": 20_000, "cuda": 100_000}
_BY_LEVEL = ("rho", "position", "retrieval", "train_loss", "held_out_loss", "auc")
_FLAGS = ("window", "intermediate")
_SINGLE = ("memorized_fraction", "copied_fraction", "relative_gl")
_DISTANCES = {"gaussian": "distance_gaussian", "multidelta": "distance_multidelta"}


def take_losses(who: Auditee, *, progress: bool = False) -> Iterator[Record]:
    """Denoising losses on training and held-out images, and where the network's lie between the references'.

    Yields:
        The records.
    """
    losses = measure_losses(
        *(who.denoisers, who.images.train, who.held_out, who.sigmas),
        noises=who.config.noises,
        count=who.config.count,
        seed=who.config.seed,
        bounds=who.bounds,
        progress=progress,
        **who.labels,
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
    for quantity in (*_FLAGS, "p_values"):
        for sigma, value in zip(levels, getattr(found, quantity) or (), strict=False):
            yield {"quantity": quantity, "value": value, "sigma": sigma}


def take_duplicates(who: Auditee, *, progress: bool = False) -> Iterator[Record]:
    """Training images that repeat others, and held-out images that repeat training images.

    Yields:
        How many, of either kind.
    """
    how: dict[str, Any] = {"tolerance": DUPLICATE_RMSE * who.dim**0.5, "device": who.device, "progress": progress}
    train, unseen = who.images.train, who.held_out
    yield {"quantity": "train_duplicates", "value": len(duplicates(train, **how)), "count": len(train)}
    if unseen is not None:
        yield {"quantity": "shared_duplicates", "value": len(duplicates(train, unseen, **how)), "count": len(unseen)}


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
    unseen = who.held_out is not None
    images, on = (who.images.held_out, "held_out") if unseen else (who.images.train, "train")
    labels = who.images.held_out_labels if unseen else who.images.train_labels
    how: dict[str, Any] = {
        **{"count": min(who.config.count, len(images)), "seed": who.config.seed, "labels": labels},
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


def generate_samples(who: Auditee, start: int, stop: int, *, progress: bool = False) -> Tensor:
    """Samples `start` … `stop` − 1 of the network: uint8 pixels, or latents in float32.

    Args:
        who: the auditee.
        start: the first.
        stop: after the last.
        progress: show a progress bar.

    Returns:
        The samples, on the CPU; each depends on the seed and its index alone, but for rounding.

    Raises:
        DataError: if some are NaN or infinite, which as pixels would pass for black images.
    """
    labels = who.images.train_labels
    known = None if labels is None else labels.unique()
    sigmas = karras_sigmas(who.config.steps, *who.sigma_range)
    parts = []
    with measured(float(stop - start), unit="images", label="sampling", enabled=progress) as show:
        for first in range(start, stop, BATCH):
            # All batches have one size, for which a GPU's work is recorded; the images too many are cut off.
            indices = torch.arange(first, first + min(BATCH, who.sample_count))
            told = None if known is None else known[indices % len(known)]
            latents = draw_noise(who.config.seed, indices, who.images.shape, stream="latents")
            made = sample(
                *(who.fast_network, latents),
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


def take_copies(who: Auditee, samples: Tensor, *, progress: bool = False) -> tuple[list[Record], Copies]:
    """Whether samples are copies of training images.

    Args:
        who: the auditee.
        samples: of its network.
        progress: show progress bars.

    Returns:
        The records, `closest` for the samples that look most like a training image and `copy` for those named as copies;
        and what they were made of.
    """
    pixels = who.bounds is not None
    found = find_copies(
        *(samples, who.images.train, who.held_out),
        mirrored=pixels,
        shifts=tuple(shift for shift in _SHIFTS if shift < min(who.images.shape[1:])) if pixels else (),
        augment=who.config.augment,
        seed=who.config.seed,
        bounds=who.bounds,
        device=who.device,
        progress=progress,
    )
    records = [of_estimate("memorized_fraction", found.ratio_fraction), of_estimate("gl", found.gl)]
    for quantity, estimate in (
        ("copied_fraction", found.copied_fraction),
        ("memorized_fraction_held_out", found.ratio_fraction_held_out),
        ("relative_gl", found.gl_relative),
        ("gl_held_out", found.gl_held_out),
        ("identifiable", found.identifiable),
    ):
        if estimate is not None:
            records.append(of_estimate(quantity, estimate))
    if found.could_alarm:  # else a large p-value says nothing
        records.append({"quantity": "copy_p", "value": found.p_value, "count": len(samples)})
    for family, test in found.tests.items():
        records.append({"quantity": "copy_test_p", "value": test.p_value, "family": family, "count": len(samples)})
    for pair in found.pairs:
        tags = {"sample": pair.sample, "image": pair.image, "transformation": str(pair.transformation)}
        records.append({"quantity": "copy", "value": pair.rmse, "ratio": pair.ratio, **tags})
    ratios = found.ratios.nan_to_num(nan=1.0)  # NaN where all training images are one
    for index in ratios.argsort()[:SHOWN_PAIRS].tolist():
        tags = {"sample": index, "image": int(found.nearest[index]), "transformation": str(found.matched[index])}
        records.append({"quantity": "closest", "value": float(ratios[index]), **tags})
    return records, found


def take_power(copies: Copies, seed: int) -> Iterator[Record]:
    """The smallest share of copies that this audit would have found.

    Yields:
        A record for each kind of copy and probability; `value` is None if none of the shares tried was found so often.
    """
    for curve in copy_power(copies, seed=seed):
        for probability in (0.8, 0.95):
            yield {
                **{"quantity": "detectable", "value": curve.smallest(probability), "probability": probability},
                **{"kind": curve.planting.name, "count": curve.trials, "samples": curve.samples},
                "tried": curve.counts[-1] / curve.samples if curve.counts else None,
            }


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
    yield of_estimate("memorized_fraction_features", near.ratio_fraction, **named)
    if near.gl_relative is not None:
        yield of_estimate("relative_gl_features", near.gl_relative, **named)
    if near.copy_test is not None:
        yield {"quantity": "copy_p_features", "value": near.copy_test.p_value, "count": len(samples), **named}


def evidence_of(records: Sequence[Record]) -> Evidence:
    """What the rules judge by, from the records of all stages."""
    by: dict[str, list[Record]] = {}
    for record in records:
        by.setdefault(record["quantity"], []).append(record)
    levels = tuple(record["sigma"] for record in by.get("intermediate", ()))
    known: dict[str, Any] = {"sigmas": levels or None}
    for quantity in (*_BY_LEVEL, *_DISTANCES.values()):
        if quantity in by:
            at = {record["sigma"]: _estimate(record) for record in by[quantity] if record["value"] is not None}
            known[quantity] = tuple(at.get(sigma) for sigma in levels)
    for quantity in (*_FLAGS, "p_values"):
        if quantity in by:
            known[quantity] = tuple(record["value"] for record in by[quantity])
    for quantity in _SINGLE:
        if quantity in by and by[quantity][0]["value"] is not None:  # None: a quotient of nothing and nothing
            known[quantity] = _estimate(by[quantity][0])
    if "copy_p" in by:
        known["copy_p"] = by["copy_p"][0]["value"]
    if "foreignness" in by:
        (found,) = by["foreignness"]
        gain = None if found["value"] is None else _estimate(found)
        known["foreignness"] = Foreignness(found["expected"], gain, found["sigma"])
    assert set(known) <= {field.name for field in fields(Evidence)}
    return Evidence(**known)


STAGES: dict[str, Callable[..., Iterator[Record]]] = {
    "duplicates": take_duplicates,
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
