"""Can it be judged? Whether training and held-out images come from one distribution, tested without the model.

Everything that compares a model's losses on both sets assumes that membership is a fair label: that any of the images might
as well have been in the other set. If held-out images are of other classes, another source, or prepared otherwise, a model
that copies nothing has different losses on them, too. Two statistics see such a difference, each with a permutation
p-value that is exact if the label is fair:

    neighbours   in the leading principal components, how often the three nearest images of an image are of its own set.
                 Sees other contents: classes, sources, and images in groups that were not named.
    detail       b_σ(x) = ‖x − D(x; σ)‖²/d, what a Wiener filter of other images takes away from an image without noise, at
                 eight σ, and the square of the lower quartile of |x − D(x; σ)|, which flat regions decide. The largest
                 rank-sum |z| of these sixteen. Sees contrast (large σ) and blur, noise or compression (small σ, quartiles).

The unit is an original: images that repeat one another count once, as an image of the set that a fair draw among them names,
and so does a group. The filters are fitted to halves that do not know the sets, and each image is filtered by the other
half's; labels are permuted within halves.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from scipy.stats import rankdata
from torch import Tensor

from .._typing import Bool, Float, Int
from ..denoisers.gaussian import GaussianDenoiser
from ..images import dequantize
from ..measures.originals import Originals
from ..noise import draw_order, generator
from ..store.records import Record, record_of
from .baseline import shrunk_filter
from .controls import one_of_each
from .pool import Pool
from .thresholds import limit

PERMUTATIONS = 9999
NOT_EXCHANGEABLE = "not exchangeable"
_LEVEL = limit("exchangeable")
_NEIGHBORS, _COMPONENTS = 3, 32
_MOST_UNITS, _MOST_NUMBERS, _FEWEST_UNITS = 2000, 1 << 22, 10
_LEVELS = 8
_CONSPICUOUS, _UNCHANGED = 1.25, (0.9, 1.1)
_CHUNK_LABELS = 1 << 23


def check_exchangeability(pool: Pool, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Iterator[Record]:
    """Whether training and held-out images may come from one distribution.

    Yields:
        The p-values of both statistics (`neighbors_p`, `detail_p`); the share of neighbours of the own set in units of what
        chance gives (`neighbors_share`); `contrast`, held-out images' median variance about the mean image in units of
        training images'; and `fineness`, the same of squared differences of neighbouring values. `refused` with its reason
        if the sets differ. Nothing for too few images.

    >>> images = torch.rand(400, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> [record["quantity"] for record in check_exchangeability(Pool(images[:200], 0.5 * images[200:]))][-1]
    'refused'
    """
    labels = torch.arange(len(pool.images)) < len(pool.train)
    chosen = _representatives(pool.originals, labels, pool.images[0].numel(), seed)
    own = labels[chosen]
    if min(int(own.sum()), int((~own).sum())) < _FEWEST_UNITS:
        return
    pictures = dequantize(pool.images[chosen]).to(pool.device or "cpu")
    images = pictures.flatten(1)
    share, neighbors_p = _compare_neighbors(images, own, permutations, seed)
    found = {
        "neighbors_p": neighbors_p,
        "neighbors_share": share,
        "detail_p": _compare_detail(images, own, permutations, seed),
        "contrast": _ratio(_deviations(images, own).square().mean(1), own),
        "fineness": _ratio(_roughness(pictures, own), own),
    }
    for quantity, value in found.items():
        yield record_of(quantity, value, count=len(own))
    if reason := _refusal(found):
        yield {"quantity": "refused", "value": NOT_EXCHANGEABLE, "reason": reason}


def _refusal(found: Mapping[str, float]) -> str | None:
    """What differs, in a sentence; None if nothing is seen to."""
    said = []
    if found["detail_p"] <= _LEVEL:
        difference = _difference(found["contrast"], found["fineness"])
        said.append(f"held-out images have {difference} (p = {found['detail_p']:.2g})")
    if found["neighbors_p"] <= _LEVEL:
        said.append(
            f"they differ in content: an image's nearest neighbours are of its own set {found['neighbors_share']:.2g} times "
            f"as often as by chance (p = {found['neighbors_p']:.2g}; other classes, another source, or images of one group, "
            "which --groups names?)"
        )
    return f"training and held-out images do not come from one distribution: {'; and '.join(said)}." if said else None


def _difference(contrast: float, fineness: float) -> str:
    """What held-out images have more or less of, most conspicuous first."""
    if fineness < 1 / _CONSPICUOUS:
        return f"{fineness:.2g} times the fine detail of training images (blurred, compressed or resized?)"
    if fineness > _CONSPICUOUS:
        return f"{fineness:.2g} times the fine detail of training images (noise, compression or sharpening?)"
    if not _UNCHANGED[0] < contrast < _UNCHANGED[1]:
        return f"{'less' if contrast < 1 else 'more'} contrast than training images, {contrast:.2g} times the variance"
    return "another fine structure than training images (noise, compression or resizing?)"


def _representatives(originals: Originals, labels: Bool[Tensor, "N"], dim: int, seed: int) -> Int[Tensor, "k"]:
    """One image of each original, by a draw that knows no labels; at most so many of either set."""
    drawn = one_of_each(originals.of_image, seed, "exchangeability")
    most = max(500, min(_MOST_UNITS, _MOST_NUMBERS // dim))
    return torch.cat([drawn[labels[drawn]][:most], drawn[~labels[drawn]][:most]])


def _labels(own: Bool[Tensor, "k"], permutations: int, seed: int, stream: str) -> Bool[Tensor, "p k"]:
    """Random labellings with as many members."""
    count, members = len(own), int(own.sum())
    labels = torch.zeros(permutations, count, dtype=torch.bool)
    step = max(1, _CHUNK_LABELS // count)
    for start in range(0, permutations, step):
        part = labels[start : start + step]
        keys = torch.rand(part.shape, generator=generator(seed, f"exchangeability {stream}", start))
        part.scatter_(1, keys.argsort(1)[:, :members], True)
    return labels


def _compare_neighbors(
    images: Float[Tensor, "k d"], own: Bool[Tensor, "k"], permutations: int, seed: int
) -> tuple[float, float]:
    """The share of neighbours of the own set in units of chance, and its p-value."""
    count = len(images)
    components = _leading_components(images, seed)
    distances = torch.cdist(components, components).fill_diagonal_(math.inf)
    near = distances.topk(_NEIGHBORS, largest=False).indices.cpu()
    observed = int((own[near] == own[:, None]).sum())
    # Matches of the labels l and of their complements: Σ l_i l_j + (1 − l_i)(1 − l_j) over pairs (i, j) of neighbours.
    pointed = torch.zeros(count).index_add_(0, near.flatten(), torch.ones(near.numel()))
    null = []
    for labels in _labels(own, permutations, seed, "neighbours").split(max(1, _CHUNK_LABELS // (8 * count))):
        members = labels.float()
        both = sum((members * members[:, near[:, column]]).sum(1) for column in range(_NEIGHBORS))
        null.append(near.numel() - _NEIGHBORS * members.sum(1) - members @ pointed + 2 * both)
    matches = torch.cat(null)
    p_value = (1 + int((matches >= observed - 0.5).sum())) / (1 + len(matches))
    return observed / float(matches.mean()), p_value


def _leading_components(images: Float[Tensor, "k d"], seed: int) -> Float[Tensor, "k c"]:
    """Coordinates in the leading principal components of the pool, which does not know the labels."""
    centred = (images - images.mean(0)).double()
    if min(centred.shape) <= 4 * _COMPONENTS:
        _, _, vectors = torch.linalg.svd(centred, full_matrices=False)
        basis = vectors[:_COMPONENTS].T
        return torch.mm(centred, basis)
    # Subspace iteration: the leading components are all that is wanted of thousands.
    start = torch.randn(centred.shape[1], 2 * _COMPONENTS, generator=generator(seed, "leading components")).double()
    basis = torch.linalg.qr(start.to(centred.device))[0]
    for _ in range(4):
        basis = torch.linalg.qr(centred.T @ (centred @ basis))[0]
    _, _, vectors = torch.linalg.svd(centred @ basis, full_matrices=False)
    return torch.mm(centred, basis @ vectors[:_COMPONENTS].T)


def _compare_detail(images: Float[Tensor, "k d"], own: Bool[Tensor, "k"], permutations: int, seed: int) -> float:
    """The p-value of the largest difference in detail.

    Labels are permuted within the halves, and so are ranks: what one filter takes away is not compared with the other's.
    """
    count = len(images)
    order = draw_order(seed, count, stream="exchangeability halves")
    halves = order[: count // 2], order[count // 2 :]
    spread = float((images - images.mean(0)).square().mean().sqrt())
    sigmas = spread * torch.logspace(-2, 1, _LEVELS, dtype=torch.float64)
    observed, variance = torch.zeros(2, 2 * _LEVELS)
    null = torch.zeros(permutations, 2 * _LEVELS)
    for number, (fitted, filtered) in enumerate((halves, halves[::-1])):
        wiener = shrunk_filter(images[fitted.to(images.device)])
        removed = _removed(wiener, images[filtered.to(images.device)], sigmas)
        ranks = torch.from_numpy(rankdata(removed.numpy(), axis=1))
        centred = (ranks - ranks.mean(1, keepdim=True)).float()
        here = own[filtered]
        observed = observed + centred @ here.float()
        variance = variance + centred.square().mean(1) * float(here.sum()) * float((~here).sum()) / (len(here) - 1)
        shuffled = _labels(here, permutations, seed, f"detail {number}")
        null += torch.cat([labels.float() @ centred.T for labels in shuffled.split(1024)])
    scale = variance.sqrt().clamp_min(1e-12)
    largest = (observed / scale).abs()
    return (1 + int(((null / scale).abs().amax(1) >= float(largest.max()) - 1e-4).sum())) / (1 + permutations)


def _removed(
    wiener: GaussianDenoiser, images: Float[Tensor, "k d"], sigmas: Float[Tensor, "s"]
) -> Float[Tensor, "two_s k"]:
    """What the filter takes away from images without noise: b_σ(x) at each σ, then the square of its lower quartile."""

    def of_part(part: Tensor) -> Tensor:
        away = [(wiener(part, float(sigma)) - part).abs().cpu() for sigma in sigmas]
        energies = [one.double().square().mean(1) for one in away]
        quartiles = [one.kthvalue(max(1, one.shape[1] // 4), 1).values.double().square() for one in away]
        return torch.stack(energies + quartiles)

    with torch.no_grad():
        return torch.cat([of_part(part) for part in images.split(1024)], 1)


def _deviations(images: Float[Tensor, "k *shape"], own: Bool[Tensor, "k"]) -> Float[Tensor, "k *shape"]:
    """Images minus the mean image of their set."""
    here = own.to(images.device)
    means = torch.stack([images[~here].mean(0), images[here].mean(0)])
    return images - means[here.long()]


def _roughness(pictures: Float[Tensor, "k *shape"], own: Bool[Tensor, "k"]) -> Float[Tensor, "k"]:
    """Mean squared difference of neighbouring values, in units of the variance about the set's mean image."""
    steps = [pictures.diff(dim=axis).square().flatten(1) for axis in range(-min(2, pictures.ndim - 1), 0)]
    rough = torch.cat([step for step in steps if step.shape[1]] or [pictures.flatten(1).square()], 1).mean(1)
    return rough / _deviations(pictures, own).square().flatten(1).mean(1).clamp_min(1e-12)


def _ratio(values: Float[Tensor, "k"], own: Bool[Tensor, "k"]) -> float:
    """The median of held-out images in units of training images'."""
    known, new = values.cpu()[own].median(), values.cpu()[~own].median()
    return float(new / known.clamp_min(1e-12))
