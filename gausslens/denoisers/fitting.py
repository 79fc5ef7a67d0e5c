"""The affine fits to a denoiser at one noise level, from its answers D(x; σ) to noisy inputs x = x0 + σ·eps.

In closed form, noise comes in pairs ±eps, and the calls are split into two halves with a fit each. The error of each fit
on the other half decides how much to shrink. The difference Δ of the two fits gives the error that the finite number of
calls causes: a half's fit has twice the variance of the fit to all calls, so the latter's is E‖Δx‖²/4.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .._typing import Float, Int
from ..images import dequantize
from ..noise import draw_noise, draw_order
from .protocol import Denoiser, call, check_finite, in_batches
from .regression import Affine, Sums, choose_strength, mean_square_difference, shrink_blocks

_EVALUATION_CALLS = 4096

# The published recipe's: inputs per step, passes over the images, and the learning rates for one network (DDPM++ on faces),
# by the lower end of the range of σ.
BATCH = 256
EPOCHS = 100
_LEARNING_RATES = ((4.0, 5e-5), (0.4, 5e-4), (0.1, 5e-3), (0.0, 5e-2))


@dataclass(frozen=True, eq=False)
class LevelFit:
    """The fits at one noise level and their errors; see `LinearDenoiser`."""

    unshrunk: Affine | None  # plain least squares; None if the calls do not determine it
    prediction: Affine  # the fit that predicts best
    fvu: float  # of `prediction`, out of sample
    fvu_floor: float = math.nan
    weight_error_floor: float = math.nan
    shrinkage: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Teacher:
    """A denoiser, and how its answers to noisy inputs are obtained."""

    denoiser: Denoiser
    device: torch.device
    dtype: torch.dtype
    seed: int
    batch_size: int | None

    def answers(
        self,
        pixels: Tensor,
        image: Int[Tensor, "n"],
        noise: Int[Tensor, "n"],
        sigma: float,
        *,
        sign: Float[Tensor, "n"] | None = None,
        stream: str = "distill",
        batch_size: int | None = None,
    ) -> Iterator[tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]]:
        """The denoiser's outputs at x = x0 + σ·sign·eps."""
        shape = tuple(pixels.shape[1:])
        unchecked = torch.zeros(())  # the last outputs

        def work(start: int, stop: int) -> tuple[Tensor, Tensor]:
            nonlocal unchecked
            eps = draw_noise(self.seed, noise[start:stop], shape, stream=stream)
            if sign is not None:
                eps = eps * sign[start:stop].to(eps).reshape(-1, *[1] * len(shape))
            clean = pixels[image[start:stop].to(pixels.device)].to(self.device)
            x = dequantize(clean, self.dtype) + sigma * eps.to(self.device, self.dtype)
            # The copy of the noise has waited for the GPU's last outputs, so checking them only now costs no time.
            check_finite(unchecked, sigma, self.dtype)
            unchecked = call(self.denoiser, x, sigma).flatten(1)
            return x.flatten(1), unchecked

        yield from in_batches(work, len(image), batch_size or self.batch_size)
        check_finite(unchecked, sigma, self.dtype)


def fit_in_closed_form(
    teacher: Teacher,
    pixels: Tensor,
    sigma: float,
    calls: int,
    toward: Float[Tensor, "d d"],
    basis: Float[Tensor, "d d"],
) -> LevelFit:
    """Least squares, and a fit shrunk toward a Gaussian's matrix, from one pass of calls.

    Where each half of the calls determines a least-squares fit, the shrunk fit starts from least squares; with
    fewer calls it starts from ridge with cross-validated strength. Either way it then keeps of each block of the matrix
    what the two halves agree on.
    """
    first, second = _half_sums(teacher, pixels, sigma, calls)
    both = first.merge(second)
    # Pairs ±eps of one image span one direction each, so d + 1 of them are enough for any images, and fewer may not be.
    enough = 2 * (len(toward) + 1)
    unshrunk = both.least_squares() if calls >= enough else None
    if unshrunk is not None and min(first.count, second.count) >= enough:
        strength, fits = 0.0, [first.least_squares(), second.least_squares(), unshrunk]
        weight_floor = ratio((fits[0].weight - fits[1].weight).norm() / 2, toward.norm())
    else:
        strength = choose_strength(first, second, toward)
        fits = [sums.ridge(toward, strength) for sums in (first, second, both)]
        weight_floor = math.nan
    pairs = list(zip(fits, (first, second, both), strict=True))
    (from_first, from_second, prediction), factors = shrink_blocks(pairs, toward, basis)
    floor = mean_square_difference(from_first, from_second, both) / 4
    # A half's fit, judged on the other half, carries twice the floor, and the fit to both only once.
    error = (second.error(from_first) + first.error(from_second)) / 2 - floor
    ridge_factor = 1 - strength / (strength + float(both.xx.diagonal().mean()))
    return LevelFit(
        unshrunk=unshrunk,
        prediction=prediction,
        fvu=ratio(max(error, 0.0), both.variance, 0.0),
        fvu_floor=ratio(floor, both.variance, 0.0),
        weight_error_floor=weight_floor,
        shrinkage=1 - ridge_factor * float(factors.mean()),
    )


def fit_by_adam(
    teacher: Teacher,
    pixels: Tensor,
    sigma: float,
    epochs: int,
    gaussian_weight: Float[Tensor, "d d"],
    learning_rate: float | None,
) -> LevelFit:
    """The published recipe, in float32 unless the denoiser is in float64; kept to reproduce Figures 4, 14 and 22.

    Algorithm 1 and the released settings of arXiv:2410.24060: inputs divided by √d, mean squared error, Adam with its
    default betas from W = b = 0, images in order with fresh noise. The history has a record of each epoch. The closed form
    reaches lower errors with a fraction of the calls, and needs no learning rate.
    """
    target_weight = gaussian_weight.to(torch.promote_types(teacher.dtype, torch.float32))
    scale = len(target_weight) ** -0.5
    weight = torch.zeros_like(target_weight, requires_grad=True)
    bias = target_weight.new_zeros(len(target_weight), requires_grad=True)
    rate = published_learning_rate(sigma) if learning_rate is None else learning_rate
    optimizer = torch.optim.Adam([weight, bias], lr=rate)
    order, history = torch.arange(len(pixels)), []
    for epoch in range(epochs):
        losses = []
        for x, target in teacher.answers(pixels, order, order + epoch * len(pixels), sigma, batch_size=BATCH):
            with torch.enable_grad():
                output = x.to(weight.dtype).mul(scale) @ weight.T + bias
                loss = torch.nn.functional.mse_loss(output, target.to(weight.dtype))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        effective = weight.detach() * scale
        record = {
            "epoch": epoch + 1,
            "loss": torch.stack(losses).mean(),
            "weight_error": (effective - target_weight).norm() / target_weight.norm(),
            "asymmetry": (effective - effective.T).norm() / effective.norm(),
        }
        history.append({name: float(value) for name, value in record.items()})
    fit = Affine(weight.detach() * scale, bias.detach())
    return LevelFit(fit, fit, unexplained_variance(teacher, pixels, sigma, fit, stream="fresh noise"), history=history)


def published_learning_rate(sigma: float) -> float:
    """The learning rate of the published list for this noise level."""
    return next(rate for lowest, rate in _LEARNING_RATES if sigma >= lowest)


def unexplained_variance(teacher: Teacher, pixels: Tensor, sigma: float, fit: Affine, *, stream: str) -> float:
    """FVU = E‖D − Wx − b‖² / Var D on noise that no fit has seen; 0 for a constant D, which b explains."""
    index = torch.arange(min(10 * len(pixels), _EVALUATION_CALLS))
    image = draw_order(teacher.seed, len(pixels), stream=stream)[index % len(pixels)]
    weight, bias = fit.weight.double(), fit.bias.double()
    residual, outputs = 0.0, []
    for x, denoised in teacher.answers(pixels, image, index, sigma, stream=stream):
        residual += float((denoised - x.double() @ weight.T - bias).square().sum())
        outputs.append(denoised.double())
    rows = torch.cat(outputs)
    rows = rows - rows[0]  # a constant D has no variance to the last bit
    return ratio(residual, (rows - rows.mean(0)).square().sum(), 0.0)


def _half_sums(teacher: Teacher, pixels: Tensor, sigma: float, calls: int) -> list[Sums]:
    """The sums of a regression of D(x; σ) on x over each of two halves of the calls."""
    index = torch.arange(calls)
    pair = index // 2
    place, lap = pair % len(pixels), pair // len(pixels)
    image = draw_order(teacher.seed, len(pixels))[place]
    # The halves take turns, and swap from lap to lap, so that images seen more than once are seen by both.
    halves = [index[(place + lap) % 2 == half] for half in (0, 1)]
    return [
        Sums.of(teacher.answers(pixels, image[own], pair[own], sigma, sign=1.0 - 2.0 * (own % 2))) for own in halves
    ]


def ratio(part: float | Tensor, whole: float | Tensor, of_nothing: float = math.nan) -> float:
    """part/whole, or `of_nothing` for a whole of 0: Var D is 0 for a constant D, and W_G is 0 for identical images."""
    return float(part) / float(whole) if whole > 0 else of_nothing
