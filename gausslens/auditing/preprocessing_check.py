"""Whether images look foreign to a model: prepared in another way than those it was trained on.

A model may be given its training images with red and blue swapped, in [0, 1] instead of [-1, 1], or upside down. Every
measurement then describes the mistake. Undoing it is a map x → Tx of the images, T a scaling by s, shift or
rearrangement of pixels, so that D'(x; σ) = T⁻¹D(Tx; sσ) is a denoiser too. For images prepared as the model expects, D is at
least as good as D': no denoiser beats the posterior mean, and no other order of channels suits a network better than the one
it was trained with. So if D' has the smaller loss, the images are foreign, and T says how.

Images of another source are foreign in a way that no T undoes. The model then falls behind the baseline of `losses` on both
training and held-out images (see `verdict`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, permutations
from operator import itemgetter

import torch
from torch import Tensor

from .._typing import Float, Sigmas
from ..denoisers.protocol import Denoiser, call, eval_mode, in_batches, placement
from ..images import dequantize
from ..measures.intervals import Estimate
from ..noise import as_sigmas, draw_noise, draw_order
from ..store.records import Record, of_estimate
from .losses import ratio_estimates
from .pool import Pool

SUITS_BETTER = (0.985, 0.99)
"""Loss of another preparation, in units of the loss as given, below which images are foreign: at one level, or at two."""

SUITS_FAR_BETTER = (0.8, 0.8)
"""The same on training images alone, which may be few and by chance resemble others prepared otherwise."""

SUITS_WORSE = 1.05
"""The same on training images alone, above which a preparation is out of the question."""

_COLOURS = "RGB"
_BATCH_NUMBERS = 1 << 20
_IMAGES, _NOISES = 200, 2  # images of either set, and noises for each of them and each level
_NOTHING = 1e-6
# The noise levels at which preparations matter, in units of the images' standard deviation.
_LEAST_NOISE, _MOST_NOISE = 0.2, 12.0


@dataclass(frozen=True)
class Preparation:
    """One way in which the images may have been prepared for training."""

    name: str  # what the model seems to expect, as the end of a sentence
    scale: float  # s, by which images and noise are multiplied
    apply: Callable[[Tensor], Tensor]  # T


def check_foreignness(
    denoiser: Denoiser, pool: Pool, sigmas: Sigmas, *, seed: int = 0, sigma_range: tuple[float, float] = (0.0, math.inf)
) -> Record:
    """Whether another preparation of the images suits the model better, and which.

    `expected` of the record is what the model seems to expect instead of these images; None if nothing suits it better. Its
    value is the loss of the preparation that suits it best, in units of the loss as given. It is None if there is no noise
    level to compare at, or if all preparations are out of the question.

    A preparation suits it better if its loss, interval included, is below .985 of the loss as given at one noise level, or
    below .99 at two; or below .8 on training images alone, which a memoriser denoises without fault, and all others badly
    in any preparation. It is out of the question if training images suffer from it at any level, by 5 %.
    """
    nothing = {"quantity": "foreignness", "value": None, "expected": None, "sigma": None}
    chosen, classes = [], []
    for name, images, labels, _ in pool.sets:
        order = draw_order(seed, len(images), stream=f"foreign {name}")[:_IMAGES]
        chosen.append(dequantize(images[order.to(images.device)]).cpu())
        if labels is not None:
            classes.append(labels.cpu()[order])
    clean, of_class = torch.cat(chosen), torch.cat(classes) if classes else None
    n_train = len(chosen[0])
    spread = float((clean - clean.mean(0)).square().mean().sqrt())
    ways = list(preparations(tuple(clean.shape[1:])))
    scales = [way.scale for way in ways]
    lowest = max(_LEAST_NOISE * spread, sigma_range[0] / min(scales))
    highest = min(_MOST_NOISE * spread, sigma_range[1] / max(scales))
    levels = [s for s in as_sigmas(sigmas).tolist() if lowest <= s <= highest]
    if not levels or len(clean) < 2:
        return nothing
    with eval_mode(denoiser):
        losses = _losses(denoiser, clean, of_class, ways, levels, seed)
    # A memoriser's loss can be nothing at all; a millionth of the variance is as good as that.
    given, *others = losses + _NOTHING * spread**2
    found: list[tuple[float, str, Estimate, float]] = []
    for preparation, other in zip(ways, others, strict=True):
        on_train = ratio_estimates(other[:, :n_train], given[:, :n_train])
        # The outputs of a memoriser for new images follow no rule, so training images must not contradict them.
        if any(ratio.low > SUITS_WORSE for ratio in on_train):
            continue
        for ratios, limits in ((ratio_estimates(other, given), SUITS_BETTER), (on_train, SUITS_FAR_BETTER)):
            ends = [math.inf if math.isnan(ratio.high) else ratio.high for ratio in ratios]
            excess = min(end / limit for end, limit in zip(sorted(ends), limits, strict=False))
            at = ends.index(min(ends))
            found.append((excess, preparation.name, ratios[at], levels[at]))
    if not found:
        return nothing
    excess, name, gain, sigma = min(found, key=lambda entry: entry[0])
    return of_estimate("foreignness", gain, expected=name if excess < 1 else None, sigma=sigma)


def preparations(shape: tuple[int, ...]) -> Iterator[Preparation]:
    """All preparations that are tried for images of a shape."""
    yield Preparation("images in [0, 1]", 0.5, lambda x: (x + 1) / 2)
    yield Preparation("images in [-1, 1], and these seem to be in [0, 1]", 2.0, lambda x: 2 * x - 1)
    yield Preparation("negatives of these images", 1.0, lambda x: -x)
    if len(shape) == 3:
        yield Preparation("these images upside down", 1.0, lambda x: x.flip(2))
        if shape[1] == shape[2]:
            yield Preparation("rows and columns exchanged", 1.0, lambda x: x.transpose(2, 3))
        if shape[0] == len(_COLOURS):
            for order in map(list, islice(permutations(range(3)), 1, None)):
                name = f"channels in the order {''.join(_COLOURS[i] for i in order)} of these images"
                yield Preparation(name, 1.0, itemgetter((slice(None), order)))  # x[:, order]


def _losses(
    denoiser: Denoiser, clean: Tensor, classes: Tensor | None, ways: list[Preparation], levels: list[float], seed: int
) -> Float[Tensor, "p s n"]:
    """Loss of T⁻¹D(Tx; sσ) at each level on each image: that of D on Tx, in the units of x; unprepared first."""
    place, dtype = placement(denoiser, clean)

    def work(start: int, stop: int) -> Tensor:
        rows = torch.arange(start, stop)
        eps = draw_noise(seed, rows, tuple(clean.shape[1:]), stream="foreign").to(place)
        x0 = clean[rows // _NOISES].to(place)
        labels = None if classes is None else classes[rows // _NOISES]
        losses = []
        for way in (Preparation("", 1.0, lambda x: x), *ways):
            target = way.apply(x0).to(dtype)
            for sigma in levels:
                x = way.apply(x0 + sigma * eps).to(dtype)
                error = (call(denoiser, x, way.scale * sigma, labels) - target).flatten(1).double()
                losses.append(error.square().mean(1) / way.scale**2)
        return torch.stack(losses).cpu()

    size = max(16, min(1024, _BATCH_NUMBERS // clean[0].numel()))
    values = torch.cat(list(in_batches(work, len(clean) * _NOISES, size)), 1)
    return values.reshape(1 + len(ways), len(levels), len(clean), _NOISES).mean(3)
