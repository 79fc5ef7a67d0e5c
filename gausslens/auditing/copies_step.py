"""The step of an audit that examines samples: generate them, compare them with training images, and name the copies."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..evaluation.records import of_estimate, record_of
from ..generation import BATCH
from ..images import quantize, require_finite
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
from .families import families_of
from .power import copy_power
from .thresholds import limit

SHOWN_PAIRS = 24


def generate_samples(
    context: AuditContext, start: int, stop: int, *, denoiser: nn.Module | None = None, progress: bool = False
) -> Tensor:
    """Samples `start` … `stop` − 1 of the network: uint8 pixels, or latents in float32."""
    known, network = context.classes, context.fast_network if denoiser is None else denoiser
    sigmas = karras_sigmas(context.config.steps, *context.sigma_range)
    parts = []
    with progress_bar(float(stop - start), unit="images", label="sampling", enabled=progress) as show:
        for first in range(start, stop, BATCH):
            # All batches have one size, for which a GPU's work is recorded; the images too many are cut off.
            indices = torch.arange(first, first + min(BATCH, context.sample_count))
            labels = None if known is None else known[indices % len(known)]
            latents = draw_noise(context.config.seed, indices, context.images.shape, stream="latents")
            how: dict[str, Any] = {"device": context.device, "dtype": torch.float32, "batch_size": BATCH}
            made = sample(network, latents, sigmas=sigmas, labels=labels, **how)
            levels = f"{context.config.steps} noise levels from {sigmas[0]:g} to {sigmas[-1]:g}"
            advice = f"They were sampled with {levels}. Use other --steps, or --samples 0 for no samples."
            require_finite(made, "the model's samples", advice)
            parts.append((made.float() if context.bounds is None else quantize(made)).cpu())
            show(float(min(first + BATCH, stop) - start), "")
    return torch.cat(parts)[: stop - start]


def take_copies(
    context: AuditContext, samples: Tensor, *, exchangeable: bool = True, progress: bool = False
) -> Iterator[Record]:
    """Which samples are copies of training images, of which ones, how often, and how few would have been found."""
    count, config = len(samples), context.config
    gaussian = generate_samples(context, 0, count, denoiser=context.denoisers["gaussian"], progress=progress)
    families = families_of(context.images.shape, pictures=context.bounds is not None, flip=config.augment == "flip")
    found = find_copies(
        *(samples, context.pool, gaussian),
        families=families,
        exchangeable=exchangeable,
        seed=config.seed,
        progress=progress,
    )
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
    for index in ratios.argsort()[:SHOWN_PAIRS].tolist():
        tags = {"sample": index, "image": int(plain.samples.image[index])}
        yield record_of("closest", float(ratios[index]), **tags, transformation=str(plain.transformation(index)))


def _take_classes(copied: set[int], classes: Tensor, samples: int) -> Iterator[Record]:
    """Classes of which copies are more frequent than of the others, by Fisher's test at the audit's level."""
    of_sample = [int(classes[index % len(classes)]) for index in range(samples)]
    for label in classes.tolist():
        own = [index for index, other in enumerate(of_sample) if other == label]
        hits = sum(index in copied for index in own)
        p_value = fisher_p(hits, len(own), len(copied) - hits, samples - len(own)) if own else 1.0
        if p_value * len(classes) <= limit("p"):
            yield of_estimate("copied_class", proportion_estimate(hits, len(own)), label=label)
