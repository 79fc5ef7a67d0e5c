"""Explained variance 1 − Σ‖a − b‖²/Σ‖a − ā‖², a ratio of sums over images, with its interval.

With u_i = a_i − E a and ē their mean over n images, the denominator is Σ‖u_i‖² − n‖ē‖². That ā is fitted to the same
outputs does two things to the interval that a plain ratio of sums does not know of, and both matter when b explains
little, for then ‖a − b‖² rises and falls with ‖a − ā‖² and the interval is short.

- The denominator falls short by the share of a's variance that is ā's, 1/n. The value keeps the published formula; the
  interval is for what it estimates.
- An image's ‖a_i − ā‖² contains −2u_i·ē, which varies by 4·tr(C²)/n between images, C the covariance of a, but sums to
  −2n‖ē‖² and makes the denominator vary only half as much. The surplus is taken out of the influences' variance.

For ev = 0.08 at n = 100 (the denoisers of validation/coverage.py at σ = 5) nominal 95 % intervals cover 97.5 % with neither,
98.6 % with the first alone and 94.7 % with both.
"""

import math

import torch
from torch import Tensor

from .._typing import Float
from .curve import Curve
from .intervals import ratio_interval
from .sweep import NoisyInputs, Outputs, sweep

# The surplus is of order 1/n, and its matrix n × n.
_SURPLUS_UNITS = 2000


def explained_variance(
    outputs: Outputs, inputs: NoisyInputs, sigmas: Float[Tensor, "s"], batch_size: int | None, progress: bool
) -> Curve:
    """The variance of outputs a that outputs b explain, at every noise level; see `gap`."""

    def compared(sigma: float, start: int, stop: int) -> tuple[Tensor, Tensor]:
        a, b = outputs(inputs.at(sigma, start, stop), sigma, inputs.labels(start, stop))
        return a, (a.double() - b.double()).square().sum(1)

    levels = []
    for parts in sweep(compared, sigmas, inputs.count, batch_size, progress):
        errors = inputs.totals(torch.cat([error for _, error in parts]))
        levels.append((errors, *_spread(torch.cat([a for a, _ in parts]), inputs)))
    errors, squares, shortfall, surplus = (torch.stack(column) for column in zip(*levels, strict=True))
    # A constant a leaves nothing to explain: 0/0 is 0, and anything else is divided by itself.
    undefined = squares.sum(1, keepdim=True) == 0
    squares = squares.where(~undefined, errors.where(errors.sum(1, keepdim=True) > 0, 1))
    ratio, low, high, per_image = ratio_interval(errors, squares)
    variance = (errors - ratio[:, None] * squares).var(1, correction=0)
    narrower = (1 - ratio.square() * surplus / variance).nan_to_num(nan=1.0).clamp(0.25, 1).sqrt()
    low, high = ((1 - shortfall) * (ratio + narrower * (end - ratio)) for end in (low, high))
    per_image = ratio[:, None] + narrower[:, None] * (per_image - ratio[:, None])
    low, high = low.minimum(ratio).clamp_min(0), high.maximum(ratio)
    return Curve(sigmas, 1 - ratio, 1 - high, 1 - low, 1 - per_image, inputs.conditions("ev"), (-math.inf, 1.0))


def _spread(a: Float[Tensor, "count d"], inputs: NoisyInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Σ‖a − ā‖² of each image, the share of it that ā takes, and the surplus variance between images."""
    # Differences from one output, so that a constant has exactly no variance.
    offset = a.double() - a[0].double()
    offset -= offset.mean(0)
    squares = inputs.totals(offset.square().sum(1))
    within = inputs.totals(offset)
    n = len(within)
    shortfall = (within.square().sum() / (inputs.count * squares.sum())).nan_to_num(nan=0.0)
    if not 1 < n < _SURPLUS_UNITS:
        return squares, shortfall, torch.zeros_like(shortfall)
    products = (within @ within.T).square()
    surplus = 2 * (products.sum() - products.diagonal().sum()) / ((n - 1) * inputs.count**2)
    return squares, shortfall, surplus
