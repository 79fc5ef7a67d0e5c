"""The similarity of two models' samples from the same noise.

Models that have learned the law of the data rather than its images map the same noise to similar images, even if they were
trained on disjoint data. A pair of images a, b of d pixels has four measures: RMSE ‖a − b‖/√d, NMSE ‖a − b‖/‖a‖,
Pearson's correlation and SSIM. Each needs two controls. Pairs from different noises (`shuffled`) show how similar any two
images are; models that copy exceed these, too. The exact multi-delta denoisers of the two training sets (`multi_delta`)
show how similar the samples of pure copying are. Similarity above theirs is agreement beyond retrieval. It is measured for
each noise, so that the difference is paired.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .._typing import Float, Images
from ..errors import DataError, require
from ..images import dequantize, gather
from ..noise import draw_order
from .intervals import Estimate, mean_estimate
from .sweep import cosine

_WINDOW = 11
_WINDOW_SIGMA = 1.5
_CHUNK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class Similarity:
    """Four measures of similarity, each a mean over pairs of images, or their differences between two sets of pairs.

    Attributes:
        rmse: ‖a − b‖/√d, 0 for equal images.
        nmse: ‖a − b‖/‖a‖, 0 for equal images, ∞ for a = 0 ≠ b.
        correlation: Pearson's, of pixels; 1 for equal images.
        ssim: structural similarity; 1 for equal images.
        per_pair: the values behind each, by the names above, (n,) in float64 on the CPU.
    """

    rmse: Estimate
    nmse: Estimate
    correlation: Estimate
    ssim: Estimate
    per_pair: Mapping[str, Tensor] = field(repr=False)

    def __str__(self) -> str:
        return f"rmse {self.rmse}, nmse {self.nmse}, correlation {self.correlation}, ssim {self.ssim}"


@dataclass(frozen=True)
class Agreement:
    """Agreement of two models' samples, with its controls.

    Attributes:
        same_noise: samples of the two models from the same noise.
        shuffled: samples of the two models from different noises.
        multi_delta: samples of the two multi-delta denoisers from the same noise; None if not given.
        excess: `same_noise` minus `multi_delta`, paired by noise; None without the latter. Samples that are more similar
            than by retrieval have correlation and ssim above 0, and rmse and nmse below 0.
    """

    same_noise: Similarity
    shuffled: Similarity
    multi_delta: Similarity | None
    excess: Similarity | None

    def __str__(self) -> str:
        rows = zip(("same noise", "shuffled", "multi-delta", "excess"), vars(self).values(), strict=True)
        return "\n".join(f"{name}: {similarity}" for name, similarity in rows if similarity is not None)


def agreement(
    samples_a: Images,
    samples_b: Images,
    *,
    multi_delta: tuple[Images, Images] | None = None,
    data_range: float = 2.0,
    seed: int = 0,
) -> Agreement:
    """The similarity of two models' samples from the same noise, with its controls.

    Args:
        samples_a: samples of one model, (n, c, h, w), n ≥ 2, finite but of any range, as all samples here.
        samples_b: samples of the other model from the same noise, aligned with `samples_a`.
        multi_delta: samples of the two training sets' `MultiDeltaDenoiser`s from the same noise, aligned too.
        data_range: the width of the range of pixel values, for SSIM; 2 for [-1, 1].
        seed: fixes which samples are paired in the shuffled control; no sample is paired with its own.

    Returns:
        The similarity of the pairs and of the controls.

    Raises:
        ConfigError: if `data_range` is not positive.
        DataError: if sets are not aligned, not images, not finite, or hold fewer than two.

    >>> noise = torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> result = agreement(noise, 0.5 * noise + 0.1)  # one is an affine function of the other
    >>> f"{result.same_noise.correlation.value:.3f}", abs(result.shuffled.correlation.value) < 0.1
    ('1.000', True)
    """
    require(0 < data_range < math.inf, f"data_range must be positive and finite; got {data_range}.")
    a = _samples(samples_a, "samples_a")
    b = _samples(samples_b, "samples_b", a)
    n = len(a)
    order = draw_order(seed, n, stream="shuffled")
    partner = torch.empty(n, dtype=torch.long)
    partner[order] = order.roll(1)  # one cycle through all samples, so none is paired with its own

    same, shuffled = (_compare(a, other, data_range) for other in (b, b[partner.to(b.device)]))
    control = excess = None
    if multi_delta is not None:
        first, second = (_samples(part, f"multi_delta[{index}]", a) for index, part in enumerate(multi_delta))
        control = _compare(first, second, data_range)
        excess = _similarity({name: same.per_pair[name] - values for name, values in control.per_pair.items()})
    return Agreement(same, shuffled, control, excess)


def ssim(a: Float[Tensor, "n c h w"], b: Float[Tensor, "n c h w"], data_range: float = 2.0) -> Float[Tensor, "n"]:
    """Structural similarity of pairs of images, the mean over channels and positions of the window.

    (2μ_a μ_b + c₁)(2σ_ab + c₂) / ((μ_a² + μ_b² + c₁)(σ_a² + σ_b² + c₂)),  c₁ = (0.01·range)², c₂ = (0.03·range)²,

    with means and covariances under a Gaussian window of 11×11 pixels, σ = 1.5, at every position where it lies inside
    the image. In images with a side of fewer than 11 pixels the window has the largest odd width that fits, 7 in 8×8.

    Reference: Wang, Bovik, Sheikh, Simoncelli (2004), IEEE Trans. Image Process. 13, 600 ff.

    >>> x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    >>> torch.allclose(ssim(x, x), torch.ones(2, dtype=torch.float64))
    True
    """
    rows, columns = (_window_matrix(side, min(a.shape[-2:])).to(a) for side in a.shape[-2:])

    def local_mean(values: Tensor) -> Tensor:
        return rows @ values @ columns.T

    mean_a, mean_b = local_mean(a), local_mean(b)
    var_a, var_b = local_mean(a * a) - mean_a**2, local_mean(b * b) - mean_b**2
    cov = local_mean(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * cov + c2) / (var_a + var_b + c2)
    return (luminance * structure).mean((1, 2, 3))


def _window_matrix(side: int, smallest_side: int) -> Float[Tensor, "positions side"]:
    """The matrix of the window's weighted means of a line of pixels, one row for each position of the window."""
    width = min(_WINDOW, smallest_side - (smallest_side + 1) % 2)
    offsets = torch.arange(side, dtype=torch.float64) - torch.arange(side - width + 1)[:, None] - width // 2
    window = (-(offsets**2) / (2 * _WINDOW_SIGMA**2)).exp() * (offsets.abs() <= width // 2)
    return window / window.sum(1, keepdim=True)


def _compare(a: Tensor, b: Tensor, data_range: float) -> Similarity:
    """The similarity of pairs (a_i, b_i); a constant image has correlation 1 with itself and 0 with any other."""
    size = max(1, _CHUNK_NUMBERS // a[0].numel())
    parts = []
    for first, second in zip(a.split(size), b.split(size), strict=True):
        images = dequantize(first, torch.float64), dequantize(second, torch.float64).to(a.device)
        x, y = (image.flatten(1) for image in images)
        gap, norm = torch.linalg.vector_norm(x - y, dim=1), torch.linalg.vector_norm(x, dim=1)
        correlation = cosine(x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True))
        constant = (x.amax(1) == x.amin(1)) | (y.amax(1) == y.amin(1))  # centred, they are rounding errors
        measures = (
            gap / math.sqrt(x.shape[1]),
            torch.where(gap == 0, 0.0, gap / norm),
            torch.where(constant, (gap == 0).to(x), correlation),
            ssim(*images, data_range),
        )
        parts.append(torch.stack(measures).cpu())
    return _similarity(dict(zip(("rmse", "nmse", "correlation", "ssim"), torch.cat(parts, 1), strict=True)))


def _similarity(per_pair: dict[str, Tensor]) -> Similarity:
    return Similarity(**{name: mean_estimate(values) for name, values in per_pair.items()}, per_pair=per_pair)


def _samples(samples: Images, name: str, reference: Tensor | None = None) -> Tensor:
    """At least two images, aligned with those of the reference."""
    pixels = gather(samples, bounds=None, name=name)
    require(
        pixels.ndim == 4 and len(pixels) >= 2,
        f"{name} must be at least two images (n, channels, height, width); got shape {tuple(pixels.shape)}. "
        "The shuffled control needs two; grey images are samples[:, None].",
        DataError,
    )
    if reference is not None and pixels.shape != reference.shape:
        raise DataError(
            f"{name} must match samples_a, image by image, in shape {tuple(reference.shape)}; got "
            f"{tuple(pixels.shape)}. Sample every model from the same noise."
        )
    return pixels
