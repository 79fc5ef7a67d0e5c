"""The CIFAR-10 python archive, whose pickles are read as data and never run (see `safe_pickle`).

The archive's 50,000 training images are `data_batch_1` … `data_batch_5`; a single batch, such as the extracted
`test_batch`, is a source too.
"""

import io
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..safe_pickle import ARRAYS, Instance, kind_of, safe_load
from .arrays import Pixels, as_labels, expect

_BATCH = re.compile(r"data_batch_(\d+)")
_INSTRUCTIONS = 500_000  # 50,000 images with names and labels take up to 200,000


def cifar_batches(folder: Path) -> list[Path]:
    """The training batches in an extracted archive, in order; `folder` or the archive's own folder inside it."""
    inside = folder / "cifar-10-batches-py"
    return _in_order((inside if inside.is_dir() else folder).glob("data_batch_*"))


def read_cifar_folder(folder: Path) -> Pixels:
    """The training images of an extracted archive."""
    return _join((str(path), path.read_bytes()) for path in cifar_batches(folder))


def read_cifar_file(path: Path) -> Pixels:
    """The images of one extracted batch."""
    return _join([(str(path), path.read_bytes())])


def read_cifar_archive(path: Path) -> Pixels:
    """The training images of cifar-10-python.tar.gz; nothing is extracted."""
    with tarfile.open(path) as archive:
        members = {Path(member.name): member for member in archive.getmembers() if member.isfile()}
        batches, found = _in_order(members), ", ".join(map(str, list(members)[:5])) or "nothing"
        advice = "Extract it, and pass the folder of images."
        expect(
            batches, f"{path}: expected CIFAR-10's data_batch_1 … data_batch_5 in this archive; found {found}. {advice}"
        )
        # `extractfile` gives None for what is no file.
        return _join((f"{path}:{name}", archive.extractfile(members[name]).read()) for name in batches)  # type: ignore[union-attr]


def _in_order(names: Iterable[Path]) -> list[Path]:
    numbered = [(int(match[1]), name) for name in names if (match := _BATCH.fullmatch(name.name))]
    return [name for _, name in sorted(numbered)]


def _join(contents: Iterable[tuple[str, bytes]]) -> Pixels:
    """The images of batches, given by name and content; with labels if all batches have them."""
    batches = [_batch(name, content) for name, content in contents]
    labels = [batch.labels for batch in batches if batch.labels is not None]
    complete = len(labels) == len(batches)
    return Pixels(np.concatenate([batch.images for batch in batches]), np.concatenate(labels) if complete else None)


def _batch(name: str, content: bytes) -> Pixels:
    try:
        fields = safe_load(io.BytesIO(content), len(content), lambda budget: ARRAYS, instructions=_INSTRUCTIONS)
        expect(type(fields) is dict, f"it holds {kind_of(fields)}")
        images, labels = _pixels(fields.get("data")).reshape(-1, 3, 32, 32), fields.get("labels")
        are_numbers = labels is None or (type(labels) is list and all(type(label) is int for label in labels))
        expect(are_numbers, "its labels are not a list of whole numbers")
    # Arbitrary bytes can fail anywhere in the walk, in any way.
    except Exception as error:
        raise DataError(
            f"{name}: expected a batch of CIFAR-10's python version, uint8 rows of 3,072; {str(error)[:300]}. "
            "Other pickles are not read, since they can run any program: save images as .npz."
        ) from None
    return Pixels(images, as_labels(labels, len(images), name))


def _pixels(array: Any) -> NDArray[np.uint8]:
    """The array that a pickle describes: by a state, or since protocol 5 by the arguments alone."""
    expect(type(array) is Instance, f"its data is {kind_of(array)}")
    if array.state is not None:
        _, shape, kind, by_columns, content = array.state
    else:
        content, kind, shape, order = array.arguments
        by_columns = order == "F"
    dtype = kind.arguments[0]
    expect(dtype == "u1", f"pixels of type {dtype!r}" if type(dtype) is str else f"pixels of {kind_of(dtype)}")
    values = content.encode("latin1") if isinstance(content, str) else content  # a text where Python 2 wrote bytes
    return np.frombuffer(values, np.uint8).reshape(shape, order="F" if by_columns else "C")
