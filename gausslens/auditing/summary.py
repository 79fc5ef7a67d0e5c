"""What an audit says: the answer to both questions in one sentence, what to do, a short table, and everything as JSON."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import gausslens

from ..store.records import Record
from .evidence import DISTANCES, estimate_of
from .thresholds import THRESHOLDS
from .verdict import GENERALIZING, MEMORIZING, PARTLY, SUSPECT, least_copy_p, percent, percent_interval

if TYPE_CHECKING:
    from .audit import Audit

SCHEMA = "gausslens-audit/2"
"""Name and version of what `as_json` writes; a field that goes or changes its meaning raises the version."""

_WIDTH = 100
_LISTED = 5  # originals in a row of the table
_KINDS = ("stage", "quantity")
_LEAKS = f"above {THRESHOLDS['auc'].value} for certain it would count as a leak"


def headline(audit: "Audit") -> str:
    """The verdict, what comes out of the model, and what is inside, in one sentence."""
    leaks = audit.verdict.leaks
    joined = ", but " if audit.verdict.verdict == GENERALIZING and leaks else "; "
    return f"{sentence(audit.verdict.verdict)}: {_copying(audit)}{joined}{_membership(audit)}."


def _copying(audit: "Audit") -> str:
    share, originals = audit.first("copied_share"), audit.find("copied_original")
    if share is None:
        return "samples were not examined" if audit.samples is None else "copies cannot be told from likenesses"
    among = f"{percent(share['value'])} of {share['count']:,} samples"
    said = []
    if originals:
        said.append(f"{among} copy {len(originals):,} of the {audit.n_train:,} training images")
    elif audit.evidence.value("copies_exist"):
        said.append(f"{among} pass as copies, and none can be named")
    if parts := [record["window"] for record in audit.find("copied_part")]:
        said.append(f"{'others' if said else 'samples'} copy parts of training images ({', '.join(parts)})")
    return ", and ".join(said) or f"{_suspicion(audit)} among {share['count']:,} samples{_missed(audit)}"


def _suspicion(audit: "Audit") -> str:
    """What is to be said of copies where none exist for certain."""
    if audit.evidence.value("overlap_decides"):
        return "copies cannot be told from images that recur"
    if audit.find("undecided_copies"):
        return "copies of repeated images cannot be told from commonplace images"
    if least_copy_p(audit.evidence) <= SUSPECT:
        return "copies are suspected, but not certain,"
    return "no copies were found"


def _missed(audit: "Audit") -> str:
    """What the audit would have found, to be said where it found nothing."""
    counts = smallest_counts(audit)
    known = [count for kind, count in counts.items() if count is not None and kind != "repeated"]
    told = f"{max(known):,} would have been noticed" if known else "not even many would have been noticed"
    if "repeated" in counts:
        repeated = counts["repeated"]
        told += f"; of images that stand there repeatedly, {'no number' if repeated is None else f'{repeated:,}'}"
    return f" ({told})"


def smallest_counts(audit: "Audit") -> dict[str, int | None]:
    """The smallest number of copies that this audit would have found, by how they are spread."""
    return {record["kind"]: record["value"] for record in audit.find("smallest_count")}


def _membership(audit: "Audit") -> str:
    aucs = audit.find("auc")
    if audit.verdict.leaks is None or not aucs:
        return "whether it leaks membership cannot be told"
    value = f"AUC {_number(_greatest(aucs))}"
    if audit.verdict.leaks:
        return f"its losses give training images away ({value})"
    return f"its losses do not give training images away ({value}; {_LEAKS})"


def advice(audit: "Audit") -> str:
    """What to do, for whoever trained the model in whatever way."""
    verdict, leaks = audit.verdict.verdict, audit.verdict.leaks
    named = audit.find("copied_original") or audit.find("copied_part")
    if verdict == MEMORIZING:
        said = ["Do not publish samples that must not show training images.", _train_otherwise(audit)]
    elif verdict == PARTLY and named:
        look = "Look at the copies that are named, and keep such samples back where training images must not be shown."
        said = [look, _repeats(audit) or _train_otherwise(audit)]
    elif verdict == PARTLY:
        said = [_train_otherwise(audit)]
    elif verdict == GENERALIZING:
        said = ["Nothing needs to be done about copies." if leaks else "Nothing needs to be done."]
        if audit.samples is None:
            said.append("Samples were not examined, so copies among them may have been missed: audit with --samples.")
    else:
        said = [_put_right(audit)]
    if leaks:
        said.append(
            "Whoever has the model can tell that it was trained on certain images; if that must stay private, keep the "
            "model private, too."
        )
    return " ".join(said)


def _train_otherwise(audit: "Audit") -> str:
    monitor = (
        "`gausslens train --monitor` says"
        if audit.is_run
        else "`gausslens.GeneralizationMonitor` says in any training loop"
    )
    return (
        "Train on more images, stop earlier, or take a smaller network: `gausslens how-many` says how many images it takes, "
        f"{monitor} when to stop."
    )


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
    if audit.evidence.refused:
        return (
            "Name held-out images that were drawn from the same source as the training images and prepared alike, such as "
            "the last images of the same set if they were left out of training (--unseen), and audit again."
        )
    if audit.find("undecided_copies"):
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
    """The most telling numbers: name, value, and what to compare it with."""
    yield from _copying_rows(audit)
    yield from _membership_rows(audit)
    yield from _model_rows(audit)
    beside = audit.first("frechet_held_out")
    for name, quantity, note in (
        ("Fréchet distance of features", "frechet", f"of held-out images {_number(beside) if beside else 'unknown'}"),
        ("MiFID of features", "mifid", "like the Fréchet distance, far larger if samples are copies"),
        ("copies by features", "copied_share_features", "features nearer than a third of the next; decides nothing"),
        ("novelty of features, relative GL", "relative_gl_features", "1 is as new as held-out images"),
        ("p of the two-set test of features", "two_set_p_features", "beside that of pixels; decides nothing"),
    ):
        for record in audit.find(quantity):
            yield name, _number(record), note


def _copying_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    beside = [
        f"{name} {percent(record['value'])}"
        for name, quantity in (("real images", "real_share"), ("the Gaussian denoiser's samples", "gaussian_share"))
        for record in audit.find(quantity)
        if record["value"] is not None
    ]
    for record in audit.find("copied_share"):
        yield "copies among samples", _percent_interval(record), f"beside them: {', '.join(beside)}" * bool(beside)
    if originals := audit.find("copied_original"):
        named = [f"image {record['image']} ({record['value']:,} times)" for record in originals[:_LISTED]]
        yield "training images copied", f"{len(originals):,}", f"most often {', '.join(named)}"
    for record in audit.find("copied_class"):
        yield f"copies of class {record['label']}", _percent_interval(record), f"of {record['count']:,} samples of it"
    for record in audit.find("copied_part"):
        yield f"copied: {record['window']}", f"{record['value']:,}", f"of {record['count']:,} samples"
    for kind, which in (
        ("spread", "different images"),
        ("concentrated", "one image"),
        ("repeated", "a repeated image"),
    ):
        for record in audit.find("smallest_count", kind=kind):
            value = "none" if record["value"] is None else f"{record['value']:,} of {record['count']:,}"
            yield f"copies noticed, of {which}", value, "the fewest among the samples that this audit would have found"
    for record in audit.find("relative_gl"):
        yield "novelty of samples", _number(record), "distance to training images, 1 is that of held-out images"
    if repeated := audit.evidence.value("train_duplicates"):
        yield "repeated training images", f"{repeated:,}", "what stands there twice is learned twice"


def _membership_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    if overlap := audit.evidence.value("overlap"):
        yield "held-out images not new", f"{overlap:,}", "they repeat or belong to training images; left out"
    if audit.evidence.refused:
        yield "membership", "cannot be told", "the two sets differ, and losses on them would differ anyway"
        return
    lean = audit.verdict.lean
    if lean is not None:
        limit = THRESHOLDS["generalizing"].value
        note = f"at σ = {audit.verdict.sigma:.3g}; 0 none, 1 a copier; above {limit} for certain is not generalizing"
        yield "lean toward training images", f"{lean.value:.2f} [{lean.low:.2f}, {lean.high:.2f}]", note
    if aucs := audit.find("auc"):
        auc, filters = _greatest(aucs), audit.first("filter_auc")
        beside = "" if filters is None else f"; the Gaussian denoiser's {_number(filters)}"
        at = f"at σ = {auc['sigma']:.3g}"
        yield "AUC of the loss", _number(auc), f"{at}; .5 tells nothing{beside}"
        for record in audit.find("memory_share", sigma=auc["sigma"]):
            yield "loss lower on training images", _percent_interval(record), f"than on held-out ones, {at}"
        for rate, name in ((0.01, "1 %"), (0.001, "0.1 %")):
            for record in audit.find("tpr", sigma=auc["sigma"], false_positive_rate=rate):
                yield f"recognised at {name} false alarms", _percent_interval(record), "of the training images"
    for record in audit.find("leaking"):
        if record["value"] and audit.verdict.leaks is not None:  # of sets that differ the losses name nobody
            note = f"of {record['count']:,} examined, a tenth of them wrong at most"
            yield "images that leak, by name", f"{record['value']:,}", note


def _model_rows(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    """Distances at the level of the lean, or where both references are furthest apart of the levels that decide."""
    decisive, lean = audit.evidence.where("window"), audit.verdict.lean
    apart = audit.find("rmse", **DISTANCES["references"])
    apart = [record for record in apart if record["sigma"] in decisive] or apart
    if apart:
        leaning = lean is not None and lean.low > THRESHOLDS["generalizing"].value
        sigma = audit.verdict.sigma if leaning else _greatest(apart)["sigma"]
        beside = "".join(f"; between the two {_number(record)}" for record in apart if record["sigma"] == sigma)
        for name, which in (("the Gaussian", "gaussian"), ("multi-delta", "multidelta")):
            for record in audit.find("rmse", **DISTANCES[which], sigma=sigma):
                yield f"distance to {name}", _number(record), f"RMSE at σ = {sigma:.3g}{beside}"
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
        return [{name: told for name, told in row.items() if name not in _KINDS} for row in evidence.find(quantity)]

    told: dict[str, Any] = {
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
            "real_share": estimate("real_share"),
            "gaussian_share": estimate("gaussian_share"),
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
    return json.dumps(told, indent=1)


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
