"""The verdict: memorizing, partly memorizing, generalizing or cannot tell, by stated rules from measured numbers.

Two questions are answered separately: what comes out of the model (copying), and what is inside (membership). The first rule
that applies gives the verdict:

1. *Memorizing* if copies exist and most samples are copies.
2. *Cannot tell* if the images look foreign to the model, if it denoises held-out images better than training images, or if
   it falls behind a linear filter on training images at most intermediate noise levels, or at most of these and lower ones.
   (To fall behind on held-out images alone is what memorisers do.)
3. *Memorizing* if training and held-out images are exchangeable and the model's *lean* is at least .65 for certain where it
   lies beyond the Gaussian denoiser of the training images, ρ ≥ .3. The lean is a number between 0 (as the posterior mean)
   and 1 (as the multi-delta denoiser), from `losses`: the position of the loss gap above the baseline's, or the retrieval κ
   on held-out images. Each is taken where it is greatest among the levels of the window: memorisation shows at some levels
   and not at others. Not so if most samples are new for certain: a model can hold all its training images and show few.
4. *Partly memorizing* if copies of training images or of parts of them exist.
5. *Cannot tell* if there are fewer than three originals, if the sets are not exchangeable, if copies exist only when
   held-out images that repeat training images are left out, if samples match images that occur repeatedly in the training
   set and held-out images are too few to say whether these are commonplace, if nothing calibrates the losses, or if the
   interval of the lean reaches from generalizing to memorizing.
6. *Partly memorizing* if the lean is above .3 for certain, where ρ ≥ .3 or the model is not near the Gaussian denoiser. A
   lean that the Gaussian denoiser of so few images has as well is no evidence.
7. *Generalizing* otherwise. That takes all levels of the window: where one is lost in its errors, a memoriser may hide.

A model of any verdict may *leak membership*: its loss separates training images from new ones (see `membership`). What was
not measured decides nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..measures.intervals import Estimate
from .evidence import DISTANCES, FEWEST_ORIGINALS, Evidence, estimate_of
from .families import PLAIN
from .thresholds import limit

MEMORIZING, PARTLY, GENERALIZING = "memorizing", "partly memorizing", "generalizing"
CANNOT_TELL = "cannot tell"
VERDICTS = (MEMORIZING, PARTLY, GENERALIZING, CANNOT_TELL)
SUSPECT = 0.01
"""p-value at which copies are reported as a suspicion; no verdict rests on it."""

_LEANS = {
    "position": (
        "the gap between the model's losses on new and on training images",
        "a linear filter that cannot favour training images",
    ),
    "retrieval": ("the pull of the model's outputs for new images toward training images", "none"),
}
"""What each quantity of the lean is, and what has a lean of 0."""

_UNCALIBRATED = "without held-out images the losses cannot be calibrated, and membership cannot be judged."


@dataclass(frozen=True)
class Verdict:
    """What an audit concludes."""

    verdict: str  # "memorizing", "partly memorizing", "generalizing" or "cannot tell"
    reasons: tuple[str, ...]  # why, in sentences, the decisive one first
    leaks: bool | None = None  # whether it leaks membership; None if that cannot be judged
    lean: Estimate | None = None  # from 0 (posterior mean) to 1 (multi-delta denoiser); None if not measured
    sigma: float | None = None  # the noise level of `lean`


class _Lean(NamedTuple):
    """One number between 0 and 1, its level, what it is, and whether the model is beyond the Gaussian there, or near it."""

    value: Estimate
    sigma: float
    quantity: str
    beyond_gaussian: bool
    near_gaussian: bool

    def __str__(self) -> str:
        name, zero = _LEANS[self.quantity]
        value = f"{self.value.value:.2f} [{self.value.low:.2f}, {self.value.high:.2f}]"
        return f"{name} is {value} at σ = {self.sigma:.3g}, on a scale from 0 ({zero}) to 1 (a perfect memoriser)"


def judge(evidence: Evidence) -> Verdict:
    """The verdict that the rules of this module give.

    >>> share = {"quantity": "copied_share", "value": 0.93, "low": 0.91, "high": 0.95, "count": 500}
    >>> judge(Evidence([share, {"quantity": "copies_exist", "value": True}])).verdict
    'memorizing'
    >>> judge(Evidence([])).verdict
    'cannot tell'
    """
    leans = [] if evidence.refused else _leans(evidence)  # of sets that differ the losses say nothing
    verdict, reason, lean = next(rule for rule in _rules(evidence, leans) if rule[1])
    leaks = leaks_membership(evidence)
    value, sigma = (None, None) if lean is None else (lean.value, lean.sigma)
    return Verdict(verdict, (reason, *_context(evidence, leaks, reason)), leaks, value, sigma)


def _rules(evidence: Evidence, leans: list[_Lean]) -> Iterator[tuple[str, str, _Lean | None]]:
    """What the rules conclude, in their order: verdict, reason and lean; the reason is empty where a rule does not apply."""
    memorizing, generalizing, most = limit("memorizing"), limit("generalizing"), limit("copies")
    top = _greatest(leans)
    copies, share = _copies(evidence), evidence.estimate("copied_share")
    if evidence.value("copies_exist") and share is not None and share.low > most:
        yield MEMORIZING, copies, top
    yield CANNOT_TELL, _unfit(evidence), top
    mostly_new = share is not None and share.high < most
    beyond = _greatest([lean for lean in leans if lean.value.low >= memorizing and lean.beyond_gaussian])
    if beyond is not None and not mostly_new:
        yield MEMORIZING, f"{beyond}. From {memorizing} on, the verdict is memorizing.", beyond
    yield PARTLY, copies, top
    if _too_few_originals(evidence):
        yield CANNOT_TELL, "there are fewer than three different training images, so no copy can be identified.", top
    yield CANNOT_TELL, evidence.refused or _overlap(evidence) or _undecided_copies(evidence), top
    if top is None:
        yield CANNOT_TELL, _uncalibrated(evidence), top
        return
    if top.value.low < generalizing and top.value.high > memorizing:
        doubt = f"too few images: {top}. The interval reaches from generalizing (below {generalizing}) to memorizing."
        yield CANNOT_TELL, doubt, top
    above = [lean for lean in leans if lean.value.low > generalizing]
    partly = _greatest([lean for lean in above if lean.beyond_gaussian or not lean.near_gaussian])
    if partly is not None:
        yield PARTLY, f"{partly}. Above {generalizing}, the verdict is no longer generalizing.", partly
    if above:
        yield CANNOT_TELL, f"{top}. The Gaussian denoiser of so few images reaches as much without copying.", top
    yield CANNOT_TELL, _lost(evidence, leans), top
    yield GENERALIZING, f"{top}. It is not clearly above {generalizing}, so the verdict is generalizing.", top


def leaks_membership(evidence: Evidence) -> bool | None:
    """Whether the loss separates training images from new ones by more than a little; None if that cannot be judged."""
    limits = evidence.auc_low
    if evidence.refused or not limits or _unfit(evidence):
        return None
    rates = [rate.low for rate in evidence.by_level("tpr", false_positive_rate=0.01).values()]
    return max(limits) > limit("auc") or max(rates, default=0.0) > limit("tpr")


def _copies(evidence: Evidence) -> str:
    """What the samples copy, in a sentence; empty if no copies exist."""
    said = []
    if evidence.value("copies_exist") and evidence.estimate("copied_share") is not None:
        originals = len(evidence.find("copied_original"))
        of = f" of {originals:,} different training image{'s' * (originals != 1)}" if originals else ""
        said.append(_copied_share(evidence, of))
        if classes := [str(record["label"]) for record in evidence.find("copied_class")]:
            said.append(f"copies are more frequent among samples of class {', '.join(classes)} than among others")
    if parts := [record["window"] for record in evidence.find("copied_part")]:
        said.append(f"{'other ' * bool(said)}samples copy parts of training images: {', '.join(parts)}")
    return "; ".join(said) + "." * bool(said)


def _copied_share(evidence: Evidence, of: str = "") -> str:
    """How many samples satisfy the rule for copies, and how many real images do."""
    share, real = evidence.estimate("copied_share"), evidence.estimate("real_share")
    assert share is not None
    control = "" if real is None else f", and {percent_interval(real)} of real images do"
    return f"{percent_interval(share)} of {share.count:,} samples pass as copies{of}{control}"


def _undecided_copies(evidence: Evidence) -> str:
    """Why copies of images that occur repeatedly in the training set cannot be judged, if so."""
    found = evidence.first("undecided_copies")
    if found is None:
        return ""
    return (
        f"{found['value']:,} of {found['count']:,} samples match images that occur repeatedly in the training set. "
        f"{found['real_count']:,} held-out images are too few to say whether the model memorised these images or whether "
        "they are common in the data."
    )


def _overlap(evidence: Evidence) -> str:
    """Why held-out images that repeat training images leave copies undecided, if so."""
    if not evidence.value("overlap_decides"):
        return ""
    return (
        "samples match training images more often than held-out images do, but only if held-out images that repeat training "
        "images are left out. Either such images recur by nature, and the samples copy nothing, or the two sets were not "
        "kept apart."
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


def _greatest(leans: list[_Lean]) -> _Lean | None:
    return max(leans, key=lambda lean: lean.value.value, default=None)


def _leans(evidence: Evidence) -> list[_Lean]:
    """Position and retrieval at the levels of the window; uncertain ones only if there are no others."""
    widest = limit("memorizing") - limit("generalizing")
    leans = _all_leans(evidence)
    return [lean for lean in leans if lean.value.high - lean.value.low <= widest] or leans


def _all_leans(evidence: Evidence) -> list[_Lean]:
    window, near = evidence.where("window"), evidence.where("near_gaussian")
    beyond = [sigma for sigma, rho in evidence.by_level("rho").items() if rho.value >= limit("beyond gaussian")]
    return [
        _Lean(value, sigma, quantity, sigma in beyond, sigma in near)
        for quantity in _LEANS
        for sigma, value in evidence.by_level(quantity).items()
        if sigma in window
    ]


def _lost(evidence: Evidence, leans: list[_Lean]) -> str:
    """At which level of the window a memoriser could hide: none of `leans` is of it, and others reach memorizing."""
    known = {lean.sigma for lean in leans}
    for sigma in evidence.where("window"):
        if sigma not in known:
            uncertain = [lean for lean in _all_leans(evidence) if lean.sigma == sigma]
            top = max(uncertain, key=lambda lean: lean.value.high, default=None)
            if top is None:
                return f"too few images: even a perfect memoriser's loss gap is within its error at σ = {sigma:.3g}."
            if top.value.high >= limit("memorizing"):
                return f"too few images: {top}. The interval reaches memorizing ({limit('memorizing')} and above)."
    return ""


def _unfit(evidence: Evidence) -> str:
    """Why the images and the model do not fit each other, if so."""
    return _foreign(evidence) or _exchanged(evidence) or _behind(evidence)


def _foreign(evidence: Evidence) -> str:
    """What the model seems to expect instead of these images, if anything.

    The outputs of a network that is hardly trained follow no rule, and some preparation may always suit it a little better.
    """
    foreign, gain = evidence.first("foreignness"), evidence.estimate("foreignness")
    if foreign is None or gain is None or foreign["expected"] is None:
        return ""
    if gain.value > limit("far better") and _behind(evidence):
        return ""
    return (
        f"the images look foreign to the model. It seems to expect {foreign['expected']}: with that preparation its loss is "
        f"{gain.value:.3g} [{gain.low:.3g}, {gain.high:.3g}] times as large, at σ = {foreign['sigma']:.3g}."
    )


def _behind(evidence: Evidence) -> str:
    """Where the model denoises worse than a linear filter, at most levels.

    Below the intermediate levels a filter can do no better than the noisy image itself, and a fair model does about as well.
    One that is far worse has not learned how little noise there is, unless its loss gap shows that it retrieves some images.
    """
    losses, inside = evidence.by_level("train_loss"), evidence.where("intermediate")
    positions = evidence.by_level("position")
    retrieving = [sigma for sigma, position in positions.items() if position.low > limit("generalizing")]
    middle = [loss.value > limit("behind") for sigma, loss in losses.items() if sigma in inside]
    lower = [
        loss.value > limit("far behind") and sigma not in retrieving
        for sigma, loss in losses.items()
        if inside and sigma < min(inside)
    ]
    for levels, name in ((middle, "intermediate"), (middle + lower, "intermediate and lower")):
        if 2 * sum(levels) <= len(levels):
            continue
        where = f"worse than a plain Wiener filter at {sum(levels)} of {len(levels)} {name} noise levels"
        if _behind_here_alone(evidence):
            return (
                f"the model denoises the training images {where}, but not the held-out images: are the sets exchanged?"
            )
        foreign = evidence.first("foreignness")
        other = None if foreign is None else foreign["expected"]
        return (
            f"the model denoises these images, training images included, {where}. They are not the images it was trained "
            "on, they are prepared in another way, or the model is not trained."
        ) + (f" Of the preparations tried, {other} would suit it best, but not much better." if other else "")
    return ""


def _exchanged(evidence: Evidence) -> str:
    """Where it is held-out images that the model has memorised: its loss gap has the other sign, at most levels."""
    if evidence.refused:
        return ""
    window, positions = evidence.where("window"), evidence.by_level("position")
    levels = [position.high < limit("exchanged") for sigma, position in positions.items() if sigma in window]
    if not levels or 2 * sum(levels) <= len(levels):
        return ""
    return (
        f"the model denoises the held-out images better than the training images at {sum(levels)} of {len(levels)} noise "
        "levels that can show it. Are the two sets exchanged, or from different sources?"
    )


def _behind_here_alone(evidence: Evidence) -> bool:
    """Whether the model does well on held-out images where it falls behind on training images, at most such levels."""
    unseen = evidence.by_level("held_out_loss")
    behind = [sigma for sigma, known in evidence.by_level("train_loss").items() if known.value > limit("behind")]
    held_out = [unseen[sigma].value <= limit("behind") for sigma in behind if sigma in unseen]
    return 2 * sum(held_out) > len(held_out)


def _uncalibrated(evidence: Evidence) -> str:
    """Why there is no lean."""
    if _without_held_out(evidence):
        return _UNCALIBRATED
    if not evidence.find("window"):
        return "nothing was measured from which a verdict could follow."
    if not evidence.where("window"):
        return "even a perfect memoriser would show no clear loss gap at any noise level."
    return _lost(evidence, [])


def _without_held_out(evidence: Evidence) -> bool:
    return bool(evidence.find("train_loss")) and not evidence.find("held_out_loss")


def _context(evidence: Evidence, leaks: bool | None, decisive: str) -> list[str]:
    """What else was measured, in sentences; none of it decides."""
    undecided, share = _undecided_copies(evidence), evidence.estimate("copied_share")
    said = [_copies(evidence), evidence.refused, _foreign(evidence), undecided, _overlap(evidence)]
    if share is not None and not evidence.value("copies_exist"):
        p_value = least_copy_p(evidence)
        doubt = (
            "This does not decide whether there are copies."
            if undecided
            else "This is not significantly more than chance explains."
        )
        if p_value <= SUSPECT:
            doubt = f"This is more than by chance, but not conclusive (p = {p_value:.2g})."
        said.append(f"{_copied_share(evidence)}. {doubt}")
    if share is None and evidence.find("train_loss") and not _too_few_originals(evidence):
        said.append("samples were not examined.")
    two_set_p = evidence.value("two_set_p")
    if two_set_p is not None and two_set_p <= limit("p"):
        but = (
            ""
            if evidence.value("copies_exist")
            else " They are not much nearer to one training image than to the next."
        )
        said.append(
            "samples lie nearer to training images than to held-out ones more often than chance explains (p = "
            f"{two_set_p:.2g}).{but}"
        )
    if _without_held_out(evidence):
        said.append(_UNCALIBRATED)
    if evidence.find("auc") and not evidence.refused:
        said.append(_recognition(evidence, leaks))
    said.append(_neither(evidence))
    return [sentence for sentence in dict.fromkeys(said) if sentence and sentence != decisive]


def least_copy_p(evidence: Evidence) -> float:
    """The least p-value of the comparisons of whole, unchanged copies with their controls; 1 if there are none."""
    return min((record["value"] for record in evidence.find("copy_p", family=PLAIN)), default=1.0)


def _recognition(evidence: Evidence, leaks: bool | None) -> str:
    """How well the loss separates training images from new ones, at the noise level where it does best."""
    record = max(evidence.find("auc"), key=lambda one: one["value"])
    auc, sigma = estimate_of(record), record["sigma"]
    share, filters = evidence.by_level("memory_share").get(sigma), evidence.estimate("filter_auc")
    found = {
        None: "whether the model leaks membership cannot be judged",
        True: "the model leaks membership",
        False: f"membership leakage is within the audit's limit (an AUC clearly above {limit('auc')} is a leak)",
    }[leaks]
    lower = ""
    if share is not None:
        lower = f", and is {abs(100 * share.value):.0f} % {'lower' if share.value >= 0 else 'higher'} on average"
    control = (
        "" if filters is None else f" The Gaussian denoiser of the training images reaches {100 * filters.value:.0f} %."
    )
    return (
        f"{found}. The loss of a training image is below that of a new one in {100 * auc.value:.0f} % "
        f"[{100 * auc.low:.0f}, {100 * auc.high:.0f}] of pairs at σ = {sigma:.3g}{lower}.{control}"
    )


def _neither(evidence: Evidence) -> str:
    """Whether the model's outputs for new images are far from both references where these are far apart."""
    own, memory, apart = (
        evidence.by_level("rmse", **DISTANCES[name]) for name in ("gaussian", "multidelta", "references")
    )
    window = [sigma for sigma in evidence.where("window") if sigma in apart]
    far = [sigma for sigma in window if min(own[sigma].low, memory[sigma].low) > apart[sigma].value / 3]
    if not far or 2 * len(far) < len(window):
        return ""
    return (
        "the model's outputs for new images are neither a copier's nor the Gaussian denoiser's: at "
        f"{len(far)} of {len(window)} noise levels they are further from both than a third of the distance between the two."
    )
