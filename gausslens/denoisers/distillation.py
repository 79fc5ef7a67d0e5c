"""Distillation: the affine map closest to a denoiser at each noise level, in closed form or by the published recipe.

    min_{W,b} E‖W x + b − D(x; σ)‖²,  x = x0 + σ·eps                                     Eq. (8)–(9) of arXiv:2410.24060

Read the result with care. For *any* data law, the best affine fit of the exact posterior mean on noisy data of that law is
the law's Wiener filter. So a denoiser that has memorised its training images, distilled on them, gives W = W_G too. Only
held-out images separate memorising from generalising. Compare `weight_error` with its floor, and only with enough calls
(ten a dimension).
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict, Unpack, overload

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .._typing import Images, Sigmas
from ..errors import DataError, check_choice, require
from ..images import Bounds, check_labels, gather
from ..noise import as_sigmas
from ..progress import track
from .composite import PerClassDenoiser
from .fitting import EPOCHS, Teacher, fit_by_adam, fit_in_closed_form, ratio, unexplained_variance
from .gaussian import GaussianDenoiser
from .linear import LinearDenoiser, level_maps, stack_maps
from .moments import Moments
from .protocol import Denoiser, eval_mode, placement


class _Options(TypedDict, total=False):
    train: Any
    held_out: Any
    method: str
    calls: int | None
    seed: int
    full: bool | None
    learning_rate: float | None
    bounds: Bounds
    device: torch.device | str | None
    dtype: torch.dtype | None
    batch_size: int | None
    progress: bool


@overload
def distill(
    denoiser: Denoiser, images: Images, sigmas: Sigmas, *, labels: None = None, **options: Unpack[_Options]
) -> LinearDenoiser: ...


@overload
def distill(
    denoiser: Denoiser, images: Images, sigmas: Sigmas, *, labels: Tensor | ArrayLike, **options: Unpack[_Options]
) -> PerClassDenoiser: ...


def distill(
    denoiser: Denoiser,
    images: Images,
    sigmas: Sigmas,
    *,
    train: Images | Moments | None = None,
    held_out: Images | None = None,
    method: str = "closed_form",
    calls: int | None = None,
    seed: int = 0,
    labels: Any = None,
    full: bool | None = None,
    learning_rate: float | None = None,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> LinearDenoiser | PerClassDenoiser:
    """Fit an affine map to a denoiser at each noise level.

    Args:
        denoiser: the denoiser D to fit.
        images: the clean images x0 of the inputs x = x0 + σ·eps. Whether they are training or held-out images decides what
            the fit can show; see the module.
        sigmas: the noise levels, each above 0.
        train: the denoiser's training images, or their moments, for a second Gaussian to compare W with.
        held_out: images that no fit sees, for another Gaussian and for `fvu_held_out`.
        method: "closed_form" (least squares in one pass), or "adam" (the published recipe, with a history).
        calls: how many noisy inputs the denoiser is called with at each level (and class), at least 4; None is ten a
            dimension. Images return with fresh noise when they are used up. "adam" makes whole epochs of it; None is 100.
        seed: fixes noise, order and halves.
        labels: one integer per image, for a conditional denoiser; every class is then fitted on its own, and `train` and
            `held_out` are dicts by label.
        full: whether to store whole matrices; None does so up to d = 4096, and a Gaussian plus rank 256 above.
        learning_rate: for "adam", above 0; None takes the published one for each level.
        bounds: admissible float values; None for other units.
        device: where to call; None is the denoiser's.
        dtype: in which dtype to call; None is the denoiser's. Fits are made in float64 in any case, except by "adam".
        batch_size: inputs per call; None is automatic.
        progress: show a progress bar.

    Returns:
        The linear denoiser; with labels, a `PerClassDenoiser` of one linear denoiser each.

    Raises:
        ConfigError: if an argument is out of its range.
        DataError: if images, labels or the denoiser's answers cannot be used.

    >>> import torch
    >>> images = torch.rand(64, 1, 2, 2).double() * 2 - 1
    >>> gaussian = GaussianDenoiser(Moments.fit(images))
    >>> linear = distill(gaussian, images, [0.5], calls=200)
    >>> bool(linear.weight_error["distillation"] < 1e-10)
    True
    """
    levels = as_sigmas(sigmas)
    check_choice("method", method, ("closed_form", "adam"))
    require(
        calls is None or calls >= 4, f"calls, the network calls for each noise level, must be at least 4; got {calls}."
    )
    require(
        learning_rate is None or (method == "adam" and learning_rate > 0),
        f'learning_rate must be above 0 and is only for method="adam"; got {learning_rate} with {method!r}.',
    )
    pixels = gather(images, bounds=bounds)
    device, dtype = placement(denoiser, pixels, device, dtype)
    if labels is not None:
        classes = check_labels(labels, len(pixels)).to(pixels.device)
        own = {
            label: {name: _of_class(source, label, name) for name, source in (("train", train), ("held_out", held_out))}
            for label in classes.unique().tolist()
        }
        options: dict[str, Any] = {
            **{"method": method, "calls": calls, "seed": seed, "full": full, "learning_rate": learning_rate},
            **{"bounds": bounds, "device": device, "dtype": dtype, "batch_size": batch_size, "progress": progress},
        }

        def with_label(label: int, x: Tensor, sigma: Tensor) -> Tensor:
            return denoiser(x, sigma, torch.full((len(x),), label, device=x.device))

        with eval_mode(denoiser):
            fits = {
                label: distill(partial(with_label, label), pixels[classes == label], levels, **sources, **options)
                for label, sources in own.items()
            }
        return PerClassDenoiser(fits)

    unseen = None if held_out is None else gather(held_out, bounds=bounds, name="held_out")
    gaussians = {
        name: _gaussian(source, name, pixels, device, bounds)
        for name, source in (("distillation", pixels), ("train", train), ("held_out", unseen))
        if source is not None
    }
    gaussian = gaussians["distillation"]
    basis = gaussian.basis
    epochs = EPOCHS if calls is None else -(-calls // len(pixels))
    calls = epochs * len(pixels) if method == "adam" else calls or max(10 * pixels[0].numel(), 64)
    teacher = Teacher(denoiser, device, dtype, seed, batch_size)
    stored_dtype = torch.promote_types(dtype, torch.float32)
    maps, history = [], []
    records: list[dict[str, float]] = []
    with eval_mode(denoiser):
        for sigma in track(levels.tolist(), total=len(levels), label="distill", enabled=progress):
            toward = gaussian.weight(sigma)
            if method == "adam":
                fit = fit_by_adam(teacher, pixels, sigma, epochs, toward, learning_rate)
                history.append(fit.history)
            else:
                fit = fit_in_closed_form(teacher, pixels, sigma, calls, toward, basis)
            record = {name: getattr(fit, name) for name in ("fvu", "fvu_floor", "shrinkage", "weight_error_floor")}
            for name, other in gaussians.items():
                W = other.weight(sigma)
                error = math.nan if fit.unshrunk is None else (fit.unshrunk.weight - W).norm()
                record[f"weight_error.{name}"] = ratio(error, W.norm())
            if unseen is not None:
                record["fvu_held_out"] = unexplained_variance(teacher, unseen, sigma, fit.prediction, stream="held out")
            kept, record["truncation"] = level_maps(gaussian, sigma, fit.prediction, fit.unshrunk, full, stored_dtype)
            maps.append(kept)
            records.append(record)

    columns: dict[str, Any] = {
        name: torch.tensor([record[name] for record in records], dtype=torch.float64, device="cpu")
        for name in records[0]
    }
    weight_error = {name: columns.pop(f"weight_error.{name}") for name in gaussians}
    return LinearDenoiser(
        sigmas=levels,
        shape=gaussian.shape,
        maps=stack_maps(maps, gaussian),
        calls=calls,
        weight_error=weight_error,
        history=history,
        **columns,
    )


def _gaussian(
    source: Images | Moments, name: str, pixels: Tensor, device: torch.device, bounds: Bounds
) -> GaussianDenoiser:
    moments = source if isinstance(source, Moments) else Moments.fit(source, device=device, bounds=bounds)
    shape = tuple(pixels.shape[1:])
    require(
        moments.shape == shape, f"{name} images must have the shape {shape} of images; got {moments.shape}.", DataError
    )
    return GaussianDenoiser(moments).to(device)


def _of_class(source: Any, label: int, name: str) -> Any:
    known = source if isinstance(source, Mapping) else {}
    arrived = sorted(known) if known is source else type(source).__name__
    require(
        source is None or label in known,
        f"with labels, {name} must be a dict with images or moments for each label; got {arrived}, and label {label} "
        "among the images.",
    )
    return known.get(label)
