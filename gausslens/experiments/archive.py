"""An archive: finished tasks in three files of one folder, to be published. `TaskArchive` reads them like a `TaskStore`.

tasks.json              the done.json of each task, by the task's name
records.jsonl.xz        the records of all tasks, each with the name of its `task`
arrays.safetensors.xz   arrays by task/name

To add to an archive, its tasks are first copied into folders.
"""

import json
import lzma
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from ..atomic_files import atomic_replace, save_text
from ..errors import CheckpointError, reraise_as
from ..store.artifact import Artifact
from ..store.records import Record, with_current_names
from .task import Result, Task, TaskStore

_TASKS, _RECORDS, _ARRAYS = "tasks.json", "records.jsonl.xz", "arrays.safetensors.xz"

# Differences between neighboring pixels compress better than pixels. The dictionary spans all arrays, so that images that
# several tasks share are stored once.
_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
_PIXELS = [{"id": lzma.FILTER_DELTA, "dist": 1}, {**_TEXT[0], "dict_size": 1 << 26, "lc": 0, "pb": 0}]


def is_archive(folder: Path) -> bool:
    """Whether a folder is an archive of tasks."""
    return (folder / _TASKS).is_file()


def open_tasks(folder: Path) -> TaskStore:
    """The finished tasks of a folder: those of its archive, or else those in `cells`."""
    return TaskArchive(folder) if is_archive(folder) else TaskStore(folder / "cells")


def save_archive(store: TaskStore, folder: Path) -> None:
    """Write all finished tasks into the three files of an archive."""
    found = {name: store.find(name) for name in store.names()}
    records = [{"task": name, **record} for name, result in found.items() for record in result.records]
    arrays = {f"{name}/{key}": array for name, result in found.items() for key, array in result.arrays.items()}
    done = ",\n".join(f" {json.dumps(name)}: {json.dumps(result.done)}" for name, result in found.items())
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    for name, content, filters in ((_RECORDS, lines.encode(), _TEXT), (_ARRAYS, save(arrays), _PIXELS)):
        with atomic_replace(folder / name) as temporary:
            temporary.write_bytes(lzma.compress(content, filters=filters))
    save_text(folder / _TASKS, f"{{\n{done}\n}}\n")


class TaskArchive(TaskStore):
    """The finished tasks of an archive."""

    def names(self) -> list[str]:
        """The names of all tasks in the archive."""
        return list(self.done)

    def find(self, name: str) -> Result:
        """The results of a task, by its name."""
        return _ArchivedResult(self.path / name, self)

    def is_done(self, task: Task) -> bool:
        """Whether the archive has the task."""
        return task.name in self.done

    @cached_property
    def done(self) -> dict[str, dict[str, Any]]:
        """The done.json of each task, by name."""
        return Artifact(self.path).read_json(_TASKS)

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """The records of each task, by name."""
        records = defaultdict(list)
        for line in self._read(_RECORDS).splitlines():
            record = with_current_names(json.loads(line))
            records[record.pop("task")].append(record)
        return records

    @cached_property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """The arrays of each task, by name."""
        arrays: dict[str, dict[str, Any]] = defaultdict(dict)
        for key, array in load(self._read(_ARRAYS)).items():
            task, _, name = key.partition("/")
            arrays[task][name] = array
        return arrays

    def _read(self, name: str) -> bytes:
        """The content of a compressed file; its checksum is verified."""
        with reraise_as(CheckpointError, f"{self.path / name} cannot be read", "Restore it."):
            return lzma.decompress((self.path / name).read_bytes())


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
