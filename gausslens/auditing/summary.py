"""What an audit says: the verdict with its reasons, a short table, what to do, and everything as JSON."""

import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gausslens

from ..runs import Record
from .rules import CANNOT_TELL, GENERALIZING, IN_TRANSITION, MEMORIZING, THRESHOLDS

if TYPE_CHECKING:
    from .running import Audit

SCHEMA = "gausslens-audit/1"
"""Name and version of what `as_json` writes; a field that goes or changes its meaning raises the version."""

_WIDTH = 100
_SIGNIFICANT = 0.05  # of a sentence; no verdict rests on it
_TITLES = {
    MEMORIZING: "This model memorises its training images.",
    IN_TRANSITION: "This model is on the way from generalising to memorising.",
    CANNOT_TELL: "This audit cannot tell.",
}
_ADVICE = {
    MEMORIZING: "Do not publish samples that must not show training images. Train on more images, stop earlier, or take a "
    "narrower network: `gausslens how-many` says how many images this takes, `gausslens train --monitor` when to stop.",
    IN_TRANSITION: "Stop earlier or train on more images, and audit again; `gausslens train --monitor` says when to stop.",
    GENERALIZING: "Nothing needs to be done.",
    CANNOT_TELL: "Put right what the reason names, and audit again.",
}


def title(audit: "Audit") -> str:
    """The verdict in one sentence, which denies nothing that the numbers show: a model can depend and not copy."""
    if audit.verdict.verdict != GENERALIZING:
        return _TITLES[audit.verdict.verdict]
    if _copies_few(audit) or _resembles_few(audit):
        return "This model generalises, but look at its samples: some are much like one training image."
    if _tells_apart(audit):
        how = "it denoises its training images somewhat better than new ones, but is far from retrieving them"
    elif audit.verdict.lean is not None and audit.verdict.lean.low > 0:
        how = "it leans a little toward its training images, but is far from retrieving them"
    else:
        how = "nothing shows that it treats its training images otherwise than new ones"
    return f"This model generalises: {how}."


def advice(audit: "Audit") -> str:
    """What to do."""
    told = _ADVICE[audit.verdict.verdict]
    if audit.verdict.verdict != GENERALIZING:
        return told
    if _copies_few(audit):
        return (
            "Look at the copies that are named: there are more of them than by chance, though fewer than "
            f"{THRESHOLDS['some copies'].value:.0%} of the samples."
        )
    if _resembles_few(audit):
        return (
            "Look at the closest pairs: more samples than held-out images are three times nearer to one training image than "
            "to any other. They may copy a few images often, which the test for copies misses: it counts different ones."
        )
    if audit.find("detectable"):
        return f"{told} What this audit could have missed is said by its power, below."
    missed = "no sample was looked at" if audit.samples is None else "how many this audit would have found is not known"
    return f"{told} Copies among its samples may have been missed: {missed}."


def _tells_apart(audit: "Audit") -> bool:
    """Whether the loss is lower on training images at some level, more than by chance at as many levels as there are."""
    p_values = [record["value"] for record in audit.find("p_values")]
    return bool(p_values) and min(p_values) * len(p_values) <= _SIGNIFICANT


def _copies_few(audit: "Audit") -> bool:
    """Whether the copy test names copies that chance does not explain, too few for another verdict."""
    named, p = audit.find("copied_fraction"), audit.find("copy_p")
    return bool(named and p) and named[0]["value"] > 0 and p[0]["value"] <= THRESHOLDS["p"].value


def _resembles_few(audit: "Audit") -> bool:
    """Whether samples are like one training image beyond what new images are, without more copies than by chance."""
    own, unseen = audit.find("memorized_fraction"), audit.find("memorized_fraction_held_out")
    return bool(own and unseen) and own[0]["low"] > unseen[0]["high"]


def sentence(reason: str) -> str:
    """A reason with a capital letter."""
    return reason[:1].upper() + reason[1:]


def spoken(audit: "Audit") -> str:
    """The audit for a terminal: verdict, reasons, what to do, and a short table."""
    unseen = f"{audit.n_held_out:,} held-out" if audit.n_held_out else "no held-out"
    head = f"{audit.model} on {audit.data}: {audit.n_train:,} training and {unseen} images"
    lines = [head, "", f"{audit.verdict.verdict.upper()}. {title(audit)}"]
    for reason in audit.verdict.reasons:
        lines += textwrap.wrap(sentence(reason), _WIDTH, initial_indent="  - ", subsequent_indent="    ")
    lines += ["", *textwrap.wrap(advice(audit), _WIDTH), ""]
    rows = list(summary(audit))
    wide = max((len(name) for name, _, _ in rows), default=0)
    lines += [f"{name:{wide}}  {value:26}  {note}".rstrip() for name, value, note in rows]
    return "\n".join(lines)


def summary(audit: "Audit") -> Iterator[tuple[str, str, str]]:
    """The most telling numbers.

    Yields:
        What it is, the number with its 95 % interval, and what it is compared with.
    """
    verdict = audit.verdict
    if verdict.lean is not None and verdict.verdict != CANNOT_TELL:
        yield (
            "lean toward copying",
            str(verdict.lean),
            (
                f"at σ = {verdict.sigma:.3g}; 0 none, 1 perfect; below {THRESHOLDS['generalizing'].value} generalising, "
                f"from {THRESHOLDS['memorizing'].value} memorising"
            ),
        )
    for name, quantity, extreme, note in (
        ("AUC of the loss, greatest", "auc", max, "training against held-out images; .5 is no difference"),
        ("distance to the Gaussian", "distance_gaussian", max, "greatest RMSE over noise levels"),
        ("distance to multi-delta", "distance_multidelta", max, "greatest RMSE over noise levels"),
    ):
        found = audit.find(quantity)
        if found:
            chosen = extreme(found, key=lambda record: record["value"])
            yield name, _number(chosen), f"{note}; σ = {chosen['sigma']:.3g}"
    linear = audit.find("linearity", denoiser="network")
    if linear:
        least = min(linear, key=lambda record: record["value"])
        yield "affine linearity, least", _number(least), f"1 is an affine map; σ = {least['sigma']:.3g}"
    for name, quantity, note in (
        (
            *("samples much like one training image", "memorized_fraction"),
            f"nearer than a third of the next; of held-out images {_single(audit, 'memorized_fraction_held_out')}",
        ),
        ("samples named as copies", "copied_fraction", "two-set copy test"),
        ("novelty, relative GL", "relative_gl", "1 is as new as held-out images"),
        ("Fréchet distance of features", "frechet", f"that of held-out images is {_single(audit, 'frechet_held_out')}"),
        ("MiFID of features", "mifid", "as the Fréchet distance, but far larger if samples are copies"),
        ("features much like one image's", "memorized_fraction_features", "nearer than a third of the next"),
        ("novelty of features, relative GL", "relative_gl_features", "1 is as new as held-out images"),
        ("p of the copy test of features", "copy_p_features", "beside that of pixels, which decides"),
    ):
        for record in audit.find(quantity):
            yield name, _number(record), note
    for record in audit.find("copy_p"):
        yield "p of the copy test", f"{record['value']:.2g}", "chance alone; an alarm at .001 or below"
    for record in audit.find("detectable", probability=0.95, kind="noise 0.02"):
        if record["samples"]:  # else all are copies, and there is nothing to plant others among
            share = detectable(record)
            yield "copies this audit would find", share, f"smallest share found in 95 % of {record['count']} trials"
    repeated = [record["value"] for record in audit.find("train_duplicates") if record["value"]]
    for number in repeated:
        yield "repeated training images", str(number), "pairs; what occurs twice is learned twice"
    for record in audit.find("shared_duplicates"):
        if record["value"]:
            yield "held-out images trained on", str(record["value"]), "they repeat a training image: take them out"


def detectable(record: Record) -> str:
    """The smallest share of copies that would be found, or what was tried in vain."""
    return f"more than {record['tried']:.2%}" if record["value"] is None else f"{record['value']:.2%}"


def as_json(audit: "Audit") -> str:
    """Everything, for programs; see `SCHEMA`."""
    verdict, lean = audit.verdict, audit.verdict.lean
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "gausslens": gausslens.__version__,
        "model": audit.model,
        "data": audit.data,
        "n_train": audit.n_train,
        "n_held_out": audit.n_held_out,
        "verdict": verdict.verdict,
        "reasons": list(verdict.reasons),
        "advice": advice(audit),
        "lean": None
        if lean is None
        else {"value": lean.value, "low": lean.low, "high": lean.high, "sigma": verdict.sigma},
        "thresholds": {name: threshold._asdict() for name, threshold in THRESHOLDS.items()},
        "copies": [_without(record, "stage", "quantity") for record in audit.find("copy")],
        "records": audit.records,
    }
    return json.dumps(told, indent=1)


def _number(record: Record) -> str:
    if record["value"] is None:
        return "undefined"
    ends = record.get("low"), record.get("high")
    interval = "" if None in ends else f" [{ends[0]:.3g}, {ends[1]:.3g}]"
    return f"{record['value']:.3g}{interval}"


def _single(audit: "Audit", quantity: str) -> str:
    found = audit.find(quantity)
    return _number(found[0]) if found else "unknown"


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}
