"""The CIFAR-10 python archive, read without running the pickles inside it.

A pickle is a program that may call anything. Here every name it asks for is looked up in a short list of inert
stand-ins, which only record what they are given; the pixels are then taken from the recorded bytes.
The archive's 50,000 training images are `data_batch_1` … `data_batch_5`; a single batch, such as the extracted
`test_batch`, is a source too.
"""

import io
import pickle
import re
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .arrays import as_labels
from .pixels import Pixels

_BATCH = re.compile(r"data_batch_(\d+)")
_SIDE = 32


class _Recorded:
    """Stands in for a NumPy array or dtype: keeps the arguments and the state, and does nothing with them."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _as_bytes(text: str, encoding: str) -> bytes:
    """Bytes, as Python 3 writes them in old pickles: a string of the first 256 characters."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding}")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Recorded,
    ("numpy._core.multiarray", "_reconstruct"): _Recorded,
    ("numpy.core.numeric", "_frombuffer"): _Recorded,
    ("numpy._core.numeric", "_frombuffer"): _Recorded,
    ("numpy", "ndarray"): _Recorded,
    ("numpy", "dtype"): _Recorded,
    ("_codecs", "encode"): _as_bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no part of an image batch")
        return _ALLOWED[module, name]


def cifar_batches(folder: Path) -> list[Path]:
    """The training batches in an extracted archive, in order; `folder` or the archive's own folder inside it."""
    inside = folder / "cifar-10-batches-py"
    return _in_order(list((inside if inside.is_dir() else folder).glob("data_batch_*")))


def read_cifar_files(paths: list[Path]) -> Pixels:
    """The images of extracted batches, in the order given."""
    try:
        return _join((str(path), path.read_bytes()) for path in paths)
    except OSError as error:
        raise DataError(f"could not read a CIFAR-10 batch: {error}.") from None


def read_cifar_archive(path: Path) -> Pixels:
    """The training images of cifar-10-python.tar.gz; nothing is extracted."""
    try:
        with tarfile.open(path) as archive:
            members = {Path(member.name): member for member in archive.getmembers() if member.isfile()}
            batches = _in_order(list(members))
            if not batches:
                raise DataError(
                    f"{path}: expected CIFAR-10's data_batch_1 … data_batch_5 in this archive; found "
                    f"{', '.join(map(str, list(members)[:5])) or 'nothing'}. Extract it and pass the folder of images."
                )
            return _join((f"{path}:{name}", _content(archive, members[name])) for name in batches)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{path} is not a readable archive ({error}). Get the file again.") from None


def _in_order(names: list[Path]) -> list[Path]:
    numbered = [(int(match[1]), name) for name in names if (match := _BATCH.fullmatch(name.name))]
    return [name for _, name in sorted(numbered)]


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None  # a regular file, by the filter above
    return file.read()


def _join(batches: Iterable[tuple[str, bytes]]) -> Pixels:
    parts = [_batch(name, content) for name, content in batches]
    labels = [part.labels for part in parts if part.labels is not None]
    complete = len(labels) == len(parts)
    return Pixels(np.concatenate([part.images for part in parts]), np.concatenate(labels) if complete else None)


def _batch(name: str, content: bytes) -> Pixels:
    try:
        fields = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        # Written by Python 2 the keys are bytes, by Python 3 text.
        fields = {key.decode() if isinstance(key, bytes) else key: value for key, value in fields.items()}
        images = _pixels(fields["data"]).reshape(-1, 3, _SIDE, _SIDE)
    # Arbitrary bytes can fail anywhere in the unpickler, in any way.
    except Exception as error:
        raise DataError(
            f"{name}: expected a batch of CIFAR-10's python version, uint8 rows of 3,072; {error}. "
            "Other pickles are not read, since they can run any program: save images as .npz."
        ) from None
    labels = fields.get("labels")
    return Pixels(images, None if labels is None else as_labels(labels, len(images), name))


def _pixels(array: _Recorded) -> NDArray[np.uint8]:
    """The array that a pickle describes: by a state, or since protocol 5 by the arguments alone."""
    if array.state is not None:
        _, shape, kind, by_columns, content = array.state
    else:
        content, kind, shape, order = array.arguments
        by_columns = order == "F"
    if kind.arguments[0] not in (b"u1", "u1"):
        raise ValueError(f"pixels of type {kind.arguments[0]!r}")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")
