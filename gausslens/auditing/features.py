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

from .._typing import Float, Images
from ..images import Bounds
from ..measures.copying import Memorization, memorization
from ..measures.frechet import feature_distance
from .embedding import BATCH, FeatureNetwork

_COPYING = 0.1  # the mean cosine distance below which MiFID counts samples as copies
_SMALLEST = 1e-14  # keeps MiFID finite
_COSINE_ROWS = 1024


@dataclass(frozen=True, eq=False)
class FeatureComparison:
    """What a feature network says of samples.

    Attributes:
        network: its name.
        memorization: neighbours, ratios and copy test of the features; distances are Euclidean.
        frechet: FD of samples and training images.
        frechet_held_out: FD of as many held-out images and the training images, what real new images have; None without.
        mifid: FD/m.
        nearest_cosine: m, before it is replaced by 1.
        count: samples, and held-out images, behind the distances: they shrink as sets grow.
    """

    network: str
    memorization: Memorization
    frechet: float
    frechet_held_out: float | None
    mifid: float
    nearest_cosine: float
    count: int

    def __str__(self) -> str:
        beside = "" if self.frechet_held_out is None else f" (held-out images: {self.frechet_held_out:.4g})"
        return (
            f"features of {self.network}\n  Fréchet distance of {self.count} samples: {self.frechet:.4g}{beside}\n"
            f"  MiFID: {self.mifid:.4g}, mean cosine distance to the nearest training image {self.nearest_cosine:.3g}\n"
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

    Args:
        network: makes the features.
        samples: generated images, (m, c, h, w); only checked to be finite.
        train: the images the model was trained on, (n, c, h, w).
        held_out: images of the same source it has not seen, (n', c, h, w).
        bounds: admissible values of float `train` and `held_out`, or None.
        seed: fixes everything random.
        batch_size: see `FeatureNetwork.embed`.
        progress: show progress bars.

    Returns:
        The comparison.

    Reference: Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter (2017), arXiv:1706.08500, for FD; Bai, Lin, Raffel, Kan
    (2021), arXiv:2106.03062, for MiFID.
    """
    how: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
    made = network.embed(samples, bounds=None, **how)
    known = network.embed(train, bounds=bounds, **how)
    unseen = None if held_out is None else network.embed(held_out, bounds=bounds, **how)
    count = len(made) if unseen is None else min(len(made), len(unseen))
    frechet = feature_distance(made[:count], known)
    nearest_cosine = _nearest_cosine(made[:count], known, network.device)
    return FeatureComparison(
        network=network.name,
        memorization=memorization(
            made, known, unseen, duplicate_rmse=0.0, seed=seed, bounds=None, device=network.device, progress=progress
        ),
        frechet=frechet,
        frechet_held_out=None if unseen is None else feature_distance(unseen[:count], known),
        mifid=mifid(frechet, nearest_cosine),
        nearest_cosine=nearest_cosine,
        count=count,
    )


def mifid(frechet: float, nearest_cosine: float) -> float:
    """FD/m with m the samples' mean cosine distance to the nearest training image, if below 0.1; else FD.

    >>> mifid(12.0, 0.25), round(mifid(12.0, 0.05))
    (12.0, 240)
    """
    return frechet / (nearest_cosine + _SMALLEST) if nearest_cosine < _COPYING else frechet


def _nearest_cosine(features: Float[Tensor, "m d"], known: Float[Tensor, "n d"], place: torch.device) -> float:
    """The mean over features of the least 1 − |cos| to any known one, in float64; zero vectors have no direction."""
    ours, theirs = (nn.functional.normalize(some[some.norm(dim=1) > 0].double(), dim=1) for some in (features, known))
    if 0 in (len(ours), len(theirs)):
        return 1.0
    closest = [
        torch.stack([(part.to(place) @ tile.to(place).T).abs().amax(1) for tile in theirs.split(16 * _COSINE_ROWS)])
        for part in ours.split(_COSINE_ROWS)
    ]
    return float((1 - torch.cat([cosines.amax(0) for cosines in closest])).clamp_min(0).mean())
