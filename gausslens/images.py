"""What "images" means at every public boundary, and the one place where uint8 becomes float and back.

Images are (n, c, h, w): uint8 in 0 … 255, or floats within `bounds`, by default [-1, 1]. uint8 pixel p becomes
p/127.5 − 1. With `bounds=None` (latents, surrogates, other units) any (n, ...) of at least two dimensions and finite
values is accepted. A source is a tensor, a NumPy array (memory maps included), a dataset whose items are images
or (image, label, …) tuples, or an iterable of batches or of (batch, label, …) tuples.
"""

import hashlib
import warnings
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ._typing import Images, Int
from .errors import DataError, require, reraise_as

Bounds: TypeAlias = tuple[float, float] | None

_TOLERANCE = 1e-3
_LAYOUT = "images are (n, channels, height, width), uint8 or float"


def dequantize(pixels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 pixels as floats in [-1, 1], p/127.5 − 1 rounded in `dtype`; floats are only cast."""
    if pixels.dtype == torch.uint8:
        # A GPU would multiply by the inverse of a plain number, which rounds differently.
        full_scale = torch.full((), 127.5, dtype=dtype, device=pixels.device)
        return pixels.to(dtype).div_(full_scale).sub_(1)
    return pixels.to(dtype)


def quantize(images: Tensor) -> Tensor:
    """Floats as uint8 pixels, 127.5·(x + 1) rounded and clipped to 0 … 255; uint8 is returned unchanged."""
    if images.dtype == torch.uint8:
        return images
    return images.float().add(1).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)


def require_finite(values: Tensor, name: str, advice: str) -> None:
    """Raise unless all values are finite."""
    broken = int((~values.isfinite()).sum())
    require(
        not broken,
        f"{name} must be finite; {broken} of {values.numel()} values are NaN or infinite. {advice}",
        DataError,
    )


def check_values(pixels: Tensor, bounds: Bounds, name: str = "images") -> None:
    """Raise unless float pixels are finite and within `bounds` (by more than 1e-3 is outside)."""
    if pixels.dtype == torch.uint8 or pixels.numel() == 0:
        return
    low, high = (float(value) for value in pixels.aminmax())
    if not (np.isfinite(low) and np.isfinite(high)):
        require_finite(pixels, name, "Remove or repair those images.")
    if bounds is not None and (low < bounds[0] - _TOLERANCE or high > bounds[1] + _TOLERANCE):
        raise DataError(
            f"float {name} must lie in [{bounds[0]:g}, {bounds[1]:g}]; got values from {low:.4g} to {high:.4g}. "
            "Rescale them (uint8 pixels are converted automatically). Images in other units need bounds=None, if that is "
            "an option."
        )


def check_layout(pixels: Tensor, bounds: Bounds, name: str = "images") -> None:
    """Raise unless a batch has the layout and dtype of images."""
    expected_ndim = pixels.ndim == 4 if bounds is not None else pixels.ndim >= 2
    require(
        expected_ndim and 0 not in pixels.shape[1:],
        f"{_LAYOUT}; got {name} of shape {tuple(pixels.shape)}, dtype {pixels.dtype}. Add the missing axes "
        "(a single image is images[None], grey images are images[:, None]); vectors need bounds=None.",
        DataError,
    )
    if bounds is not None and pixels.shape[3] in (3, 4) and min(pixels.shape[1:3]) >= 8:
        raise DataError(
            f"{_LAYOUT}; got {name} of shape {tuple(pixels.shape)}, which has its channels last. "
            "Move them with images.permute(0, 3, 1, 2)."
        )
    require(
        pixels.dtype == torch.uint8 or pixels.is_floating_point(),
        f"{_LAYOUT}; got {name} of dtype {pixels.dtype}. Convert to uint8 or to floats in [-1, 1].",
        DataError,
    )


def as_tensor(images: Any, name: str = "images") -> Tensor:
    """A tensor or array as a tensor, without copying: memory maps stay on disk."""
    if isinstance(images, Tensor):
        return images.detach()
    what = f"{_LAYOUT}; got {name} of type {type(images).__name__} that is no numeric array"
    with reraise_as(DataError, what, caught=(TypeError, ValueError)), warnings.catch_warnings():
        # A read-only map cannot be written through the tensor; nothing here writes to images.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        array = np.asanyarray(images)
        if any(stride < 0 for stride in array.strides):  # a flipped view, which torch cannot share
            array = array.copy()
        return torch.as_tensor(array)


def iterate(
    images: Images, *, batch_size: int = 1024, bounds: Bounds = (-1.0, 1.0), name: str = "images"
) -> Iterator[Tensor]:
    """Batches of a source in order, checked, in the dtype they are stored in (see `dequantize`)."""
    shape: torch.Size | None = None
    for batch in _raw_batches(images, batch_size, bounds, name):
        check_layout(batch, bounds, name)
        if len(batch) == 0:
            continue
        check_values(batch, bounds, name)
        shape = shape or batch.shape[1:]
        require(
            batch.shape[1:] == shape,
            f"all {name} must have one shape; got {tuple(batch.shape[1:])} after {tuple(shape)}. Resize or crop them first.",
            DataError,
        )
        yield batch
    require(shape is not None, f"{name} is empty; expected at least one image.", DataError)


def gather(images: Images, *, bounds: Bounds = (-1.0, 1.0), name: str = "images") -> Tensor:
    """All images of a source as one indexable tensor in its stored dtype; tensors and arrays are not copied."""
    batches = list(iterate(images, bounds=bounds, name=name))
    if isinstance(images, Tensor | np.ndarray):
        return as_tensor(images, name)
    if len({batch.dtype for batch in batches}) > 1:
        batches = [dequantize(batch) for batch in batches]
    return torch.cat(batches)


def as_bytes(images: Tensor) -> Tensor:
    """The values of a tensor of any dtype and layout as bytes on the CPU, in the order of its axes."""
    return images.detach().cpu().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def content_hash(images: Tensor) -> str:
    """SHA-256 of shape, dtype and pixels, streamed."""
    digest = hashlib.sha256(f"{tuple(images.shape)} {images.dtype}".encode())
    for batch in images.split(1024):
        digest.update(as_bytes(batch).numpy().data)
    return digest.hexdigest()


def check_same_shape(
    images: Tensor,
    others: Tensor,
    name: str,
    of: str = "the training images",
    advice: str = "Resize or convert one set.",
) -> None:
    """Raise unless images have the shape of others."""
    expected, given = tuple(others.shape[1:]), tuple(images.shape[1:])
    message = f"{name} must have the shape of {of}, {expected}; got {given}. {advice}"
    require(given == expected, message, DataError)


def select(rows: Tensor | slice, *columns: Tensor | None) -> list[Any]:
    """The same rows of images, labels and groups, wherever these are; None for what is None."""

    def chosen(column: Tensor) -> Tensor:
        return column[rows if isinstance(rows, slice) else rows.to(column.device)]

    return [None if column is None else chosen(column) for column in columns]


def known_classes(labels: Int[Tensor, "m"], known: Int[Tensor, "n"]) -> Int[Tensor, "k"]:
    """Which held-out images are of known classes; warns if others are left out."""
    kept = torch.isin(labels, known.to(labels.device)).nonzero()[:, 0]
    if left_out := len(labels) - len(kept):
        words = f"{left_out} of {len(labels)} held-out images are of classes without a training image and are left out."
        warnings.warn(words, stacklevel=2)
    return kept


def by_class(images: Images, labels: Any, bounds: Bounds = (-1.0, 1.0)) -> Iterator[tuple[int, Tensor]]:
    """Each label, in ascending order, with the images of its class."""
    pixels = gather(images, bounds=bounds)
    classes = check_labels(labels, len(pixels)).to(pixels.device)
    for label in classes.unique().tolist():
        yield label, pixels[classes == label]


def check_labels(labels: Any, n: int, name: str = "labels") -> Tensor:
    """Labels as a vector of n integers."""
    expected = f"{name} must be {n} integers, one per image; got"
    with reraise_as(DataError, f"{expected} {type(labels).__name__}", caught=(TypeError, ValueError, RuntimeError)):
        tensor = torch.as_tensor(labels)
    require(
        tensor.shape == (n,) and not tensor.is_floating_point(),
        f"{expected} shape {tuple(tensor.shape)}, dtype {tensor.dtype}. "
        "One-hot labels become integers with .argmax(1).",
        DataError,
    )
    return tensor.long()


def _raw_batches(images: Images, batch_size: int, bounds: Bounds, name: str) -> Iterator[Tensor]:
    if isinstance(images, Tensor | np.ndarray):
        pixels = as_tensor(images, name)
        check_layout(pixels, bounds, name)
        yield from pixels.split(batch_size)
        return
    is_iterable = isinstance(images, Iterable)
    require(
        is_iterable or (hasattr(images, "__getitem__") and hasattr(images, "__len__")),
        f"expected a tensor, an array, a dataset or an iterable of batches as {name}; got {type(images).__name__}.",
        DataError,
    )
    # A map-style dataset need not raise IndexError at its end, so count.
    items = images if is_iterable else (images[index] for index in range(len(images)))
    tensors = (as_tensor(item[0] if isinstance(item, tuple | list) else item, name) for item in items)
    for single_shape, run in groupby(tensors, lambda pixels: pixels.shape if pixels.ndim == 3 else None):
        if single_shape is None:
            yield from run
        else:
            while singles := list(islice(run, batch_size)):
                yield torch.stack(singles)
