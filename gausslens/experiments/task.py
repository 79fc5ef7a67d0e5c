"""A task: one piece of work of a study, what it needs, and the folder that holds what came out.

    <folder of tasks>/<name>-<identity>/
        …              whatever the work keeps to go on from
        arrays.safetensors
        records.jsonl  tidy records, one number a line
        done.json      what was done, how long it took and on which machine; written last: without it, it is not finished

A task of which only the records, and perhaps a few images, were brought from elsewhere (`copy_finished`) is finished too,
but *partial*: what other tasks would work with, such as weights, is missing, and if one needs it, it is done again.

A task's identity is a hash of its registered name and version, its options, and the identities of the tasks that it needs: a
changed option, another content of the data (an option too) or a new version of a measure makes another task, and so does
whatever depends on it, and nothing else. Version 0.1 hashed the place of a task's function instead of a name. Its finished
work is found by that hash, so its tasks are registered with that place (`of_0_1`), wherever their functions are now.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch

from ..atomic_files import load_tensors, save_tensors
from ..errors import CheckpointError
from ..generation import best_device
from ..identity import identity_of
from ..store.artifact import Artifact
from ..store.provenance import describe_machine
from ..store.records import Record

Report: TypeAlias = Callable[[float], None]
Work: TypeAlias = Callable[["TaskContext"], Iterable[Record] | None]
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ARRAYS = "gausslens cell"
DONE = "done.json"

_REGISTRY: dict[str, str] = {}
"""The modules of the registered functions, by name."""


class TaskName(NamedTuple):
    """What a task is known by, wherever its function lives."""

    name: str  # unique
    version: int  # to be raised whenever a record would be another one
    of_0_1: str | None = None  # the module of version 0.1 in which the function was

    @property
    def key(self) -> str:
        """What identities are made of: the name, or for a task of 0.1 the place of its function."""
        return self.name if self.of_0_1 is None else f"gausslens.{self.of_0_1}:{self.name}"


def task(name: str, version: int, of_0_1: str | None = None) -> Callable[[F], F]:
    """Register a function that does a task's work under a name that stays when the function moves.

    Records that come in addition do not raise the version: finished tasks lack them, and are as right as before.
    """

    def register(function: F) -> F:
        known = _REGISTRY.setdefault(name, function.__module__)
        if known != function.__module__:
            raise ValueError(f"two tasks are named {name!r}, in {known} and in {function.__module__}.")
        function.task = TaskName(name, version, of_0_1)  # type: ignore[attr-defined]
        return function

    return register


@dataclass(frozen=True)
class Task:
    """One piece of work. Neither `runtime` nor `cost` is part of its identity."""

    work: Work  # the registered function that does it (see `task`): called with a `TaskContext`, it returns records
    options: dict[str, Any] = field(default_factory=dict, hash=False)  # what it is told, as JSON can hold it
    needs: tuple["Task", ...] = ()  # the tasks whose results it uses, in the order it will find them
    # What it is told beside the options and changes no number, such as where the data lies.
    runtime: dict[str, Any] = field(default_factory=dict, compare=False)
    cost: float | int = field(default=1.0, compare=False)  # the seconds it is expected to take

    @cached_property
    def identity(self) -> str:
        """Twelve hexadecimal digits."""
        needs = [need.identity for need in self.needs]
        return identity_of(self.kind.key, self.kind.version, self.options, needs, digits=12)

    @property
    def kind(self) -> TaskName:
        """The name and version that its function is registered under."""
        registered: TaskName = self.work.task  # type: ignore[attr-defined]
        return registered

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind.name}-{self.identity}"


@dataclass(frozen=True)
class TaskContext:
    """What a task's function works with."""

    options: dict[str, Any]  # the task's options and runtime
    inputs: tuple["Result", ...]  # the results of the tasks it needs
    folder: Path  # where it may keep what it needs to go on from after a stop; other files there survive
    report: Report  # to be called now and then with the share of the work that is done, in [0, 1]
    tags: Record = field(default_factory=dict)  # to be filled with what all records are of; read with every record

    @property
    def device(self) -> torch.device:
        """Where it works: on a GPU if there is one, unless it is told not to."""
        return best_device(cpu=self.options.get("cpu", False))

    def each(self, parts: Collection[T]) -> Iterator[T]:
        """The parts of the work one by one; before each it is reported what share is done."""
        for done, part in enumerate(parts):
            self.report(done / len(parts))
            yield part

    def save_arrays(self, **tensors: Any) -> None:
        """Keep tensors beside the records."""
        save_tensors(self.folder / "arrays.safetensors", tensors, kind=ARRAYS)


@dataclass(frozen=True)
class Result:
    """What came out of a finished task, read from its folder when asked for."""

    folder: Path

    @cached_property
    def done(self) -> dict[str, Any]:
        """What `done.json` says."""
        return Artifact(self.folder).read_json(DONE)

    @cached_property
    def records(self) -> list[Record]:
        """The numbers, each with the tags of all."""
        return [{**self.done.get("tags", {}), **record} for record in Artifact(self.folder).records()]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The tensors by name."""
        path = self.folder / "arrays.safetensors"
        return load_tensors(path, kind=ARRAYS)[0] if path.exists() else {}

    @property
    def is_partial(self) -> bool:
        """Whether only the records, and perhaps a few images, were brought from elsewhere; see the module."""
        return bool(self.done.get("partial", False))


class TaskStore:
    """The folder that holds the folders of tasks, made when first written to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The names of all finished tasks."""
        return sorted(done.parent.name for done in self.path.glob(f"*/{DONE}"))

    def find(self, name: str) -> Result:
        """What came out of the finished task of a name."""
        return Result(self.path / name)

    def is_done(self, task: Task) -> bool:
        """Whether the task is finished: its records are there."""
        return (self.path / task.name / DONE).exists()

    def is_complete(self, task: Task) -> bool:
        """Whether it is finished and all that it made is there, for other tasks to work with."""
        return self.is_done(task) and not self.result(task).is_partial

    def result(self, task: Task) -> Result:
        """What came out of a finished task."""
        if not self.is_done(task):
            raise CheckpointError(f"{self.path / task.name} is not finished; run the study again to go on.")
        return self.find(task.name)

    def run(self, task: Task, report: Report) -> float:
        """Do a task's work, unless it is complete, and return the seconds it took; waits for other processes at it."""
        artifact = Artifact(self.path / task.name)
        artifact.path.mkdir(parents=True, exist_ok=True)
        with artifact.locked(wait=True, name="lock"):
            if not self.is_complete(task):
                inputs = tuple(self.result(need) for need in task.needs)
                context = TaskContext(task.options | task.runtime, inputs, artifact.path, report)
                start, machine = time.perf_counter(), describe_machine(context.device)
                if (records := task.work(context)) is not None:  # else it has kept its own, or there are none
                    artifact.save_records(records)
                what = {"work": task.kind.key, "options": task.options, "needs": [need.name for need in task.needs]}
                how = {"tags": context.tags, "seconds": time.perf_counter() - start, "machine": machine}
                artifact.save_json(DONE, what | how)
        return float(self.result(task).done["seconds"])
