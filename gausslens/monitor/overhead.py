"""Keeping the time of side work below a share of that of the main work, by measuring both."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SPACING = 0.02  # of the main work so far, at least, between two pieces of side work: so they never become many
_RAREST = 0.5  # likewise after many failures in a row: only once the main work has taken twice as long
_CAUTION = 1.5  # times what is expected must be affordable
_PLANNED = 0.8  # of the share: what takes longer than it did before must fit in, too
_ADVANCE = 4.0  # times its share side work may have taken so far, where it is known that the main work will go on


class OverheadBudget:
    """The time of side work, which may take a `share` of that of the main work around it."""

    def __init__(self, share: float, *, own: float = 0.0, main: float = 0.0, last: float = 0.0) -> None:
        self.share = share
        self.own, self.main = own, main  # seconds of side work, and of main work up to the latest of it
        self.last = last  # seconds of main work before the latest piece of side work that was marked
        self.spent = 0.0  # seconds of the latest piece of side work
        self._spacing = _SPACING  # of the next two pieces of side work
        self._left: float | None = None  # when the main work went on; None before it is known, and during side work
        self._pauses = False  # whether this is side work

    @property
    def cost(self) -> float:
        """Side work over main work."""
        main = self.main_until_now
        return self.own / main if main else 0.0

    @property
    def main_until_now(self) -> float:
        """Seconds of main work, also of that which goes on."""
        return self.main + (0.0 if self._left is None else time.perf_counter() - self._left)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Inside is side work, if only deciding that there is none to do. It may be made of several pieces, each in its own.

        The main work goes on after the outermost.
        """
        outermost, started, own = not self._pauses, time.perf_counter(), self.own
        if outermost:
            self.main, self._left, self._pauses = self.main_until_now, None, True
        try:
            yield
        finally:
            ended = time.perf_counter()
            self.spent = ended - started
            self.own = own + self.spent
            if outermost:
                self._left, self._pauses = ended, False

    def mark(self, *, failed: bool = False) -> None:
        """A piece of side work is done; the next must wait a little, and the longer the more have failed in a row."""
        self.last, self._spacing = self.main, min(2 * self._spacing, _RAREST) if failed else _SPACING

    def affords(self, seconds: float, done: float | None = None) -> bool:
        """Whether side work stays within its share, with a margin, and is not too soon."""
        allowed = self.share * self.main
        if self.last and self.main - self.last < self._spacing * self.main:
            return False
        advance = 1.0 if done is None else min(max(done, 1e-9) ** -0.5, _ADVANCE)
        at_once = self.own + _CAUTION * seconds <= _PLANNED * allowed * advance
        return at_once and (done is None or self.own + (_CAUTION + 1) * seconds <= allowed / max(done, 1e-9))

    def state(self) -> dict[str, float]:
        """The times, with which an `OverheadBudget` goes on in a later session."""
        return {"own": self.own, "main": self.main_until_now, "last": self.last}
