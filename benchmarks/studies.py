"""How long the study of digits takes: to its first page, in all, again; its memory; and two workers against one.

    python benchmarks/studies.py [--full] [--only all,pool]

`all` runs the command in a new folder, then again. `pool` runs one study of small models with one worker and with two; every
worker computes on one thread.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

POOLED = ("--only", "size", "--kimg", "24", "--seeds", "2")


class Watch(threading.Thread):
    """Follows a process: the memory of it and all its children, and when a page first appears.

    Args:
        process: the process.
        folder: where its studies are.
    """

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        super().__init__(daemon=True)
        self.process, self.folder = process, folder
        self.start_time, self.peak, self.first_page = time.perf_counter(), 0, float("nan")

    def run(self) -> None:
        while self.process.poll() is None:
            self.peak = max(self.peak, sum(resident(pid) for pid in family(self.process.pid)))
            if self.first_page != self.first_page and any(self.folder.glob("study-*/report.html")):
                self.first_page = time.perf_counter() - self.start_time
            time.sleep(0.2)


def resident(pid: int) -> int:
    """Bytes of memory that a process does not share with others."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(member for child in children for member in family(int(child)))]


def run(folder: Path, *words: str) -> tuple[float, Watch]:
    """Seconds of `gausslens study digits`, and what was seen meanwhile."""
    command = [sys.executable, "-m", "gausslens", "study", "digits", "--out", str(folder), "--cpu", *words]
    start = time.perf_counter()
    with subprocess.Popen(command, text=True) as process:
        watch = Watch(process, folder)
        watch.start()
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - start, watch


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds and memory of the study of digits.")
    parser.add_argument("--full", action="store_true", help="all studies")
    parser.add_argument("--only", default="all,pool", help="all, pool, or both")
    options = parser.parse_args()
    rows = []
    if "all" in options.only.split(","):
        with tempfile.TemporaryDirectory() as place:
            words = ("--full",) if options.full else ()
            whole, watch = run(Path(place), *words)
            again, _ = run(Path(place), *words)
        rows += [("first page", watch.first_page), ("all", whole), ("again", again)]
        rows += [("memory, GiB", watch.peak / 2**30)]
    if "pool" in options.only.split(","):
        seconds = []
        for workers in ("1", "2"):
            with tempfile.TemporaryDirectory() as place:
                seconds.append(run(Path(place), *POOLED, "--workers", workers)[0])
        rows += [("one worker", seconds[0]), ("two workers", seconds[1]), ("ratio", seconds[0] / seconds[1])]
    print("\n| what | s |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value:.2f} |")


if __name__ == "__main__":
    main()
