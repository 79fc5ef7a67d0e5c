"""Locks on files, which the system gives back if a process dies. Windows has none of this kind: there nothing is locked."""

import sys
from typing import IO


def lock(file: IO[str], *, wait: bool) -> None:
    """Lock an open file for this process, until it is closed."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
