"""What an audit says: the answer to both questions in one sentence, what to do, a short table, and everything as JSON."""

import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gausslens

from ..store.records import Record
from .evidence import DISTANCES
from .thresholds import THRESHOLDS
from .verdict import GENERALIZING, MEMORIZING, PARTLY, SUSPECT, least_copy_p

if TYPE_CHECKING:
    from .audit import Audit

SCHEMA = "gausslens-audit/2"
"""Name and version of what `as_json` writes; a field that goes or changes its meaning raises the version."""

_WIDTH = 100
_LISTED = 5  # originals in a row of the table


def headline(audit: "Audit") -> str:
    """The verdict, what comes out of the model, and what is inside, in one sentence."""
    leaks = audit.verdict.leaks
    joined = ", but " if audit.verdict.verdict == GENERALIZING and leaks else "; "
    return f"{sentence(audit.verdict.verdict)}: {_copying(audit)}{joined}{_membership(audit)}."


def _copying(audit: "Audit") -> str:
    share, originals = audit.first("copied_share"), audit.find("copied_original")
    if share is None:
        return "samples were not examined" if audit.samples is None else "copies cannot be told from likenesses"
    parts = [record["window"] for record in audit.find("copied_part")]
    said = []
    if originals:
        said.append(
            f"{_percent(share['value'])} of {share['count']:,} samples copy {len(originals):,} of the {audit.n_train:,} "
            f"training images"
        )
    exist = audit.first("copies_exist")
    if exist is not None and exist["value"] and not originals:
        said.append(f"{_percent(share['value'])} of {share['count']:,} samples pass as copies, and none can be named")
    if parts:
        subject = "others" if said else "samples"
        said.append(f"{subject} copy parts of training images ({', '.join(parts)})")
    return ", and ".join(said) or f"{_suspicion(audit)} among {share['count']:,} samples{_missed(audit)}"


def _suspicion(audit: "Audit") -> str:
    """What is to be said of copies where none exist for certain."""
    overlap = audit.first("overlap_decides")
    if overlap is not None and overlap["value"]:
        return "copies cannot be told from images that recur"
    if audit.first("undecided_copies") is not None:
        return "copies of repeated images cannot be told from commonplace images"
    if least_copy_p(audit.evidence) <= SUSPECT:
        return "copies are suspected, but not certain,"
    return "no copies were found"


def _missed(audit: "Audit") -> str:
    """What the audit would have found, to be said where it found nothing."""
    counts = {record["kind"]: record["value"] for record in audit.find("smallest_count")}
    known = [count for kind, count in counts.items() if count is not None and kind != "repeated"]
    told = f"{max(known):,} would have been noticed" if known else "not even many would have been noticed"
    if "repeated" in counts:
        repeated = counts["repeated"]
        told += f"; of images that stand there repeatedly, {'no number' if repeated is None else f'{repeated:,}'}"
    return f" ({told})"


def _membership(audit: "Audit") -> str:
    aucs = audit.find("auc")
    if audit.verdict.leaks is None or not aucs:
        return "whether it leaks membership cannot be told"
    auc = max(aucs, key=lambda record: record["value"])
    value = f"AUC {_number(auc)}"
    if audit.verdict.leaks:
        return f"its losses give training images away ({value})"
    return f"its losses do not give training images away by our limits ({value})"


def advice(audit: "Audit") -> str:
    """What to do, for whoever trained the model in whatever way."""
    verdict = audit.verdict
    said = []
    if verdict.verdict == MEMORIZING:
        said += ["Do not publish samples that must not show training images.", _train_otherwise(audit)]
    elif verdict.verdict == PARTLY and (audit.find("copied_original") or audit.find("copied_part")):
        said.append(
            "Look at the copies that are named, and keep such samples back where training images must not be shown."
        )
        said.append(_repeats(audit) or _train_otherwise(audit))
    elif verdict.verdict == PARTLY:
        said.append(_train_otherwise(audit))
    elif verdict.verdict == GENERALIZING:
        said.append("Nothing needs to be done about copies." if verdict.leaks else "Nothing needs to be done.")
        if audit.samples is None:
            said.append("Samples were not examined, so copies among them may have been missed: audit with --samples.")
    else:
        said.append(_put_right(audit))
    if verdict.leaks:
        said.append(
            "Whoever has the model can tell that it was trained on certain images; if that must stay private, keep the "
            "model private, too."
        )
    return " ".join(said)


def _train_otherwise(audit: "Audit") -> str:
    watch = (
        "`gausslens train --monitor` says when to stop"
        if audit.is_run
        else "`gausslens.GeneralizationMonitor` says in any training loop when to stop"
    )
    more = "`gausslens how-many` says how many images it takes"
    return f"Train on more images, stop earlier, or take a smaller network: {more}, {watch}."


def _repeats(audit: "Audit") -> str | None:
    """What to do about copied images that stand in the training set repeatedly."""
    repeats = [record["repeats"] for record in audit.find("copied_original")]
    often = [count for count in repeats if count > 1]
    if 2 * len(often) <= len(repeats):
        return None
    return (
        f"{len(often):,} of the {len(repeats):,} copied images stand in the training set up to {max(often):,} times: remove "
        "the repeats and train again."
    )


def _put_right(audit: "Audit") -> str:
    refused = audit.first("refused")
    if refused is not None:
        return (
            "Name held-out images that were drawn from the same source as the training images and prepared alike, such as "
            "the last images of the same set if they were left out of training (--unseen), and audit again."
        )
    if audit.first("undecided_copies") is not None:
        return (
            "Look at the samples that are most like one training image. Name more held-out images (--held-out or "
            "--unseen), or take repeated images out of the training set and train again. Then audit again."
        )
    if not audit.n_held_out:
        return "Name images of the same source that the model has not seen (--held-out or --unseen), and audit again."
    return "Put right what the reason names, and audit again."


def sentence(reason: str) -> str:
    """A reason with a capital letter."""
    return reason[:1].upper() + reason[1:]


def format_text(audit: "Audit") -> str:
    """The audit for a terminal: the answer, reasons, what to do, and a short table."""
    unseen = f"{audit.n_held_out:,} held-out" if audit.n_held_out else "no held-out"
    head = f"{audit.model} on {audit.data}: {audit.n_train:,} training and {unseen} images"
    lines = [head, "", *textwrap.wrap(headline(audit), _WIDTH), ""]
    for reason in audit.verdict.reasons:
        lines += textwrap.wrap(sentence(reason), _WIDTH, initial_indent="  - ", subsequent_indent="    ")
    lines += ["", *textwrap.wrap(advice(audit), _WIDTH), ""]
    rows = list(summary(audit))
    wide, long = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    lines += [f"{name:{wide}}  {value:{long}}  {note}".rstrip() for name, value, note in rows]
    return "\n".join(lines)


def summary(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    """The most telling numbers: name, value, and what to compare it with."""
    yield from _copying_rows(audit)
    yield from _membership_rows(audit)
    yield from _model_rows(audit)
    for name, quantity, note in (
        ("Fréchet distance of features", "frechet", f"of held-out images {_single(audit, 'frechet_held_out')}"),
        ("MiFID of features", "mifid", "like the Fréchet distance, far larger if samples are copies"),
        ("copies by features", "copied_share_features", "features nearer than a third of the next; decides nothing"),
        ("novelty of features, relative GL", "relative_gl_features", "1 is as new as held-out images"),
        ("p of the two-set test of features", "two_set_p_features", "beside that of pixels; decides nothing"),
    ):
        for record in audit.find(quantity):
            yield name, _number(record), note


def _copying_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    share = audit.first("copied_share")
    if share is not None:
        beside = [
            f"{name} {_percent(record['value'])}"
            for name, record in (
                ("real images", audit.first("real_share")),
                ("the Gaussian denoiser's samples", audit.first("gaussian_share")),
            )
            if record is not None and record["value"] is not None
        ]
        yield "copies among samples", _percent_interval(share), f"beside them: {', '.join(beside)}" if beside else ""
    originals = audit.find("copied_original")
    if originals:
        named = [f"image {record['image']} ({record['value']:,} times)" for record in originals[:_LISTED]]
        yield "training images copied", f"{len(originals):,}", f"most often {', '.join(named)}"
    for record in audit.find("copied_class"):
        yield f"copies of class {record['label']}", _percent_interval(record), f"of {record['count']:,} samples of it"
    for record in audit.find("copied_part"):
        yield f"copied: {record['window']}", f"{record['value']:,}", f"of {record['count']:,} samples"
    counts = {record["kind"]: record for record in audit.find("smallest_count")}
    for kind, name in (
        ("spread", "copies noticed, of different images"),
        ("concentrated", "copies noticed, of one image"),
        ("repeated", "copies noticed, of a repeated image"),
    ):
        if kind in counts:
            number = counts[kind]["value"]
            value = "none" if number is None else f"{number:,} of {counts[kind]['count']:,}"
            yield name, value, "the fewest among the samples that this audit would have found"
    for record in audit.find("relative_gl"):
        yield "novelty of samples", _number(record), "distance to training images, 1 is that of held-out images"
    for record in audit.find("train_duplicates"):
        if record["value"]:
            yield "repeated training images", f"{record['value']:,}", "what stands there twice is learned twice"


def _membership_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    for record in audit.find("overlap"):
        if record["value"]:
            yield (
                "held-out images not new",
                f"{record['value']:,}",
                "they repeat or belong to training images; left out",
            )
    if audit.first("refused") is not None:
        yield "membership", "cannot be told", "the two sets differ, and losses on them would differ anyway"
        return
    lean = audit.verdict.lean
    if lean is not None:
        limit = THRESHOLDS["generalizing"].value
        note = f"at σ = {audit.verdict.sigma:.3g}; 0 none, 1 a copier; above {limit} for certain is not generalizing"
        yield "lean toward training images", f"{lean.value:.2f} [{lean.low:.2f}, {lean.high:.2f}]", note
    aucs = audit.find("auc")
    if aucs:
        auc = max(aucs, key=lambda record: record["value"])
        filters = audit.first("filter_auc")
        beside = "" if filters is None else f"; the Gaussian denoiser's {_number(filters)}"
        yield "AUC of the loss", _number(auc), f"at σ = {auc['sigma']:.3g}; .5 tells nothing{beside}"
        for record in audit.find("memory_share", sigma=auc["sigma"]):
            yield (
                "loss lower on training images",
                _percent_interval(record),
                f"than on held-out ones, at σ = {auc['sigma']:.3g}",
            )
        for rate, name in ((0.01, "1 %"), (0.001, "0.1 %")):
            for record in audit.find("tpr", sigma=auc["sigma"], false_positive_rate=rate):
                yield f"recognised at {name} false alarms", _percent_interval(record), "of the training images"
    for record in audit.find("leaking"):
        if record["value"] and audit.verdict.leaks is not None:  # of sets that differ the losses name nobody
            yield (
                "images that leak, by name",
                f"{record['value']:,}",
                f"of {record['count']:,} examined, a tenth of them wrong at most",
            )


def _model_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    """Distances at the level of the lean, or where both references are furthest apart of the levels that decide."""
    decisive = {record["sigma"] for record in audit.find("window") if record["value"]}
    apart = audit.find("rmse", **DISTANCES["references"])
    apart = [record for record in apart if record["sigma"] in decisive] or apart
    if apart:
        widest = max(apart, key=lambda record: record["value"])["sigma"]
        leaning = audit.verdict.lean is not None and audit.verdict.lean.low > THRESHOLDS["generalizing"].value
        sigma = audit.verdict.sigma if leaning else widest
        between = next((record for record in apart if record["sigma"] == sigma), None)
        note = f"RMSE at σ = {sigma:.3g}" + ("" if between is None else f"; between the two {_number(between)}")
        for name, which in (("the Gaussian", "gaussian"), ("multi-delta", "multidelta")):
            for record in audit.find("rmse", **DISTANCES[which], sigma=sigma):
                yield f"distance to {name}", _number(record), note
    linear = audit.find("linearity", denoiser="network")
    if linear:
        least = min(linear, key=lambda record: record["value"])
        yield "affine linearity, least", _number(least), f"at σ = {least['sigma']:.3g}; 1 is an affine map"


def as_json(audit: "Audit", *, page: str | None = None) -> str:
    """Everything, for programs; see `SCHEMA`."""
    verdict, lean = audit.verdict, audit.verdict.lean
    refused, exist = audit.first("refused"), audit.first("copies_exist")
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "gausslens": gausslens.__version__,
        "model": audit.model,
        "data": audit.data,
        "n_train": audit.n_train,
        "n_held_out": audit.n_held_out,
        "verdict": verdict.verdict,
        "headline": headline(audit),
        "reasons": [sentence(reason) for reason in verdict.reasons],
        "advice": advice(audit),
        "page": page,
        "copying": {
            "exist": None if exist is None else exist["value"],
            "share": _estimate(audit.first("copied_share")),
            "real_share": _estimate(audit.first("real_share")),
            "gaussian_share": _estimate(audit.first("gaussian_share")),
            "originals": [_without(record, "stage", "quantity") for record in audit.find("copied_original")],
            "parts": [record["window"] for record in audit.find("copied_part")],
            "classes": [record["label"] for record in audit.find("copied_class")],
            "smallest_count": {record["kind"]: record["value"] for record in audit.find("smallest_count")},
            "copies": [_without(record, "stage", "quantity") for record in audit.find("copy")],
        },
        "membership": {
            "leaks": verdict.leaks,
            "refused": None if refused is None else sentence(refused["reason"]),
            "lean": None if lean is None else {**lean.__dict__, "sigma": verdict.sigma},
            "auc": [_without(record, "stage", "quantity") for record in audit.find("auc")],
            "tpr": [_without(record, "stage", "quantity") for record in audit.find("tpr")],
            "leaking_images": [] if verdict.leaks is None else [one["value"] for one in audit.find("leaking_image")],
        },
        "thresholds": {name: threshold._asdict() for name, threshold in THRESHOLDS.items()},
        "records": audit.records,
    }
    return json.dumps(told, indent=1)


def _number(record: Record) -> str:
    if record["value"] is None:
        return "undefined"
    ends = record.get("low"), record.get("high")
    interval = "" if None in ends else f" [{ends[0]:.3g}, {ends[1]:.3g}]"
    return f"{record['value']:.3g}{interval}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share in (0, 1) or share >= 0.001 else f"{100 * share:.2g} %"


def _percent_interval(record: Record) -> str:
    if record["value"] is None:
        return "undefined"
    ends = [100 * record[end] if record.get(end) is not None else float("nan") for end in ("low", "high")]
    return f"{_percent(record['value'])} [{ends[0]:.1f}, {ends[1]:.1f}]"


def _single(audit: "Audit", quantity: str) -> str:
    found = audit.first(quantity)
    return "unknown" if found is None else _number(found)


def _estimate(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else {name: record.get(name) for name in ("value", "low", "high", "count")}


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}
