"""Images of any kind as uint8 (c, h, w), decoded by several threads.

Pillow decodes outside Python's lock, so threads suffice. Grey stays one channel; palette, alpha and CMYK become RGB (alpha
is dropped). `size` crops the centre square and resizes it with a Lanczos filter; images of that size are left as they
are, bit by bit. 16-bit and float images keep their depth until their range makes bytes of them.
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..progress import track
from .arrays import Pixels, Range, channels_first, check_depth, quantize
from .image_files import ImageFiles

_TASK = 16  # files that a thread decodes at a time
_CHUNK = 256  # images of an array that a thread converts at a time
_ALIKE = {
    "size": "Pass --size S (size=S) to crop and resize them.",
    "depth": "Convert them to one depth, since one --range cannot serve both.",
}
"""What must be the same for all images of a set, and what to do if it is not."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Options(NamedTuple):
    """What becomes of every image."""

    size: int | None
    value_range: Range


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decode_images(
    content: Pixels | ImageFiles, options: Options, name: str, broken: dict[int, str], *, progress: bool
) -> Iterator[NDArray[np.uint8]]:
    """Images as bytes in order, some (b, c, h, w) at a time.

    An array is checked as a whole before the first. Files that cannot be decoded are noted in `broken` and left out.
    """
    if isinstance(content, Pixels):
        chunks = _slices(channels_first(content.images, name), _CHUNK)
        check_depth(content.images, options.value_range, name)
        converted = _in_threads(partial(_convert, options), chunks)
        yield from track(converted, total=len(chunks), label="reading images", enabled=progress)
        return
    names, tasks = content.names, _slices(range(len(content.names)), _TASK)
    parts = _in_threads(lambda task: [_decode(content, options, index) for index in task], tasks)
    outcomes = (outcome for part in parts for outcome in part)
    first: tuple[str, dict[str, str]] | None = None
    unlike: DataError | None = None  # raised at the end, when all that is broken is known
    for index, outcome in enumerate(track(outcomes, total=len(names), label="decoding images", enabled=progress)):
        if isinstance(outcome, str):
            broken[index] = outcome
            continue
        image, traits = outcome
        first = first or (names[index], traits)
        name_of_first, expected = first
        for trait, hint in _ALIKE.items():
            if unlike is None and traits[trait] != expected[trait]:
                found = f"{name_of_first} is {expected[trait]}, {names[index]} is {traits[trait]}"
                unlike = DataError(f"all images must have one {trait}; {found}. {hint}")
        if unlike is None:
            yield image
    if unlike is not None:
        raise unlike


def _slices(values: Any, size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def check_room(content: Pixels | ImageFiles, size: int | None, name: str, folder: Path | None = None) -> None:
    """See that the machine has room for images of another size, if one is asked for, before the first is resized.

    Embedded images are held in memory, twice while they become one array. Others are written to a folder, and only those
    that threads work on are held.
    """
    if size is None:
        return
    if isinstance(content, ImageFiles):
        # At least one channel: they do not say before they are decoded.
        count, channels, at_a_time = len(content.names), 1, _TASK
    else:
        count, channels = channels_first(content.images, name).shape[:2]
        at_a_time = _CHUNK
    held = 2 * count if folder is None else min(count, available_cores() * at_a_time)
    free = None if folder is None else shutil.disk_usage(folder).free
    for images, available, what in ((held, _memory(), "of memory"), (count, free, f"free in {folder}")):
        needed = images * channels * size**2
        if available is not None and needed > available:
            raise DataError(
                f"{name}: to make {count:,} images of {size} × {size} takes {needed / 1e9:,.1f} GB {what}; this machine has "
                f"{available / 1e9:,.1f} GB. Choose a smaller --size (size=S)."
            )


def _memory() -> int | None:
    """The machine's memory in bytes, or None where it does not say."""
    try:
        pages, bytes_a_page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, other systems not every name
        return None
    return pages * bytes_a_page if min(pages, bytes_a_page) > 0 else None


def fit(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The centre square of an image (c, h, w), resized to (c, size, size)."""
    from PIL import Image

    height, width = image.shape[1:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[:, top : top + side, left : left + side]
    if side == size:
        return square
    planes = [Image.fromarray(plane).resize((size, size), Image.Resampling.LANCZOS) for plane in square]
    return np.stack([np.asarray(plane) for plane in planes])


def _in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of a function in order, of which few wait to be taken."""
    workers = available_cores()
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _convert(options: Options, images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images (n, c, h, w) as bytes, of the size that is asked for."""
    pixels = quantize(images, options.value_range)
    return pixels if options.size is None else np.stack([fit(image, options.size) for image in pixels])


def _decode(files: ImageFiles, options: Options, index: int) -> tuple[NDArray[np.uint8], dict[str, str]] | str:
    """One image (1, c, h, w), and what must be the same for all images of a set; or why it cannot be decoded."""
    try:
        values = _values(partial(files.open, index), files.names[index])
    except DataError:
        raise
    except Exception as error:  # damaged bytes make decoders fail in any way: OSError, SyntaxError, zlib.error, …
        return str(error) or type(error).__name__
    check_depth(values[None], options.value_range, files.names[index])
    image = _convert(options, values[None, None] if values.ndim == 2 else values.transpose(2, 0, 1)[None])
    height, width = image.shape[2:]
    return image, {"size": f"{width}×{height}", "depth": str(values.dtype.newbyteorder("="))}


def _values(reopen: Callable[[], Any], name: str) -> NDArray[Any]:
    """The pixels of an image, (h, w) or (h, w, 3), in the depth they are stored in."""
    from PIL import ImageOps

    with reopen() as picture:
        layout = str(picture.tile[0][3]) if getattr(picture, "tile", None) else ""
        if picture.mode in ("RGB", "RGBA") and ";16" in layout:
            return _deep_color(picture, reopen, name)
        picture = ImageOps.exif_transpose(picture)  # cameras note how they were held
        if picture.mode == "F" or picture.mode.startswith("I"):
            return np.asarray(picture)
        if picture.mode in ("1", "L", "LA", "La"):
            return np.asarray(picture.convert("L"))
        if picture.mode == "P" and "transparency" in picture.info:
            return np.asarray(picture.convert("RGBA").convert("RGB"))
        return np.asarray(picture.convert("RGB"))


def _deep_color(picture: Any, reopen: Callable[[], Any], name: str) -> NDArray[np.uint16]:
    """Colours of 16 bits, of which pillow keeps eight: read once for the high bytes and, in swapped order, for the low."""
    codec, extents, offset, layout = picture.tile[0]
    if picture.format != "PNG" or layout not in ("RGB;16B", "RGBA;16B"):
        raise DataError(f"{name}: 16-bit colours are read from PNG without grey alpha. Save these images as .npz.")
    high = np.asarray(picture).astype(np.uint16)
    with reopen() as again:
        again.tile = [(codec, extents, offset, layout.replace("16B", "16L"))]
        low = np.asarray(again)
    colors: NDArray[np.uint16] = (high << 8 | low)[..., :3]
    return colors
