"""One progress bar for long work, off by default; tqdm is imported only when a bar is shown."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from .errors import MissingExtraError

T = TypeVar("T")


def track(items: Iterable[T], *, total: int | None = None, label: str = "", enabled: bool = False) -> Iterator[T]:
    """Iterate with a progress bar if `enabled`.

    Args:
        items: what to iterate over.
        total: how many items there are, if `items` does not know.
        label: the text beside the bar.
        enabled: whether to show the bar.

    Yields:
        The items.

    Raises:
        MissingExtraError: if a bar is asked for and tqdm is not installed.
    """
    if not enabled:
        yield from items
        return
    try:
        from tqdm import tqdm
    except ImportError:
        raise MissingExtraError("progress=True needs tqdm, which is not installed: pip install tqdm.") from None
    yield from tqdm(items, total=total, desc=label, leave=False)
