"""Whether images of the size asked for fit into the machine, which is asked before any is resized.

Embedded images are held in memory, twice while they become one array. Others are written to the cache, and only those that
threads are at are held; what is mapped from a file may be larger than the memory.
"""

import os
import shutil
from pathlib import Path

from ..errors import DataError
from .decoding import IMAGES_A_CHUNK, IMAGES_A_TASK
from .pictures import Pictures
from .pixels import Pixels, channels_first


def check_room(
    content: Pixels | Pictures, size: int, name: str, *, folder: Path | None = None, workers: int = 1
) -> None:
    """See that there is room for images of another size."""
    if isinstance(content, Pictures):
        # At least one channel: they do not say before they are decoded.
        count, channels, at_a_time = len(content.names), 1, IMAGES_A_TASK
    else:
        count, channels = channels_first(content.images, name).shape[:2]
        at_a_time = IMAGES_A_CHUNK
    image = channels * size**2
    held = 2 * count if folder is None else min(count, workers * at_a_time)
    rooms = [(held * image, _memory(), "of memory")]
    if folder is not None:
        rooms.append((count * image, shutil.disk_usage(folder).free, f"free in {folder}"))
    for needed, available, what in rooms:
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
