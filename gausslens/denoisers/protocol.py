"""What a denoiser is, and how this package calls one.

A denoiser is any function or module D(x, σ) that maps noisy images x = x0 + σ·eps, (b, c, h, w), and noise levels σ,
(b,), to estimates of x0 of x's shape; a conditional one takes integer labels (b,) as its third argument. This package
always calls denoisers with a (b,) tensor of levels in x's dtype and on its device, in eval mode and without gradients
(except for Jacobians). Afterwards modes are restored.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from .._typing import Sigma
from ..errors import ConfigError, DataError, require
from ..images import check_labels, require_finite

T = TypeVar("T")

DEFAULT_BATCH_SIZE = 256


@runtime_checkable
class Denoiser(Protocol):
    """Anything callable as D(x, sigma) or, when conditional, D(x, sigma, labels)."""

    def __call__(self, x: Tensor, sigma: Any, *args: Any) -> Tensor:
        """Estimate x0 from x = x0 + σ·eps.

        Args:
            x: noisy images, (b, c, h, w).
            sigma: noise levels, a float, a 0-d tensor or (b,).
            *args: labels (b,), if the denoiser is conditional.

        Returns:
            The estimates, (b, c, h, w).
        """


def expand_sigma(sigma: Sigma, x: Tensor) -> Tensor:
    """`sigma` as a (b,) tensor of x's dtype and device, checked to be positive and finite."""
    if isinstance(sigma, float | int) and 0 < sigma < math.inf:
        return x.new_full((1,), sigma).expand(len(x))  # no copy from the CPU, which would wait for a GPU's queue
    try:
        levels = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"sigma must be a number or a tensor of noise levels; got {sigma!r:.80}.") from None
    if levels.ndim > 1 or (levels.ndim == 1 and len(levels) not in (1, len(x))):
        raise ConfigError(
            f"sigma must be a number or have shape (b,) = ({len(x)},) to match x of shape {tuple(x.shape)}; "
            f"got shape {tuple(levels.shape)}. Pass a float or one level per image."
        )
    if may_look(levels) and not bool(((levels > 0) & levels.isfinite()).all()):
        wrong = levels[~((levels > 0) & levels.isfinite())]
        raise ConfigError(f"sigma must be positive and finite; got {wrong[0].item():g}. Use a level above 0.")
    return levels.expand(len(x))


def may_look(tensor: Tensor) -> bool:
    """Whether a tensor's values can be read now: not while a GPU's work is being recorded."""
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def check_input(x: Any, shape: tuple[int, ...]) -> None:
    """Raise unless x is a floating batch of images of `shape`."""
    if not isinstance(x, Tensor) or tuple(x.shape[1:]) != shape or not x.is_floating_point():
        arrived = f"shape {tuple(x.shape)}, dtype {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise DataError(
            f"expected a float batch of noisy images of shape (b, {', '.join(map(str, shape))}); got {arrived}."
        )


def check_classes(labels: Any, x: Tensor, classes: int, *, look: bool = True) -> Tensor:
    """Labels as integers (b,) on x's device, checked to match x and, with `look`, to be among the classes."""
    integers = check_labels(labels, len(x)).to(x.device)
    if classes and look and may_look(integers) and bool(((integers < 0) | (integers >= classes)).any()):
        wrong = integers[(integers < 0) | (integers >= classes)][0].item()
        known = ", ".join(map(str, range(classes))) if classes <= 10 else f"0, 1, …, {classes - 1}"
        raise DataError(f"expected labels among {known}; got {wrong}.")
    return integers


def call(denoiser: Denoiser, x: Tensor, sigma: Sigma, labels: Tensor | None = None) -> Tensor:
    """Call a denoiser with (b,) levels on a copy of x, which it may overwrite, and check the shape of its output."""
    levels, own = expand_sigma(sigma, x), x.clone()
    denoised = denoiser(own, levels) if labels is None else denoiser(own, levels, labels.to(x.device))
    return check_output(denoised, x, "a denoiser")


def check_output(output: Any, x: Tensor, of: str) -> Tensor:
    """The output of a denoiser or network, checked to be a tensor of its input's shape."""
    if not isinstance(output, Tensor) or output.shape != x.shape:
        arrived = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise DataError(
            f"{of} must return a tensor of its input's shape {tuple(x.shape)}; got {arrived}. If it "
            "returns more than its estimate, pass a function that picks them out."
        )
    return output


def check_finite(denoised: Tensor, sigma: float, dtype: torch.dtype, name: str = "the denoiser") -> None:
    """Raise if outputs of a denoiser, called with inputs of `dtype`, are not finite."""
    advice = f"Its inputs were in {dtype}. Leave that noise level out, or call it with a wider dtype."
    require_finite(denoised, f"what {name} returns at sigma = {sigma:g}", advice)


def placement(
    denoiser: Any, images: Tensor, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> tuple[torch.device, torch.dtype]:
    """Device and dtype for calling a denoiser: of its first floating parameter or buffer, else of the images."""
    own = (*denoiser.parameters(), *denoiser.buffers()) if isinstance(denoiser, nn.Module) else ()
    first = next((tensor for tensor in own if tensor.is_floating_point()), images)
    is_usable = first is not images or images.dtype in (torch.float32, torch.float64)
    found_dtype = first.dtype if is_usable else torch.float32
    return torch.device(device) if device is not None else first.device, dtype or found_dtype


def range_of(denoiser: Any) -> tuple[float, float]:
    """The least and the greatest noise level that a denoiser was made for, its `sigma_range`; all if it has none.

    A wrapper without one, such as an average of weights or a module on several devices, has that of its `module`.
    """
    while not hasattr(denoiser, "sigma_range") and isinstance(getattr(denoiser, "module", None), nn.Module):
        denoiser = denoiser.module
    stated = getattr(denoiser, "sigma_range", (0.0, math.inf))
    try:
        low, high = (float(end) for end in stated)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    require(
        0 <= low < high,
        "expected the least and the greatest noise level of the denoiser as its sigma_range, such as (0.002, 80); "
        f"got {stated!r:.80}.",
    )
    return low, high


def check_sigma_range(
    sigmas: Tensor, sigma_range: tuple[float, float], tolerance: float = 0.0, advice: str = "Choose others."
) -> None:
    """Raise unless noise levels lie in a denoiser's range, up to a share of its ends."""
    low, high = sigma_range
    outside = sigmas[(sigmas < low * (1 - tolerance)) | (sigmas > high * (1 + tolerance))]
    if len(outside):
        expected = f"sigmas must lie in the denoiser's range of noise levels, {low:.4g} to {high:.4g}"
        raise ConfigError(f"{expected}; got {outside[0]:.4g}. {advice}")


@contextmanager
def eval_mode(*denoisers: Any, gradients: bool = False) -> Iterator[None]:
    """Put modules in eval mode and gradients off, or on if asked for; restore both afterwards."""
    networks = [denoiser for denoiser in denoisers if isinstance(denoiser, nn.Module)]
    training = [module for network in networks for module in network.modules() if module.training]
    with torch.set_grad_enabled(gradients):
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True


def in_batches(work: Callable[[int, int], T], n: int, batch_size: int | None = None) -> Iterator[T]:
    """`work(start, stop)` over ranges that cover 0 … n; out of memory halves the batch and repeats the range."""
    size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
    require(size >= 1, f"batch_size must be at least 1; got {batch_size}.")
    start = 0
    while start < n:
        stop = min(start + size, n)
        try:
            result = work(start, stop)
        except torch.OutOfMemoryError:
            if stop - start == 1:
                raise
        else:
            yield result
            start = stop
            continue
        # Not in the handler above: until it ends, the exception keeps the failed attempt's tensors alive.
        size = (stop - start) // 2
        torch.cuda.empty_cache()
