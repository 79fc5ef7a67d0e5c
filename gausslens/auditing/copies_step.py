"""The stage of an audit that looks at samples: generate them, hold them up against training images, and name the copies."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..errors import DataError
from ..evaluation.records import of_estimate
from ..generation import BATCH
from ..images import quantize
from ..measures.intervals import proportion_estimate
from ..measures.memorization import estimate_ratio
from ..noise import draw_noise, karras_sigmas
from ..progress import progress_bar
from ..sampling import sample
from ..store.records import Record
from .context import AuditContext
from .controls import ONCE, fisher_p
from .copies import Copies, find_copies
from .evidence import FEWEST_ORIGINALS
from .families import PLAIN
from .power import copy_power
from .thresholds import THRESHOLDS

SHOWN_PAIRS = 24
_SHIFTS = (1, 2)  # pixels


def generate_samples(
    context: AuditContext, start: int, stop: int, *, denoiser: nn.Module | None = None, progress: bool = False
) -> Tensor:
    """Samples `start` … `stop` − 1 of the network: uint8 pixels, or latents in float32."""
    known = context.classes
    sigmas = karras_sigmas(context.config.steps, *context.sigma_range)
    parts = []
    with progress_bar(float(stop - start), unit="images", label="sampling", enabled=progress) as show:
        for first in range(start, stop, BATCH):
            # All batches have one size, for which a GPU's work is recorded; the images too many are cut off.
            indices = torch.arange(first, first + min(BATCH, context.sample_count))
            told = None if known is None else known[indices % len(known)]
            latents = draw_noise(context.config.seed, indices, context.images.shape, stream="latents")
            made = sample(
                *(context.fast_network if denoiser is None else denoiser, latents),
                sigmas=sigmas,
                labels=told,
                device=context.device,
                dtype=torch.float32,
                batch_size=BATCH,
            )
            if not bool(made.isfinite().all()):
                raise DataError(
                    f"the model's samples must be finite; with {context.config.steps} noise levels from {sigmas[0]:g} to "
                    f"{sigmas[-1]:g} some are NaN or infinite. Sample with other --steps, or with --samples 0 not at all."
                )
            parts.append((made.float() if context.bounds is None else quantize(made)).cpu())
            show(float(min(first + BATCH, stop) - start), "")
    return torch.cat(parts)[: stop - start]


def take_copies(
    context: AuditContext, samples: Tensor, *, exchangeable: bool = True, progress: bool = False
) -> Iterator[Record]:
    """Which samples are copies of training images, of which ones, how often, and how few would have been found."""
    pixels = context.bounds is not None
    images = context.images
    gaussian = generate_samples(context, 0, len(samples), denoiser=context.denoisers["gaussian"], progress=progress)
    found = find_copies(
        *(samples, images.train, images.held_out if len(images.held_out) else None, gaussian),
        groups=images.train_groups,
        held_out_groups=images.held_out_groups,
        exchangeable=exchangeable,
        mirrored=pixels,
        shifts=tuple(shift for shift in _SHIFTS if shift < min(images.shape[1:])) if pixels else (),
        parts=pixels,
        flip=context.config.augment == "flip",
        repeats=context.repeats,
        duplicate_rmse=context.duplicate_rmse,
        seed=context.config.seed,
        bounds=context.bounds,
        device=context.device,
        progress=progress,
    )
    originals = found.matches[PLAIN].originals
    yield {"quantity": "originals", "value": originals.count, "count": len(images.train)}
    yield of_estimate("gl", found.gl)
    if found.gl_held_out is not None:
        yield of_estimate("gl_held_out", found.gl_held_out)
        yield of_estimate("relative_gl", estimate_ratio(found.gl, found.gl_held_out))
    if originals.count < FEWEST_ORIGINALS:
        return
    yield {"quantity": "copies_exist", "value": found.exist}
    yield of_estimate("copied_share", found.share)
    yield {"quantity": "overlap_decides", "value": found.overlap_decides}
    if found.undecided is not None:
        tally, real = found.undecided.samples, found.undecided.real
        yield {"quantity": "undecided_copies", "value": tally.copies, "count": tally.total, "real_count": real.total}
    plain = found.matches[PLAIN].comparisons
    real = max((one.real for one in plain), key=lambda tally: tally.total)
    if real.total:
        yield of_estimate("real_share", real.share)
    copies = sum(one.gaussian.copies for one in plain if one.gaussian is not None)
    yield of_estimate("gaussian_share", proportion_estimate(copies, len(gaussian)))
    for one in found.comparisons:
        tags = {"family": one.family, "kind": one.kind, "level": one.level, "convicts": one.convicts}
        beside = {"copies": one.samples.copies, "real_copies": one.real.copies, "real_count": one.real.total}
        yield {"quantity": "copy_p", "value": one.p_value, "count": one.samples.total, **tags, **beside}
    if found.two_set is not None:
        yield {"quantity": "two_set_p", "value": found.two_set.p_value, "count": len(samples)}
    yield from _take_names(context, found, len(samples))
    # The smallest numbers of copies among the samples that would have been found, by how they are spread.
    for one in plain:
        spreads = {"spread": False, "concentrated": True} if one.kind == ONCE else {"repeated": True}
        for kind, concentrated in spreads.items():
            count = one.smallest_count(concentrated=concentrated)
            yield {"quantity": "smallest_count", "value": count, "kind": kind, "count": len(samples)}
    yield from copy_power(found, seed=context.config.seed)


def _take_names(context: AuditContext, found: Copies, samples: int) -> Iterator[Record]:
    """Copies by name: samples, originals, parts and classes; and the samples most like one original."""
    originals = found.matches[PLAIN].originals
    first = {copy.original: copy.image for copy in found.copies}
    for original, count in found.counts.items():
        repeats = int(originals.standing[original])
        yield {"quantity": "copied_original", "value": count, "image": first[original], "repeats": repeats}
    for quantity, copies in (("copy", found.copies), ("part_copy", found.part_copies)):
        for copy in copies:
            tags = {"sample": copy.sample, "image": copy.image, "family": copy.family, "ratio": copy.ratio}
            if quantity == "copy":
                tags["original"] = first[copy.original]  # the image that names it above
            yield {"quantity": quantity, "value": copy.rmse, **tags, "transformation": str(copy.transformation)}
    for part in found.parts:
        count = sum(copy.family == part for copy in found.part_copies)
        yield {"quantity": "copied_part", "value": count, "window": part, "count": samples}
    if context.classes is not None:
        yield from _take_classes({copy.sample for copy in found.copies}, context.classes, samples)
    closest, transformations = found.closest, found.matches[PLAIN].family.transformations
    ratios = closest.ratio.nan_to_num(nan=1.0)  # NaN where there is one original alone
    for index in ratios.argsort()[:SHOWN_PAIRS].tolist():
        tags = {"sample": index, "image": int(closest.image[index])}
        told = str(transformations[int(closest.transformation[index])])
        yield {"quantity": "closest", "value": float(ratios[index]), **tags, "transformation": told}


def _take_classes(copied: set[int], classes: Tensor, samples: int) -> Iterator[Record]:
    """Classes of which copies are more frequent than of the others, by Fisher's test at the audit's level."""
    of_sample = [int(classes[index % len(classes)]) for index in range(samples)]
    for label in classes.tolist():
        own = [index for index, other in enumerate(of_sample) if other == label]
        hits = sum(index in copied for index in own)
        p_value = fisher_p(hits, len(own), len(copied) - hits, samples - len(own)) if own else 1.0
        if p_value * len(classes) <= THRESHOLDS["p"].value:
            yield of_estimate("copied_class", proportion_estimate(hits, len(own)), label=label)
