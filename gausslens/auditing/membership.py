"""Membership, what is inside: does a model's loss on an image tell whether it was trained on it?

For each noise level, with the losses of `losses` on training and on held-out images:

    μ      memory share, 1 − (mean loss on training images)/(mean loss on held-out images)
    AUC    how often a training image has the lower loss of the two
    TPR    share of training images recognised when 1 % (or .1 %) of held-out images are taken for such by mistake

Some dependence is the rule: the Wiener filter of 64 images has an AUC of .9. So a model *leaks membership* only if its AUC
is above .6 or its TPR at 1 % above .02 for certain at some noise level, with limits that hold for all levels together.
TPR needs 10 held-out images beyond the threshold: 1,000 of them for 1 %, 10,000 for .1 %.

Training images that leak are named at a false-discovery rate of .1: an image's p-value is its rank among held-out losses,
(1 + #{held-out losses ≤ its loss})/(1 + m), at the level of the greatest AUC, times the number of levels.

References: Carlini et al. (2022), arXiv:2112.03570, for TPR at low FPR; Bates, Candès, Lei, Romano, Sesia (2023), Ann. Stat.
51, 149 ff., for the p-values.
"""

import math
from dataclasses import dataclass

import torch
from scipy.stats import beta, binom, norm
from torch import Tensor

from .._typing import Bool, Float, Int
from ..measures.intervals import Estimate, mean_estimate
from ..measures.memorization import estimate_ratio
from ..measures.two_sample import auc_estimate
from .losses import GAUSSIAN, LossGap
from .thresholds import THRESHOLDS

FALSE_POSITIVE_RATES = (0.01, 0.001)
_IMAGES_BEYOND = 10
_ALPHA = 0.05
_FALSE_DISCOVERY = THRESHOLDS["false discovery"].value
_LEAST_OF_CLASS = 20
_ROC_POINTS = 60


@dataclass(frozen=True, eq=False)
class Membership:
    """What the losses of a model say of membership.

    Attributes:
        memory_share: μ at each noise level.
        auc: at each noise level.
        auc_low: lower limits of these that hold at all levels together, at 95 %.
        tpr: by false-positive rate, at each level, with limits that hold at all levels together; none where held-out images
            are too few.
        level: the level of the greatest AUC.
        filter_auc: the AUC there of the Gaussian denoiser of the training images, which only knows mean and covariance.
        roc: false-positive and true-positive rates at that level, ascending.
        filter_roc: the same of the Gaussian denoiser.
        leaking: which of the training images examined leak, (n,).
        by_class: for a conditional model AUC and μ there of each class with at least 20 images of either set.
    """

    memory_share: list[Estimate]
    auc: list[Estimate]
    auc_low: list[float]
    tpr: dict[float, list[Estimate]]
    level: int
    filter_auc: Estimate
    roc: list[tuple[float, float]]
    filter_roc: list[tuple[float, float]]
    leaking: Bool[Tensor, "n"]
    by_class: dict[int, tuple[Estimate, Estimate]]


def measure_membership(losses: LossGap, name: str = "network") -> Membership:
    """What the losses of a denoiser say of membership."""
    known, new = losses.train[name], losses.held_out[name]
    count = len(known)
    auc = losses.auc(name)
    level = max(range(count), key=lambda index: auc[index].value)
    rates = [rate for rate in FALSE_POSITIVE_RATES if new.shape[1] * rate >= _IMAGES_BEYOND]
    filters = losses.train[GAUSSIAN][level], losses.held_out[GAUSSIAN][level]
    return Membership(
        memory_share=[_memory_share(*rows) for rows in zip(known, new, strict=True)],
        auc=auc,
        auc_low=[lower_limit(one, min(known.shape[1], new.shape[1]), count) for one in auc],
        tpr={
            rate: [true_positive_rate(*rows, rate, looks=count) for rows in zip(known, new, strict=True)]
            for rate in rates
        },
        level=level,
        filter_auc=auc_estimate(*filters),
        roc=_roc(known[level], new[level]),
        filter_roc=_roc(*filters),
        leaking=_leaking(known[level], new[level], count),
        by_class=_by_class(losses, name, level),
    )


def true_positive_rate(
    members: Float[Tensor, "n"], others: Float[Tensor, "m"], rate: float, *, looks: int = 1
) -> Estimate:
    """The share of members below the value that a share `rate` of others lies below, with a 95 % interval.

    The value is an order statistic of the others, and its place is uncertain: limits are Clopper and Pearson's for members
    below the order statistics between which the true quantile lies, with half of the error for either.

    >>> print(true_positive_rate(torch.arange(100.0), torch.arange(1000.0) + 50, 0.01))
    0.600 [0.414, 0.781] (n=100)
    """
    n, m, error = len(members), len(others), _ALPHA / looks / 4
    ordered = others.sort().values

    def below(place: int) -> int:
        """Members strictly below the others' order statistic of that place, counted from 1; of all beyond the last."""
        return n if place > m else 0 if place < 1 else int((members < ordered[place - 1]).sum())

    middle = below(math.floor(rate * m) + 1)
    first, last = int(binom.ppf(error, m, rate)), int(binom.ppf(1 - error, m, rate)) + 1
    fewest, most = below(first), below(last)
    low = 0.0 if fewest == 0 else float(beta.ppf(error, fewest, n - fewest + 1))
    high = 1.0 if most == n else float(beta.ppf(1 - error, most + 1, n - most))
    return Estimate(middle / n, min(low, middle / n), max(high, middle / n), n)


def _memory_share(members: Float[Tensor, "n"], others: Float[Tensor, "m"]) -> Estimate:
    """μ = 1 − mean loss of members over mean loss of others."""
    ratio = estimate_ratio(mean_estimate(members), mean_estimate(others))
    return Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low, len(members) + len(others))


def lower_limit(auc: Estimate, units: int, looks: int) -> float:
    """A lower limit of an AUC that holds for so many of them together."""
    if auc.value >= 1:
        return float((_ALPHA / 2 / looks) ** (1 / units))
    if auc.value <= 0 or not auc.low > 0:
        return 0.0
    middle = math.log(auc.value / (1 - auc.value))
    reach = middle - math.log(auc.low / (1 - auc.low))
    reach *= float(norm.ppf(1 - _ALPHA / 2 / looks) / norm.ppf(1 - _ALPHA / 2))
    return 1 / (1 + math.exp(reach - middle))


def _roc(members: Float[Tensor, "n"], others: Float[Tensor, "m"]) -> list[tuple[float, float]]:
    """Points (false-positive rate, true-positive rate) on the curve, from (0, 0) to (1, 1)."""
    both = torch.cat([members, others]).sort().values
    places = torch.unique(torch.linspace(0, 1, _ROC_POINTS).pow(2).mul(len(both) - 1).round().long())
    points = [(float((others <= at).double().mean()), float((members <= at).double().mean())) for at in both[places]]
    return [(0.0, 0.0), *points]


def _leaking(members: Float[Tensor, "n"], others: Float[Tensor, "m"], looks: int) -> Bool[Tensor, "n"]:
    """The members named at the false-discovery rate by Benjamini and Hochberg's rule."""
    ranks = torch.searchsorted(others.sort().values, members, right=True)
    p_values = looks * (1 + ranks).double() / (1 + len(others))
    ordered = p_values.sort().values
    admissible = ordered <= _FALSE_DISCOVERY * torch.arange(1, len(members) + 1) / len(members)
    if not bool(admissible.any()):
        return torch.zeros(len(members), dtype=torch.bool)
    return p_values <= ordered[int(admissible.nonzero().max())]


def _by_class(losses: LossGap, name: str, level: int) -> dict[int, tuple[Estimate, Estimate]]:
    """AUC and μ of each class, at one level."""
    if losses.labels is None or losses.held_out_labels is None:
        return {}
    found = {}
    for label in losses.labels.unique().tolist():
        members: Int[Tensor, n] = losses.train[name][level][losses.labels == label]
        others = losses.held_out[name][level][losses.held_out_labels == label]
        if min(len(members), len(others)) >= _LEAST_OF_CLASS:
            found[label] = auc_estimate(members, others), _memory_share(members, others)
    return found
