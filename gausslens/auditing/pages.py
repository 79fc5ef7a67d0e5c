"""The page of an audit: the verdict first, then the curves it rests on, then the pairs of samples and training images."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import gausslens

from ..images import as_tensor, quantize
from ..measures.transformations import Transformation
from ..report import Axis, CurveFigure, Figure, ImageGrid, Page, Section, Series, Threshold
from ..runs import Record
from .auditee import Auditee
from .running import Audit
from .summary import advice, sentence, summary
from .thresholds import THRESHOLDS

_NOISE = Axis("noise level σ", log=True)
_NAMES = {"network": "the model", "gaussian": "Gaussian", "multidelta": "multi-delta", "baseline": "baseline"}
_PAIRS = 10  # on one grid
_DRAWN, _SHOWN_LOSSES = (-1.0, 2.0), (1e-6, math.inf)  # uncertain positions and vanishing losses would flatten the rest


def make_page(audit: Audit, who: Auditee, provenance: Mapping[str, Any], command: str) -> Page:
    """The page.

    Args:
        audit: what was found.
        who: the model and its images.
        provenance: of the run.
        command: what makes the same.

    Returns:
        The page.
    """
    table = "\n\n".join(f"{name}: {value} ({note})" for name, value, note in summary(audit))
    unseen = f"{audit.n_held_out:,} held-out" if audit.n_held_out else "no held-out"
    sections = [
        Section("Is it copying?", "\n\n".join(map(sentence, audit.verdict.reasons)), tuple(_leaning(audit, command))),
        Section(
            "What does it do with noise?",
            "Distances are between the answers of two denoisers to the same noisy images. The multi-delta denoiser knows "
            "the training images and nothing else, the Gaussian their mean and covariance and nothing else.",
            tuple(_distances(audit, command)),
        ),
        Section("What does it draw?", _drawn(audit, who), tuple(_pairs(audit, who, command))),
        Section("All numbers in short", table),
    ]
    session = provenance["sessions"][-1] if provenance.get("sessions") else {}
    return Page(
        title=f"Audit of {audit.model}",
        summary=f"{audit.verdict.verdict.capitalize()}. {title(audit)} {advice(audit)}\n\n"
        f"{audit.n_train:,} training and {unseen} images of {audit.data}.",
        sections=tuple(sections),
        made_by=f"gausslens {gausslens.__version__}, {session.get('device', '')}, {session.get('started', '')}",
    )


def _leaning(audit: Audit, command: str) -> Iterator[Figure]:
    """Losses, and where they lie between the references.

    Yields:
        The figures that have points.
    """
    leaning = [
        ("retrieval κ on held-out images", audit.find("retrieval"), False),
        ("position of the loss gap above the baseline", audit.find("position"), False),
        ("position ρ between Gaussian and multi-delta", audit.find("rho"), True),
    ]
    series = tuple(_series(name, records, dashed=dashed, within=_DRAWN) for name, records, dashed in leaning if records)
    decisive = [record["sigma"] for record in audit.find("window") if record["value"]]
    levels = ", ".join(f"{sigma:.3g}" for sigma in decisive) or "none"
    if series:
        yield CurveFigure(
            title="Between new and copied",
            caption="0 is a model to which training images are like any others, 1 one that returns training images. The "
            f"verdict rests on the greatest of the solid lines among the levels at which a copier would be seen: {levels}. "
            "At the others a copier's loss gap is too small to be seen, or the Gaussian's nearly as large, and the lines "
            "say little, whatever their height. "
            f"What lies beyond {_DRAWN[0]:g} or {_DRAWN[1]:g} is drawn there.",
            command=command,
            x=_NOISE,
            y=Axis("position"),
            series=series,
            thresholds=tuple(Threshold(THRESHOLDS[name].value, name) for name in ("memorizing", "generalizing")),
        )
    losses = tuple(
        _series(
            *(f"{said}, {where}", audit.find("loss", denoiser=name, on=on)), dashed=on == "train", within=_SHOWN_LOSSES
        )
        for name, said in _NAMES.items()
        for on, where in (("train", "training"), ("held_out", "held-out"))
        if audit.find("loss", denoiser=name, on=on)
    )
    yield CurveFigure(
        title="Denoising losses",
        caption="Mean squared error a pixel, on training images (dashed) and held-out ones (solid), with the same noises "
        f"for all denoisers. A copier's loss is far lower on its training images; below {_SHOWN_LOSSES[0]:g} it is "
        "drawn there.",
        command=command,
        x=_NOISE,
        y=Axis("loss", "pixel range [−1, 1] squared", log=True),
        series=losses,
    )
    if audit.find("auc"):
        yield CurveFigure(
            title="Can the loss tell training images from others?",
            caption="AUC: how often a training image has the lower loss of the two. Above .5 the model depends on its "
            "training images; that alone is no copying.",
            command=command,
            x=_NOISE,
            y=Axis("AUC"),
            series=(_series("the model", audit.find("auc")),),
            thresholds=(Threshold(0.5, "no difference"),),
        )


def _distances(audit: Audit, command: str) -> Iterator[Figure]:
    """Distances and linearity.

    Yields:
        The figures.
    """
    found = [
        ("to the Gaussian", "distance_gaussian", False),
        ("to multi-delta", "distance_multidelta", False),
        ("to its linear denoiser", "distance_linear", False),
        ("control: multi-delta to the Gaussian", "distance_references", True),
    ]
    yield CurveFigure(
        title="Distances of the model",
        caption="RMSE a pixel on noisy images"
        + (" that it has not seen." if audit.n_held_out else " of its training."),
        command=command,
        x=_NOISE,
        y=Axis("RMSE", "pixel range [−1, 1]"),
        series=tuple(
            _series(name, audit.find(quantity), dashed=dashed)
            for name, quantity, dashed in found
            if audit.find(quantity)
        ),
    )
    yield CurveFigure(
        title="Affine linearity",
        caption="Cosine between D of a superposition and the superposition of D; 1 for every affine map, such as the "
        "Gaussian. Models that generalise are nearly linear.",
        command=command,
        x=_NOISE,
        y=Axis("linearity, cosine"),
        series=tuple(
            _series(said, audit.find("linearity", denoiser=name), dashed=name != "network")
            for name, said in _NAMES.items()
            if audit.find("linearity", denoiser=name)
        ),
    )
    if audit.find("fvu"):
        yield CurveFigure(
            title="What no affine map explains",
            caption="Share of the model's variance that its linear denoiser, fitted to it on training images, leaves "
            "unexplained. Dashed: what a fit to so few calls leaves in any case.",
            command=command,
            x=_NOISE,
            y=Axis("FVU", log=True),
            series=(
                _series("the model", audit.find("fvu")),
                _series("floor of the fit", audit.find("fvu_floor"), dashed=True),
            ),
        )


def _drawn(audit: Audit, who: Auditee) -> str:
    if audit.samples is None:
        return "No samples were asked for."
    also = ", as latents." if who.bounds is None else ", mirrored and shifted ones too."
    told = [f"{len(audit.samples):,} samples were compared with all training images{also}"]
    named = audit.find("copy")
    if named:
        told.append(f"{len(named):,} are named as copies, at a false-discovery rate of 10 %.")
    power = [record for record in audit.find("detectable", probability=0.95) if record["samples"]]
    if power:
        found = [(record["kind"], detectable(record)) for record in power]
        told.append(
            f"The smallest share of copies that this audit would have found in 95 % of {power[0]['count']} trials, by what "
            f"copies look like: {'; '.join(f'{kind}: {share}' for kind, share in found)}."
        )
    return "\n\n".join(told)


def _pairs(audit: Audit, who: Auditee, command: str) -> Iterator[Figure]:
    """The closest pairs.

    Yields:
        A grid, if there are samples that are pictures, or become such by decoding.
    """
    decode, originals = who.model.decode, who.images.train if who.pictures is None else who.pictures[0]
    if audit.samples is None or (who.bounds is None and decode is None) or originals.shape[1] not in (1, 3):
        return
    for heading, quantity, caption in (
        ("Samples named as copies", "copy", "Each column is a sample above the training image that it is a copy of."),
        (
            "The samples most like one training image",
            "closest",
            "Each column is a sample above its nearest training image; the smaller the quotient of the distances to the "
            "nearest and to the next, the more it is that image and no other. Some are always closest: that alone is no "
            "copying.",
        ),
    ):
        best: dict[int, Record] = {}  # of each training image, lest one of them fill the grid
        for record in sorted(audit.find(quantity), key=_quotient):
            best.setdefault(record["image"], record)
        chosen = list(best.values())[:_PAIRS]
        if chosen:
            samples = as_tensor(audit.samples)[[record["sample"] for record in chosen]]
            images = as_tensor(originals)[[record["image"] for record in chosen]]
            rows = [_as_pixels(samples if decode is None else decode(samples)), _as_pixels(images)]
            yield ImageGrid(
                title=heading,
                caption=caption,
                command=command,
                rows=("sample", "training image"),
                columns=tuple(_told(record) for record in chosen),
                images=np.stack(rows),
            )


def _as_pixels(images: Tensor) -> NDArray[Any]:
    pixels: NDArray[Any] = (images if images.dtype.itemsize == 1 else quantize(images)).cpu().numpy()
    return pixels


def _quotient(record: Record) -> float:
    return float(record["ratio"] if "ratio" in record else record["value"])


def _told(record: Record) -> str:
    changed = record["transformation"]
    return f"{_quotient(record):.2f}" + ("" if changed == str(Transformation()) else f", {changed}")


def _series(
    name: str, records: list[Record], *, dashed: bool = False, within: tuple[float, float] = (-math.inf, math.inf)
) -> Series:
    """A line over noise levels; what lies beyond the ends of `within` is drawn at them."""
    ordered = sorted(records, key=lambda record: record["sigma"])
    columns = [[record.get(part) for record in ordered] for part in ("sigma", "value", "low", "high")]
    least, most = within
    columns[1:] = [[None if v is None else min(max(v, least), most) for v in column] for column in columns[1:]]
    return Series(name, columns[0], columns[1], columns[2], columns[3], dashed=dashed)
