"""The verdict: memorizing, partly memorizing, generalizing or cannot tell, by stated rules from measured numbers.

Two questions are answered apart: what comes out of the model (copying), and what is inside (membership). The first rule that
applies gives the verdict:

1. *Cannot tell* if the images look foreign to the model, if it denoises held-out images better than training images, or if
   it falls behind a linear filter on training images at most intermediate noise levels, or at most of these and lower ones.
   (To fall behind on held-out images alone is what memorisers do.) Not so if most samples are copies.
2. *Memorizing* if copies exist and most samples are copies.
3. *Memorizing* if training and held-out images are exchangeable and the model's *lean* is at least .65 for certain where it
   lies beyond the Gaussian denoiser of the training images, ρ ≥ .3. The lean is a number between 0 (as the posterior mean)
   and 1 (as the multi-delta denoiser), from `losses`: the position of the loss gap above the baseline's, or the retrieval κ
   on held-out images. Each is taken where it is greatest among the levels of the window: memorisation shows at some levels
   and not at others. Not so if most samples are new for certain: a model can hold all its training images and show few.
4. *Partly memorizing* if copies of training images or of parts of them exist.
5. *Cannot tell* if there are fewer than three originals, if the sets are not exchangeable, if copies exist only when
   held-out images that repeat training images are left out, if samples match images that stand repeatedly in the training
   set and held-out images are too few to say whether these are commonplace, if nothing calibrates the losses, or if the
   interval of the lean reaches from generalizing to memorizing.
6. *Partly memorizing* if the lean is above .3 for certain, where ρ ≥ .3 or the model is not near the Gaussian denoiser. A
   lean that the Gaussian denoiser of so few images has, too, tells nothing.
7. *Generalizing* otherwise. That takes all levels of the window: where one is lost in its errors, a memoriser may hide.

A model of any verdict may *leak membership*: its loss tells training images from new ones (see `membership`). What was not
measured decides nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ..measures.intervals import Estimate
from .evidence import DISTANCES, FEWEST_ORIGINALS, Evidence, estimate_of
from .families import PLAIN
from .thresholds import THRESHOLDS

MEMORIZING, PARTLY, GENERALIZING = "memorizing", "partly memorizing", "generalizing"
CANNOT_TELL = "cannot tell"
VERDICTS = (MEMORIZING, PARTLY, GENERALIZING, CANNOT_TELL)
SUSPECT = 0.01
"""p-value at which copies are told as a suspicion; no verdict rests on it."""

_POSITION = (
    "on a scale from 0 (a linear filter to which training and new images are alike) to 1 (a copier), the gap between the "
    "model's losses on new and on training images"
)
_RETRIEVAL = (
    "on a scale from 0 (none) to 1 (a copier), the retrieval of training images in the model's answers to new ones"
)
_OVERLAP = (
    "samples match training images more often than held-out images do only if held-out images that repeat training images "
    "are left out. Either such images recur by nature, and the samples copy nothing, or the two sets were not kept apart."
)


@dataclass(frozen=True)
class Verdict:
    """What an audit concludes.

    Attributes:
        verdict: "memorizing", "partly memorizing", "generalizing" or "cannot tell".
        reasons: why, in sentences, the decisive one first.
        leaks: whether it leaks membership; None if that cannot be told.
        lean: from 0, as the posterior mean, to 1, as the multi-delta denoiser; None if not measured.
        sigma: the noise level of `lean`.
    """

    verdict: str
    reasons: tuple[str, ...]
    leaks: bool | None = None
    lean: Estimate | None = None
    sigma: float | None = None


def judge(evidence: Evidence) -> Verdict:
    """The verdict that the rules of this module give.

    >>> share = {"quantity": "copied_share", "value": 0.93, "low": 0.91, "high": 0.95, "count": 500}
    >>> judge(Evidence([share, {"quantity": "copies_exist", "value": True}])).verdict
    'memorizing'
    >>> judge(Evidence([])).verdict
    'cannot tell'
    """
    leans = [] if evidence.refused else _leans(evidence)  # of sets that differ the losses say nothing
    top = max(leans, key=lambda entry: entry.value.value, default=None)
    leaks = leaks_membership(evidence)

    def conclude(verdict: str, reason: str, lean: _Lean | None = top) -> Verdict:
        value, sigma = (None, None) if lean is None else (lean.value, lean.sigma)
        return Verdict(verdict, (reason, *_context(evidence, leaks, reason)), leaks, value, sigma)

    memorizing, generalizing = THRESHOLDS["memorizing"].value, THRESHOLDS["generalizing"].value
    copies, share = _copies(evidence), evidence.estimate("copied_share")
    most = evidence.value("copies_exist") and share is not None and share.low > THRESHOLDS["copies"].value
    if not most and (reason := _foreign(evidence) or _exchanged(evidence) or _behind(evidence)):
        return conclude(CANNOT_TELL, reason)
    if most:
        return conclude(MEMORIZING, copies)
    mostly_new = share is not None and share.high < THRESHOLDS["copies"].value
    sure = [] if mostly_new else leans
    if beyond := [lean for lean in sure if lean.value.low >= memorizing and lean.beyond_gaussian]:
        lean = max(beyond, key=lambda entry: entry.value.value)
        return conclude(MEMORIZING, f"{lean}; from {memorizing} on it is memorizing.", lean)
    if copies:
        return conclude(PARTLY, copies)
    if _too_few_originals(evidence):
        return conclude(
            CANNOT_TELL, "there are fewer than three different training images, so no copy can be told from a likeness."
        )
    if evidence.refused:
        return conclude(CANNOT_TELL, evidence.refused)
    if evidence.value("overlap_decides"):
        return conclude(CANNOT_TELL, _OVERLAP)
    if undecided := _undecided_copies(evidence):
        return conclude(CANNOT_TELL, undecided)
    if top is None:
        return conclude(CANNOT_TELL, _uncalibrated(evidence))
    if top.value.low < generalizing and top.value.high > memorizing:
        doubt = f"too few images to tell: {top}, from generalizing (below {generalizing}) to memorizing."
        return conclude(CANNOT_TELL, doubt)
    if above := [lean for lean in leans if lean.value.low > generalizing]:
        if partly := [lean for lean in above if lean.beyond_gaussian or not lean.near_gaussian]:
            lean = max(partly, key=lambda entry: entry.value.value)
            return conclude(PARTLY, f"{lean}; above {generalizing} it is no longer generalizing.", lean)
        return conclude(CANNOT_TELL, f"{top}, but no more than the Gaussian denoiser of so few images does.")
    if lost := _lost(evidence, leans):
        return conclude(CANNOT_TELL, lost)
    return conclude(GENERALIZING, f"{top}; it is not above {generalizing} for certain.")


def leaks_membership(evidence: Evidence) -> bool | None:
    """Whether the loss tells training images from new ones by more than a little; None if that cannot be told."""
    limits = evidence.auc_low
    if evidence.refused or not limits or _foreign(evidence) or _exchanged(evidence) or _behind(evidence):
        return None
    rates = [rate.low for rate in evidence.by_level("tpr", false_positive_rate=0.01).values()]
    return max(limits) > THRESHOLDS["auc"].value or max(rates, default=0.0) > THRESHOLDS["tpr"].value


def _copies(evidence: Evidence) -> str:
    """What the samples copy, in a sentence; empty if no copies exist."""
    said = []
    share, real = evidence.estimate("copied_share"), evidence.estimate("real_share")
    if evidence.value("copies_exist") and share is not None:
        originals = len(evidence.find("copied_original"))
        of = f", of {originals:,} different training image{'s' * (originals != 1)}" * bool(originals)
        beside = "" if real is None else f"; of real images {percent_interval(real)} would pass as such"
        said.append(f"{percent_interval(share)} of {share.count:,} samples are copies of training images{of}{beside}")
        if classes := [str(record["label"]) for record in evidence.find("copied_class")]:
            said.append(f"most of them are of class {', '.join(classes)}")
    if parts := [record["window"] for record in evidence.find("copied_part")]:
        subject = "other samples" if said else "samples"
        said.append(f"{subject} copy parts of training images: {', '.join(parts)}")
    return "; ".join(said) + "." * bool(said)


def _undecided_copies(evidence: Evidence) -> str | None:
    """Why copies of images that stand repeatedly in the training set cannot be judged, if so."""
    found = evidence.first("undecided_copies")
    if found is None:
        return None
    return (
        f"{found['value']:,} of {found['count']:,} samples match images that stand repeatedly in the training set, and "
        f"{found['real_count']:,} held-out images are too few to say whether these were memorised or are commonplace."
    )


def _too_few_originals(evidence: Evidence) -> bool:
    originals = evidence.value("originals")
    return originals is not None and originals < FEWEST_ORIGINALS


def percent(share: float) -> str:
    """A share as people write it."""
    return f"{100 * share:.1f} %" if share in (0, 1) or share >= 0.001 else f"{100 * share:.2g} %"


def percent_interval(share: Estimate) -> str:
    """A share with its interval.

    >>> percent_interval(Estimate(0.451, 0.42, 0.482, 1000))
    '45.1 % [42.0, 48.2]'
    """
    return f"{percent(share.value)} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


class _Lean(NamedTuple):
    """One number between 0 and 1, its level, what it is, and whether the model is beyond the Gaussian there, or near it."""

    value: Estimate
    sigma: float
    name: str
    beyond_gaussian: bool
    near_gaussian: bool

    def __str__(self) -> str:
        return f"{self.name} is {self.value.value:.2f} [{self.value.low:.2f}, {self.value.high:.2f}] at σ = {self.sigma:.3g}"


def _leans(evidence: Evidence) -> list[_Lean]:
    """Position and retrieval at the levels of the window; uncertain ones only if there are no others."""
    widest = THRESHOLDS["memorizing"].value - THRESHOLDS["generalizing"].value
    leans = _all_leans(evidence)
    return [lean for lean in leans if lean.value.high - lean.value.low <= widest] or leans


def _all_leans(evidence: Evidence) -> list[_Lean]:
    limit = THRESHOLDS["beyond gaussian"].value
    window, near = evidence.where("window"), evidence.where("near_gaussian")
    beyond = [sigma for sigma, rho in evidence.by_level("rho").items() if rho.value >= limit]
    return [
        _Lean(value, sigma, name, sigma in beyond, sigma in near)
        for quantity, name in (("position", _POSITION), ("retrieval", _RETRIEVAL))
        for sigma, value in evidence.by_level(quantity).items()
        if sigma in window
    ]


def _lost(evidence: Evidence, leans: list[_Lean]) -> str | None:
    """At which level of the window a memoriser could hide: none of `leans` is of it, and others reach memorizing."""
    known, memorizing = {lean.sigma for lean in leans}, THRESHOLDS["memorizing"].value
    for sigma in evidence.where("window"):
        if sigma not in known:
            uncertain = [lean for lean in _all_leans(evidence) if lean.sigma == sigma]
            top = max(uncertain, key=lambda lean: lean.value.high, default=None)
            if top is None:
                return f"too few images to tell: even a memoriser's loss gap is within its error at σ = {sigma:.3g}."
            if top.value.high >= memorizing:
                return f"too few images to tell: {top}, which may be memorizing ({memorizing} and above)."
    return None


def _foreign(evidence: Evidence) -> str | None:
    """What the model seems to expect instead of these images, if anything.

    What a network that is hardly trained answers follows no rule, and some preparation may always suit it a little better.
    """
    foreign = evidence.foreignness
    if foreign is None or foreign.expected is None:
        return None
    hardly = foreign.gain is not None and foreign.gain.value > THRESHOLDS["far better"].value
    return None if hardly and _behind(evidence) else f"the images look foreign to the model: {foreign}."


def _behind(evidence: Evidence) -> str | None:
    """Where the model denoises worse than a linear filter, at most levels.

    Below the intermediate levels a filter can do no better than the noisy image itself, and a fair model does about as well.
    One that is far worse has not learned how little noise there is, unless its loss gap shows that it retrieves some images.
    """
    losses, inside = evidence.by_level("train_loss"), evidence.where("intermediate")
    positions, generalizing = evidence.by_level("position"), THRESHOLDS["generalizing"].value
    retrieving = [sigma for sigma, position in positions.items() if position.low > generalizing]
    middle = [loss.value > THRESHOLDS["behind"].value for sigma, loss in losses.items() if sigma in inside]
    lower = [
        loss.value > THRESHOLDS["far behind"].value and sigma not in retrieving
        for sigma, loss in losses.items()
        if inside and sigma < min(inside)
    ]
    for levels, name in ((middle, "intermediate"), (middle + lower, "intermediate and lower")):
        if 2 * sum(levels) > len(levels):
            where = f"at {sum(levels)} of {len(levels)} {name} noise levels"
            if _behind_here_alone(evidence):
                return (
                    f"the model denoises the training images worse than a plain Wiener filter {where}, but not the held-out "
                    "images: are the two sets exchanged?"
                )
            foreign = evidence.foreignness
            other = None if foreign is None else foreign.expected
            return (
                f"the model denoises these images worse than a plain Wiener filter, training images too, {where}: they are "
                "not those it was trained on, prepared otherwise, or it is not trained."
            ) + (f" Of other preparations, {other} would suit it best, and not much better." if other else "")
    return None


def _exchanged(evidence: Evidence) -> str | None:
    """Where it is held-out images that the model has memorised: its loss gap has the other sign, at most levels."""
    if evidence.refused:
        return None
    limit, window = THRESHOLDS["exchanged"].value, evidence.where("window")
    levels = [position.high < limit for sigma, position in evidence.by_level("position").items() if sigma in window]
    if not levels or 2 * sum(levels) <= len(levels):
        return None
    return (
        f"the model denoises the held-out images better than the training images, at {sum(levels)} of {len(levels)} noise "
        "levels at which that can be told: are the two sets exchanged, or from different sources?"
    )


def _behind_here_alone(evidence: Evidence) -> bool:
    """Whether the model does well on held-out images where it falls behind on training images, at most such levels."""
    limit, unseen = THRESHOLDS["behind"].value, evidence.by_level("held_out_loss")
    behind = [sigma for sigma, known in evidence.by_level("train_loss").items() if known.value > limit]
    held_out = [unseen[sigma].value <= limit for sigma in behind if sigma in unseen]
    return 2 * sum(held_out) > len(held_out)


def _uncalibrated(evidence: Evidence) -> str:
    if _without_held_out(evidence):
        return "nothing calibrates the losses: there are no held-out images."
    if not evidence.find("window"):
        return "nothing was measured that could tell."
    if not evidence.where("window"):
        return (
            "at none of the noise levels can memorizing be told from generalizing: a memoriser would show no gap there."
        )
    return "too few images to tell: even a memoriser's loss gap is within its error at every noise level."


def _without_held_out(evidence: Evidence) -> bool:
    return bool(evidence.find("train_loss")) and not evidence.find("held_out_loss")


def _context(evidence: Evidence, leaks: bool | None, decisive: str) -> list[str]:
    """What else was measured, in sentences; none of it decides."""
    undecided = _undecided_copies(evidence)
    said = [_copies(evidence), evidence.refused, _foreign(evidence), undecided]
    if evidence.value("overlap_decides"):
        said.append(_OVERLAP)
    exist, share, real = (
        evidence.value("copies_exist"),
        evidence.estimate("copied_share"),
        evidence.estimate("real_share"),
    )
    if share is not None and not exist:
        beside = "" if real is None else f", of real images {percent_interval(real)}"
        p_value = least_copy_p(evidence)
        doubt = "not decided" if undecided else "no more than by chance"
        if p_value <= SUSPECT:
            doubt = f"more than by chance, but not for certain (p = {p_value:.2g})"
        said.append(
            f"by the rule for copies {percent_interval(share)} of {share.count:,} samples are copies{beside}: {doubt}."
        )
    if share is None and evidence.find("train_loss") and not _too_few_originals(evidence):
        said.append("samples were not examined.")
    two_set_p = evidence.value("two_set_p")
    if two_set_p is not None and two_set_p <= THRESHOLDS["p"].value:
        but = "" if exist else ", but are not nearer to one of them than to the others, as copies would be"
        said.append(
            f"samples lie nearer to training images than to held-out ones more often than chance explains (p = "
            f"{two_set_p:.2g}){but}."
        )
    if _without_held_out(evidence):
        said.append("without held-out images the losses cannot be calibrated, and membership cannot be told.")
    if evidence.find("auc") and not evidence.refused:
        said.append(_recognition(evidence, leaks))
    said.append(_neither(evidence))
    return [sentence for sentence in dict.fromkeys(said) if sentence and sentence != decisive]


def least_copy_p(evidence: Evidence) -> float:
    """The least p-value of the comparisons of whole, unchanged copies with their controls; 1 if there are none."""
    return min((record["value"] for record in evidence.find("copy_p", family=PLAIN)), default=1.0)


def _recognition(evidence: Evidence, leaks: bool | None) -> str:
    """How well the loss tells training images from new ones, at the noise level where it does best."""
    record = max(evidence.find("auc"), key=lambda one: one["value"])
    auc, sigma = estimate_of(record), record["sigma"]
    share, filters = evidence.by_level("memory_share").get(sigma), evidence.estimate("filter_auc")
    lower = "" if share is None else f"; it is {100 * share.value:.0f} % lower on average"
    beside = "" if filters is None else f" For the Gaussian denoiser of these images it is {100 * filters.value:.0f} %."
    told = {
        None: "whether the model leaks membership cannot be told",
        True: "the model leaks membership",
        False: "the model does not leak membership (an AUC above "
        f"{THRESHOLDS['auc'].value} for certain would count as a leak)",
    }[leaks]
    return (
        f"{told}: a training image has a lower loss than a new one in {100 * auc.value:.0f} % "
        f"[{100 * auc.low:.0f}, {100 * auc.high:.0f}] of pairs at σ = {sigma:.3g}{lower}.{beside}"
    )


def _neither(evidence: Evidence) -> str | None:
    """Whether the model's answers to new images are far from both references where these are far apart."""
    own, memory, apart = (
        evidence.by_level("rmse", **DISTANCES[name]) for name in ("gaussian", "multidelta", "references")
    )
    window = [sigma for sigma in evidence.where("window") if sigma in apart]
    far = [sigma for sigma in window if min(own[sigma].low, memory[sigma].low) > apart[sigma].value / 3]
    if not far or 2 * len(far) < len(window):
        return None
    return (
        f"its answers to new images are neither a copier's nor the Gaussian denoiser's: at {len(far)} of {len(window)} "
        "noise levels they are further from both than a third of the distance between these."
    )
