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
whatever depends on it, and nothing else.
"""

import json
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
from .keys import KEYS_OF_0_1

Report: TypeAlias = Callable[[float], None]
Work: TypeAlias = Callable[["TaskContext"], Iterable[Record] | None]
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ARRAYS = "gausslens cell"
DONE = "done.json"

_REGISTRY: dict[str, str] = {}
"""The modules of the registered functions, by name."""


class TaskName(NamedTuple):
    """What a task is known by, wherever its function lives.

    Attributes:
        name: of the task, unique.
        version: to be raised whenever a record would be another one.
    """

    name: str
    version: int

    @property
    def key(self) -> str:
        """What identities are made of: the name, or for a task of 0.1 what stood in its place."""
        return KEYS_OF_0_1.get(self.name, self.name)


def task(name: str, version: int) -> Callable[[F], F]:
    """Register a function that does a task's work under a name that stays when the function moves.

    Records that come in addition do not raise the version: finished tasks lack them, and are as right as before.
    """

    def register(function: F) -> F:
        known = _REGISTRY.setdefault(name, function.__module__)
        if known != function.__module__:
            raise ValueError(f"two tasks are named {name!r}, in {known} and in {function.__module__}.")
        function.task = TaskName(name, version)  # type: ignore[attr-defined]
        return function

    return register


@dataclass(frozen=True)
class Task:
    """One piece of work.

    Attributes:
        work: the registered function that does it (see `task`): called with a `TaskContext`, it returns records.
        options: what it is told, as JSON can hold it; part of the identity.
        needs: the tasks whose results it uses, in the order it will find them.
        runtime: what it is told beside the options and changes no number, such as where the data lies; not part of the
            identity.
        cost: the seconds it is expected to take; not part of the identity.
    """

    work: Work
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    needs: tuple["Task", ...] = ()
    runtime: dict[str, Any] = field(default_factory=dict, compare=False)
    cost: float | int = field(default=1.0, compare=False)

    @cached_property
    def identity(self) -> str:
        """Twelve hexadecimal digits."""
        key, version = self.kind.key, self.kind.version
        return identity_of(key, version, self.options, [need.identity for need in self.needs], digits=12)

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
    """What a task's function works with.

    Attributes:
        options: the task's options and runtime.
        inputs: the results of the tasks it needs.
        folder: where it may keep what it needs to go on from after a stop; other files there survive.
        report: to be called now and then with the share of the work that is done, in [0, 1].
        tags: to be filled with what all records are of; kept once, and read with every record.
    """

    options: dict[str, Any]
    inputs: tuple["Result", ...]
    folder: Path
    report: Report
    tags: Record = field(default_factory=dict)

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
        said: dict[str, Any] = json.loads((self.folder / DONE).read_text())
        return said

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
    def seconds(self) -> float:
        """How long the work took, in its last session."""
        return float(self.done["seconds"])

    @property
    def is_partial(self) -> bool:
        """Whether only the records, and perhaps a few images, were brought from elsewhere (`copy_finished`).

        What other tasks would work with, such as weights, is then missing, and if one needs it, the task is done again.
        """
        return bool(self.done.get("partial", False))


class TaskStore:
    """The folder that holds the folders of tasks.

    Args:
        path: the folder; made when first written to.
    """

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
        """Do a task's work, unless it is done and complete; another process at it is waited for."""
        artifact = Artifact(self.path / task.name)
        artifact.path.mkdir(parents=True, exist_ok=True)
        with artifact.locked(wait=True, name="lock"):
            if not self.is_complete(task):
                start, machine = time.perf_counter(), describe_machine(best_device(cpu=task.runtime.get("cpu", False)))
                inputs = tuple(self.result(need) for need in task.needs)
                context = TaskContext(task.options | task.runtime, inputs, artifact.path, report)
                if (records := task.work(context)) is not None:  # else it has kept its own, or there are none
                    artifact.save_records(records)
                done = {"work": task.kind.key, "options": task.options, "needs": [need.name for need in task.needs]}
                artifact.save_json(
                    DONE, {**done, "tags": context.tags, "seconds": time.perf_counter() - start, "machine": machine}
                )
        return self.result(task).seconds
