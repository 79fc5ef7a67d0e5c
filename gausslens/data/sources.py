"""What a source is: one string or path, recognised by its content.

digits, fashion            embedded
hf:NAME[:SPLIT]            the Hugging Face hub
FOLDER                     image files, at any depth; or the extracted CIFAR-10 python archive
FILE                       .npz, .npy, IDX, a zip of images, the CIFAR-10 python archive or one of its batches
"""

import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import DataError, reraise_as
from .arrays import IDX, Pixels, expect, idx_labels, open_unzipped, read_idx, read_npy, read_npz
from .cifar import cifar_batches, read_cifar_archive, read_cifar_file, read_cifar_folder
from .hub import is_saved, load_hub, open_hub
from .image_files import LABELS, SUFFIXES, ImageFiles, is_image, list_folder, open_folder, open_zip

T = TypeVar("T")

EMBEDDED = ("digits", "fashion")
SUPPORTED = (
    f"Sources are {', '.join(EMBEDDED)}, hf:NAME, a folder or zip of images ({', '.join(SUFFIXES)}), .npz, .npy, IDX files "
    "and the CIFAR-10 python archive."
)

_HOME = Path(__file__).parent / "embedded"
_FORMATS: dict[re.Pattern[bytes], Callable[[Path], Pixels | ImageFiles]] = {
    re.compile(rb"PK\x03\x04(?s:.{26})[^\0]+?\.npy"): read_npz,  # a zip archive, whose first member is an array
    re.compile(rb"PK"): open_zip,
    IDX: read_idx,
    re.compile(rb"(?s:.{257})ustar"): read_cifar_archive,
    re.compile(rb"\x80"): read_cifar_file,  # a pickle
    re.compile(rb"\x93NUMPY"): read_npy,
}
"""What reads a file that is not a folder, by how it begins once it is decompressed."""

_ENDINGS = re.compile(r"(\.tar|\.gz|\.tgz|\.zip|\.npz|\.npy|[-.]idx\d-ubyte)+$")
_GET_AGAIN = "Get the file again; arrays must be written without objects."
_UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True)
class Source:
    """Where images come from: a short name, what their cache depends on, how to open them, whether they are files.

    `identity` is None for images that need no cache.
    """

    name: str
    address: str
    identity: Any
    open: Callable[[], Pixels | ImageFiles]
    has_files: bool = False


def find_source(source: str | os.PathLike[str]) -> Source:
    """The source that a string or path means."""
    text = os.fspath(source)
    if text in EMBEDDED:
        return Source(text, text, None, partial(read_npz, _HOME / f"{text}.npz"))
    if text.startswith("hf:"):
        name = text.removeprefix("hf:")
        dataset = load_hub(name)
        identity = ["hf", name, str(getattr(dataset, "_fingerprint", "")), len(dataset)]
        return Source(_plain(name), text, identity, partial(open_hub, dataset, name))
    given = Path(text).expanduser()
    # A link is called by its own name: caches keep files under their hashes, and link to them.
    path = given.parent.resolve() / given.name if given.is_symlink() else given.resolve()
    if path.is_dir():
        return _folder(path)
    expect(path.is_file(), f"no such source: {text!r} is neither a name nor an existing file or folder. {SUPPORTED}")
    stamps = [_stamp(file) for file in (path, idx_labels(path)) if file is not None]
    name, reader = _plain(_ENDINGS.sub("", path.name)), _read(_reader, path)
    return Source(name, str(path), stamps, partial(_read, reader, path), has_files=reader is open_zip)


def image_names(source: str | os.PathLike[str]) -> tuple[str, ...] | None:
    """The files of a source's images, relative to it and in the order of the images; nothing is decoded."""
    if os.fspath(source).startswith("hf:"):  # rows have no file names, and finding the data set may download it
        return None
    found = find_source(source)
    return tuple(found.open().names) if found.has_files else None


def _folder(path: Path) -> Source:
    name = _plain(path.name)
    if batches := cifar_batches(path):
        stamps = [_stamp(file) for file in batches]
        return Source(name, str(path), stamps, partial(_read, read_cifar_folder, path))
    listed = list_folder(path)
    names = [entry[0] for entry in listed]
    if not any(entry != LABELS for entry in names):
        raise DataError(f"{path} holds no images. {_hint(path)}{SUPPORTED}")
    return Source(name, str(path), [str(path), listed], partial(open_folder, path, names), has_files=True)


def _hint(folder: Path) -> str:
    """Where the images probably are, if a folder holds something else that is known."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    if is_saved(folder):
        return f"A saved Hugging Face data set is hf:{folder}. "
    arrays = [file for file in files if _ENDINGS.search(file.name) and "labels" not in file.name]
    return f"Pass one of its files, such as {arrays[-1]}. " if arrays else ""


def _reader(path: Path) -> Callable[[Path], Pixels | ImageFiles]:
    """What reads a file, by its first bytes."""
    with open_unzipped(path) as file:
        head = file.read(512)
    reader = next((reader for beginning, reader in _FORMATS.items() if beginning.match(head)), None)
    if reader is not None:
        return reader
    unknown = f"its format is not known (it begins with {head[:8]!r})"
    trouble = "one image is no data set; pass its folder" if is_image(path.name) else unknown
    raise DataError(f"{path}: {trouble}. {SUPPORTED}")


def _read(read: Callable[[Path], T], path: Path) -> T:
    """What a function reads; a file or folder that cannot be read is a DataError."""
    with reraise_as(DataError, f"could not read {path}", _GET_AGAIN, _UNREADABLE):
        return read(path)


def _stamp(path: Path) -> list[Any]:
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]


def _plain(name: str) -> str:
    """A name that can be part of a folder's."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "images"
