"""Decoded images on disk: one uint8 .npy file per source and options, memory-mapped when read.

An entry is a folder with `images.npy` (n, c, h, w), `labels.npy` if there are labels, and `info.json`. It is written under
a temporary name and renamed when complete, so a reader, a second writer or a crash never meets half an entry.
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, reraise_as
from ..identity import identity_of
from .arrays import Pixels

Entry: TypeAlias = tuple[Pixels, dict[str, Any]]

_VERSION = 2
_CHUNK = 1024  # images


def entry_folder(cache: str | os.PathLike[str] | None, name: str, identity: Any) -> Path:
    """Where the entry of a source is kept: in `cache`, $GAUSSLENS_CACHE, $XDG_CACHE_HOME/gausslens or ~/.cache/gausslens."""
    if cache is None:
        shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = os.environ.get("GAUSSLENS_CACHE") or Path(shared) / "gausslens"
    return Path(cache).expanduser() / f"{name}-{identity_of(_VERSION, identity, digits=16)}"


def read_entry(folder: Path) -> Entry | None:
    """The images and labels of the entry in a folder, and its info; None if there is no entry that is whole."""
    try:
        info = json.loads((folder / "info.json").read_text(encoding="utf-8"))
        images = np.load(info["mapped"] or folder / "images.npy", mmap_mode="r").reshape(info["shape"])
        labels = np.load(folder / "labels.npy") if info["labelled"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Pixels(images, labels), info


def write_entry(folder: Path, fill: Callable[[Path], tuple[NDArray[np.int64] | None, dict[str, Any]]]) -> Entry:
    """Make an entry, or nothing if that fails; if another writer was faster, theirs is the entry.

    `fill` is given a folder. It writes `images.npy` there, unless its info says where they are mapped from, and returns the
    labels and the info.
    """
    unfinished = folder.with_name(f".{folder.name}.{uuid4().hex}.partial")
    advice = "Free some space there, or choose another folder with GAUSSLENS_CACHE (cache=FOLDER)."
    try:
        with reraise_as(DataError, f"could not write the decoded images to {folder.parent}", advice, OSError):
            unfinished.mkdir(parents=True)
            labels, info = fill(unfinished)
            if labels is not None:
                np.save(unfinished / "labels.npy", labels)
            text = json.dumps({"mapped": None, **info, "labelled": labels is not None}, indent=1)
            (unfinished / "info.json").write_text(text, encoding="utf-8")
            for path in unfinished.iterdir():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            if read_entry(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    unfinished.rename(folder)
                except OSError:
                    if read_entry(folder) is None:
                        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    entry = read_entry(folder)
    if entry is None:
        raise DataError(f"{folder} was removed while it was being written. Run the command again.")
    return entry


def write_images(path: Path, batches: Iterable[NDArray[np.uint8]]) -> None:
    """Write batches of images (b, c, h, w) as one .npy file.

    The first batch decides height and width. Grey and colour images may be mixed, and then all become colour. Bytes go
    through an ordinary file and not through a map, where a full disk would end the process.
    """
    count, shape = 0, (0, 0, 0)
    with open(path, "w+b") as file:
        for batch in batches:
            if not count:
                shape = batch.shape[1:]
                _write_header(file, 0, shape)
            elif batch.shape[1] > shape[0]:
                shape = batch.shape[1:]
                _color_in_place(file, count, shape)
            file.write(np.broadcast_to(batch, (len(batch), *shape)).tobytes())
            count += len(batch)
        if count:
            file.seek(0)
            _write_header(file, count, shape)  # the true count: NumPy leaves room for the first axis to grow


def _write_header(file: BinaryIO, count: int, shape: tuple[int, ...]) -> int:
    """Write the header of a .npy file; returns its length, which does not depend on the count."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.tell()


def _color_in_place(file: BinaryIO, count: int, shape: tuple[int, ...]) -> None:
    """Make colour images of the grey ones in a file: the last ones first, so that none is overwritten before it is read."""
    file.seek(0)
    begin, pixels, size = _write_header(file, 0, shape), math.prod(shape[1:]), math.prod(shape)
    for first in reversed(range(0, count, _CHUNK)):
        file.seek(begin + first * pixels)
        grey = np.frombuffer(file.read(min(_CHUNK, count - first) * pixels), np.uint8).reshape(-1, 1, *shape[1:])
        file.seek(begin + first * size)
        file.write(np.broadcast_to(grey, (len(grey), *shape)).tobytes())
    file.seek(0, os.SEEK_END)
