"""Files that hold one array of images: .npz, .npy and IDX (the MNIST family), gzipped or not.

Nothing is unpickled: an array of Python objects is refused.
"""

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .pixels import Pixels

MOST_CLASSES = 1 << 16
"""A network has a row of weights for each class; larger labels are mistakes, such as dates."""

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_npz(path: Path) -> Pixels:
    """The array `images` or `arr_0` of a .npz file, with `labels` or `arr_1`."""
    with _numpy_file(path), np.load(path, allow_pickle=False) as file:
        held = {key: file[key] for key in ("images", "arr_0", "labels", "arr_1") if key in file}
        names = file.files
    images = held.get("images", held.get("arr_0"))
    if images is None:
        raise DataError(f"{path}: expected an array named images or arr_0; it holds {', '.join(names) or 'nothing'}.")
    labels = held.get("labels", held.get("arr_1"))
    return Pixels(images, None if labels is None else as_labels(labels, len(images), str(path)))


def read_npy(path: Path) -> Pixels:
    """The array of a .npy file, memory-mapped."""
    with _numpy_file(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.ndim == 0:
            raise ValueError("it holds a single number")
    return Pixels(array)


@contextmanager
def _numpy_file(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable NumPy file ({error}). Write it again, without objects.") from None


def is_idx(head: bytes) -> bool:
    """Whether a file begins as IDX does: two zero bytes, the type, the number of axes."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and 1 <= head[3] <= 4


def read_idx(path: Path) -> Pixels:
    """The images of an IDX file, with the labels of the file beside it if it is there."""
    images = _idx_array(path)
    if images.ndim < 3:
        raise DataError(
            f"{path} holds {images.ndim} axes, so labels and not images. Pass the images' file (…-images-idx3-ubyte)."
        )
    beside = idx_labels(path)
    return Pixels(images, None if beside is None else as_labels(_idx_array(beside), len(images), str(beside)))


def idx_labels(path: Path) -> Path | None:
    """The file of labels beside an IDX file of images: train-labels-idx1-ubyte beside train-images-idx3-ubyte."""
    name = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    beside = [path.with_name(name), path.with_name(f"{name}.gz")]
    return next((candidate for candidate in beside if candidate != path and candidate.is_file()), None)


def as_labels(labels: Any, n: int, name: str) -> NDArray[np.int64]:
    """Labels as n integers."""
    array = np.asarray(labels)
    if array.shape != (n,) or array.dtype.kind not in "ui":
        raise DataError(
            f"{name}: expected {n} integer labels, one per image; got shape {array.shape}, dtype {array.dtype}. "
            "One-hot labels become integers with .argmax(1)."
        )
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < MOST_CLASSES:
        raise DataError(
            f"{name}: labels must number classes from 0 on, below {MOST_CLASSES}; these go from {array.min()} to "
            f"{array.max()}. Number them anew, for example with np.unique(labels, return_inverse=True)[1]."
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
    if not is_idx(content):
        raise DataError(f"{path} is not an IDX file: it begins with {content[:4]!r}.")
    axes, kind = content[3], np.dtype(_IDX_TYPES[content[2]])
    shape = tuple(int(length) for length in np.frombuffer(content[4 : 4 + 4 * axes], ">u4"))
    expected, got = 4 + 4 * axes + math.prod(shape) * kind.itemsize, len(content)
    if len(shape) != axes or expected != got:
        raise DataError(f"{path} says it holds {shape}, {expected} bytes in all, but has {got}. Get the file again.")
    array = np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(shape)
    return array.astype(kind.newbyteorder("="), copy=False)
