"""The verdict: memorizing, in transition, generalizing or cannot tell, by stated rules from measured numbers.

Every number is optional, and what was not measured decides nothing. In this order:

1. *Cannot tell* if the images look foreign to the model, or if it falls behind the baseline on training and held-out images
   alike at most intermediate noise levels: it is no denoiser of these images, and what it does there says nothing of what it
   does on its own. (Falling behind on held-out images alone is what memorisers do.)
2. Copies among the samples decide by themselves: a model whose samples mostly copy is memorizing, without held-out
   images too, and one that copies now and then is in transition at least.
3. Else the *lean* decides, the greater of two numbers between 0 (as the posterior mean) and 1 (as the multi-delta
   denoiser), both from `losses`: the position of the loss gap above the baseline's, and the retrieval κ on held-out
   images. Each is taken where it is greatest among the levels of the window, since memorisation shows at some levels and
   not at others: a network can be next to the identity where noise is low, whatever it has learned.
4. *Cannot tell* if nothing calibrates it: no held-out images, no level in the window, or an interval from generalizing to
   memorizing.

A gap, its AUC or its p-value alone never decides: the Wiener filter of 64 digits has an AUC of .9 and copies nothing. And
memorizing takes a level at which the model lies beyond the Gaussian denoiser of the training images, ρ above 0 by a margin:
of a few images that denoiser answers with mixtures of them, so that its lean reaches .6, but it does not retrieve them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..measures.intervals import Estimate
from .foreignness import Foreignness
from .losses import BASELINE, GAUSSIAN, MULTIDELTA, LossGap

MEMORIZING, IN_TRANSITION, GENERALIZING = "memorizing", "in transition", "generalizing"
CANNOT_TELL = "cannot tell"
VERDICTS = (MEMORIZING, IN_TRANSITION, GENERALIZING, CANNOT_TELL)


class Threshold(NamedTuple):
    """A number that the rules compare with, and where it is from."""

    value: float
    source: str


THRESHOLDS = {
    "memorizing": Threshold(
        0.65,
        "between weights .5 and .9 of multi-delta, nearer to .5: networks whose samples are mostly copies have .73 to .85",
    ),
    "generalizing": Threshold(0.3, "midway between weights .1 and .5; trained generalisers have .0 to .1"),
    "gaussian": Threshold(
        0.75, "position of the Gaussian denoiser above which it is next to a memoriser, and a level decides nothing"
    ),
    "beyond gaussian": Threshold(0.3, "ρ at which a model is clearly beyond the Gaussian denoiser, whose ρ is 0"),
    "visible": Threshold(
        0.25, "gap of the multi-delta denoiser, in units of the baseline's loss, below which a level decides nothing"
    ),
    "behind": Threshold(
        1.1, "loss in units of the baseline's above which a model falls behind; networks of digits: .7 to 1.03"
    ),
    "noisy": Threshold(0.9, "intermediate levels: the baseline leaves less of the noise, and of the images' variance"),
    "copies": Threshold(0.5, "most samples: our choice"),
    "some copies": Threshold(0.01, "the smallest share that 2,000 samples show reliably (two-set copy test)"),
    "p": Threshold(0.01, "level of the copy test"),
}
"""All numbers that decide, with their sources; tuned on the tuning part of benchmarks/ladder_truth.json alone."""


@dataclass(frozen=True)
class Evidence:
    """The numbers behind a verdict; None is not measured. Sequences have one entry for each noise level.

    Attributes:
        sigmas: the noise levels.
        window: the levels at which a memoriser would be seen.
        intermediate: the levels at which denoising is neither trivial nor hopeless.
        rho: position of the loss gap between the Gaussian (0) and the multi-delta denoiser (1), where resolved.
        position: position of the loss gap between the baseline and the multi-delta denoiser, where resolved.
        retrieval: κ, the share of the multi-delta denoiser's answers to held-out images, where resolved.
        train_loss: loss on training images, in units of the baseline's.
        held_out_loss: loss on held-out images, in units of the baseline's.
        auc: of the loss, training against held-out images.
        p_values: of the AUC.
        distance_gaussian: distance to the Gaussian denoiser on held-out images.
        distance_multidelta: distance to the multi-delta denoiser on held-out images.
        foreignness: whether the images look foreign to the model.
        memorized_fraction: share of samples three times nearer to one training image than to any other.
        copied_fraction: share of samples named as copies by the copy test.
        copy_p: p-value of the copy test.
        relative_gl: GL score of the samples in units of that of held-out images.
    """

    sigmas: tuple[float, ...] | None = None
    window: tuple[bool, ...] | None = None
    intermediate: tuple[bool, ...] | None = None
    rho: Sequence[Estimate | None] | None = None
    position: Sequence[Estimate | None] | None = None
    retrieval: Sequence[Estimate | None] | None = None
    train_loss: Sequence[Estimate] | None = None
    held_out_loss: Sequence[Estimate] | None = None
    auc: Sequence[Estimate] | None = None
    p_values: tuple[float, ...] | None = None
    distance_gaussian: Sequence[Estimate] | None = None
    distance_multidelta: Sequence[Estimate] | None = None
    foreignness: Foreignness | None = None
    memorized_fraction: Estimate | None = None
    copied_fraction: Estimate | None = None
    copy_p: float | None = None
    relative_gl: Estimate | None = None

    @classmethod
    def of_losses(cls, losses: LossGap, name: str = "network", **others: Any) -> "Evidence":
        """What the losses of a denoiser say, beside other evidence.

        Args:
            losses: from `measure_losses`.
            name: of the denoiser.
            **others: further fields.

        Returns:
            The evidence.
        """
        known = {
            "sigmas": tuple(losses.sigmas.tolist()),
            "intermediate": _intermediate(losses),
            "train_loss": losses.relative(name, BASELINE, "train"),
        }
        if losses.calibrated:
            known |= {
                "window": _window(losses),
                "rho": losses.position(name),
                "position": losses.position(name, BASELINE),
                "retrieval": losses.retrieval(name),
                "held_out_loss": losses.relative(name, BASELINE),
                "auc": losses.auc(name),
                "p_values": tuple(losses.p_values(name).tolist()),
            }
        return cls(**{**known, **others})


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

    if reason := _unfit(evidence):
        return conclude(CANNOT_TELL, reason)
    copying, copies = _copying(evidence)
    if copying == MEMORIZING:
        return conclude(MEMORIZING, copies)
    if most is None:
        return conclude(copying or CANNOT_TELL, copies or _uncalibrated(evidence))
    memorizing, generalizing = THRESHOLDS["memorizing"].value, THRESHOLDS["generalizing"].value
    if most.value.low < generalizing and most.value.high > memorizing:
        doubt = f"too few images to tell: {most}, from generalizing (below {generalizing}) to memorizing."
        return conclude(copying or CANNOT_TELL, copies or doubt)
    beyond = [lean for lean in leans if lean.value.value >= memorizing and lean.beyond_gaussian]
    if beyond:
        top = max(beyond, key=lambda entry: entry.value.value)
        return conclude(MEMORIZING, f"{top}; {memorizing} and above is memorizing, 1 is perfect copying.", top)
    if copying:
        return conclude(copying, copies)
    if most.value.value <= generalizing:
        return conclude(GENERALIZING, f"{most}; {generalizing} and below is generalizing, 0 is no copying.")
    return conclude(IN_TRANSITION, f"{most}, between generalizing ({generalizing}) and memorizing ({memorizing}).")


class _Lean(NamedTuple):
    """One number between 0 and 1, its level, what it is, and whether the model is beyond the Gaussian there."""

    value: Estimate
    sigma: float
    name: str
    beyond_gaussian: bool

    def __str__(self) -> str:
        return f"{self.name} is {self.value} at σ = {self.sigma:.3g}"


def _window(losses: LossGap) -> tuple[bool, ...]:
    """Levels at which the multi-delta denoiser's gap is visible and the Gaussian's well below it."""
    gaps = {
        name: losses.held_out[name].mean(1) - losses.train[name].mean(1) for name in (GAUSSIAN, MULTIDELTA, BASELINE)
    }
    reach = gaps[MULTIDELTA] - gaps[BASELINE]
    visible = reach >= THRESHOLDS["visible"].value * losses.held_out[BASELINE].mean(1)
    apart = gaps[GAUSSIAN] - gaps[BASELINE] <= THRESHOLDS["gaussian"].value * reach
    return tuple((visible & apart).tolist())


def _intermediate(losses: LossGap) -> tuple[bool, ...]:
    """Levels at which the baseline is better than the noisy image, and than the mean image: its loss at the top level."""
    plain = (losses.held_out if losses.calibrated else losses.train)[BASELINE].mean(1)
    share = THRESHOLDS["noisy"].value
    return tuple(((plain <= share * losses.sigmas.square()) & (plain <= share * plain.max())).tolist())


def _leans(evidence: Evidence) -> list[_Lean]:
    """Position and retrieval at the levels of the window."""
    if evidence.window is None or evidence.sigmas is None:
        return []
    limit = THRESHOLDS["beyond gaussian"].value
    rhos = evidence.rho or [None] * len(evidence.sigmas)
    return [
        _Lean(value, sigma, name, rho is not None and rho.value >= limit)
        for values, name in (
            (evidence.position, "the position of the loss gap between baseline and multi-delta"),
            (evidence.retrieval, "the share of retrieval in the answers to new images"),
        )
        if values is not None
        for value, rho, inside, sigma in zip(values, rhos, evidence.window, evidence.sigmas, strict=True)
        if inside and value is not None
    ]


def _unfit(evidence: Evidence) -> str | None:
    """Why the model cannot be judged by these images, if so."""
    if evidence.foreignness is not None and evidence.foreignness.expected is not None:
        return f"the images look foreign to the model: {evidence.foreignness}."
    if evidence.train_loss is None or evidence.intermediate is None:
        return None
    limit = THRESHOLDS["behind"].value
    held_out = evidence.held_out_loss or evidence.train_loss
    considered = [
        min(on_train.value, on_held_out.value) > limit
        for on_train, on_held_out, inside in zip(evidence.train_loss, held_out, evidence.intermediate, strict=True)
        if inside
    ]
    if considered and 2 * sum(considered) > len(considered):
        return (
            f"the model denoises these images worse than a plain Wiener filter, training images too, at {sum(considered)} "
            f"of {len(considered)} intermediate noise levels: they are of another source, prepared otherwise, or it is "
            "not trained."
        )
    return None


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
    return "nothing was measured that could tell."


def _context(evidence: Evidence) -> list[str]:
    """What else was measured, in sentences; none of it decides."""
    said = []
    if evidence.rho is not None and evidence.sigmas is not None:
        resolved = [(rho, sigma) for rho, sigma in zip(evidence.rho, evidence.sigmas, strict=True) if rho is not None]
        if resolved:
            rho, sigma = max(resolved, key=lambda entry: entry[0].low)
            said.append(
                f"the loss gap lies at ρ = {rho} between the Gaussian (0) and the multi-delta denoiser (1) at "
                f"σ = {sigma:.3g}, where it is farthest."
            )
    if evidence.auc is not None and evidence.p_values is not None:
        at = int(torch.tensor([auc.value for auc in evidence.auc]).argmax())
        said.append(
            f"the loss tells training images from held-out ones with an AUC of {evidence.auc[at]}, "
            f"p = {evidence.p_values[at]:.2g}."
        )
    if evidence.distance_gaussian is not None and evidence.distance_multidelta is not None:
        pairs = list(zip(evidence.distance_gaussian, evidence.distance_multidelta, strict=True))
        nearer = sum(multidelta.value < gaussian.value for gaussian, multidelta in pairs)
        said.append(
            f"on held-out images it is nearer to the multi-delta than to the Gaussian denoiser at {nearer} of "
            f"{len(pairs)} levels."
        )
    if evidence.memorized_fraction is not None:
        said.append(
            f"share of samples three times nearer to one training image than to the next: {evidence.memorized_fraction}."
        )
    if evidence.relative_gl is not None:
        said.append(f"samples lie {evidence.relative_gl} times as far from the training images as held-out images do.")
    return said
