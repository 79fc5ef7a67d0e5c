"""Samples and training images as a feature network sees them, beside what their pixels say.

Pixels miss a copy that was cropped, recoloured or redrawn; features see it, and much else that is no copy. So the same
neighbours, ratios and two-set copy test are taken in feature space, with two numbers that people know:

    FD    = ‖m₁ − m₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₁^½ Σ₂ Σ₁^½)^½), the squared Fréchet distance of samples and training images
    MiFID = FD/m,  m = mean over samples x of min over training images y of 1 − |cos(f(x), f(y))|,  if m < 0.1, else FD
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Bool, Float, Images
from ..images import Bounds
from ..measures.frechet import frechet_distances
from ..measures.intervals import Estimate, jackknife_estimate, mean_estimate
from ..measures.memorization import Memorization, memorization
from .embedding import BATCH, FeatureNetwork

_COPYING = 0.1  # the mean cosine distance below which MiFID counts samples as copies
_SMALLEST = 1e-14  # keeps MiFID finite
_COSINE_ROWS = 1024
_GROUPS = 10  # of samples, left out in turn for the error of a distance


@dataclass(frozen=True, eq=False)
class FeatureComparison:
    """What a feature network says of samples.

    Attributes:
        network: its name.
        memorization: neighbours, ratios and copy test of the features; distances are Euclidean.
        frechet: FD of samples and training images. Intervals are over samples; distances shrink as sets grow, so compare
            such of equal counts.
        frechet_held_out: FD of as many held-out images and the training images, what real new images have; None without.
        mifid: FD/m.
        nearest_cosine: m, before it is replaced by 1.
    """

    network: str
    memorization: Memorization
    frechet: Estimate
    frechet_held_out: Estimate | None
    mifid: Estimate
    nearest_cosine: Estimate

    def __str__(self) -> str:
        beside = "" if self.frechet_held_out is None else f"; of held-out images: {self.frechet_held_out}"
        return (
            f"features of {self.network}\n  Fréchet distance of samples: {self.frechet}{beside}\n"
            f"  MiFID: {self.mifid}; mean cosine distance to the nearest training image: {self.nearest_cosine}\n"
            f"  {self.memorization}"
        )


def compare_features(
    network: FeatureNetwork,
    samples: Images,
    train: Images,
    held_out: Images | None = None,
    *,
    bounds: Bounds = (-1.0, 1.0),
    seed: int = 0,
    batch_size: int = BATCH,
    progress: bool = False,
) -> FeatureComparison:
    """How near samples lie to training images in a feature space.

    Reference: Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter (2017), arXiv:1706.08500, for FD; Bai, Lin, Raffel, Kan
    (2021), arXiv:2106.03062, for MiFID.
    """
    how: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
    made = network.embed(samples, bounds=None, **how)
    known = network.embed(train, bounds=bounds, **how)
    unseen = None if held_out is None else network.embed(held_out, bounds=bounds, **how)
    count = len(made) if unseen is None else min(len(made), len(unseen))
    cosines = _nearest_cosines(made[:count], known, network.device)
    frechet, without = _frechet(made[:count], known)
    parts = [mifid(far, _mean(cosines[left])) for far, left in zip(without, _without_groups(count), strict=True)]
    return FeatureComparison(
        network=network.name,
        memorization=memorization(
            made, known, unseen, duplicate_rmse=0.0, seed=seed, bounds=None, device=network.device, progress=progress
        ),
        frechet=frechet,
        frechet_held_out=None if unseen is None else _frechet(unseen[:count], known)[0],
        mifid=jackknife_estimate(mifid(frechet.value, _mean(cosines)), parts, count),
        nearest_cosine=mean_estimate(cosines[~cosines.isnan()] if not cosines.isnan().all() else torch.ones(1)),
    )


def mifid(frechet: float, nearest_cosine: float) -> float:
    """FD/m with m the samples' mean cosine distance to the nearest training image, if below 0.1; else FD.

    >>> mifid(12.0, 0.25), round(mifid(12.0, 0.05))
    (12.0, 240)
    """
    return frechet / (nearest_cosine + _SMALLEST) if nearest_cosine < _COPYING else frechet


def _frechet(features: Float[Tensor, "m d"], known: Float[Tensor, "n d"]) -> tuple[Estimate, list[float]]:
    """FD with its interval over features, and FD without each group of them."""
    parts = [features[left] for left in _without_groups(len(features))]
    whole, *without = frechet_distances([features, *parts], known)
    return jackknife_estimate(whole, without, len(features)), without


def _without_groups(count: int) -> list[Bool[Tensor, "count"]]:
    """Which of so many are left without the first, second, … of ten equal groups."""
    groups = torch.arange(count) % _GROUPS
    return [groups != group for group in range(min(_GROUPS, count) if count > 2 else 0)]


def _nearest_cosines(
    features: Float[Tensor, "m d"], known: Float[Tensor, "n d"], place: torch.device
) -> Float[Tensor, "m"]:
    """The least 1 − |cos| of each feature to any known one, in float64; NaN for zero vectors, which have no direction."""
    theirs = nn.functional.normalize(known[known.norm(dim=1) > 0].double(), dim=1)
    nearest = torch.full((len(features),), torch.nan, dtype=torch.float64)
    there = features.norm(dim=1).cpu() > 0
    ours = nn.functional.normalize(features[there.to(features.device)].double(), dim=1)
    if 0 not in (len(ours), len(theirs)):
        closest = [
            torch.stack([(part.to(place) @ tile.to(place).T).abs().amax(1) for tile in theirs.split(16 * _COSINE_ROWS)])
            for part in ours.split(_COSINE_ROWS)
        ]
        nearest[there] = (1 - torch.cat([cosines.amax(0) for cosines in closest])).clamp_min(0).cpu()
    return nearest


def _mean(cosines: Float[Tensor, "m"]) -> float:
    """Their mean; 1 if there is none."""
    return float(cosines.nanmean().nan_to_num(nan=1.0))
