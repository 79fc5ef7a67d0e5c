"""An artifact: the folder that holds what a piece of work left, and from which the same work goes on.

    config.json         what was to be done, with its identity
    provenance.json     each session's software and hardware, and how long it worked
    records.jsonl       tidy records, one number a line
    …                   arrays, weights and pages, as the work has them

Whatever moment a process dies at, the folder stays readable: files appear whole (see `atomic_files`), and a record cut short
in its line is dropped. Runs (`Run`) and tasks of experiments (`TaskStore`) are artifacts.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from ..atomic_files import save_text
from ..errors import CheckpointError, require, reraise_as
from .provenance import describe_machine
from .records import Record, with_current_names

_RECORDS, _PROVENANCE = "records.jsonl", "provenance.json"

expect = partial(require, error=CheckpointError)
"""Raise a CheckpointError with a message unless a condition holds."""


class Artifact:
    """A folder of records and files, `path`, that one process at a time works on."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def records(self) -> list[Record]:
        """All records, in the order they were made."""
        path = self.path / _RECORDS
        # What follows the last newline is cut short.
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        with reraise_as(CheckpointError, f"{path} has a line that is not a record", "Restore or remove it."):
            return [with_current_names(json.loads(line)) for line in lines]

    def append(self, records: Iterable[Record]) -> None:
        """Add records at the end; values must be what JSON can hold."""
        text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
        path = self.path / _RECORDS
        with (
            reraise_as(CheckpointError, f"could not write {path}", "Check that it has room."),
            open(path, "ab+") as file,
        ):
            if file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def save_records(self, records: Iterable[Record]) -> None:
        """Replace all records."""
        save_text(self.path / _RECORDS, "".join(json.dumps(record) + "\n" for record in records))

    def save_json(self, name: str, value: Any) -> None:
        """Write a JSON file, whole or not at all."""
        save_text(self.path / name, json.dumps(value, indent=2) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """What a JSON file of the folder says, by name."""
        path = self.path / name
        if not os.path.exists(path):
            hint = runs_in(self.path)
            raise CheckpointError(f"expected the directory of a run at {self.path}; it has no {name}.{hint}")
        return read_object(path, "Restore it, or remove the directory.")

    @property
    def provenance(self) -> dict[str, Any]:
        """Each session's software, hardware, steps and seconds; empty before the first."""
        return self.read_json(_PROVENANCE) if (self.path / _PROVENANCE).exists() else {"sessions": []}

    def begin_session(self, device: torch.device) -> Record:
        """Note that work begins or goes on here, and where that is."""
        session = describe_machine(device)
        self.save_json(_PROVENANCE, {"sessions": [*self.provenance["sessions"], session]})
        return session

    @contextmanager
    def locked(self, *, wait: bool = False, name: str = ".lock") -> Iterator[None]:
        """Inside, no other process on this machine works on the folder; the system frees it if this one dies.

        If another process is at it, this one waits or else raises an error; `name` is of the file that is locked.
        """
        advice = "Choose a folder that can be written, on a file system that has locks."
        with reraise_as(CheckpointError, f"could not lock {self.path}", advice):
            try:
                held = FileLock(self.path / name).acquire(timeout=-1 if wait else 0)
            except Timeout:
                raise CheckpointError(f"another process is writing into {self.path}. Wait, or stop it.") from None
        with held:
            for leftover in self.path.rglob(".*.safetensors.*.partial"):  # of a process that was killed
                leftover.unlink(missing_ok=True)
            yield


def read_object(path: Path, advice: str = "") -> dict[str, Any]:
    """The JSON object in a file."""
    with reraise_as(CheckpointError, f"{path} cannot be read", advice):
        value = json.loads(path.read_text(encoding="utf-8"))
    expect(isinstance(value, dict), f"expected a JSON object in {path}; got {type(value).__name__}. {advice}".rstrip())
    return dict(value)


def runs_in(folder: Path) -> str:
    """A hint to the models in a folder of runs; nothing if there is none."""
    inside = sorted(path.parent.name for path in folder.glob("train-*/config.json"))
    more = f" or another of the {len(inside)} in it" if len(inside) > 1 else ""
    return f" Name {folder / inside[0]}{more}." if inside else ""
