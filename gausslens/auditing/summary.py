"""What an audit says: the answer to both questions in one sentence, what to do, a short table, and everything as JSON."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import gausslens

from ..store.records import Record
from .evidence import DISTANCES, estimate_of
from .thresholds import THRESHOLDS, limit
from .verdict import GENERALIZING, MEMORIZING, PARTLY, SUSPECT, least_copy_p, percent, percent_interval

if TYPE_CHECKING:
    from .audit import Audit

SCHEMA = "gausslens-audit/2"
"""Name and version of what `as_json` writes; a field that goes or changes its meaning raises the version."""

_WIDTH = 100
_LISTED = 5  # originals in a row of the table
_KINDS = ("stage", "quantity")


def headline(audit: "Audit") -> str:
    """The verdict, what comes out of the model, and what is inside, in one sentence."""
    joined = ", but " if audit.verdict.verdict == GENERALIZING and audit.verdict.leaks else "; "
    return f"{sentence(audit.verdict.verdict)}: {_copying(audit)}{joined}{_membership(audit)}."


def _copying(audit: "Audit") -> str:
    share, originals = audit.first("copied_share"), audit.find("copied_original")
    if share is None:
        return "samples were not examined" if audit.samples is None else "copies cannot be identified"
    among = f"{percent(share['value'])} of {share['count']:,} samples"
    said = []
    if originals:
        said.append(f"{among} copy {len(originals):,} of the {audit.n_train:,} training images")
    elif audit.evidence.value("copies_exist"):
        said.append(f"{among} pass as copies, but none can be named")
    if parts := [record["window"] for record in audit.find("copied_part")]:
        said.append(f"{'others' if said else 'samples'} copy parts of training images ({', '.join(parts)})")
    return ", and ".join(said) or f"{_suspicion(audit)} among {share['count']:,} samples ({_detectable(audit)})"


def _suspicion(audit: "Audit") -> str:
    """What is to be said of copies where none exist for certain."""
    if audit.evidence.value("overlap_decides"):
        return "copies cannot be distinguished from images that recur"
    if audit.find("undecided_copies"):
        return "copies of repeated training images cannot be distinguished from images that are common"
    if least_copy_p(audit.evidence) <= SUSPECT:
        return "copies are suspected, but not certain,"
    return (
        "no significant number of copies was found" if audit.evidence.value("copied_share") else "no copies were found"
    )


def _detectable(audit: "Audit") -> str:
    """What the audit would have found, to be said where it found nothing."""
    counts = smallest_counts(audit)
    known = [count for kind, count in counts.items() if count is not None and kind != "repeated"]
    detected = (
        f"{max(known):,} copies would have been detected" if known else "no number of copies would have been detected"
    )
    if "repeated" in counts:
        repeated = counts["repeated"]
        number = "no number" if repeated is None else f"{repeated:,}"
        detected += f"; of repeated training images, {number}"
    return detected


def smallest_counts(audit: "Audit") -> dict[str, int | None]:
    """The smallest number of copies that this audit would have found, by how they are spread."""
    return {record["kind"]: record["value"] for record in audit.find("smallest_count")}


def _membership(audit: "Audit") -> str:
    aucs, leaks = audit.find("auc"), audit.verdict.leaks
    if leaks is None or not aucs:
        return "whether it leaks membership cannot be judged"
    auc = f"AUC {_number(_greatest(aucs))}"
    if leaks:
        rates = audit.find("tpr", false_positive_rate=0.01)
        rate = f"; {percent(_greatest(rates)['value'])} recognised at 1 % false positives" if rates else ""
        return f"its losses reveal which images it was trained on ({auc}{rate})"
    but = f", except for {_revealed(audit):,} images" if _revealed(audit) else ""
    clear = f"a leak is an AUC clearly above {limit('auc')}"
    return f"its losses do not clearly reveal which images it was trained on{but} ({auc}; {clear})"


def _revealed(audit: "Audit") -> int:
    """How many training images leak by name; none if the losses of the two sets cannot be compared."""
    return 0 if audit.verdict.leaks is None else audit.evidence.value("leaking") or 0


def advice(audit: "Audit") -> str:
    """What to do, for whoever trained the model in whatever way."""
    verdict, reveals = audit.verdict.verdict, audit.verdict.leaks or _revealed(audit)
    if verdict == MEMORIZING:
        said = ["Do not publish samples if training images must not be shown.", _train_otherwise(audit)]
    elif verdict == PARTLY and (audit.find("copied_original") or audit.find("copied_part")):
        look = "Look at the named copies, and withhold such samples if training images must not be shown."
        said = [look, _repeats(audit) or _train_otherwise(audit)]
    elif verdict == PARTLY:
        said = [_train_otherwise(audit)]
    elif verdict == GENERALIZING:
        said = ["Nothing needs to be done about copies." if reveals else "Nothing needs to be done."]
        if audit.samples is None:
            said.append("Samples were not examined, so copies among them may have been missed: audit with --samples.")
    else:
        said = [_correction(audit)]
    if reveals:
        said.append(
            "Anyone who has the model can detect that it was trained on certain images. If that must stay private, keep the "
            "model private, too."
        )
    return " ".join(said)


def _train_otherwise(audit: "Audit") -> str:
    monitor = (
        "`gausslens train --monitor`" if audit.is_run else "`gausslens.GeneralizationMonitor` in any training loop"
    )
    return (
        "Train on more images, stop earlier, or use a smaller network. `gausslens how-many` estimates how many images are "
        f"enough. {monitor} shows when to stop."
    )


def _repeats(audit: "Audit") -> str | None:
    """What to do about copied images that occur in the training set repeatedly."""
    repeats = [record["repeats"] for record in audit.find("copied_original")]
    often = [count for count in repeats if count > 1]
    if 2 * len(often) <= len(repeats):
        return None
    return (
        f"{len(often):,} of the {len(repeats):,} copied images occur in the training set more than once, up to "
        f"{max(often):,} times: remove the repeats and train again."
    )


def _correction(audit: "Audit") -> str:
    """What to do about a verdict of "cannot tell"."""
    if audit.evidence.refused:
        return (
            "Choose held-out images that were drawn from the same source as the training images, prepared in the same way "
            "and left out of training, such as the last images of the same set (--unseen). Then audit again."
        )
    if audit.find("undecided_copies"):
        return (
            "Look at the samples that are most like one training image. Give more held-out images (--held-out or --unseen), "
            "or remove repeated images from the training set and train again. Then audit again."
        )
    if not audit.n_held_out:
        return "Give images of the same source that the model has not seen (--held-out or --unseen), and audit again."
    return "Correct what the first reason names, and audit again."


def sentence(reason: str) -> str:
    """A reason with a capital letter."""
    return reason[:1].upper() + reason[1:]


def image_counts(audit: "Audit") -> str:
    """How many images there are of either set."""
    unseen = f"{audit.n_held_out:,} held-out" if audit.n_held_out else "no held-out"
    return f"{audit.n_train:,} training and {unseen} images"


def format_text(audit: "Audit") -> str:
    """The audit for a terminal: the answer, reasons, what to do, and a short table."""
    lines = [f"{audit.model} on {audit.data}: {image_counts(audit)}", "", *textwrap.wrap(headline(audit), _WIDTH), ""]
    for reason in audit.verdict.reasons:
        lines += textwrap.wrap(sentence(reason), _WIDTH, initial_indent="  - ", subsequent_indent="    ")
    lines += ["", *textwrap.wrap(advice(audit), _WIDTH), ""]
    rows = list(summary(audit))
    wide, long = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    lines += [f"{name:{wide}}  {value:{long}}  {note}".rstrip() for name, value, note in rows]
    return "\n".join(lines)


def summary(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    """The most informative numbers: name, value, and what to compare it with."""
    yield from _copying_rows(audit)
    yield from _membership_rows(audit)
    yield from _model_rows(audit)
    held_out = audit.first("frechet_held_out")
    unseen = "unknown" if held_out is None else _number(held_out)
    for name, quantity, note in (
        ("Fréchet distance of features", "frechet", f"of held-out images {unseen}"),
        ("MiFID of features", "mifid", "like the Fréchet distance, but far larger if samples are copies"),
        ("copies by features", "copied_share_features", "features nearer than a third of the next; decides nothing"),
        ("novelty of features, relative GL", "relative_gl_features", "1 is as new as held-out images"),
        ("p of the two-set test of features", "two_set_p_features", "like that of pixels; decides nothing"),
    ):
        for record in audit.find(quantity):
            yield name, _number(record), note


def _copying_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    controls = [
        f"{name} {percent(record['value'])}"
        for name, quantity in (("real images", "real_share"), ("samples of the Gaussian denoiser", "gaussian_share"))
        for record in audit.find(quantity)
        if record["value"] is not None
    ]
    for record in audit.find("copied_share"):
        yield "copies among samples", _percent_interval(record), f"controls: {', '.join(controls)}" * bool(controls)
    if originals := audit.find("copied_original"):
        named = [f"image {record['image']} ({record['value']:,} times)" for record in originals[:_LISTED]]
        yield "training images copied", f"{len(originals):,}", f"most often {', '.join(named)}"
    for record in audit.find("copied_class"):
        yield f"copies of class {record['label']}", _percent_interval(record), f"of {record['count']:,} samples of it"
    for record in audit.find("copied_part"):
        yield f"copied: {record['window']}", f"{record['value']:,}", f"of {record['count']:,} samples"
    images = {"spread": "different images", "concentrated": "one image", "repeated": "a repeated image"}
    for kind, which in images.items():
        for record in audit.find("smallest_count", kind=kind):
            value = "none" if record["value"] is None else f"{record['value']:,} of {record['count']:,}"
            yield f"detectable copies of {which}", value, "the smallest number that this audit would have detected"
    for record in audit.find("relative_gl"):
        yield "novelty of samples", _number(record), "distance to training images; 1 is that of held-out images"
    if repeated := audit.evidence.value("train_duplicates"):
        yield "repeated training images", f"{repeated:,}", "the model sees repeated images more often"


def _membership_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    if overlap := audit.evidence.value("overlap"):
        yield "held-out images not new", f"{overlap:,}", "they repeat or belong to training images; left out"
    if audit.evidence.refused:
        yield "membership", "cannot be judged", "losses on these two sets cannot be compared"
        return
    lean = audit.verdict.lean
    if lean is not None:
        note = f"at σ = {audit.verdict.sigma:.3g}; 1 is a copier; clearly above {limit('generalizing')} is not generalizing"
        yield "lean toward training images", f"{lean.value:.2f} [{lean.low:.2f}, {lean.high:.2f}]", note
    if aucs := audit.find("auc"):
        auc, filters = _greatest(aucs), audit.first("filter_auc")
        control = "" if filters is None else f"; the Gaussian denoiser has {_number(filters)}"
        at = f"at σ = {auc['sigma']:.3g}"
        yield "AUC of the loss", _number(auc), f"{at}; 0.5 is chance{control}"
        for record in audit.find("memory_share", sigma=auc["sigma"]):
            yield "loss lower on training images", _percent_interval(record), f"than on held-out images, {at}"
        for rate, name in ((0.01, "1 %"), (0.001, "0.1 %")):
            for record in audit.find("tpr", sigma=auc["sigma"], false_positive_rate=rate):
                yield f"recognised at {name} false positives", _percent_interval(record), "of the training images"
    if revealed := _revealed(audit):
        note = f"of {audit.find('leaking')[0]['count']:,} examined; expect up to a tenth of the names to be wrong"
        yield "images that leak, by name", f"{revealed:,}", note


def _model_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    """Distances at the level of the lean, or where both references are furthest apart of the levels that decide."""
    decisive, lean = audit.evidence.where("window"), audit.verdict.lean
    apart = audit.find("rmse", **DISTANCES["references"])
    apart = [record for record in apart if record["sigma"] in decisive] or apart
    if apart:
        leaning = lean is not None and lean.low > limit("generalizing")
        sigma = audit.verdict.sigma if leaning else _greatest(apart)["sigma"]
        between = "".join(f"; between the two {_number(record)}" for record in apart if record["sigma"] == sigma)
        for name, which in (("the Gaussian", "gaussian"), ("multi-delta", "multidelta")):
            for record in audit.find("rmse", **DISTANCES[which], sigma=sigma):
                yield f"distance to {name}", _number(record), f"RMSE at σ = {sigma:.3g}{between}"
    if linear := audit.find("linearity", denoiser="network"):
        least = min(linear, key=lambda record: record["value"])
        yield "affine linearity, least", _number(least), f"at σ = {least['sigma']:.3g}; 1 is an affine map"


def as_json(audit: "Audit", *, page: str | None = None) -> str:
    """Everything, for programs; see `SCHEMA`."""
    verdict, lean, evidence = audit.verdict, audit.verdict.lean, audit.evidence

    def estimate(quantity: str) -> Record | None:
        record = evidence.first(quantity)
        return record and {name: record.get(name) for name in ("value", "low", "high", "count")}

    def rows(quantity: str) -> list[Record]:
        return [{name: value for name, value in row.items() if name not in _KINDS} for row in evidence.find(quantity)]

    content: dict[str, Any] = {
        "schema": SCHEMA,
        "gausslens": gausslens.__version__,
        **{name: getattr(audit, name) for name in ("model", "data", "n_train", "n_held_out")},
        "verdict": verdict.verdict,
        "headline": headline(audit),
        "reasons": [sentence(reason) for reason in verdict.reasons],
        "advice": advice(audit),
        "page": page,
        "copying": {
            "exist": evidence.value("copies_exist"),
            "share": estimate("copied_share"),
            **{name: estimate(name) for name in ("real_share", "gaussian_share")},
            "originals": rows("copied_original"),
            "parts": [record["window"] for record in evidence.find("copied_part")],
            "classes": [record["label"] for record in evidence.find("copied_class")],
            "smallest_count": smallest_counts(audit),
            "copies": rows("copy"),
        },
        "membership": {
            "leaks": verdict.leaks,
            "refused": evidence.refused and sentence(evidence.refused),
            "lean": lean and {**asdict(lean), "sigma": verdict.sigma},
            "auc": rows("auc"),
            "tpr": rows("tpr"),
            "leaking_images": [] if verdict.leaks is None else [one["value"] for one in evidence.find("leaking_image")],
        },
        "thresholds": {name: threshold._asdict() for name, threshold in THRESHOLDS.items()},
        "records": audit.records,
    }
    return json.dumps(content, indent=1)


def _greatest(records: list[Record]) -> Record:
    return max(records, key=lambda record: record["value"])


def _number(record: Record) -> str:
    if record["value"] is None:
        return "undefined"
    ends = record.get("low"), record.get("high")
    interval = "" if None in ends else f" [{ends[0]:.3g}, {ends[1]:.3g}]"
    return f"{record['value']:.3g}{interval}"


def _percent_interval(record: Record) -> str:
    return "undefined" if record["value"] is None else percent_interval(estimate_of(record))
