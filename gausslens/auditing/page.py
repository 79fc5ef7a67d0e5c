"""The page of an audit: the answer, then copies as pictures, then membership as one plot, then all other measurements."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

import gausslens

from ..images import quantize
from ..measures.transformations import Transformation
from ..report import Axis, CurveFigure, Figure, ImageGrid, Page, Section, Series, Threshold
from ..store.records import Record
from .audit import Audit
from .context import AuditContext
from .evidence import DISTANCES
from .summary import advice, headline, image_counts, sentence, summary
from .thresholds import limit

_NOISE = Axis("noise level σ", log=True)
_NAMES = {"network": "the model", "gaussian": "Gaussian", "multidelta": "multi-delta", "baseline": "baseline"}
_PAIRS = 10  # on one grid
_GRIDS = {
    "copy": (
        "Copies",
        "Each column is a sample, the training image that it copies, and their difference (grey is none). The number says "
        "how many samples copy this image.",
    ),
    "part_copy": (
        "Copied parts",
        "Each column is a sample, the training image that a part of it is copied from, and their difference. The copied "
        "part of the difference is grey.",
    ),
    "closest": (
        "The samples most like one training image",
        "Each column is a sample, its nearest training image, and their difference. The number is the distance to the "
        "nearest divided by that to the next; below 0.33 a sample counts as a copy. Some samples are always closest, which "
        "is not evidence of copying.",
    ),
}
"""The grids of samples by quantity: title and caption."""


class _Line(NamedTuple):
    """A line of a figure; it is left out where there are no records."""

    name: str
    records: list[Record]
    dashed: bool = False


def make_page(audit: Audit, context: AuditContext, provenance: Mapping[str, Any], command: str) -> Page:
    """The page."""
    rows = [f"{name}: {value} ({note})" if note else f"{name}: {value}" for name, value, note in summary(audit)]

    def section(title: str, text: str, figures: Iterable[Figure] = ()) -> Section:
        return Section(title, text, tuple(replace(figure, command=command) for figure in figures))

    sections = (
        section("Does it copy?", _copying(audit, context), _grids(audit, context)),
        section(
            "Does it reveal its training images?",
            "Anyone who has the model can compare its loss on an image with its losses on images that it has not seen.",
            _recognised(audit),
        ),
        section("Why this verdict?", "\n\n".join(map(sentence, audit.verdict.reasons)), _leaning(audit)),
        section(
            "What does it do with noise?",
            "Distances are between the outputs of two denoisers for the same noisy images. The multi-delta denoiser knows "
            "the training images and nothing else. The Gaussian denoiser knows their mean and covariance and nothing else.",
            _distances(audit),
        ),
        section("All numbers in short", "\n\n".join(rows)),
    )
    session = provenance["sessions"][-1] if provenance.get("sessions") else {}
    return Page(
        title=f"Audit of {audit.model}",
        summary=f"{headline(audit)}\n\n{advice(audit)}\n\n{image_counts(audit)} of {audit.data}.",
        sections=sections,
        made_by=f"gausslens {gausslens.__version__}, {session.get('device', '')}, {session.get('started', '')}",
    )


def _leaning(audit: Audit) -> Iterator[CurveFigure]:
    """Losses, and where they lie between the references."""
    levels = ", ".join(f"{sigma:.3g}" for sigma in audit.evidence.where("window")) or "none"
    ends = -1.0, 2.0  # uncertain positions would flatten the rest
    yield from _curve(
        title="Between new and copied",
        caption="0 is a model that treats training images like new ones, and 1 is one that returns training images. The "
        f"verdict rests on the greatest of the solid lines at the levels at which a copier would be seen: {levels}. "
        f"Ignore the other levels; values beyond {ends[0]:g} or {ends[1]:g} are drawn at these limits.",
        y=Axis("position"),
        lines=(
            _Line("retrieval κ on held-out images", audit.find("retrieval")),
            _Line("position of the loss gap above the baseline", audit.find("position")),
            _Line("position ρ between Gaussian and multi-delta", audit.find("rho"), dashed=True),
        ),
        within=ends,
        thresholds=tuple(Threshold(limit(name), name) for name in ("memorizing", "generalizing")),
    )
    least = 1e-6  # vanishing losses would flatten the rest
    yield from _curve(
        title="Denoising losses",
        caption="Mean squared error per pixel on training images (dashed) and held-out images (solid), with the same noise "
        "for all denoisers. The loss of a copier is far lower on its training images. "
        f"Losses below {least:g} are drawn at that value.",
        y=Axis("loss", "pixel range [−1, 1] squared", log=True),
        lines=[
            _Line(f"{name}, {kind}", audit.find("loss", denoiser=denoiser, on=on), dashed=on == "train")
            for denoiser, name in _NAMES.items()
            for on, kind in (("train", "training"), ("held_out", "held-out"))
        ],
        within=(least, math.inf),
    )


def _recognised(audit: Audit) -> Iterator[CurveFigure]:
    """How many training images can be recognised, and at which noise level best."""
    aucs = audit.find("auc")
    if not aucs:
        return
    auc = max(aucs, key=lambda record: record["value"])
    chance = [{"false_positive_rate": end, "value": end} for end in (0.0, 1.0)]
    yield from _curve(
        title="Training images recognised by their loss",
        caption="The share of training images whose low loss reveals them, against the share of new images that would be "
        "mistaken for training images. A model that reveals nothing lies on the diagonal. At this noise level, "
        f"σ = {auc['sigma']:.3g}, the training image has the lower loss in {100 * auc['value']:.0f} % of pairs.",
        x=Axis("new images taken for training images"),
        y=Axis("training images recognised"),
        lines=(
            _Line("the model", audit.find("roc", denoiser="network")),
            _Line("Gaussian denoiser of the training images", audit.find("roc", denoiser="gaussian"), dashed=True),
            _Line("a model that reveals nothing", chance, dashed=True),
        ),
        along="false_positive_rate",
    )
    yield from _curve(
        title="Does the loss separate training images from new ones?",
        caption="AUC: how often a training image has the lower loss of a pair. Above 0.5 the loss depends on whether the "
        f"model was trained on an image. A model leaks membership if its AUC is clearly above {limit('auc')}.",
        y=Axis("AUC"),
        lines=[_Line("the model", aucs)],
        thresholds=(Threshold(0.5, "no difference"), Threshold(limit("auc"), "leaks")),
    )


def _distances(audit: Audit) -> Iterator[CurveFigure]:
    """Distances and linearity."""
    yield from _curve(
        title="Distances of the model",
        caption=f"RMSE per pixel on noisy {'held-out' if audit.n_held_out else 'training'} images. A model that generalises "
        "is nearer to the Gaussian denoiser than to multi-delta. Dashed: the distance between these two.",
        y=Axis("RMSE", "pixel range [−1, 1]"),
        lines=(
            _Line("to the Gaussian", audit.find("rmse", **DISTANCES["gaussian"])),
            _Line("to multi-delta", audit.find("rmse", **DISTANCES["multidelta"])),
            _Line("to its linear denoiser", audit.find("rmse", denoiser="network", reference="linear")),
            _Line("control: multi-delta to the Gaussian", audit.find("rmse", **DISTANCES["references"]), dashed=True),
        ),
    )
    yield from _curve(
        title="Affine linearity",
        caption="Cosine between D of a superposition and the superposition of D; 1 for every affine map, such as the "
        "Gaussian. Models that generalise are nearly linear.",
        y=Axis("linearity, cosine"),
        lines=[
            _Line(name, audit.find("linearity", denoiser=denoiser), dashed=denoiser != "network")
            for denoiser, name in _NAMES.items()
        ],
    )
    yield from _curve(
        title="What no affine map explains",
        caption="Share of the model's variance that its linear denoiser, fitted to it on training images, leaves "
        "unexplained. Dashed: what a fit to so few calls leaves in any case.",
        y=Axis("FVU", log=True),
        lines=(_Line("the model", audit.find("fvu")), _Line("floor of the fit", audit.find("fvu_floor"), dashed=True)),
    )


def _curve(
    *,
    lines: Sequence[_Line],
    x: Axis = _NOISE,
    along: str = "sigma",
    within: tuple[float, float] = (-math.inf, math.inf),
    **figure: Any,
) -> Iterator[CurveFigure]:
    """A figure of lines, if there is one; values beyond the ends of `within` are drawn at them."""
    least, most = within
    series = []
    for name, records, dashed in lines:
        ordered = sorted(records, key=lambda record: record[along])
        y, low, high = (
            [None if record.get(part) is None else min(max(record[part], least), most) for record in ordered]
            for part in ("value", "low", "high")
        )
        if ordered:
            series.append(Series(name, [record[along] for record in ordered], y, low, high, dashed))
    if series:
        yield CurveFigure(x=x, series=tuple(series), **figure)


def _copying(audit: Audit, context: AuditContext) -> str:
    """What was compared, and what was found, in paragraphs."""
    if audit.samples is None:
        return "No samples were asked for."
    also = ", as latents." if context.bounds is None else ", also mirrored, shifted and in parts."
    said = [f"{len(audit.samples):,} samples were compared with all training images{also}"]
    if originals := audit.find("copied_original"):
        times = sum(record["value"] for record in originals)
        said.append(
            f"{times:,} samples are named as copies of {len(originals):,} training images. At most a tenth of the names are "
            "expected to be wrong."
        )
    detectable = [record for record in audit.find("detectable") if record["value"] is not None]
    if kinds := "; ".join(f"{record['kind']}: {record['value']:,}" for record in detectable):
        said.append(f"Number of copies that is detected in 95 % of cases, by what the copies look like: {kinds}.")
    return "\n\n".join(said)


def _grids(audit: Audit, context: AuditContext) -> Iterator[Figure]:
    """Copies with their originals, most copied first; and the samples most like one training image."""
    decode, originals = context.model.decode, context.images.train if context.pictures is None else context.pictures[0]
    if audit.samples is None or (context.bounds is None and decode is None) or originals.shape[1] not in (1, 3):
        return
    times = {record["image"]: record["value"] for record in audit.find("copied_original")}
    for quantity, (title, caption) in _GRIDS.items():
        best: dict[int, Record] = {}  # of each original, lest one of them fill the grid
        for record in sorted(audit.find(quantity), key=_ratio):
            best.setdefault(_original(record), record)
        chosen = sorted(best.values(), key=lambda record: -times.get(_original(record), 0))[:_PAIRS]
        if chosen and not (quantity == "closest" and times):
            samples, images = (
                part[[record[index] for record in chosen]]
                for part, index in ((audit.samples, "sample"), (originals, "image"))
            )
            rows = [_as_pixels(samples if decode is None else decode(samples)), _as_pixels(images)]
            difference = ((rows[0].short() - rows[1].short()).div(2, rounding_mode="floor") + 128).clamp(0, 255)
            yield ImageGrid(
                title=title,
                caption=caption,
                rows=("sample", "training image", "difference"),
                columns=tuple(_column(record, times) for record in chosen),
                images=np.stack([part.byte().numpy() for part in (*rows, difference)]),
            )


def _as_pixels(images: Tensor) -> Tensor:
    return (images if images.dtype.itemsize == 1 else quantize(images)).cpu()


def _original(record: Record) -> int:
    """The image by which an original is named: of those that are one, `copied_original` has one."""
    named: int = record["original"] if "original" in record else record["image"]
    return named


def _ratio(record: Record) -> float:
    return float(record["ratio"] if "ratio" in record else record["value"])


def _column(record: Record, times: Mapping[int, int]) -> str:
    """The label below a column."""
    first = {
        "copy": f"{times.get(_original(record), 0):,} ×",
        "part_copy": record.get("family"),
        "closest": f"{_ratio(record):.2f}",
    }
    changed = record["transformation"]
    return f"{first[record['quantity']]}{'' if changed == str(Transformation()) else f', {changed}'}"
