"""The plain denoiser a model must not fall behind: a Wiener filter of other images of the same source.

Training and held-out images are pooled and cut into two halves with some of both in each. An image is denoised by the
filter of the other half, so that it is new to the filter whichever set it is from. Training and held-out images are
therefore equally new to the baseline: where its losses on them differ, one set is harder, and nothing else. (The Gaussian
denoiser of the training images alone is no such measure: of 64 digits it denoises those 64 much better than others.)

Halves can be smaller than the images' dimension d. The covariance S of n images is then far too flat outside their span,
and is shrunk to Ŝ = (1 − α)S + α(tr S/d)I with Ledoit and Wolf's α = min(1, β²/δ²),

    δ² = ‖S‖² − (tr S)²/d,   β² = Σ‖x_i − μ‖⁴/n² − ‖S‖²/n.

Reference: Ledoit, Wolf (2004), J. Multivar. Anal. 88, 365 ff.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from .._typing import Bool, Sigma
from ..denoisers.gaussian import GaussianDenoiser
from ..denoisers.moments import Moments
from ..images import dequantize

_MOST_IMAGES, _FEWEST_IMAGES = 4096, 512
_MOST_NUMBERS = 1 << 24


def images_used(dim: int) -> int:
    """How many images of d numbers are behind either filter at most; more would cost much and improve little."""
    return min(_MOST_IMAGES, max(_FEWEST_IMAGES, _MOST_NUMBERS // dim))


def shrunk_filter(images: Tensor) -> GaussianDenoiser:
    """The Wiener filter of images with Ledoit and Wolf's covariance.

    >>> images = torch.randn(20, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> float(shrunk_filter(images).floor) > 0.5  # white noise: next to nothing is left of the sample covariance
    True
    """
    moments = Moments.fit(images, bounds=None)
    n, dim = moments.count, moments.dim
    norms = sum(
        float((dequantize(part, torch.float64).flatten(1) - moments.mean).square().sum(1).square().sum())
        for part in images.split(256)
    )
    squares, even = float(moments.eigvals.square().sum()), moments.trace / dim
    apart, error = squares - dim * even**2, norms / n**2 - squares / n
    alpha = min(1.0, max(error, 0.0) / apart) if apart > 0 else 1.0
    shrunk = replace(moments, eigvals=(1 - alpha) * moments.eigvals + alpha * even, floor=alpha * even, truncated=True)
    return GaussianDenoiser(shrunk).float()


class Baseline(nn.Module):
    """Two filters of float images, each for those that the other was made of, on the device of the images."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        super().__init__()
        self.filters = nn.ModuleList([shrunk_filter(first), shrunk_filter(second)])

    def forward(self, x: Tensor, sigma: Sigma, in_first: Bool[Tensor, "b"]) -> Tensor:
        """Denoise images of either half by the filter of the other."""
        of_first, of_second = (part(x, sigma) for part in self.filters)
        return torch.where(in_first.reshape(-1, *[1] * (x.ndim - 1)), of_second, of_first)
