"""Collections of encoded images: folders and zip archives of image files.

Images come in the order of their names. Labels are those of `dataset.json` if there is one (EDM's format: {"labels":
[[name, label], …]} or null). Otherwise, if every image lies in a subfolder of their common folder, those subfolders in
sorted order are the classes; subfolders named by five digits are EDM's buckets of images and no classes.
"""

import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, reraise_as
from .arrays import MOST_CLASSES, expect

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
LABELS = "dataset.json"


@dataclass(frozen=True)
class ImageFiles:
    """Encoded images by name; `open(i)` gives the i-th as a pillow image, not yet decoded."""

    names: Sequence[str]
    labels: NDArray[np.int64] | None
    open: Callable[[int], Any]


def is_image(name: str) -> bool:
    """Whether a name is that of an image: by its suffix, and not hidden."""
    return name.lower().endswith(SUFFIXES) and not name.startswith((".", "__MACOSX/")) and "/." not in name


def list_folder(folder: Path) -> list[tuple[str, int, int]]:
    """(name, size, time of change in ns) of every image and of dataset.json below a folder, by name.

    A link to nothing is listed as an empty file, which cannot be decoded; one back to a folder above is not followed.
    """

    def walk(path: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
        status = os.stat(path)
        here = (status.st_dev, status.st_ino)
        with os.scandir(path) as entries:
            for entry in entries if here not in above else ():
                name = prefix + entry.name
                if entry.is_dir():
                    if not entry.name.startswith("."):
                        yield from walk(entry.path, f"{name}/", above | {here})
                elif is_image(name) or name == LABELS:
                    status = entry.stat(follow_symlinks=os.path.exists(entry.path))
                    yield name, status.st_size, status.st_mtime_ns

    with reraise_as(DataError, f"could not list the images in {folder}"):
        return sorted(walk(os.fspath(folder), "", frozenset()))


def open_folder(folder: Path, listed: Collection[str]) -> ImageFiles:
    """The images of a folder as listed by `list_folder`."""
    from PIL import Image

    names = [name for name in listed if name != LABELS]
    labels = _labels(names, listed, lambda name: (folder / name).read_bytes(), folder)
    return ImageFiles(names, labels, lambda index: Image.open(folder / names[index]))


def open_zip(path: Path) -> ImageFiles:
    """The images of a zip archive; nothing is extracted."""
    from PIL import Image

    archive = zipfile.ZipFile(path)
    listed = sorted(archive.namelist())
    names = [name for name in listed if is_image(name)]
    found = ", ".join(listed[:5]) or "nothing"
    expect(names, f"{path}: expected images ({', '.join(SUFFIXES)}) in this archive; found {found}.")
    labels = _labels(names, set(listed), archive.read, path)
    return ImageFiles(names, labels, lambda index: Image.open(io.BytesIO(archive.read(names[index]))))


def _labels(
    names: Sequence[str], listed: Collection[str], read: Callable[[str], bytes], source: Path
) -> NDArray[np.int64] | None:
    """The stored labels, which may lie in a folder that all images share, else those by subfolder."""
    folders = names[0].split("/")[:-1]
    for depth in reversed(range(len(folders) + 1)):
        shared = "".join(f"{folder}/" for folder in folders[:depth])
        if shared + LABELS in listed and all(name.startswith(shared) for name in names):
            inside = [name.removeprefix(shared) for name in names]
            return _stored_labels(read(shared + LABELS), inside, str(source / shared / LABELS))
    return _folder_labels(names)


def _folder_labels(names: Sequence[str]) -> NDArray[np.int64] | None:
    folders = [name.split("/")[:-1] for name in names]
    shallowest = min(map(len, folders))
    common = next((depth for depth in range(shallowest) if len({parts[depth] for parts in folders}) > 1), shallowest)
    if any(len(parts) == common for parts in folders):
        return None
    classes, labels = np.unique([parts[common] for parts in folders], return_inverse=True)
    return None if all(re.fullmatch(r"\d{5}", name) for name in classes) else labels.astype(np.int64)


def _stored_labels(content: bytes, names: Sequence[str], where: str) -> NDArray[np.int64] | None:
    expected = '{"labels": [[name, label], …]} or {"labels": null}'
    with reraise_as(DataError, f"{where}: expected {expected}; reading it failed"):
        listed = json.loads(content)["labels"]
        if listed is None:
            return None
        stored = {str(name): label for name, label in listed}
    labels = []
    for name in names:
        expect(name in stored, f"{where}: no label for {name}. Add one for every image, or set labels to null.")
        label = stored[name]
        if isinstance(label, list) and label.count(1) == 1 and label.count(0) == len(label) - 1:
            label = label.index(1)
        if type(label) is not int or not 0 <= label < MOST_CLASSES:
            raise DataError(
                f"{where}: labels must be integers from 0 on, below {MOST_CLASSES}, or one-hot; got {label!r} for {name}. "
                "Or set labels to null."
            )
        labels.append(label)
    return np.array(labels, np.int64)
