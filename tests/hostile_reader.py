"""Reads every pickle in a folder, in a process of its own, and tells what happened, one JSON line a file.

    python tests/hostile_reader.py FOLDER

Python reports to a hook what a process does (see `sys.audit`): imports, code that is run, files, programs and connections.
The first file, one in order, is read before that; from then on anything but opening the file itself for reading is an
event to tell. Memory is the peak of the process, above what it was after that first file.
"""

import json
import resource
import sys
import time
from pathlib import Path

from gausslens.errors import CheckpointError
from gausslens.zoo.edm import load_edm

HARMLESS = ("builtins.id", "mmap.__new__")


class Watch:
    """Records events while it reads a file."""

    def __init__(self):
        self.path = None
        self.events = []
        sys.addaudithook(self._hook)  # hooks cannot be removed

    def _hook(self, event, arguments):
        if self.path is None or event in HARMLESS:
            return
        if event == "open" and str(arguments[0]) == self.path and arguments[1] in ("r", "rb"):
            return
        self.events.append(event)

    def read(self, path):
        """The outcome of reading a file."""
        self.path, self.events = str(path), []
        started, peak = time.perf_counter(), peak_memory()
        try:
            load_edm(path)
            outcome = "read"
        except CheckpointError as error:
            outcome = str(error)
        except BaseException as error:
            outcome = f"FAILED {type(error).__name__}: {error}"
        seconds, self.path = time.perf_counter() - started, None
        found = {"outcome": outcome, "events": self.events, "seconds": seconds}
        return {**found, "megabytes": (peak_memory() - peak) / 2**20}


def peak_memory():
    """Bytes that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main():
    first, *others = sorted(Path(sys.argv[1]).glob("*.pkl"))
    load_edm(first)
    watch = Watch()
    for path in others:
        print(json.dumps({"name": path.stem, **watch.read(path)}), flush=True)


if __name__ == "__main__":
    main()
