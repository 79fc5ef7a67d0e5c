"""Decoded images on disk: one uint8 .npy file per source and options, memory-mapped when read.

An entry is a folder with `images.npy` (n, c, h, w), `labels.npy` if there are labels, and `info.json`. It is written under
a temporary name and renamed when complete, so a reader, a second writer or a crash never meets half an entry.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

_VERSION = 2


class Entry(NamedTuple):
    """What the cache holds of one source."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    info: dict[str, Any]


def entry_folder(cache: str | os.PathLike[str] | None, name: str, identity: Any) -> Path:
    """Where the entry of a source is kept: in `cache`, $GAUSSLENS_CACHE, $XDG_CACHE_HOME/gausslens or ~/.cache/gausslens."""
    if cache is None:
        shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = os.environ.get("GAUSSLENS_CACHE") or Path(shared) / "gausslens"
    key = hashlib.sha256(json.dumps([_VERSION, identity]).encode()).hexdigest()[:16]
    return Path(cache).expanduser() / f"{name}-{key}"


def read_entry(folder: Path) -> Entry | None:
    """The entry in a folder, or None if there is none that is whole."""
    try:
        info = json.loads((folder / "info.json").read_text(encoding="utf-8"))
        images = np.load(info["mapped"] or folder / "images.npy", mmap_mode="r").reshape(info["shape"])
        labels = np.load(folder / "labels.npy") if info["labelled"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Entry(images, labels, info)


class EntryWriter:
    """Writes an entry: `append` batches, then `finish`; used as a context, which leaves nothing behind on failure.

    The first batch decides height and width. Grey and colour images may be mixed, and then all become colour.
    Bytes go through an ordinary file and not through a map, where a full disk would end the process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partial = folder.with_name(f".{folder.name}.{uuid4().hex}.partial")
        self._file: BinaryIO | None = None
        self._shape: tuple[int, ...] = ()
        self.count = 0

    def __enter__(self) -> "EntryWriter":
        with self._explain_errors():
            self._partial.mkdir(parents=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # what is still buffered finds no room either
                self._file.close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def append(self, batch: NDArray[np.uint8]) -> None:
        """Add images (b, c, h, w)."""
        with self._explain_errors():
            if self._file is None:
                self._start(batch.shape[1:])
            if batch.shape[1] > self._shape[0]:
                self._become_color(batch.shape[1])
            assert self._file is not None
            self._file.write(np.broadcast_to(batch, (len(batch), *self._shape)).tobytes())
            self.count += len(batch)

    def images(self) -> NDArray[np.uint8]:
        """What has been appended, as a map of the finished file."""
        with self._explain_errors():
            self._close()
        images: NDArray[np.uint8] = np.load(self._partial / "images.npy", mmap_mode="r")
        return images

    def finish(self, labels: NDArray[np.int64] | None, info: dict[str, Any], mapped: str | None = None) -> Entry:
        """Make the entry visible; if another writer was faster, theirs is the entry."""
        with self._explain_errors():
            self._close()
            if labels is not None:
                np.save(self._partial / "labels.npy", labels)
            text = json.dumps({**info, "mapped": mapped, "labelled": labels is not None}, indent=1)
            (self._partial / "info.json").write_text(text, encoding="utf-8")
            for path in self._partial.iterdir():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            if read_entry(self._folder) is None:
                shutil.rmtree(self._folder, ignore_errors=True)
                try:
                    self._partial.rename(self._folder)
                except OSError:
                    if read_entry(self._folder) is None:
                        raise
        entry = read_entry(self._folder)
        if entry is None:
            raise DataError(f"{self._folder} was removed while it was being written. Run the command again.")
        return entry

    def _start(self, shape: tuple[int, ...]) -> None:
        self._file = open(self._partial / "images.npy", "wb")  # noqa: SIM115 (closed by the context)
        self._shape, self.count = shape, 0
        self._write_header(self._file)

    def _write_header(self, file: BinaryIO) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": (self.count, *self._shape)}
        np.lib.format.write_array_header_1_0(file, header)

    def _close(self) -> None:
        """Write the true count: NumPy leaves room in the header for the first axis to grow."""
        if self._file is not None and not self._file.closed:
            self._file.seek(0)
            self._write_header(self._file)
            self._file.close()

    def _become_color(self, channels: int) -> None:
        self._close()
        grey_file = (self._partial / "images.npy").rename(self._partial / "grey.npy")
        grey = np.load(grey_file, mmap_mode="r")
        self._start((channels, *self._shape[1:]))
        for start in range(0, len(grey), 1024):
            self.append(grey[start : start + 1024])
        grey_file.unlink()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"could not write the decoded images to {self._folder.parent}: {error.strerror or error}. "
                "Free some space there, or choose another folder with GAUSSLENS_CACHE (cache=FOLDER)."
            ) from error
