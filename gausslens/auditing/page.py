"""The page of an audit: the answer, then copies as pictures, then membership as one plot, then what else was measured."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import gausslens

from ..images import as_tensor, quantize
from ..measures.transformations import Transformation
from ..report import Axis, CurveFigure, Figure, ImageGrid, Page, Section, Series, Threshold
from ..store.records import Record
from .audit import Audit
from .context import AuditContext
from .evidence import DISTANCES
from .summary import advice, headline, image_counts, sentence, smallest_counts, summary
from .thresholds import THRESHOLDS

_NOISE = Axis("noise level σ", log=True)
_NAMES = {"network": "the model", "gaussian": "Gaussian", "multidelta": "multi-delta", "baseline": "baseline"}
_PAIRS = 10  # on one grid
_DRAWN, _SHOWN_LOSSES = (-1.0, 2.0), (1e-6, math.inf)  # uncertain positions and vanishing losses would flatten the rest


def make_page(audit: Audit, context: AuditContext, provenance: Mapping[str, Any], command: str) -> Page:
    """The page."""
    rows = [f"{name}: {value} ({note})" if note else f"{name}: {value}" for name, value, note in summary(audit)]
    sections = (
        Section("Does it copy?", _drawn(audit, context), tuple(_pairs(audit, context, command))),
        Section(
            "Does it give its training images away?",
            "Whoever has the model can compare its loss on an image with its losses on images that it has not seen.",
            _curves(_recognised(audit), command),
        ),
        Section(
            "Why this verdict?", "\n\n".join(map(sentence, audit.verdict.reasons)), _curves(_leaning(audit), command)
        ),
        Section(
            "What does it do with noise?",
            "Distances are between the answers of two denoisers to the same noisy images. The multi-delta denoiser knows "
            "the training images and nothing else. The Gaussian denoiser knows their mean and covariance and nothing else.",
            _curves(_distances(audit), command),
        ),
        Section("All numbers in short", "\n\n".join(rows)),
    )
    session = provenance["sessions"][-1] if provenance.get("sessions") else {}
    return Page(
        title=f"Audit of {audit.model}",
        summary=f"{headline(audit)}\n\n{advice(audit)}\n\n{image_counts(audit)} of {audit.data}.",
        sections=sections,
        made_by=f"gausslens {gausslens.__version__}, {session.get('device', '')}, {session.get('started', '')}",
    )


def _curves(figures: Iterable[CurveFigure], command: str) -> tuple[CurveFigure, ...]:
    """The figures in which there is a line, with the command that makes them."""
    return tuple(replace(figure, command=command) for figure in figures if figure.series)


def _leaning(audit: Audit) -> Iterator[CurveFigure]:
    """Losses, and where they lie between the references."""
    levels = ", ".join(f"{sigma:.3g}" for sigma in audit.evidence.where("window")) or "none"
    yield CurveFigure(
        title="Between new and copied",
        caption="0 is a model to which training images are like any others, 1 one that returns training images. The "
        f"verdict rests on the greatest of the solid lines among the levels at which a copier would be seen: {levels}. "
        "At the others a copier's loss gap is too small to be seen, or the Gaussian's nearly as large, and the lines "
        "say little, whatever their height. "
        f"What lies beyond {_DRAWN[0]:g} or {_DRAWN[1]:g} is drawn there.",
        x=_NOISE,
        y=Axis("position"),
        series=(
            *_lines("retrieval κ on held-out images", audit.find("retrieval"), within=_DRAWN),
            *_lines("position of the loss gap above the baseline", audit.find("position"), within=_DRAWN),
            *_lines("position ρ between Gaussian and multi-delta", audit.find("rho"), within=_DRAWN, dashed=True),
        ),
        thresholds=tuple(Threshold(THRESHOLDS[name].value, name) for name in ("memorizing", "generalizing")),
    )
    yield CurveFigure(
        title="Denoising losses",
        caption="Mean squared error a pixel, on training images (dashed) and held-out ones (solid), with the same noises "
        f"for all denoisers. A copier's loss is far lower on its training images; below {_SHOWN_LOSSES[0]:g} it is "
        "drawn there.",
        x=_NOISE,
        y=Axis("loss", "pixel range [−1, 1] squared", log=True),
        series=tuple(
            line
            for name, said in _NAMES.items()
            for on, dashed in (("train", True), ("held_out", False))
            for line in _lines(
                f"{said}, {'training' if dashed else 'held-out'}",
                audit.find("loss", denoiser=name, on=on),
                within=_SHOWN_LOSSES,
                dashed=dashed,
            )
        ),
    )


def _recognised(audit: Audit) -> Iterator[CurveFigure]:
    """Who could be recognised as trained on, and at which noise level best."""
    aucs = audit.find("auc")
    if not aucs:
        return
    auc, ends = max(aucs, key=lambda record: record["value"]), [0.0, 1.0]
    along = "false_positive_rate"
    yield CurveFigure(
        title="Training images recognised by their loss",
        caption="The share of the training images that their low loss gives away, against the share of new images that "
        "would be taken for training images by mistake. A model that tells nothing lies on the diagonal. At this noise "
        f"level, σ = {auc['sigma']:.3g}, the training image has the lower loss in {100 * auc['value']:.0f} % of pairs.",
        x=Axis("new images taken for training images"),
        y=Axis("training images recognised"),
        series=(
            *_lines("the model", audit.find("roc", denoiser="network"), along),
            *_lines(
                "Gaussian denoiser of the training images", audit.find("roc", denoiser="gaussian"), along, dashed=True
            ),
            Series("a model that tells nothing", ends, ends, dashed=True),
        ),
    )
    yield CurveFigure(
        title="Can the loss tell training images from others?",
        caption="AUC: how often a training image has the lower loss of a pair. Above .5 the model depends on its training "
        f"images; above {THRESHOLDS['auc'].value} for certain we say that it leaks membership.",
        x=_NOISE,
        y=Axis("AUC"),
        series=_lines("the model", aucs),
        thresholds=(Threshold(0.5, "no difference"), Threshold(THRESHOLDS["auc"].value, "leaks")),
    )


def _distances(audit: Audit) -> Iterator[CurveFigure]:
    """Distances and linearity."""
    between = {
        "to the Gaussian": DISTANCES["gaussian"],
        "to multi-delta": DISTANCES["multidelta"],
        "to its linear denoiser": {"denoiser": "network", "reference": "linear"},
        "control: multi-delta to the Gaussian": DISTANCES["references"],
    }
    yield CurveFigure(
        title="Distances of the model",
        caption=f"RMSE a pixel on noisy images {'that it has not seen' if audit.n_held_out else 'of its training'}.",
        x=_NOISE,
        y=Axis("RMSE", "pixel range [−1, 1]"),
        series=tuple(
            line
            for name, which in between.items()
            for line in _lines(name, audit.find("rmse", **which), dashed=which == DISTANCES["references"])
        ),
    )
    yield CurveFigure(
        title="Affine linearity",
        caption="Cosine between D of a superposition and the superposition of D; 1 for every affine map, such as the "
        "Gaussian. Models that generalise are nearly linear.",
        x=_NOISE,
        y=Axis("linearity, cosine"),
        series=tuple(
            line
            for name, said in _NAMES.items()
            for line in _lines(said, audit.find("linearity", denoiser=name), dashed=name != "network")
        ),
    )
    yield CurveFigure(
        title="What no affine map explains",
        caption="Share of the model's variance that its linear denoiser, fitted to it on training images, leaves "
        "unexplained. Dashed: what a fit to so few calls leaves in any case.",
        x=_NOISE,
        y=Axis("FVU", log=True),
        series=_lines("the model", audit.find("fvu"))
        + _lines("floor of the fit", audit.find("fvu_floor"), dashed=True),
    )


def _drawn(audit: Audit, context: AuditContext) -> str:
    if audit.samples is None:
        return "No samples were asked for."
    also = ", as latents." if context.bounds is None else ", also mirrored, shifted and in parts."
    told = [f"{len(audit.samples):,} samples were compared with all training images{also}"]
    originals = audit.find("copied_original")
    if originals:
        times = sum(record["value"] for record in originals)
        told.append(
            f"{times:,} samples are named as copies of {len(originals):,} training images; at most a tenth of the names are "
            "wrong."
        )
    for record in audit.find("copied_part"):
        told.append(f"{record['value']:,} samples have their {record['window']} from a training image.")
    counts = smallest_counts(audit)
    if counts.get("spread") and counts.get("concentrated"):
        told.append(
            f"This audit would have found {counts['spread']:,} copies of different images, or {counts['concentrated']:,} of "
            "one image. Fewer may be missed."
        )
    blurred = [record for record in audit.find("detectable") if record["value"] is not None]
    if blurred:
        kinds = "; ".join(f"{record['kind']}: {record['value']:,}" for record in blurred)
        told.append(f"How many it takes to be found in 95 % of cases, by what copies look like: {kinds}.")
    return "\n\n".join(told)


def _pairs(audit: Audit, context: AuditContext, command: str) -> Iterator[Figure]:
    """Copies beside their originals, most copied first; and the samples most like one training image."""
    decode, originals = context.model.decode, context.images.train if context.pictures is None else context.pictures[0]
    if audit.samples is None or (context.bounds is None and decode is None) or originals.shape[1] not in (1, 3):
        return
    times = {record["image"]: record["value"] for record in audit.find("copied_original")}
    for heading, quantity, caption in (
        (
            "Copies",
            "copy",
            "Each column is a sample, the training image that it copies, and their difference (grey is none). The number "
            "says how many samples copy this image.",
        ),
        (
            "Copied parts",
            "part_copy",
            "Each column is a sample, the training image that a part of it is copied from, and their difference, in which "
            "the copied part is grey.",
        ),
        (
            "The samples most like one training image",
            "closest",
            "Each column is a sample, its nearest training image, and their difference. The number is the distance to the "
            "nearest divided by that to the next; below 0.33 a sample counts as a copy. Some samples are always closest: "
            "that alone is no copying.",
        ),
    ):
        best: dict[int, Record] = {}  # of each original, lest one of them fill the grid
        for record in sorted(audit.find(quantity), key=_quotient):
            best.setdefault(_original(record), record)
        chosen = sorted(best.values(), key=lambda record: -times.get(_original(record), 0))[:_PAIRS]
        if chosen and not (quantity == "closest" and times):
            samples = as_tensor(audit.samples)[[record["sample"] for record in chosen]]
            images = as_tensor(originals)[[record["image"] for record in chosen]]
            rows = [_as_pixels(samples if decode is None else decode(samples)), _as_pixels(images)]
            difference = (rows[0].astype(np.int16) - rows[1].astype(np.int16)) // 2 + 128
            yield ImageGrid(
                title=heading,
                caption=caption,
                command=command,
                rows=("sample", "training image", "difference"),
                columns=tuple(_told(record, times) for record in chosen),
                images=np.stack([*rows, difference.clip(0, 255).astype(np.uint8)]),
            )


def _as_pixels(images: Tensor) -> NDArray[Any]:
    pixels: NDArray[Any] = (images if images.dtype.itemsize == 1 else quantize(images)).cpu().numpy()
    return pixels


def _original(record: Record) -> int:
    """The image by which an original is named: of those that are one, `copied_original` has one."""
    named: int = record["original"] if "original" in record else record["image"]
    return named


def _quotient(record: Record) -> float:
    return float(record["ratio"] if "ratio" in record else record["value"])


def _told(record: Record, times: Mapping[int, int]) -> str:
    """What stands below a column."""
    changed = record["transformation"]
    ways = [] if changed == str(Transformation()) else [changed]
    if record["quantity"] == "part_copy":
        return ", ".join([record["family"], *ways])
    if record["quantity"] == "copy":
        return ", ".join([f"{times[_original(record)]:,} ×", *ways])
    return ", ".join([f"{_quotient(record):.2f}", *ways])


def _lines(
    name: str,
    records: list[Record],
    along: str = "sigma",
    *,
    dashed: bool = False,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[Series, ...]:
    """A line of records, or none; what lies beyond the ends of `within` is drawn at them."""
    ordered = sorted(records, key=lambda record: record[along])
    least, most = within
    y, low, high = (
        [None if record.get(part) is None else min(max(record[part], least), most) for record in ordered]
        for part in ("value", "low", "high")
    )
    return (Series(name, [record[along] for record in ordered], y, low, high, dashed),) if ordered else ()
