"""Locks on files, which the system gives back if a process dies. Windows has none of this kind: there nothing is locked."""

import sys
from typing import IO


def lock(file: IO[str], *, wait: bool) -> None:
    """Lock an open file for this process, until it is closed.

    Args:
        file: the file.
        wait: whether to wait for a process that holds the lock.

    Raises:
        BlockingIOError: if another process holds it, and is not to be waited for.
    """
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
