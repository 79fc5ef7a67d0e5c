"""The linearity of a denoiser at every noise level.

A linear map satisfies D(αx1 + βx2) = αD(x1) + βD(x2). For independent x1, x2 with noise of level σ and α² + β² = 1, the
mixture has noise of level σ as well, so D is called at its own noise level only. But two images mixed with α + β > 1 are
brighter than an image, and an affine map D(x) = Wx + b fails the test by (α + β − 1)·b. The affine form of the test moves
the origins of input and output to the mean image m and to D(m), and affine maps pass it exactly. Units are disjoint pairs
of images.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._typing import Images, Sigmas
from ..denoisers.protocol import Denoiser, eval_mode, in_batches, placement
from ..errors import DataError, check_choice, require
from ..images import Bounds, check_labels, dequantize, gather
from ..noise import as_sigmas, draw_order
from .curve import Conditions, Curve
from .sweep import DEFAULT_COUNT, NoisyInputs, PlacedDenoiser, Sweep, check_count, cosine, norm_ratio


def linearity(  # noqa: D417
    denoiser: Denoiser,
    images: Images,
    sigmas: Sigmas,
    *,
    metric: str = "cosine",
    affine: bool = False,
    inputs: str = "images",
    alpha: float = 2**-0.5,
    count: int | None = None,
    seed: int = 0,
    labels: Any = None,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Curve:
    """The linearity score of a denoiser at every noise level.

    With β = √(1 − α²), x1 = x0 + σ·eps and x2 = x0′ + σ·eps′ from two images with independent noise:

    - "cosine": E |cos(D(αx1 + βx2), αD(x1) + βD(x2))|, 1 for linear maps. It is 1 if both are zero, since the zero map
      is linear, and 0 if one is.
    - "nmse": E ‖D(αx1 + βx2) − (αD(x1) + βD(x2))‖ / ‖D(αx1 + βx2)‖, 0 for linear maps. If the denominator is zero
      it is 0 or 1, for a zero or nonzero numerator.

    With `affine`, D(αx1 + βx2 + (1−α−β)m) is compared with αD(x1) + βD(x2) + (1−α−β)D(m), both minus D(m), with m the
    mean of `images`: 1 and 0 for affine maps. The interval takes m as given. With few images it lacks the error of m,
    which lowers the score by a term of order 1/n. Outputs are compared in float64; a float32 network rounds to about 1e-7.

    Args:
        denoiser: the denoiser D.
        images: clean images (n, c, h, w), or any source of them; for `inputs="noise"` they give the shape and m.
        sigmas: noise levels, s of them.
        metric: "cosine" or "nmse".
        affine: whether to test for an affine map rather than a linear one.
        inputs: "images" for noised images, "noise" for x1 = σ·eps, x2 = σ·eps′.
        alpha: the weight α of x1, between 0 and 1; 1/√2, the default, is usually the hardest.
        count: number of pairs; None is one for each disjoint pair of images, at most 100 (100 for noise). The seed fixes
            the order of pairs; beyond their number a pair is used again, with fresh noise. Intervals are over pairs of
            images.
        seed: seed of the order and of the noise. Curves with the same seed are paired, also across α.
        labels: integers (n,) given to the denoiser as third argument, or None. Both images of a pair have the same label.
        batch_size: pairs per call (three calls each); None is automatic.

    All other arguments are those of `gap`.

    Returns:
        The curve, its units the pairs.

    Raises:
        ConfigError: if an argument is out of its range.
        DataError: if images or labels cannot be used, no two images make a pair, or the denoiser returns anything but
            finite images.

    Reference: Eqs. (11) and (12) of arXiv:2410.24060.

    >>> images = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> D = lambda x, sigma: 0.5 * x + 1
    >>> raw, affine = (linearity(D, images, 1.0, affine=affine).values.item() for affine in (False, True))
    >>> raw < 0.999, round(affine, 6)
    (True, 1.0)
    """
    check_choice("metric", metric, ("cosine", "nmse"))
    check_choice("inputs", inputs, ("images", "noise"))
    require(0 < alpha < 1, f"alpha, the weight of the first input, must lie between 0 and 1; got {alpha}.")
    pixels = gather(images, bounds=bounds)
    classes = None if labels is None else check_labels(labels, len(pixels)).cpu()
    first, second = _pair_up(pixels, classes, inputs == "noise", count, seed)
    sweep = Sweep(first, as_sigmas(sigmas), batch_size, progress)
    placed = PlacedDenoiser(denoiser, *placement(denoiser, pixels, device, dtype))
    beta = math.sqrt(1 - alpha**2)
    parts = pixels.split(1024) if affine else ()
    total = torch.zeros(pixels.shape[1:], dtype=torch.float64)
    mean = sum((dequantize(part, torch.float64).sum(0).cpu() for part in parts), total) / len(pixels)

    labelled = first.labels(0, first.count)
    of_pair = torch.zeros(first.count) if labelled is None else labelled
    kinds, kind = of_pair.unique(return_inverse=True)  # the different labels; a single one if there are none

    @lru_cache(maxsize=1)
    def at_mean(sigma: float) -> Tensor:
        """D(m; σ), called once for each label."""

        def denoise(start: int, stop: int) -> Tensor:
            own = None if labelled is None else kinds[start:stop]
            return placed(mean.expand(stop - start, *mean.shape), sigma, own).double()

        return torch.cat(list(in_batches(denoise, len(kinds), batch_size)))

    def score(sigma: float, start: int, stop: int) -> Tensor:
        x1, x2, y = first.at(sigma, start, stop), second.at(sigma, start, stop), first.labels(start, stop)
        mixture = alpha * x1 + beta * x2 + (1 - alpha - beta) * mean
        origin = at_mean(sigma)[kind[start:stop]] if affine else 0.0
        d1, d2, mixed = (placed(x, sigma, y).double() - origin for x in (x1, x2, mixture))
        superposed = alpha * d1 + beta * d2
        return norm_ratio(mixed, superposed) if metric == "nmse" else cosine(mixed, superposed).abs()

    content = f"{first.digest()}/{second.digest()}"
    conditions = Conditions(f"linearity {metric}", f"pairs of {inputs}", seed, first.count, content)
    span = 0.0, 1.0 if metric == "cosine" else math.inf
    with eval_mode(denoiser):
        return sweep.curve(score, conditions, span)


def _pair_up(
    pixels: Tensor, classes: Tensor | None, noise_only: bool, count: int | None, seed: int
) -> list[NoisyInputs]:
    """The first and the second inputs of pairs: both of one class if there are classes, and zeros for pure noise."""
    order = draw_order(seed, len(pixels))
    if noise_only:
        draws = check_count(count, DEFAULT_COUNT)
        members = order[torch.arange(draws) % len(order)].expand(2, -1)
        pixels = torch.zeros(()).expand(pixels.shape)
    else:
        groups = [order] if classes is None else [order[classes[order] == label] for label in classes.unique()]
        members = torch.cat([group[: len(group) // 2 * 2].reshape(2, -1) for group in groups], 1)
        n_pairs = members.shape[1]
        labelled = "" if classes is None else f" with {len(groups)} different labels"
        require(
            n_pairs,
            f"linearity needs at least two images to mix, with the same label if there are labels; got {len(pixels)} "
            f"images{labelled}. Pass more images, or inputs='noise'.",
            DataError,
        )
        draws = check_count(count, min(n_pairs, DEFAULT_COUNT))
        # Pairs were made class by class: without this order a few of them would all be of the first classes.
        members = members[:, draw_order(seed, n_pairs, stream="pairs")[:draws]]
    labels = None if classes is None else classes[members[0]]
    return [
        NoisyInputs(pixels[own.to(pixels.device)], labels, draws, seed, stream)
        for own, stream in zip(members, ("noise", "partner noise"), strict=True)
    ]
