"""Collections of image files: folders and zip archives.

Images come in the order of their names. Labels are those of `dataset.json` if there is one (EDM's format: {"labels":
[[name, label], …]} or null). Otherwise, if every image lies in a subfolder of their common folder, those subfolders in
sorted order are the classes; subfolders named by five digits are EDM's buckets of images and no classes.
"""

import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .arrays import MOST_CLASSES

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
LABELS = "dataset.json"

_BUCKET = re.compile(r"\d{5}")


@dataclass(frozen=True)
class Pictures:
    """Encoded images by name; `open(i)` gives the i-th as a pillow image, not yet decoded."""

    names: Sequence[str]
    labels: NDArray[np.int64] | None
    open: Callable[[int], Any]


def is_picture(name: str) -> bool:
    """Whether a name is that of an image: by its suffix, and not hidden."""
    return name.lower().endswith(SUFFIXES) and not name.startswith((".", "__MACOSX/")) and "/." not in name


def list_folder(folder: Path) -> list[tuple[str, int, int]]:
    """(name, size, time of change in ns) of every image and of dataset.json below a folder, by name.

    A link to nothing is listed as an empty file, which cannot be decoded; one back to a folder above is not followed.
    """
    found = []

    def walk(path: str, prefix: str, above: frozenset[tuple[int, int]]) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir():
                    status = entry.stat()
                    here = (status.st_dev, status.st_ino)
                    if not entry.name.startswith(".") and here not in above:
                        walk(entry.path, f"{name}/", above | {here})
                elif is_picture(name) or name == LABELS:
                    status = entry.stat(follow_symlinks=os.path.exists(entry.path))
                    found.append((name, status.st_size, status.st_mtime_ns))

    try:
        top = os.stat(folder)
        walk(os.fspath(folder), "", frozenset({(top.st_dev, top.st_ino)}))
    except OSError as error:
        raise DataError(f"could not list the images in {folder}: {error}.") from None
    return sorted(found)


def open_folder(folder: Path, listed: list[str]) -> Pictures:
    """The images of a folder as listed by `list_folder`."""
    names = [name for name in listed if name != LABELS]
    labels = None
    if LABELS in listed:
        labels = _stored_labels((folder / LABELS).read_bytes(), names, str(folder / LABELS))
    elif not names:
        raise DataError(f"{folder}: no images here; expected files ending in {', '.join(SUFFIXES)}.")
    else:
        labels = _folder_labels(names)
    return Pictures(names, labels, partial(_open_file, folder, names))


def open_zip(path: Path) -> Pictures:
    """The images of a zip archive; nothing is extracted."""
    try:
        archive = zipfile.ZipFile(path)
        listed = sorted(archive.namelist())
        names = [name for name in listed if is_picture(name)]
        if not names:
            raise DataError(
                f"{path}: expected images ({', '.join(SUFFIXES)}) in this archive; "
                f"found {', '.join(listed[:5]) or 'nothing'}."
            )
        # Often everything lies in one folder, its labels too.
        shared = [folder for folder in PurePosixPath(names[0]).parents if _holds(folder, names)]
        top = next((folder for folder in shared if str(folder / LABELS) in listed), None)
        if top is not None:
            inside = [str(PurePosixPath(name).relative_to(top)) for name in names]
            labels = _stored_labels(archive.read(str(top / LABELS)), inside, f"{path}:{top / LABELS}")
        else:
            labels = _folder_labels(names)
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:
        raise DataError(f"{path} is not a readable zip archive ({error}). Get the file again.") from None
    return Pictures(names, labels, partial(_open_member, archive, names))


def _holds(folder: PurePosixPath, names: Sequence[str]) -> bool:
    return str(folder) == "." or all(name.startswith(f"{folder}/") for name in names)


def _open_file(folder: Path, names: Sequence[str], index: int) -> Any:
    from PIL import Image

    return Image.open(folder / names[index])


def _open_member(archive: zipfile.ZipFile, names: Sequence[str], index: int) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(archive.read(names[index])))


def _folder_labels(names: Iterable[str]) -> NDArray[np.int64] | None:
    folders = [PurePosixPath(name).parent.parts for name in names]
    shallowest = min(map(len, folders))
    common = next((depth for depth in range(shallowest) if len({parts[depth] for parts in folders}) > 1), shallowest)
    if any(len(parts) == common for parts in folders):
        return None
    classes, labels = np.unique([parts[common] for parts in folders], return_inverse=True)
    return None if all(_BUCKET.fullmatch(name) for name in classes) else labels.astype(np.int64)


def _stored_labels(content: bytes, names: Iterable[str], where: str) -> NDArray[np.int64] | None:
    try:
        listed = json.loads(content)["labels"]
        stored = None if listed is None else {str(name): label for name, label in listed}
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f'{where}: expected {{"labels": [[name, label], …]}} or {{"labels": null}}; it cannot be read so ({error!r}).'
        ) from None
    return None if stored is None else np.array([_label(stored, name, where) for name in names], np.int64)


def _label(stored: dict[str, Any], name: str, where: str) -> int:
    if name not in stored:
        raise DataError(f"{where}: no label for {name}. Add one for every image, or set labels to null.")
    label = stored[name]
    if isinstance(label, list) and label.count(1) == 1 and label.count(0) == len(label) - 1:
        return label.index(1)
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < MOST_CLASSES:
        raise DataError(
            f"{where}: labels must be integers from 0 on, below {MOST_CLASSES}, or one-hot; got {label!r} for {name}. "
            "Or set labels to null."
        )
    return label
