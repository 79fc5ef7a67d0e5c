"""Images from any source as one uint8 array, decoded once and then memory-mapped from the cache.

A source that has changed since it was decoded (any file's size or time) is decoded again.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, require
from .arrays import Pixels, channels_first, check_range
from .cache import Entry, entry_folder, read_entry, write_entry, write_images
from .decoding import Options, check_room, decode_images
from .sources import Source, find_source

_LISTED = 10


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with their labels and the record of where they come from.

    Attributes:
        images: uint8 (n, c, h, w), c = 1 or 3, a read-only memory map or an array; every function of the package
            takes it as it is.
        labels: int64 (n,), or None.
        name: a short name, fit for a folder's name.
        source: the embedded name, the hub's name or the absolute path.
        options: the size and range asked for.
        content_hash: SHA-256 of shape, dtype and pixels, as `gausslens.images.content_hash` computes it.
        skipped: names of broken files that were left out.
        groups: int64 (n,), which images belong together, if that was asked for (see `groups`); or None.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    name: str
    source: str
    options: dict[str, Any]
    content_hash: str
    skipped: tuple[str, ...] = ()
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels_hash(self) -> str | None:
        """SHA-256 of the labels, or None."""
        return None if self.labels is None else hash_integers(self.labels)

    @property
    def groups_hash(self) -> str | None:
        """SHA-256 of the groups' numbers, or None."""
        return None if self.groups is None else hash_integers(self.groups)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one image, (c, h, w)."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width


def load_images(
    source: str | os.PathLike[str],
    *,
    size: int | None = None,
    value_range: Sequence[int | float] | None = None,
    skip_broken: bool = False,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> ImageSet:
    """Read a set of images, or open what an earlier call has read.

    >>> digits = load_images("digits")
    >>> len(digits), digits.shape, digits.labels[:3].tolist()
    (1797, (1, 8, 8), [0, 1, 2])
    """
    require(size is None or size >= 1, f"size must be at least 1 pixel; got {size}.")
    options = Options(size, check_range(value_range))
    found = find_source(source)
    if found.identity is None:
        pixels, info = _in_memory(found, options)
    else:
        folder = entry_folder(cache, found.name, [found.identity, options])
        decode = partial(_decode, found, options, skip_broken, progress)
        pixels, info = read_entry(folder) or write_entry(folder, decode)
    if info["skipped"] and not skip_broken:
        raise _broken_error(found, info["skipped"])
    return ImageSet(
        images=pixels.images,
        labels=pixels.labels,
        name=found.name,
        source=found.address,
        options=options._asdict(),
        content_hash=info["content_hash"],
        skipped=tuple(info["skipped"]),
    )


def hash_integers(numbers: NDArray[np.int64]) -> str:
    """SHA-256 of integers, the same on every machine."""
    return hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()


def _in_memory(source: Source, options: Options) -> Entry:
    """Embedded images are small, and need no cache."""
    content = source.open()
    check_room(content, options.size, source.address)
    images = np.concatenate(list(decode_images(content, options, source.address, {}, progress=False)))
    return Pixels(images, content.labels), _info(source, options, images, {})


def _decode(
    source: Source, options: Options, skip_broken: bool, progress: bool, place: Path
) -> tuple[NDArray[np.int64] | None, dict[str, Any]]:
    """Write the images of a source into a folder of the cache; returns their labels and what is known of them."""
    content, name = source.open(), source.address
    if isinstance(content, Pixels) and _is_ready(content.images, options, name):
        info = _info(source, options, channels_first(content.images, name), {})
        return content.labels, {**info, "mapped": name}
    check_room(content, options.size, name, place.parent)
    broken: dict[int, str] = {}
    problems: list[DataError] = []
    try:
        batches = decode_images(content, options, name, broken, progress=progress)
        write_images(place / "images.npy", batches)
    except DataError as error:
        problems.append(error)
    skipped = {content.names[index]: reason for index, reason in broken.items()}
    if skipped and (not skip_broken or len(skipped) == len(content.names)):
        problems.append(_broken_error(source, skipped))
    if problems:
        raise DataError("\n".join(map(str, problems)))
    labels = None if content.labels is None else np.delete(content.labels, list(broken))
    images: NDArray[np.uint8] = np.load(place / "images.npy", mmap_mode="r")
    return labels, _info(source, options, images, skipped)


def _is_ready(images: NDArray[Any], options: Options, name: str) -> bool:
    """Whether a memory-mapped .npy file is already what the cache would hold, and needs no copy."""
    if not isinstance(images, np.memmap) or images.dtype != np.uint8 or options.value_range is not None:
        return False
    planes = channels_first(images, name)
    return planes.flags.c_contiguous and (options.size is None or planes.shape[2:] == (options.size, options.size))


def _info(source: Source, options: Options, images: NDArray[np.uint8], skipped: dict[str, str]) -> dict[str, Any]:
    from ..images import as_tensor, content_hash  # torch takes seconds to import, and a second start needs none of it

    return {
        "source": source.address,
        "options": options._asdict(),
        "shape": images.shape,
        "content_hash": content_hash(as_tensor(images)),
        "skipped": skipped,
    }


def _broken_error(source: Source, skipped: dict[str, str]) -> DataError:
    lines = [f"  {name}: {reason}" for name, reason in skipped.items()]
    if len(lines) > _LISTED:
        lines[_LISTED:] = [f"  … and {len(lines) - _LISTED} more"]
    return DataError(
        "\n".join([f"{source.address}: {len(skipped)} broken files cannot be decoded:", *lines])
        + "\nRepair or remove them, or pass --skip-broken (skip_broken=True) to leave them out."
    )
