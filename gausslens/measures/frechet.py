"""The Fréchet distance between two sets of images, in the principal components of a reference set.

    d² = ‖m₁ − m₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₁^½ Σ₂ Σ₁^½)^½)

is the squared Wasserstein-2 distance of Gaussians with the sets' means and covariances. The leading components hold nearly
all of the variance; the others are noise that nobody sees. It needs no network, is the same on every machine, and compares
sets of one size: it shrinks as sets grow.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from .._typing import Float, Images
from ..denoisers.moments import Moments
from ..errors import require
from ..images import Bounds, dequantize, gather

_ROWS_AT_ONCE = 4096


def frechet_distance(
    a: Images, b: Images, reference: Moments, *, rank: int = 256, bounds: Bounds = (-1.0, 1.0)
) -> float:
    """d² between two sets of images, in the first `rank` principal components of a reference set.

    >>> import torch
    >>> images = torch.rand(500, 1, 4, 4)
    >>> moments = Moments.fit(images)
    >>> abs(frechet_distance(images, images, moments, rank=8)) < 1e-9
    True
    """
    require(
        1 <= rank <= len(reference.eigvals),
        f"rank must lie between 1 and {len(reference.eigvals)}, the reference's components; got {rank}.",
    )
    mean, vectors = reference.mean.double().cpu(), reference.eigvecs[:, :rank].double().cpu()

    def components(images: Images) -> Tensor:
        parts = gather(images, bounds=bounds).flatten(1).split(_ROWS_AT_ONCE)
        return torch.cat([(dequantize(part.cpu(), torch.float64) - mean) @ vectors for part in parts])

    return feature_distances([components(a)], components(b))[0]


def feature_distances(sets: Iterable[Float[Tensor, "_ k"]], b: Float[Tensor, "m k"]) -> list[float]:
    """d² between each of several sets of feature vectors and one, of which a matrix root is taken once.

    With Σ_b^½ in hand, tr((Σ_b^½ Σ_a Σ_b^½)^½) comes from eigenvalues: the root of a product would lose half of the digits.
    """
    mean_b, covariance_b = b.double().mean(0), torch.cov(b.double().T, correction=0)
    values, vectors = torch.linalg.eigh(covariance_b)
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    distances = []
    for a in sets:
        mean, covariance = a.double().mean(0), torch.cov(a.double().T, correction=0)
        cross = torch.linalg.eigvalsh(root @ covariance @ root).clamp_min(0).sqrt().sum()
        spread = covariance.trace() + covariance_b.trace() - 2 * cross
        distances.append(float((mean - mean_b).square().sum() + spread))
    return distances
