"""One progress bar for long work, off by default; tqdm is imported only when a bar is shown."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

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
    yield from _tqdm()(items, total=total, desc=label, leave=False)


@contextmanager
def progress_bar(
    total: float | int, *, done: float | int = 0, unit: str = "", label: str = "", enabled: bool = False
) -> Iterator[Callable[[float, str], None]]:
    """A progress bar, if `enabled`, for work that is measured rather than counted.

    Args:
        total: the amount of work.
        done: how much of it was done before.
        unit: of the amount.
        label: the text beside the bar.
        enabled: whether to show the bar.

    Yields:
        A function to call with the amount done so far and a few words on how it goes.

    Raises:
        MissingExtraError: if a bar is asked for and tqdm is not installed.
    """
    if not enabled:
        yield lambda amount, words: None
        return
    layout = "{l_bar}{bar}| {n:.5g}/{total:.5g} {unit} [{elapsed}<{remaining}{postfix}]"
    with _tqdm()(total=total, initial=done, unit=unit, desc=label, bar_format=layout, leave=False) as bar:

        def show(amount: float, words: str) -> None:
            bar.set_postfix_str(words, refresh=False)
            bar.update(amount - bar.n)

        yield show


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise MissingExtraError("progress=True needs tqdm, which is not installed: pip install tqdm.") from None
    return tqdm
