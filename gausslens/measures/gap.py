"""How far two denoisers are apart, and a denoiser from the identity, at every noise level.

Both are given the same noisy inputs x = x0 + σ·eps, with one eps per input for all σ, and their outputs a, b are
compared in float64, input by input, in the units of the images (no division by σ²). Which images matters: a denoiser
fitted to few images can agree with another on those and on no others, so headline numbers are of held-out images.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._typing import Float, Images, Sigmas
from ..denoisers.protocol import Denoiser, eval_mode
from ..images import Bounds, check_labels, gather
from ..noise import as_sigmas, draw_order
from .comparison import cosine, norm_ratio, root_mean_square
from .curve import Curve
from .explained_variance import explained_variance
from .sweep import DEFAULT_COUNT, NoisyInputs, Outputs, PlacedDenoiser, check_choice, check_count, sweep

_METRICS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[float, float]]] = {
    "rmse": (root_mean_square, (0.0, math.inf)),
    "nmse": (norm_ratio, (0.0, math.inf)),
    "cosine": (cosine, (-1.0, 1.0)),
}


def gap(
    a: Denoiser,
    b: Denoiser,
    images: Images,
    sigmas: Sigmas,
    *,
    metric: str = "rmse",
    count: int | None = None,
    seed: int = 0,
    labels: Any = None,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Curve:
    """The gap between two denoisers at every noise level.

    With a = a(x; σ), b = b(x; σ) at x = x0 + σ·eps, d pixels, and ā the mean of a over the inputs at that σ:

    - "rmse": E √(‖a − b‖²/d), a mean of roots.
    - "nmse": E ‖a − b‖/‖a‖, a ratio of norms. If a = 0 it is 0 for b = 0 and 1 otherwise.
    - "ev": 1 − Σ‖a − b‖² / Σ‖a − ā‖², the variance of a that b explains. If a is constant it is 1 for b = a and 0
      otherwise.

    Args:
        a: the denoiser that is the measure of things in "nmse" and "ev".
        b: the other denoiser.
        images: clean images (n, c, h, w), or any source of them.
        sigmas: noise levels, s of them.
        metric: "rmse", "nmse" or "ev".
        count: number of noisy inputs; None is one for each image, at most 100. Images are taken in an order fixed by
            the seed; beyond n they return with fresh noise, and intervals are over images.
        seed: seed of order and noise. Curves of one seed are paired.
        labels: integers (n,) given to both denoisers as third argument, or None.
        bounds: admissible values of float images, or None.
        device: where to call both denoisers; None is where each one's parameters are.
        dtype: in which dtype to call them; None is that of each one's parameters. Inputs are the same numbers for
            both, rounded to the coarser of the two.
        batch_size: inputs per call; None is automatic.
        progress: whether to show a progress bar.

    Returns:
        The curve, its units the images.

    Raises:
        ConfigError: if an argument is out of its range.
        DataError: if images or labels cannot be used, or a denoiser returns anything but finite images.

    Reference: Eqs. (10) and (53) of arXiv:2410.24060.

    >>> images = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> curve = gap(lambda x, sigma: x, lambda x, sigma: x + 0.25, images, 1.0, dtype=torch.float64)
    >>> round(curve.values.item(), 12), curve.count  # a constant difference is the gap
    (0.25, 20)
    """
    check_choice("metric", metric, ("rmse", "nmse", "ev"))
    pixels = gather(images, bounds=bounds)
    first = PlacedDenoiser.of(a, pixels, device, dtype, "the first denoiser")
    second = PlacedDenoiser.of(b, pixels, device, dtype, "the second denoiser")
    coarser = max(first.dtype, second.dtype, key=lambda rounding: torch.finfo(rounding).eps)

    def outputs(x: Tensor, sigma: float, y: Tensor | None) -> tuple[Tensor, Tensor]:
        rounded = x.to(coarser)
        return first(rounded, sigma, y), second(rounded, sigma, y)

    inputs = _pick(pixels, labels, count, seed)
    with eval_mode(a, b):
        if metric == "ev":
            return explained_variance(outputs, inputs, as_sigmas(sigmas), batch_size, progress)
        return _mean_comparison(outputs, inputs, as_sigmas(sigmas), metric, metric, batch_size, progress)


def identity_gap(
    denoiser: Denoiser,
    images: Images,
    sigmas: Sigmas,
    *,
    metric: str = "nmse",
    count: int | None = None,
    seed: int = 0,
    labels: Any = None,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Curve:
    """The gap between a denoiser's output D = D(x; σ) and its own noisy input x = x0 + σ·eps.

    - "nmse": E ‖D − x‖/‖D‖. If D = 0 it is 0 for x = 0 and 1 otherwise.
    - "cosine": E cos(D, x). It is 1 if both are zero and 0 if one is.

    At small σ any good denoiser is close to the identity, and therefore to a linear map, whatever it has learned.

    Args:
        denoiser: the denoiser.
        images: clean images (n, c, h, w), or any source of them.
        sigmas: noise levels, s of them.
        metric: "nmse" or "cosine".
        count: number of noisy inputs; see `gap`.
        seed: seed of order and noise. Curves of one seed are paired.
        labels: integers (n,) given to the denoiser as third argument, or None.
        bounds: admissible values of float images, or None.
        device: where to call the denoiser; None is where its parameters are.
        dtype: in which dtype to call it; None is that of its parameters.
        batch_size: inputs per call; None is automatic.
        progress: whether to show a progress bar.

    Returns:
        The curve, its units the images.

    Raises:
        ConfigError: if an argument is out of its range.
        DataError: if images or labels cannot be used, or the denoiser returns anything but finite images.

    Reference: Fig. 15 of arXiv:2410.24060.

    >>> images = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> identity_gap(lambda x, sigma: x / 2, images, 1.0).values.item()  # half the input is as far from it as from 0
    1.0
    """
    check_choice("metric", metric, ("nmse", "cosine"))
    pixels = gather(images, bounds=bounds)
    placed = PlacedDenoiser.of(denoiser, pixels, device, dtype)

    def outputs(x: Tensor, sigma: float, y: Tensor | None) -> tuple[Tensor, Tensor]:
        rounded = x.to(placed.dtype)
        return placed(rounded, sigma, y), rounded.flatten(1)

    inputs = _pick(pixels, labels, count, seed)
    with eval_mode(denoiser):
        name = f"identity {metric}"
        return _mean_comparison(outputs, inputs, as_sigmas(sigmas), metric, name, batch_size, progress)


def _pick(pixels: Tensor, labels: Any, count: int | None, seed: int) -> NoisyInputs:
    n = len(pixels)
    classes = None if labels is None else check_labels(labels, n)
    count = check_count(count, min(n, DEFAULT_COUNT))
    order = draw_order(seed, n)[:count]
    ordered_classes = None if classes is None else classes[order.to(classes.device)]
    return NoisyInputs(pixels[order.to(pixels.device)], ordered_classes, count, seed)


def _mean_comparison(
    outputs: Outputs,
    inputs: NoisyInputs,
    sigmas: Float[Tensor, "s"],
    metric: str,
    name: str,
    batch_size: int | None,
    progress: bool,
) -> Curve:
    compare, span = _METRICS[metric]

    def compared(sigma: float, start: int, stop: int) -> Tensor:
        a, b = outputs(inputs.at(sigma, start, stop), sigma, inputs.labels(start, stop))
        return compare(a.double(), b.double())

    rows = [inputs.averages(torch.cat(parts)) for parts in sweep(compared, sigmas, inputs.count, batch_size, progress)]
    return Curve.of_means(sigmas, torch.stack(rows), inputs.conditions(name), span)
