"""Sampling: deterministic integration of the probability-flow ODE from noise to images.

    dx/dσ = (x − D(x; σ)) / σ,    x(σ_max) = σ_max · latents,    latents ~ N(0, I)           Eq. (1) of arXiv:2410.24060

It is integrated along a descending grid of noise levels. From the last level, σ_min, to 0 every solver takes an Euler
step, x + (0 − σ)(x − D)/σ, which is D(x; σ_min). Nothing is random here: samples are a function of the latents, so two
denoisers given the same latents can be compared image by image.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from ._typing import Images, Sigmas
from .denoisers.protocol import Denoiser, call, eval_mode, in_batches, placement
from .errors import DataError, check_choice, require
from .images import check_labels, gather
from .noise import as_sigmas, karras_sigmas
from .progress import track

Field: TypeAlias = Callable[[Tensor, float], Tensor]
"""D(x; σ) for the solvers: it takes a float64 state (b, *shape) and a level, and returns a float64 estimate."""


@dataclass(frozen=True, eq=False)
class Step:
    """The state of a sampler at one noise level.

    Attributes:
        index: 0 at σ_max, counting up.
        sigma: the noise level.
        x: the state at `sigma`, (b, *shape), float64.
        denoised: D(x; sigma), (b, *shape), float64.
    """

    index: int
    sigma: float
    x: Tensor
    denoised: Tensor


def sample(
    denoiser: Denoiser,
    latents: Images,
    *,
    steps: int = 18,
    sigmas: Sigmas | None = None,
    solver: str = "heun",
    callback: Callable[[Step], object] | None = None,
    labels: Images | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Tensor:
    """Samples of a denoiser: the ODE dx/dσ = (x − D(x; σ))/σ solved from σ_max · latents down to 0.

    `"euler"` is first order with one call of the denoiser per level (the published figures use it with 10 levels);
    `"heun"` is second order with two calls per level, and one at the last; `"dpmpp_2m"` is second order with one. The
    state is float64; the denoiser is called in its own dtype, in eval mode and without gradients.

    Args:
        denoiser: D(x, sigma), or D(x, sigma, labels) if `labels` are given.
        latents: standard normal noise, (b, c, h, w); multiplied by σ_max here.
        steps: number of noise levels of the default grid `karras_sigmas(steps)`, at least 1; not used with `sigmas`.
        sigmas: the noise levels, positive and strictly descending; a final 0 is appended here.
        solver: "euler", "heun" or "dpmpp_2m".
        callback: called once per noise level, in order, with a `Step` of the whole batch; its `x` is the state at its
            `sigma`, so the last one holds the solution at σ_min.
        labels: integers (b,), passed to the denoiser third.
        device: where to integrate; by default where the denoiser is.
        dtype: in which dtype to call the denoiser; by default its own.
        batch_size: latents per call of the denoiser; None is automatic. The samples do not depend on it.
        progress: show a progress bar.

    Returns:
        The samples D(x; σ_min), (b, c, h, w), never clipped, in the dtype the denoiser is called in.

    Raises:
        ConfigError: on an unknown solver, `steps` below 1, or noise levels that are not positive and descending.
        DataError: on latents that are not finite floats, or labels that do not match them.

    Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364, Algorithm 1; Lu, Zhou, Bao, Chen, Li, Zhu (2022),
    arXiv:2211.01095, Algorithm 2.

    The law of a single image x0 is sampled exactly by every solver, whatever the latents:

    >>> x0 = torch.linspace(-1, 1, 12).reshape(1, 3, 2, 2)
    >>> samples = sample(lambda x, sigma: x0.expand_as(x), torch.randn(5, 3, 2, 2), steps=4, solver="dpmpp_2m")
    >>> torch.equal(samples, x0.expand(5, 3, 2, 2))
    True
    """
    check_choice("solver", solver, _SOLVERS)
    advance = _SOLVERS[solver]
    require(sigmas is not None or steps >= 1, f"steps must be at least 1; got {steps}.")
    levels: list[float] = [*(karras_sigmas(steps) if sigmas is None else as_sigmas(sigmas)).tolist(), 0.0]
    for sigma, sigma_next in pairwise(levels):
        require(
            sigma_next < sigma,
            f"sigmas must be strictly descending; got {sigma_next:g} after {sigma:g}. Sort them and drop repeats, "
            "or use karras_sigmas(steps).",
        )
    noise = gather(latents, bounds=None, name="latents")
    require(
        noise.is_floating_point(),
        f"latents must be standard normal floats; got dtype {noise.dtype}. Draw them with torch.randn.",
        DataError,
    )
    classes = None if labels is None else check_labels(labels, len(noise))
    device, dtype = placement(denoiser, noise, device, dtype)

    def denoise(x: Tensor, sigma: float) -> Tensor:
        def work(start: int, stop: int) -> Tensor:
            own = None if classes is None else classes[start:stop]
            return call(denoiser, x[start:stop].to(dtype), sigma, own)

        return torch.cat(list(in_batches(work, len(x), batch_size))).to(torch.float64)

    x = levels[0] * noise.to(device, torch.float64)
    before = None
    with eval_mode(denoiser):
        for index, (sigma, sigma_next) in enumerate(track(list(pairwise(levels)), label="sampling", enabled=progress)):
            now = Step(index, sigma, x, denoise(x, sigma))
            if callback is not None:
                callback(now)
            x = advance(denoise, sigma_next, now, before) if sigma_next > 0 else now.denoised
            before = now
    return x.to(dtype)


def _euler(denoise: Field, sigma_next: float, now: Step, before: Step | None) -> Tensor:
    """First order: x' = x + (σ' − σ) · dx/dσ."""
    return now.x + (sigma_next - now.sigma) * ((now.x - now.denoised) / now.sigma)


def _heun(denoise: Field, sigma_next: float, now: Step, before: Step | None) -> Tensor:
    """Second order: x' = x + (σ' − σ) · the mean of dx/dσ at x and at the Euler step."""
    slope = (now.x - now.denoised) / now.sigma
    guess = now.x + (sigma_next - now.sigma) * slope
    slope_next = (guess - denoise(guess, sigma_next)) / sigma_next
    return now.x + (sigma_next - now.sigma) * (slope + slope_next) / 2


def _dpmpp_2m(denoise: Field, sigma_next: float, now: Step, before: Step | None) -> Tensor:
    """Second order: x' = (σ'/σ) x + (1 − σ'/σ) D̄, where D̄ extrapolates D linearly in −log σ to the middle of the step.

    With h = log(σ/σ') and h₀ = log(σ₀/σ) of the step before, D̄ = D + (h / 2h₀)(D − D₀); the first step has D̄ = D.
    """
    denoised = now.denoised
    if before is not None:
        h, h_before = math.log(now.sigma / sigma_next), math.log(before.sigma / now.sigma)
        denoised = denoised + h / (2 * h_before) * (denoised - before.denoised)
    shrink = sigma_next / now.sigma
    return shrink * now.x + (1 - shrink) * denoised


_SOLVERS = {"euler": _euler, "heun": _heun, "dpmpp_2m": _dpmpp_2m}
