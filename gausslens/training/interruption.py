"""Stopping in good order: Ctrl-C and SIGTERM are noted, so that work can end between two steps and be saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn


class Interruption:
    """Whether a signal to stop has come, and which."""

    def __init__(self) -> None:
        self.number = 0

    def __bool__(self) -> bool:
        return self.number > 0

    def leave(self, message: str) -> NoReturn:
        """End as the signal would have: `KeyboardInterrupt` for Ctrl-C, exit code 143 for SIGTERM."""
        if self.number != signal.SIGTERM:
            raise KeyboardInterrupt(message)
        print(f"\ngausslens: {message}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def noting_signals() -> Iterator[Interruption]:
    """Inside, the first Ctrl-C or SIGTERM is noted rather than acted on; a second one acts at once."""
    interruption = Interruption()
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def note(number: int, frame: FrameType | None) -> None:
        interruption.number = number
        restore()

    if threading.current_thread() is threading.main_thread():  # Python allows handlers there alone
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    try:
        yield interruption
    finally:
        restore()
