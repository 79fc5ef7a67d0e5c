"""Membership, what is inside: does a model's loss on an image reveal whether it was trained on it?

For each noise level, with the losses of `losses` on training and on held-out images:

    μ      memory share, 1 − (mean loss on training images)/(mean loss on held-out images)
    AUC    how often a training image has the lower loss of the two
    TPR    share of training images recognised when 1 % (or .1 %) of held-out images are mistaken for training images

Some dependence is the rule: the Wiener filter of 64 images has an AUC of .9. So a model *leaks membership* only if its AUC
is above .6 or its TPR at 1 % above .02 for certain at some noise level, with limits that hold for all levels together.
TPR needs 10 held-out images beyond the threshold: 1,000 of them for 1 %, 10,000 for .1 %.

Training images that leak are named at a false-discovery rate of .1: an image's p-value is its rank among held-out losses,
(1 + #{held-out losses ≤ its loss})/(1 + m), at the level of the greatest AUC, times the number of levels.

References: Carlini et al. (2022), arXiv:2112.03570, for TPR at low FPR; Bates, Candès, Lei, Romano, Sesia (2023), Ann. Stat.
51, 149 ff., for the p-values.
"""

import math
from collections.abc import Iterator

import torch
from scipy.stats import beta, binom, norm
from torch import Tensor

from .._typing import Bool, Float
from ..measures.intervals import Estimate, mean_estimate
from ..measures.memorization import estimate_ratio
from ..measures.two_sample import auc_estimate
from ..store.records import Record, of_estimate, record_of
from .losses import GAUSSIAN, LossGap
from .thresholds import THRESHOLDS

FALSE_POSITIVE_RATES = (0.01, 0.001)
_IMAGES_BEYOND = 10
_ALPHA = 0.05
_FALSE_DISCOVERY = THRESHOLDS["false discovery"].value
_LEAST_OF_CLASS = 20
_ROC_POINTS = 60


def membership_records(losses: LossGap, name: str = "network") -> Iterator[Record]:
    """What the losses of a denoiser say of membership.

    Yields:
        Records of each noise level: `auc`, its lower limit `auc_low`, `memory_share`, and `tpr` if there are enough held-out
        images. At the level of the greatest AUC also `roc`, `filter_auc` (of the Gaussian denoiser of the training images),
        the images that leak, and for a conditional model AUC and μ of each class with at least 20 images of either set.
    """
    known, new = losses.train[name], losses.held_out[name]
    levels, units = losses.sigmas.tolist(), min(known.shape[1], new.shape[1])
    aucs = losses.auc(name)
    for sigma, auc, members, others in zip(levels, aucs, known, new, strict=True):
        yield of_estimate("auc", auc, sigma=sigma)
        yield record_of("auc_low", lower_limit(auc, units, len(levels)), sigma=sigma)
        yield of_estimate("memory_share", _memory_share(members, others), sigma=sigma)
        for rate in FALSE_POSITIVE_RATES:
            if new.shape[1] * rate >= _IMAGES_BEYOND:
                found = true_positive_rate(members, others, rate, looks=len(levels))
                yield of_estimate("tpr", found, sigma=sigma, false_positive_rate=rate)
    level = max(range(len(levels)), key=lambda index: aucs[index].value)
    sigma = levels[level]
    of_level = {each: (losses.train[each][level], losses.held_out[each][level]) for each in (name, GAUSSIAN)}
    yield of_estimate("filter_auc", auc_estimate(*of_level[GAUSSIAN]), sigma=sigma)
    for denoiser, rows in (("network", of_level[name]), (GAUSSIAN, of_level[GAUSSIAN])):
        for false, true in _roc(*rows):
            yield record_of("roc", true, false_positive_rate=false, sigma=sigma, denoiser=denoiser)
    leaking = losses.images[_leaking(*of_level[name], len(levels))].tolist()
    yield record_of("leaking", len(leaking), count=len(losses.images), sigma=sigma)
    for image in leaking:
        yield record_of("leaking_image", image, sigma=sigma)
    if losses.labels is None or losses.held_out_labels is None:
        return
    members, others = of_level[name]
    for label in losses.labels.unique().tolist():
        own = members[losses.labels == label], others[losses.held_out_labels == label]
        if min(map(len, own)) >= _LEAST_OF_CLASS:
            yield of_estimate("class_auc", auc_estimate(*own), label=label, sigma=sigma)
            yield of_estimate("class_memory_share", _memory_share(*own), label=label, sigma=sigma)


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
