"""The verdict: memorizing, in transition, generalizing or cannot tell, by stated rules from measured numbers.

Every number is optional, and what was not measured decides nothing. In this order:

1. *Cannot tell* if the images look foreign to the model; if it denoises held-out images better than training images, as
   one would that memorised the former; or if it falls behind the baseline on training images at most intermediate noise
   levels, or at most of these and lower ones: it is no denoiser of these images. (Falling behind on held-out images alone
   is what memorisers do.) A model that falls behind but whose samples mostly copy is memorizing all the same: they are
   what it does on its own.
2. Copies among the samples decide: a model whose samples mostly copy is memorizing, without held-out images too, unless
   its lean (below) lies short of memorizing for certain; then, and if it copies now and then, it is in transition at least.
3. Else the *lean* decides, the greater of two numbers between 0 (as the posterior mean) and 1 (as the multi-delta
   denoiser), both from `losses`: the position of the loss gap above the baseline's, and the retrieval κ on held-out
   images. Each is taken where it is greatest among the levels of the window, since memorisation shows at some levels and
   not at others: a network can be next to the identity where noise is low, whatever it has learned.
4. *Cannot tell* if nothing calibrates it: no held-out images, no level in the window, or an interval from generalizing to
   memorizing. Generalizing takes all levels of the window: where one is lost in its errors, a memoriser may hide there.

A gap, its AUC or its p-value alone never decides: the Wiener filter of 64 digits has an AUC of .9 and copies nothing. And
memorizing takes a level at which the model lies beyond the Gaussian denoiser of the training images, ρ above 0 by a margin:
of a few images that denoiser answers with mixtures of them, so that its lean reaches .6, but it does not retrieve them.
"""

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from ..measures.intervals import Estimate
from .evidence import Evidence
from .foreignness import Foreignness
from .thresholds import THRESHOLDS

__all__ = [
    "CANNOT_TELL",
    "GENERALIZING",
    "IN_TRANSITION",
    "MEMORIZING",
    "THRESHOLDS",
    "VERDICTS",
    "Evidence",
    "Verdict",
    "judge",
]

MEMORIZING, IN_TRANSITION, GENERALIZING = "memorizing", "in transition", "generalizing"
CANNOT_TELL = "cannot tell"
VERDICTS = (MEMORIZING, IN_TRANSITION, GENERALIZING, CANNOT_TELL)

_POSITION = (
    "on a scale from 0 (the baseline: a linear filter to which training and new images are alike) to 1 (the multi-delta "
    "denoiser: a copier), the gap between its losses on new and on training images"
)
_RETRIEVAL = (
    "on a scale from 0 (none) to 1 (the multi-delta denoiser: a copier), the retrieval of training images in its answers to "
    "new ones"
)


@dataclass(frozen=True)
class Verdict:
    """What an audit concludes.

    Attributes:
        verdict: "memorizing", "in transition", "generalizing" or "cannot tell".
        reasons: why, in sentences, the decisive one first.
        lean: from 0, as the posterior mean, to 1, as the multi-delta denoiser; None if not measured.
        sigma: the noise level of `lean`.
    """

    verdict: str
    reasons: tuple[str, ...]
    lean: Estimate | None = None
    sigma: float | None = None


def judge(evidence: Evidence) -> Verdict:
    """The verdict that the rules of this module give.

    Args:
        evidence: what was measured.

    Returns:
        The verdict with its reasons.

    >>> judge(Evidence(memorized_fraction=Estimate(0.93, 0.91, 0.95, 500))).verdict
    'memorizing'
    >>> judge(Evidence()).verdict
    'cannot tell'
    """
    leans = _leans(evidence)
    most = max(leans, key=lambda entry: entry.value.value, default=None)
    context = tuple(_context(evidence))

    def conclude(verdict: str, reason: str, lean: _Lean | None = most) -> Verdict:
        return Verdict(
            verdict, (reason, *context), None if lean is None else lean.value, None if lean is None else lean.sigma
        )

    copying, copies = _copying(evidence)
    behind = _behind(evidence)
    if reason := _foreign(evidence) or _exchanged(evidence) or (behind if copying != MEMORIZING else None):
        return conclude(CANNOT_TELL, f"{reason} Even so, {copies}" if copying else reason)
    memorizing, generalizing = THRESHOLDS["memorizing"].value, THRESHOLDS["generalizing"].value
    if copying == MEMORIZING and (behind or most is None or most.value.high >= memorizing):
        return conclude(MEMORIZING, copies)
    if copying == MEMORIZING:  # a sampler is drawn to training images by far less than full retrieval
        return conclude(IN_TRANSITION, f"{copies} But {most}, short of memorizing ({memorizing}).")
    if most is None:
        return conclude(copying or CANNOT_TELL, copies or _uncalibrated(evidence))
    if most.value.low < generalizing and most.value.high > memorizing:
        doubt = f"too few images to tell: {most}, from generalizing (below {generalizing}) to memorizing."
        return conclude(copying or CANNOT_TELL, copies or doubt)
    beyond = [lean for lean in leans if lean.value.value >= memorizing and lean.beyond_gaussian]
    if beyond:
        top = max(beyond, key=lambda entry: entry.value.value)
        return conclude(MEMORIZING, f"{top}; {memorizing} and above is memorizing.", top)
    if copying:
        return conclude(copying, copies)
    if most.value.value <= generalizing and (lost := _lost(evidence, leans)):
        return conclude(CANNOT_TELL, lost)
    if most.value.value <= generalizing:
        return conclude(GENERALIZING, f"{most}; {generalizing} and below is generalizing.")
    if most.value.value >= memorizing:
        return conclude(IN_TRANSITION, f"{most}, but no more than the Gaussian denoiser of so few images does.")
    return conclude(IN_TRANSITION, f"{most}, between generalizing ({generalizing}) and memorizing ({memorizing}).")


class _Lean(NamedTuple):
    """One number between 0 and 1, its level, what it is, and whether the model is beyond the Gaussian there."""

    value: Estimate
    sigma: float
    name: str
    beyond_gaussian: bool

    def __str__(self) -> str:
        return f"{self.name} is {self.value} at σ = {self.sigma:.3g}"


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
    return [
        _Lean(value, sigma, name, rho is not None and rho.value >= limit)
        for values, name in (
            (evidence.position, _POSITION),
            (evidence.retrieval, _RETRIEVAL),
        )
        if values is not None
        for value, rho, inside, sigma in zip(values, rhos, evidence.window, evidence.sigmas, strict=True)
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


def _copying(evidence: Evidence) -> tuple[str | None, str]:
    """What the samples show by themselves, with the reason."""
    most, some, level = (THRESHOLDS[name].value for name in ("copies", "some copies", "p"))
    fraction, named, p = evidence.memorized_fraction, evidence.copied_fraction, evidence.copy_p
    tested = p is None or p <= level
    if fraction is not None and fraction.low > most and tested:
        return MEMORIZING, f"most samples copy a training image: a share of {fraction}."
    if named is not None and p is not None and p <= level:
        if named.low > most:
            return MEMORIZING, f"most samples are named as copies: a share of {named}; p = {p:.2g}."
        if named.value >= some:
            return IN_TRANSITION, f"some samples are copies: a share of {named}; p = {p:.2g}."
    return None, ""


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


def _context(evidence: Evidence) -> list[str]:
    """What else was measured, in sentences; none of it decides."""
    said = []
    if evidence.train_loss is not None and evidence.held_out_loss is None:
        said.append(
            "without held-out images neither the loss gap (ρ, AUC) nor the retrieval can be calibrated, and of the samples "
            "no copy can be named, nor their novelty or the power to find copies be said."
        )
    if evidence.rho is not None and evidence.sigmas is not None and evidence.window is not None:
        levels = zip(evidence.rho, evidence.sigmas, evidence.window, strict=True)
        resolved = [(rho, sigma) for rho, sigma, inside in levels if inside and rho is not None]
        if resolved:
            rho, sigma = max(resolved, key=lambda entry: entry[0].value)
            said.append(
                "with the Gaussian denoiser of the training images at 0, which knows their mean and covariance and so has a "
                f"loss gap of its own, and the copier at 1, its loss gap is ρ = {rho} at σ = {sigma:.3g}, where it is "
                "greatest of the levels at which a copier would be seen."
            )
    if evidence.auc is not None and evidence.p_values is not None:
        auc, p = max(zip(evidence.auc, evidence.p_values, strict=True), key=lambda entry: entry[0].value)
        said.append(
            f"the loss tells training images from held-out ones with an AUC of {auc}, p = {p:.2g}; any model that depends "
            "on its training images has one above .5, whether it copies or not."
        )
    if evidence.distance_gaussian is not None and evidence.distance_multidelta is not None:
        pairs = list(zip(evidence.distance_gaussian, evidence.distance_multidelta, strict=True))
        nearer = sum(multidelta.value < gaussian.value for gaussian, multidelta in pairs)
        images = "held-out" if evidence.held_out_loss is not None else "training"
        said.append(
            f"on {images} images its answers are nearer to those of the multi-delta than of the Gaussian denoiser at "
            f"{nearer} of {len(pairs)} levels, as those of good denoisers can be that copy nothing."
        )
    if evidence.memorized_fraction is not None:
        said.append(
            f"share of samples three times nearer to one training image than to the next: {evidence.memorized_fraction}."
        )
    if evidence.relative_gl is not None and isfinite(evidence.relative_gl.high):
        said.append(f"samples lie {evidence.relative_gl} times as far from the training images as held-out images do.")
    return said
