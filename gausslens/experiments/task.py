"""A task: one piece of work of a study, the tasks that it needs, and the folder with its results.

    <folder of tasks>/<name>-<identity>/
        …              whatever the work keeps in order to resume
        arrays.safetensors
        records.jsonl  tidy records, one number a line
        done.json      what was done, how long it took and on which machine; written last, so without it a task is unfinished

A finished task is *partial* if only its records, and perhaps a few images, were copied from elsewhere (`copy_finished`). Its
other files, such as weights, are missing, so it is done again if another task needs it.

A task's identity is a hash of its registered name and version, its options, and the identities of the tasks that it needs. A
changed option, other data (their content hash is an option) or a new version makes another task, and other tasks of all that
depend on it. Version 0.1 hashed the place of a task's function instead of a name. Its finished work is found by that hash,
so its tasks are registered with that place (`of_0_1`), wherever their functions are now.
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
    """The registered name of a task, which stays when its function moves."""

    name: str  # unique
    version: int  # to be raised whenever a record changes
    of_0_1: str | None = None  # the module of version 0.1 in which the function was

    @property
    def key(self) -> str:
        """The part of identities: the name, or for a task of 0.1 the place of its function."""
        return self.name if self.of_0_1 is None else f"gausslens.{self.of_0_1}:{self.name}"


def task(name: str, version: int, of_0_1: str | None = None) -> Callable[[F], F]:
    """Register a function that does a task's work under a name that stays when the function moves.

    Additional records do not raise the version: finished tasks lack them and are still right.
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

    work: Work  # the registered function (see `task`): called with a `TaskContext`, it returns records
    options: dict[str, Any] = field(default_factory=dict, hash=False)  # its options, as JSON can hold them
    needs: tuple["Task", ...] = ()  # the tasks whose results it uses, in the order of `TaskContext.inputs`
    # Options that change no number, such as where the data is.
    runtime: dict[str, Any] = field(default_factory=dict, compare=False)
    cost: float | int = field(default=1.0, compare=False)  # expected seconds

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
    """The argument of a task's function."""

    options: dict[str, Any]  # the task's options and runtime
    inputs: tuple["Result", ...]  # the results of the tasks it needs
    folder: Path  # where it may keep files in order to resume
    report: Report  # to be called now and then with the share of the work that is done, in [0, 1]
    tags: Record = field(default_factory=dict)  # the function adds the tags that all its records share

    @property
    def device(self) -> torch.device:
        """A GPU if there is one, unless the option `cpu` is set."""
        return best_device(cpu=self.options.get("cpu", False))

    def each(self, parts: Collection[T]) -> Iterator[T]:
        """The parts of the work one by one, with a report before each."""
        for done, part in enumerate(parts):
            self.report(done / len(parts))
            yield part

    def save_arrays(self, **tensors: Any) -> None:
        """Keep tensors beside the records."""
        save_tensors(self.folder / "arrays.safetensors", tensors, kind=ARRAYS)


@dataclass(frozen=True)
class Result:
    """The results of a finished task, read from its folder on first use."""

    folder: Path

    @cached_property
    def done(self) -> dict[str, Any]:
        """The content of `done.json`."""
        return Artifact(self.folder).read_json(DONE)

    @cached_property
    def records(self) -> list[Record]:
        """The records, each with the tags that all share."""
        return [{**self.done.get("tags", {}), **record} for record in Artifact(self.folder).records()]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The tensors by name."""
        path = self.folder / "arrays.safetensors"
        return load_tensors(path, kind=ARRAYS)[0] if path.exists() else {}

    @property
    def is_partial(self) -> bool:
        """Whether only the records, and perhaps a few images, were copied from elsewhere; see the module."""
        return bool(self.done.get("partial", False))


class TaskStore:
    """The folder of the tasks' folders."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The names of all finished tasks."""
        return sorted(done.parent.name for done in self.path.glob(f"*/{DONE}"))

    def find(self, name: str) -> Result:
        """The results of a finished task, by its name."""
        return Result(self.path / name)

    def is_done(self, task: Task) -> bool:
        """Whether the task is finished."""
        return (self.path / task.name / DONE).exists()

    def is_complete(self, task: Task) -> bool:
        """Whether the task is finished and not partial, so that other tasks can use it."""
        return self.is_done(task) and not self.result(task).is_partial

    def result(self, task: Task) -> Result:
        """The results of a finished task; raises if it is not finished."""
        if not self.is_done(task):
            raise CheckpointError(f"{self.path / task.name} is not finished; run the study again to go on.")
        return self.find(task.name)

    def run(self, task: Task, report: Report) -> float:
        """Do a task's work unless it is complete, and return the seconds it took; waits if another process is doing it."""
        artifact = Artifact(self.path / task.name)
        artifact.path.mkdir(parents=True, exist_ok=True)
        with artifact.locked(wait=True, name="lock"):
            if not self.is_complete(task):
                inputs = tuple(self.result(need) for need in task.needs)
                context = TaskContext(task.options | task.runtime, inputs, artifact.path, report)
                start, machine = time.perf_counter(), describe_machine(context.device)
                if (records := task.work(context)) is not None:  # else the work has written its own, or there are none
                    artifact.save_records(records)
                what = {"work": task.kind.key, "options": task.options, "needs": [need.name for need in task.needs]}
                how = {"tags": context.tags, "seconds": time.perf_counter() - start, "machine": machine}
                artifact.save_json(DONE, what | how)
        return float(self.result(task).done["seconds"])
