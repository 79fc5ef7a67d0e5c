"""One progress bar for long work, off by default; tqdm is imported only when a bar is shown."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from .errors import import_extra

T = TypeVar("T")


def track(items: Iterable[T], *, total: int | None = None, label: str = "", enabled: bool = False) -> Iterable[T]:
    """The items, with a progress bar if `enabled`."""
    return _tqdm()(items, total=total, desc=label, leave=False) if enabled else items


@contextmanager
def progress_bar(
    total: float | int, *, done: float | int = 0, unit: str = "", label: str = "", enabled: bool = False
) -> Iterator[Callable[[float, str], None]]:
    """A progress bar, if `enabled`, that is moved by calling it with the amount done and a note."""
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
    return import_extra("tqdm", "progress=True needs tqdm", "tqdm").tqdm
