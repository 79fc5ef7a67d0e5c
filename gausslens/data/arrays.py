"""Arrays of images: the files that hold them (.npz, .npy and IDX), where their axes are, and how values become 0 … 255.

Nothing is unpickled. Images are brought to (n, c, h, w), c = 1 or 3, uint8. Bytes are taken as they are. The range of
anything else is asked for and never guessed: a value v in [low, high] becomes the nearest integer to
255·(v − low)/(high − low), and a value outside is an error.
"""

import gzip
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, DataError, require, reraise_as

Range: TypeAlias = tuple[float, float] | None

expect = partial(require, error=DataError)
"""Raise a DataError with a message unless a condition holds."""

# What is suggested where the values lie within; else their own ends.
_USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0))
_CHUNK = 1024

MOST_CLASSES = 1 << 16
"""A network has a row of weights for each class; larger labels are mistakes, such as dates."""

IDX = re.compile(rb"\0\0[\x08\x09\x0b-\x0e][\x01-\x04]")
"""How an IDX file begins: two zero bytes, the type, the number of axes."""

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True)
class Pixels:
    """An array of images in any layout and depth, with labels if there are any; its images have no file names."""

    images: NDArray[Any]
    labels: NDArray[np.int64] | None = None
    names: Sequence[str] = ()


def read_npz(path: Path) -> Pixels:
    """The array `images` or `arr_0` of a .npz file, with `labels` or `arr_1`."""
    # NumPy would leave a damaged file open that it has opened itself.
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        images, labels = (
            next((np.atleast_1d(file[key]) for key in keys if key in file), None)
            for keys in (("images", "arr_0"), ("labels", "arr_1"))
        )
        names = ", ".join(file.files) or "nothing"
    if images is None:
        raise DataError(f"{path}: expected an array named images or arr_0; it holds {names}.")
    return Pixels(images, as_labels(labels, len(images), str(path)))


def read_npy(path: Path) -> Pixels:
    """The array of a .npy file, memory-mapped."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    expect(array.ndim, f"{path} holds a single number and no images.")
    return Pixels(array)


def read_idx(path: Path) -> Pixels:
    """The images of an IDX file, with the labels in the same folder if there are any."""
    images = _idx_array(path)
    expect(images.ndim >= 3, f"{path} holds labels and not images. Pass the images' file (…-images-idx3-ubyte).")
    beside = idx_labels(path)
    return Pixels(images, as_labels(None if beside is None else _idx_array(beside), len(images), str(beside)))


def idx_labels(path: Path) -> Path | None:
    """The file of labels of an IDX file of images: train-labels-idx1-ubyte for train-images-idx3-ubyte."""
    name = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    beside = [path.with_name(name), path.with_name(f"{name}.gz")]
    return next((candidate for candidate in beside if candidate != path and candidate.is_file()), None)


def as_labels(labels: Any, n: int, name: str) -> NDArray[np.int64] | None:
    """Labels as n integers, which number classes; None if there are no labels."""
    if labels is None:
        return None
    array = np.asarray(labels)
    is_vector = array.shape == (n,) and array.dtype.kind in "ui"
    got = f"shape {array.shape}, dtype {array.dtype}. One-hot labels become integers with .argmax(1)"
    expect(is_vector, f"{name}: expected {n} integer labels, one per image; got {got}.")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < MOST_CLASSES:
        raise DataError(
            f"{name}: labels must number classes from 0 on, below {MOST_CLASSES}; these go from {array.min()} to "
            f"{array.max()}. Renumber them, for example with np.unique(labels, return_inverse=True)[1]."
        )
    return array.astype(np.int64)


def open_unzipped(path: Path) -> io.BufferedIOBase:
    """A file, decompressed if it is gzipped."""
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if zipped else open(path, "rb")


def _idx_array(path: Path) -> NDArray[Any]:
    with open_unzipped(path) as file:
        content = file.read()
    expect(IDX.match(content), f"{path} is not an IDX file: it begins with {content[:4]!r}.")
    axes, kind = content[3], np.dtype(_IDX_TYPES[content[2]])
    shape = tuple(int(length) for length in np.frombuffer(content[4 : 4 + 4 * axes], ">u4"))
    expected, got = 4 + 4 * axes + math.prod(shape) * kind.itemsize, len(content)
    is_whole = len(shape) == axes and expected == got
    expect(is_whole, f"{path} says it holds {shape}, {expected} bytes in all, but has {got}. Get the file again.")
    array = np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(shape)
    return array.astype(kind.newbyteorder("="), copy=False)


def check_range(value_range: Any) -> Range:
    """The range as two floats, low < high, both finite, or None."""
    if value_range is None:
        return None
    with reraise_as(ConfigError, f"value_range must be two numbers, LOW and HIGH; got {value_range!r}"):
        low, high = (float(value) for value in value_range)
    fits = math.isfinite(low) and math.isfinite(high) and low < high
    require(fits, f"value_range needs two finite numbers, LOW < HIGH; got {low:.9g} and {high:.9g}.")
    return low, high


def channels_first(images: NDArray[Any], name: str) -> NDArray[Any]:
    """Images in any layout as a view (n, c, h, w)."""
    shape = images.shape
    first, last = (images.ndim == 4 and shape[axis] in (1, 3) for axis in (1, 3))
    if 0 in shape:
        trouble = "It holds no pixels."
    elif images.ndim not in (3, 4):
        trouble = "Reshape the array before saving it."
    elif images.ndim == 3:
        if shape[2] not in (1, 3, 4):
            return images[:, None]
        trouble = "It looks like one image: store it with one more axis in front."
    elif first and last:
        trouble = (
            "The channels could come first or last. Use images of more than 3 pixels a side, or (n, h, w) for grey."
        )
    elif first or last:
        return images if first else images.transpose(0, 3, 1, 2)
    else:
        trouble = "Keep one grey or three colour channels (drop alpha: images[..., :3])."
    raise DataError(
        f"{name}: expected images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3; got {shape}. {trouble}"
    )


def check_depth(images: NDArray[Any], value_range: Range, name: str) -> None:
    """Raise unless the values can become 0 … 255: bytes, or finite numbers within an explicit range."""
    kind = images.dtype
    expect(kind.kind in "uif", f"{name}: expected numbers as pixels; got dtype {kind}. Convert to uint8.")
    if kind == np.uint8 and value_range is None:
        return
    ends = np.array(value_range or (0, 0), np.float64)
    if kind.kind == "f":  # an end is rounded as the values were
        with np.errstate(over="ignore"):
            ends = ends.astype(kind)
    chunks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
    extremes = np.array([(float(chunk.min()), float(chunk.max())) for chunk in chunks])  # NaN where there is any
    if not np.isfinite(extremes).all():
        broken = sum(int((~np.isfinite(chunk)).sum()) for chunk in chunks)
        raise DataError(f"{name}: {broken} of {images.size} values are NaN or infinite. Remove or repair those images.")
    low, high = extremes.min().item(), extremes.max().item()
    found = f"go from {_exact(low)} to {_exact(high)}"
    if value_range is None:
        likely = next(((a, b) for a, b in _USUAL_RANGES if a <= low and high <= b), (low, high))
        a, b = map(_exact, likely)
        raise DataError(
            f"{name}: {kind} images need the range that becomes 0 … 255; the values here {found}. "
            f"Give it explicitly, for example --range {a} {b} (value_range=({a}, {b}))."
        )
    if low < ends[0] or high > ends[1]:
        outside = sum(int(((chunk < ends[0]) | (chunk > ends[1])).sum()) for chunk in chunks)
        a, b = map(_exact, value_range)
        raise DataError(
            f"{name}: {outside} of {images.size} values lie outside the range {a} … {b}; they {found}. Widen --range, or "
            "clip the images first."
        )


def _exact(value: float) -> str:
    """A number as short as it can be read back from."""
    short = f"{value:.9g}"
    return short if float(short) == value else repr(value)


def quantize(values: NDArray[Any], value_range: Range) -> NDArray[np.uint8]:
    """Checked values as bytes: the nearest integer to 255·(v − low)/(high − low)."""
    if value_range is None:
        return values
    low, high = (end / 2 for end in value_range)  # halves, whose difference cannot overflow
    return np.rint((values.astype(np.float64) / 2 - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
