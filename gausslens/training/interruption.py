"""Stopping in good order: Ctrl-C and SIGTERM are noted, so that work can end between two steps and be saved."""

import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn


class Interruption:
    """Inside, the first Ctrl-C or SIGTERM is noted as `number` rather than acted on; a second one acts at once."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers there alone
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def leave(self, message: str) -> NoReturn:
        """End as the signal would have: `KeyboardInterrupt` for Ctrl-C, exit code 143 for SIGTERM."""
        if self.number != signal.SIGTERM:
            raise KeyboardInterrupt(message)
        print(f"\ngausslens: {message}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.__exit__()
