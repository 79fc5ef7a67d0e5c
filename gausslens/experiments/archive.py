"""Finished tasks in three files of one folder, to be published: `TaskArchive` reads them as `TaskStore` reads folders.

tasks.json              by the name of each task what its done.json says
records.jsonl.xz        the records of all tasks, each with the name of its task
arrays.safetensors.xz   arrays by the names of their task and of themselves, joined by a slash

Nothing in an archive is written again: to add to it, its tasks are copied to folders.
"""

import json
import lzma
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from ..atomic_files import atomic_replace, save_text
from ..errors import CheckpointError
from ..store.artifact import Artifact
from ..store.records import Record, with_current_names
from .task import Result, Task, TaskStore

TASKS, _RECORDS, _ARRAYS = "tasks.json", "records.jsonl.xz", "arrays.safetensors.xz"

# Differences between neighboring pixels compress better than pixels. The dictionary spans all arrays, so that what several
# tasks show is stored once.
_COMPRESSION: dict[str, Any] = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20}
_OF_RECORDS = [_COMPRESSION]
_OF_ARRAYS = [{"id": lzma.FILTER_DELTA, "dist": 1}, {**_COMPRESSION, "lc": 0, "pb": 0}]


def open_tasks(folder: Path) -> TaskStore:
    """The finished tasks of a folder: of its archive, or else those in `cells`."""
    return TaskArchive(folder) if is_archive(folder) else TaskStore(folder / "cells")


def is_archive(folder: Path) -> bool:
    """Whether a folder is an archive of tasks."""
    return (folder / TASKS).is_file()


def save_archive(store: TaskStore, folder: Path) -> None:
    """Write all finished tasks into the three files of an archive."""
    found = {name: store.find(name) for name in store.names()}
    done = ",\n".join(f" {json.dumps(name)}: {json.dumps(result.done)}" for name, result in found.items())
    lines = (json.dumps({"task": name, **record}) for name, result in found.items() for record in result.records)
    arrays = {f"{name}/{key}": array for name, result in found.items() for key, array in result.arrays.items()}
    _compress(folder / _RECORDS, "".join(f"{line}\n" for line in lines).encode(), _OF_RECORDS)
    _compress(folder / _ARRAYS, save(arrays), _OF_ARRAYS)
    save_text(folder / TASKS, f"{{\n{done}\n}}\n")


def _compress(path: Path, content: bytes, filters: list[dict[str, Any]]) -> None:
    with atomic_replace(path) as temporary:
        temporary.write_bytes(lzma.compress(content, filters=filters))


class TaskArchive(TaskStore):
    """The finished tasks of an archive, all of them partial: weights, for one, are not there."""

    def names(self) -> list[str]:
        """The names of all tasks."""
        return list(self.done)

    def find(self, name: str) -> Result:
        """What came out of the task of a name."""
        return _ArchivedResult(self.path / name, self)

    def is_done(self, task: Task) -> bool:
        """Whether the archive has the task."""
        return task.name in self.done

    @cached_property
    def done(self) -> dict[str, dict[str, Any]]:
        """What is known of each task, by name."""
        return Artifact(self.path).read_json(TASKS)

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """The records of each task, by name."""
        by_task: dict[str, list[Record]] = defaultdict(list)
        try:
            for line in lzma.decompress((self.path / _RECORDS).read_bytes()).splitlines():
                record = with_current_names(json.loads(line))
                by_task[record.pop("task")].append(record)
        except (OSError, ValueError, KeyError, AttributeError, lzma.LZMAError) as error:
            raise self._unreadable(_RECORDS, error) from None
        return by_task

    @cached_property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """The arrays of each task, by name."""
        by_task: dict[str, dict[str, Any]] = defaultdict(dict)
        try:
            for key, array in load(lzma.decompress((self.path / _ARRAYS).read_bytes())).items():
                task, _, name = key.partition("/")
                by_task[task][name] = array
        except (OSError, SafetensorError, lzma.LZMAError) as error:
            raise self._unreadable(_ARRAYS, error) from None
        return by_task

    def _unreadable(self, name: str, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self.path / name} cannot be read: {error}. Restore it.")


@dataclass(frozen=True)
class _ArchivedResult(Result):
    archive: TaskArchive

    @cached_property
    def done(self) -> dict[str, Any]:
        return self.archive.done[self.folder.name]

    @cached_property
    def records(self) -> list[Record]:
        return self.archive.records.get(self.folder.name, [])

    @cached_property
    def arrays(self) -> dict[str, Any]:
        return self.archive.arrays.get(self.folder.name, {})
