"""A cell: one piece of work of a study, what it needs, and the folder that holds what came out.

    <folder of cells>/<function>-<identity>/
        …              whatever the work keeps to go on from
        arrays.safetensors
        records.jsonl  tidy records, one number a line
        done.json      what was done, how long it took and on which machine; written last: without it, it is not finished

A cell of which only the records, and perhaps a few images, were brought from elsewhere (`copy_finished`) is finished too,
but *partial*: what other cells would work with, such as weights, is missing, and if one needs it, it is done again.

A cell's identity is a hash of its function's name and version, its options, and the identities of the cells that it needs: a
changed option, another content of the data (an option too) or a new version of a measure makes another cell, and so does
whatever depends on it, and nothing else.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..errors import CheckpointError
from ..locking import lock
from ..runs import Record as Record
from ..storage import load_tensors, save_tensors, save_text

Report: TypeAlias = Callable[[float], None]
Work = TypeVar("Work", bound=Callable[..., Any])

ARRAYS = "gausslens cell"


def versioned(version: int) -> Callable[[Work], Work]:
    """Give a function that does a cell's work its version, to be raised whenever a record of it would be another one.

    Records that come in addition do not raise it: cells that are finished lack them, and are as right as before.
    """

    def give(function: Work) -> Work:
        function.version = version  # type: ignore[attr-defined]
        return function

    return give


@dataclass(frozen=True)
class Cell:
    """One piece of work.

    Attributes:
        work: the function that does it, "package.module:function", with a `version` (see `versioned`). It is called with a
            `Task` and returns records.
        options: what it is told, as JSON can hold it; part of the identity.
        needs: the cells whose results it uses, in the order it will find them.
        circumstances: what it is told beside the options and changes no number, such as where the data lies; not part of the
            identity.
        cost: the seconds it is expected to take; not part of the identity.
    """

    work: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    needs: tuple["Cell", ...] = ()
    circumstances: dict[str, Any] = field(default_factory=dict, compare=False)
    cost: float | int = field(default=1.0, compare=False)

    @cached_property
    def identity(self) -> str:
        """Twelve hexadecimal digits."""
        needs = [cell.identity for cell in self.needs]
        text = json.dumps([self.work, self.function.version, self.options, needs], sort_keys=True)  # type: ignore[attr-defined]
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def function(self) -> Callable[["Task"], Iterable[Record] | None]:
        """The function that does the work."""
        module, name = self.work.split(":")
        function: Callable[[Task], Iterable[Record] | None] = getattr(import_module(module), name)
        return function

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.work.split(':')[1]}-{self.identity}"


@dataclass(frozen=True)
class Task:
    """What a cell's function works with.

    Attributes:
        options: the cell's options and circumstances.
        inputs: the results of the cells it needs.
        folder: where it may keep what it needs to go on from after a stop; other files there survive.
        report: to be called now and then with the share of the work that is done, in [0, 1].
    """

    options: dict[str, Any]
    inputs: tuple["Result", ...]
    folder: Path
    report: Report

    def save_arrays(self, **tensors: Any) -> None:
        """Keep tensors beside the records."""
        save_tensors(self.folder / "arrays.safetensors", tensors, kind=ARRAYS)


@dataclass(frozen=True)
class Result:
    """What came out of a finished cell, read when asked for.

    Attributes:
        folder: the cell's folder.
        options: what the cell was told.
    """

    folder: Path
    options: dict[str, Any]

    @cached_property
    def records(self) -> list[Record]:
        """The numbers."""
        return [json.loads(line) for line in (self.folder / "records.jsonl").read_text().splitlines()]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The tensors by name."""
        path = self.folder / "arrays.safetensors"
        return load_tensors(path, kind=ARRAYS)[0] if path.exists() else {}

    @property
    def seconds(self) -> float:
        """How long the work took, in its last session."""
        return float(json.loads((self.folder / "done.json").read_text())["seconds"])


class CellStore:
    """The folder that holds the folders of cells.

    Args:
        path: the folder; made when first written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_done(self, cell: Cell) -> bool:
        """Whether the cell is finished: its records are there."""
        return (self.path / cell.name / "done.json").exists()

    def is_complete(self, cell: Cell) -> bool:
        """Whether it is finished and all that it made is there, for other cells to work with."""
        return self.is_done(cell) and not is_partial(self.path / cell.name)

    def result(self, cell: Cell) -> Result:
        """What came out of a finished cell.

        Args:
            cell: the cell.

        Returns:
            Its result.

        Raises:
            CheckpointError: if it is not finished.
        """
        if not self.is_done(cell):
            raise CheckpointError(f"{self.path / cell.name} is not finished; run the study again to go on.")
        return Result(self.path / cell.name, cell.options)

    def carry_out(self, cell: Cell, report: Report) -> float:
        """Do a cell's work, unless it is done and complete; another process at it is waited for.

        Args:
            cell: the cell; those that it needs are complete.
            report: is told the share of the work that is done.

        Returns:
            The seconds it took.
        """
        folder = self.path / cell.name
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if not self.is_complete(cell):
                start, machine = time.perf_counter(), _machine(cell)
                task = Task(
                    cell.options | cell.circumstances, tuple(self.result(need) for need in cell.needs), folder, report
                )
                records = list(cell.function(task) or ())
                save_text(folder / "records.jsonl", "".join(json.dumps(record) + "\n" for record in records))
                told = {"work": cell.work, "options": cell.options, "needs": [need.name for need in cell.needs]}
                done = told | {"seconds": time.perf_counter() - start, "machine": machine}
                save_text(folder / "done.json", json.dumps(done, indent=1) + "\n")
        return self.result(cell).seconds


def _machine(cell: Cell) -> Record:
    """Where a cell was carried out, by which version of the code."""
    from ..generation import best_device
    from ..provenance import describe_machine

    return describe_machine(best_device(cpu=cell.circumstances.get("cpu", False)))


def is_partial(folder: Path) -> bool:
    """Whether what lies in a finished cell's folder is a part of what it made."""
    return bool(json.loads((folder / "done.json").read_text()).get("partial", False))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system gives back if the process dies.

    Yields:
        Nothing.
    """
    with open(folder / "lock", "w") as file:
        lock(file, wait=True)
        yield
