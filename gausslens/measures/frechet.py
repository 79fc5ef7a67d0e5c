"""The Fréchet distance between sets of feature vectors, such as principal components or a network's features of images.

    d² = ‖m₁ − m₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₁^½ Σ₂ Σ₁^½)^½)

is the squared Wasserstein-2 distance of Gaussians with the sets' means and covariances. It shrinks as sets grow, so compare
distances of equally large sets.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from .._typing import Float


def frechet_distances(sets: Iterable[Float[Tensor, "_ k"]], b: Float[Tensor, "m k"]) -> list[float]:
    """d² between b and each of several sets of feature vectors.

    Σ_b^½ is computed once. tr((Σ_b^½ Σ_a Σ_b^½)^½) is from eigenvalues: the root of a product would lose half of the digits.

    >>> features = torch.rand(500, 8)
    >>> abs(frechet_distances([features], features)[0]) < 1e-9
    True
    """
    (mean_b, covariance_b), *moments = ((x.double().mean(0), torch.cov(x.double().T, correction=0)) for x in (b, *sets))
    values, vectors = torch.linalg.eigh(covariance_b)
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    distances = []
    for mean, covariance in moments:
        cross = torch.linalg.eigvalsh(root @ covariance @ root).clamp_min(0).sqrt().sum()
        spread = covariance.trace() + covariance_b.trace() - 2 * cross
        distances.append(float((mean - mean_b).square().sum() + spread))
    return distances
