"""Samples and training images in the space of a feature network.

Distances of pixels miss a copy that was cropped, recoloured or redrawn. Features see it, and also likenesses that are not
copies. The same neighbours, ratios and two-set copy test are taken in feature space, with two well-known numbers:

    FD    = ‖m₁ − m₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₁^½ Σ₂ Σ₁^½)^½), the squared Fréchet distance of samples and training images
    MiFID = FD/m,  m = mean over samples x of min over training images y of 1 − |cos(f(x), f(y))|,  if m < 0.1, else FD
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .._typing import Bool, Float
from ..evaluation.records import of_estimate, record_of
from ..measures.frechet import frechet_distances
from ..measures.intervals import Estimate, jackknife_estimate, mean_estimate
from ..measures.memorization import memorization
from ..store.records import Record
from .embedding import FeatureNetwork

_COPYING = 0.1  # the mean cosine distance below which MiFID counts samples as copies
_SMALLEST = 1e-14  # keeps MiFID finite
_COSINE_ROWS = 1024
_GROUPS = 10  # of samples, left out in turn for the error of a distance


def compare_features(
    network: FeatureNetwork,
    samples: Tensor,
    train: Tensor,
    held_out: Tensor | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
) -> Iterator[Record]:
    """How near samples lie to training images in a feature space.

    Yields:
        FD of samples (`frechet`) and of as many held-out images (`frechet_held_out`), with intervals over samples: distances
        shrink as sets grow, so compare those of equal counts. MiFID, and m before it is replaced by 1 (`nearest_cosine`).
        From Euclidean distances of features the share of copies by the ratio rule, relative GL and the two-set test.

    Reference: Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter (2017), arXiv:1706.08500, for FD; Bai, Lin, Raffel, Kan
    (2021), arXiv:2106.03062, for MiFID.
    """
    made, known = (network.embed(images, progress=progress) for images in (samples, train))
    unseen = None if held_out is None else network.embed(held_out, progress=progress)
    count, named = len(made) if unseen is None else min(len(made), len(unseen)), {"features": network.name}
    cosines = _nearest_cosines(made[:count], known, network.device)
    frechet, without = _frechet(made[:count], known)
    parts = [mifid(far, _mean(cosines[left])) for far, left in zip(without, _without_groups(count), strict=True)]
    yield of_estimate("frechet", frechet, **named)
    if unseen is not None:
        yield of_estimate("frechet_held_out", _frechet(unseen[:count], known)[0], **named)
    yield of_estimate("mifid", jackknife_estimate(mifid(frechet.value, _mean(cosines)), parts, count), **named)
    directed = cosines[~cosines.isnan()]
    yield of_estimate("nearest_cosine", mean_estimate(directed if len(directed) else torch.ones(1)), **named)
    near = memorization(
        made, known, unseen, duplicate_rmse=0.0, seed=seed, bounds=None, device=network.device, progress=progress
    )
    yield of_estimate("copied_share_features", near.ratio_fraction, **named)
    if near.relative_gl is not None:
        yield of_estimate("relative_gl_features", near.relative_gl, **named)
    if near.copy_test is not None:
        yield record_of("two_set_p_features", near.copy_test.p_value, count=len(made), **named)


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
    nearest = torch.full((len(features),), torch.nan, dtype=torch.float64)
    directed = features.norm(dim=1) > 0
    ours, theirs = (nn.functional.normalize(part[part.norm(dim=1) > 0].double(), dim=1) for part in (features, known))
    if 0 not in (len(ours), len(theirs)):
        tiles = theirs.split(16 * _COSINE_ROWS)
        closest = [
            torch.stack([(part.to(place) @ tile.to(place).T).abs().amax(1) for tile in tiles]).amax(0)
            for part in ours.split(_COSINE_ROWS)
        ]
        nearest[directed] = (1 - torch.cat(closest)).clamp_min(0).cpu()
    return nearest


def _mean(cosines: Float[Tensor, "m"]) -> float:
    """Their mean; 1 if there is none."""
    return float(cosines.nanmean().nan_to_num(nan=1.0))
