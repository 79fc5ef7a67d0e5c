"""Copies finished tasks from one output folder to another, without what would be too large.

    copy_finished(Path("results/cifar10"), Path("runs"))              # what is published is not done again
    copy_finished(Path("runs"), Path("parcel"), images=MOST_IMAGES)   # for another machine, with a few images of each task

Records are copied with six digits, weights not at all. A copy is partial (see `Result.is_partial`).
"""

import json
from collections.abc import Collection
from pathlib import Path

from gausslens.atomic_files import save_tensors, save_text
from gausslens.experiments.archive import is_archive, open_tasks
from gausslens.experiments.task import ARRAYS, DONE, Result, TaskStore
from gausslens.paper.config import STUDIES
from gausslens.store.run import Run

MOST_IMAGES = 12  # images of an array, or noise levels, that are copied: no figure shows more
_DIGITS = 6


def copy_finished(source: Path, target: Path, *, names: Collection[str] | None = None, images: int = 0) -> list[Path]:
    """Copy the finished tasks and the studies that another output folder lacks; the source may be an archive.

    A task that is there already is left alone, unless it is partial and this one is not.
    """
    store, there, written = open_tasks(source), TaskStore(target / "cells"), []
    for name in store.names():
        folder = there.path / name
        if names is not None and name not in names:
            continue
        if not (folder / DONE).exists() or (there.find(name).is_partial and not store.find(name).is_partial):
            written += _copy_task(store.find(name), folder, images)
    for path in [source] if is_archive(source) else sorted(source.glob("study-*")):
        run = Run.open(path)
        folder = Run.folder(target, run.verb, run.settings["name"], run.identity)
        if names is None or folder.name in names:
            written += _copy_study(run, Run(folder))
    return written


def copy_arrays(source: Result, target: Path, names: Collection[str], *, images: int) -> Path:
    """Copy some of a task's arrays to its copy. A file that holds exactly these is not written again."""
    arrays = {name: source.arrays[name] for name in sorted(names)}
    few = {name: array[:images] if array.dtype.itemsize == 1 else array for name, array in arrays.items()}
    path, there = target / "arrays.safetensors", Result(target).arrays
    if there.keys() != few.keys() or any(not array.equal(there[name]) for name, array in few.items()):
        save_tensors(path, few, kind=ARRAYS)
    return path


def is_copy(target: Result, source: Result) -> bool:
    """Whether a task has the same records as another one. On a GPU, a model that is trained again gives other records."""
    return (target.folder / "records.jsonl").read_text() == _records(source)


def round_number(value: object) -> object:
    """A number as it is copied, with six digits; anything else unchanged."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _copy_task(source: Result, target: Path, images: int) -> list[Path]:
    files = [target / "records.jsonl", target / DONE]
    target.mkdir(parents=True, exist_ok=True)
    save_text(files[0], _records(source))
    if images and source.arrays:
        files.insert(1, copy_arrays(source, target, source.arrays, images=images))
    save_text(target / DONE, json.dumps(source.done | {"partial": True}, indent=1) + "\n")
    return files


def _records(task: Result) -> str:
    """The records of a task, as they are copied."""
    lines = ({name: round_number(value) for name, value in record.items()} for record in task.records)
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def _copy_study(source: Run, target: Run) -> list[Path]:
    """Copy the plan, with all studies asked for in either folder and without the path of the images, and the sessions."""
    old, new = target.provenance["sessions"], source.provenance["sessions"]
    sessions = {session["started"]: session for session in (*old, *new)}
    if len(sessions) == len(old):
        return []
    asked = {*source.settings["studies"], *(target.settings["studies"] if old else ())}
    studies = [name for name in STUDIES if name in asked]
    target.path.mkdir(parents=True, exist_ok=True)
    config = {**source.settings, "data": Path(source.settings["data"]).name, "studies": studies}
    target.save_json("config.json", {**source.read_json("config.json"), "config": config})
    target.save_json("provenance.json", {"sessions": [sessions[started] for started in sorted(sessions)]})
    return [target.path / "config.json", target.path / "provenance.json"]
