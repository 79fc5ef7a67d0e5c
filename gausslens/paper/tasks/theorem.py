"""The theorem, on the moments of real images: the best affine denoiser is the Wiener filter, and gradient descent finds it.

The denoising loss E‖W(x0 + σ·eps) + b − x0‖² has, for W̃ = [W b], the gradient 2W̃M − 2R with

    M = [[E x0x0ᵀ + σ²I, μ], [μᵀ, 1]],    R = [E x0x0ᵀ, μ]                              Appendix E.1 of arXiv:2410.24060

so its minimum solves W̃M = R, and W̃ ← W̃(I − 2ηM) + 2ηR converges to it from W̃ = 0 if 0 < η < 1/λ_max(M). Both are
compared with Σ(Σ+σ²I)⁻¹ and (I − W)μ as `GaussianDenoiser` computes them from the spectrum of Σ. Images are shrunk to at
most 64 dimensions, since the number of steps of gradient descent grows with the ratio of M's eigenvalues.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...denoisers.gaussian import GaussianDenoiser
from ...denoisers.moments import Moments
from ...experiments.task import TaskContext, task
from ...images import dequantize
from ...noise import karras_sigmas
from ...store.records import Record, record_of
from .dataset_stats import read_images

_IMAGES = 4096
_DIM = 64
_STEPS = 20_000  # levels at which gradient descent needs more are left out
_LEFT = 1e-12  # share of the initial distance at which gradient descent stops
_ROUNDING = 1e-10  # rounding error of the optimum, bounded by the condition number; levels with more are left out


@task("check_theorem", version=2, of_0_1="studies.theorem")
def check_theorem(context: TaskContext) -> Iterator[Record]:
    """Check the theorem on the first images. Options: how to read them.

    Yields:
        Records of `theorem_residual`, relative distances to the Wiener filter: by `sigma` and `kind`, "optimum" or
        "gradient descent".
    """
    from torch.nn.functional import adaptive_avg_pool2d

    pixels = dequantize(read_images(context)[:_IMAGES]).double()
    side = math.isqrt(_DIM // pixels.shape[1])
    small = adaptive_avg_pool2d(pixels, (min(side, pixels.shape[2]), min(side, pixels.shape[3])))
    for sigma in context.each(karras_sigmas(10).tolist()):
        for kind, value in residuals(small, sigma).items():
            yield record_of("theorem_residual", value, sigma=sigma, kind=kind, dim=small[0].numel())


def residuals(images: Tensor, sigma: float) -> dict[str, float]:
    """How far the minimum of the denoising loss and the result of gradient descent are from the Wiener filter."""
    rows = images.flatten(1)
    dim = rows.shape[1]
    extended = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    M = extended.T @ extended / len(rows)
    R = M[:dim].clone()
    M.diagonal()[:dim] += sigma**2
    gaussian = GaussianDenoiser(Moments.fit(images))
    truth = torch.cat([gaussian.weight(sigma), gaussian.bias(sigma)[:, None]], dim=1)

    def size(stacked: Tensor) -> float:
        """√E‖Wx + b‖², by M = E x̃x̃ᵀ with x̃ = [x; 1]."""
        return float(((stacked @ M) * stacked).sum().clamp_min(0).sqrt())

    def distance(found: Tensor) -> float:
        return size(found - truth) / size(truth)

    least, *_, greatest = torch.linalg.eigvalsh(M).tolist()
    found = {}
    if greatest / least * torch.finfo(M.dtype).eps <= _ROUNDING:
        found["optimum"] = distance(torch.linalg.solve(M, R, left=False))
    steps = math.ceil(math.log(_LEFT) / math.log1p(-least / greatest))
    if steps <= _STEPS:
        rate = 1 / (2 * greatest)
        shrink, move = torch.eye(dim + 1, dtype=M.dtype) - 2 * rate * M, 2 * rate * R
        stacked = torch.zeros_like(R)
        for _ in range(steps):
            stacked = torch.addmm(move, stacked, shrink)
        found["gradient descent"] = distance(stacked)
    return found
