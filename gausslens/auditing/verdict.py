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
from .evidence import Evidence
from .preprocessing_check import Foreignness
from .thresholds import THRESHOLDS

MEMORIZING, PARTLY, GENERALIZING = "memorizing", "partly memorizing", "generalizing"
CANNOT_TELL = "cannot tell"
VERDICTS = (MEMORIZING, PARTLY, GENERALIZING, CANNOT_TELL)

_POSITION = (
    "on a scale from 0 (a linear filter to which training and new images are alike) to 1 (a copier), the gap between the "
    "model's losses on new and on training images"
)
_RETRIEVAL = (
    "on a scale from 0 (none) to 1 (a copier), the retrieval of training images in the model's answers to new ones"
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

    >>> judge(Evidence(copies_exist=True, copied_share=Estimate(0.93, 0.91, 0.95, 500))).verdict
    'memorizing'
    >>> judge(Evidence()).verdict
    'cannot tell'
    """
    leans = [] if evidence.refused else _leans(evidence)  # of sets that differ the losses say nothing
    top = max(leans, key=lambda entry: entry.value.value, default=None)
    leaks = leaks_membership(evidence)

    def conclude(verdict: str, reason: str, lean: _Lean | None = top) -> Verdict:
        value, sigma = (None, None) if lean is None else (lean.value, lean.sigma)
        return Verdict(verdict, (reason, *_context(evidence, reason)), leaks, value, sigma)

    memorizing, generalizing = THRESHOLDS["memorizing"].value, THRESHOLDS["generalizing"].value
    copies, share = _copies(evidence), evidence.copied_share
    most = bool(evidence.copies_exist) and share is not None and share.low > THRESHOLDS["copies"].value
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
    if evidence.too_few_originals:
        return conclude(
            CANNOT_TELL, "there are fewer than three different training images, so no copy can be told from a likeness."
        )
    if evidence.refused:
        return conclude(CANNOT_TELL, evidence.refused)
    if evidence.overlap_decides:
        return conclude(CANNOT_TELL, _OVERLAP)
    if evidence.undecided_copies:
        return conclude(CANNOT_TELL, evidence.undecided_copies)
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


SUSPECT = 0.01  # p-value at which copies are told as a suspicion; no verdict rests on it
_OVERLAP = (
    "samples match training images more often than held-out images do only if held-out images that repeat training images "
    "are left out. Either such images recur by nature, and the samples copy nothing, or the two sets were not kept apart."
)


def leaks_membership(evidence: Evidence) -> bool | None:
    """Whether the loss tells training images from new ones by more than a little; None if that cannot be told."""
    if evidence.refused or evidence.auc_low is None or _foreign(evidence) or _exchanged(evidence) or _behind(evidence):
        return None
    by_auc = max(evidence.auc_low) > THRESHOLDS["auc"].value
    by_tpr = evidence.tpr is not None and max(one.low for one in evidence.tpr) > THRESHOLDS["tpr"].value
    return by_auc or by_tpr


def _copies(evidence: Evidence) -> str:
    """What the samples copy, in a sentence; empty if no copies exist."""
    said = []
    if evidence.copies_exist and evidence.copied_share is not None:
        share, originals = evidence.copied_share, evidence.copied_originals
        of = "" if originals is None else f", of {originals:,} different training image{'s' * (originals != 1)}"
        beside = (
            "" if evidence.real_share is None else f"; of real images {percent(evidence.real_share)} would pass as such"
        )
        said.append(f"{percent(share)} of {share.count:,} samples are copies of training images{of}{beside}")
        said += [f"most of them are of class {', '.join(map(str, evidence.copied_classes))}"] * bool(
            evidence.copied_classes
        )
    if evidence.parts:
        subject = "other samples" if said else "samples"
        said.append(f"{subject} copy parts of training images: {', '.join(evidence.parts)}")
    return "; ".join(said) + "." * bool(said)


def percent(share: Estimate) -> str:
    """A share with its interval, as people write it.

    >>> percent(Estimate(0.451, 0.42, 0.482, 1000))
    '45.1 % [42.0, 48.2]'
    """
    return f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"


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
    if evidence.window is None or evidence.sigmas is None:
        return []
    limit = THRESHOLDS["beyond gaussian"].value
    rhos = evidence.rho or [None] * len(evidence.sigmas)
    nears = evidence.near_gaussian or [False] * len(evidence.sigmas)
    return [
        _Lean(value, sigma, name, rho is not None and rho.value >= limit, near)
        for values, name in (
            (evidence.position, _POSITION),
            (evidence.retrieval, _RETRIEVAL),
        )
        if values is not None
        for value, rho, near, inside, sigma in zip(values, rhos, nears, evidence.window, evidence.sigmas, strict=True)
        if inside and value is not None
    ]


def _lost(evidence: Evidence, leans: list[_Lean]) -> str | None:
    """At which level of the window a memoriser could hide: none of `leans` is of it, and others reach memorizing."""
    known, memorizing = {lean.sigma for lean in leans}, THRESHOLDS["memorizing"].value
    for sigma, inside in zip(evidence.sigmas or (), evidence.window or (), strict=True):
        if inside and sigma not in known:
            uncertain = [lean for lean in _all_leans(evidence) if lean.sigma == sigma]
            top = max(uncertain, key=lambda lean: lean.value.high, default=None)
            if top is None:
                return f"too few images to tell: even a memoriser's loss gap is within its error at σ = {sigma:.3g}."
            if top.value.high >= memorizing:
                return f"too few images to tell: {top}, which may be memorizing ({memorizing} and above)."
    return None


def _foreign(evidence: Evidence) -> str | None:
    """What the model seems to expect instead of these images, if anything."""
    foreign = evidence.foreignness
    if foreign is None or foreign.expected is None or (_hardly(foreign) and _behind(evidence)):
        return None
    return f"the images look foreign to the model: {foreign}."


def _hardly(foreign: Foreignness) -> bool:
    """Whether the model is hardly better at what it seems to expect.

    What a network that is hardly trained answers follows no rule, and some preparation may always suit it a little better.
    """
    return foreign.gain is not None and foreign.gain.value > THRESHOLDS["far better"].value


def _behind(evidence: Evidence) -> str | None:
    """Where the model denoises worse than a linear filter, at most levels.

    Below the intermediate levels a filter can do no better than the noisy image itself, and a fair model does about as well.
    One that is far worse has not learned how little noise there is, unless its loss gap shows that it retrieves some images.
    """
    if evidence.train_loss is None or evidence.intermediate is None:
        return None
    positions = evidence.position or [None] * len(evidence.train_loss)
    known = [
        (loss.value, position is None or not position.low > THRESHOLDS["generalizing"].value, inside)
        for loss, position, inside in zip(evidence.train_loss, positions, evidence.intermediate, strict=True)
        if loss is not None
    ]
    lowest = max((index for index, (*_, inside) in enumerate(known) if inside), default=len(known))
    middle = [loss > THRESHOLDS["behind"].value for loss, _, inside in known if inside]
    lower = [loss > THRESHOLDS["far behind"].value and alike for loss, alike, _ in known[lowest + 1 :]]
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
    limit = THRESHOLDS["exchanged"].value
    levels = [
        position.high < limit
        for position, inside in zip(evidence.position or (), evidence.window or (), strict=False)
        if inside and position is not None
    ]
    if not levels or 2 * sum(levels) <= len(levels):
        return None
    return (
        f"the model denoises the held-out images better than the training images, at {sum(levels)} of {len(levels)} noise "
        "levels at which that can be told: are the two sets exchanged, or from different sources?"
    )


def _behind_here_alone(evidence: Evidence) -> bool:
    """Whether the model does well on held-out images where it falls behind on training images, at most such levels."""
    limit = THRESHOLDS["behind"].value
    held_out = [
        unseen.value <= limit
        for known, unseen in zip(evidence.train_loss or (), evidence.held_out_loss or (), strict=False)
        if known is not None and unseen is not None and known.value > limit
    ]
    return 2 * sum(held_out) > len(held_out)


def _uncalibrated(evidence: Evidence) -> str:
    if evidence.train_loss is not None and evidence.held_out_loss is None:
        return "nothing calibrates the losses: there are no held-out images."
    if evidence.window is not None and not any(evidence.window):
        return (
            "at none of the noise levels can memorizing be told from generalizing: a memoriser would show no gap there."
        )
    if evidence.window is not None:
        return "too few images to tell: even a memoriser's loss gap is within its error at every noise level."
    return "nothing was measured that could tell."


def _context(evidence: Evidence, decisive: str) -> list[str]:
    """What else was measured, in sentences; none of it decides."""
    said = [_copies(evidence), evidence.refused or "", _foreign(evidence) or "", evidence.undecided_copies or ""]
    if evidence.overlap_decides:
        said.append(_OVERLAP)
    if evidence.copied_share is not None and not evidence.copies_exist:
        share = evidence.copied_share
        beside = "" if evidence.real_share is None else f", of real images {percent(evidence.real_share)}"
        doubt = "not decided" if evidence.undecided_copies else "no more than by chance"
        if evidence.copy_p is not None and evidence.copy_p <= SUSPECT:
            doubt = f"more than by chance, but not for certain (p = {evidence.copy_p:.2g})"
        said.append(f"by the rule for copies {percent(share)} of {share.count:,} samples are copies{beside}: {doubt}.")
    if evidence.copied_share is None and evidence.train_loss is not None and not evidence.too_few_originals:
        said.append("samples were not examined.")
    if evidence.two_set_p is not None and evidence.two_set_p <= THRESHOLDS["p"].value:
        said.append(
            f"samples lie nearer to training images than to held-out ones more often than chance explains (p = "
            f"{evidence.two_set_p:.2g})"
            + (
                "."
                if evidence.copies_exist
                else ", but are not nearer to one of them than to the others, as copies would be."
            )
        )
    if evidence.train_loss is not None and evidence.held_out_loss is None:
        said.append("without held-out images the losses cannot be calibrated, and membership cannot be told.")
    if evidence.auc is not None and evidence.auc_low is not None and not evidence.refused:
        aucs, sigmas = evidence.auc, evidence.sigmas or ()
        level = max(range(len(aucs)), key=lambda index: aucs[index].value)
        auc = aucs[level]
        at = f" at σ = {sigmas[level]:.3g}" if sigmas else ""
        lower = beside = ""
        if (shares := evidence.memory_share) is not None:
            lower = f"; it is {100 * shares[level].value:.0f} % lower on average"
        if evidence.filter_auc is not None:
            beside = f" For the Gaussian denoiser of these images it is {100 * evidence.filter_auc.value:.0f} %."
        leaks = {
            None: "whether the model leaks membership cannot be told",
            True: "the model leaks membership",
            False: "the model does not leak membership by our limits",
        }[leaks_membership(evidence)]
        said.append(
            f"{leaks}: a training image has a lower loss than a new one in {100 * auc.value:.0f} % "
            f"[{100 * auc.low:.0f}, {100 * auc.high:.0f}] of pairs{at}{lower}.{beside}"
        )
    if (between := _neither(evidence)) is not None:
        said.append(between)
    return [sentence for sentence in dict.fromkeys(said) if sentence and sentence != decisive]


def _neither(evidence: Evidence) -> str | None:
    """Whether the model's answers to new images are far from both references where these are far apart."""
    own, memory, apart = evidence.distance_gaussian, evidence.distance_multidelta, evidence.distance_references
    if own is None or memory is None or apart is None or evidence.window is None:
        return None
    rows = [row for *row, inside in zip(own, memory, apart, evidence.window, strict=True) if inside]
    far = [row for row in rows if min(row[0].low, row[1].low) > row[2].value / 3]
    if not far or 2 * len(far) < len(rows):
        return None
    return (
        f"its answers to new images are neither a copier's nor the Gaussian denoiser's: at {len(far)} of {len(rows)} noise "
        "levels they are further from both than a third of the distance between these."
    )
