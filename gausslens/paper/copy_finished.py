"""Studies on the move: finished tasks from one output folder to another, without what would be too large.

    copy_finished(Path("results/cifar10"), Path("runs"))             # go on from what is published: it is not done again
    copy_finished(Path("runs"), Path("results/cifar10"))             # publish what has come since
    copy_arrays(task, copy, {"network"}, images=SHOWN)               # with the few images of it that figures show
    copy_finished(Path("runs"), Path("parcel"), images=SHOWN)        # for another machine, with a few images of each task

Records travel with six digits, weights never. A copy is partial (see `tasks`).
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..atomic_files import save_tensors, save_text
from ..experiments.task import ARRAYS, Result, is_partial
from .config import STUDIES

SHOWN = 12
"""Images of an array that travel: as many as a figure shows, or noise levels."""

_DIGITS = 6


def copy_finished(source: Path, target: Path, *, names: Collection[str] | None = None, images: int = 0) -> list[Path]:
    """Copy the finished tasks and the studies that another output folder lacks.

    A task that is there already is left alone, unless it is partial and this one is not.
    """
    written = []
    for done in sorted(source.glob("cells/*/done.json")):
        folder = target / "cells" / done.parent.name
        if names is not None and folder.name not in names:
            continue
        if not (folder / "done.json").exists() or (is_partial(folder) and not is_partial(done.parent)):
            written += _copy_task(done.parent, folder, images)
    for config in sorted(source.glob("study-*/config.json")):
        if names is None or config.parent.name in names:
            written += _copy_study(config.parent, target / config.parent.name)
    return written


def copy_arrays(source: Path, target: Path, names: Collection[str], *, images: int) -> Path:
    """Put some of a task's arrays beside its copy; a file that holds just these is left as it is."""
    arrays = {name: Result(source, {}).arrays[name] for name in sorted(names)}
    few = {name: array[:images] if array.dtype.itemsize == 1 else array for name, array in arrays.items()}
    path, there = target / "arrays.safetensors", Result(target, {}).arrays
    if there.keys() != few.keys() or any(not array.equal(there[name]) for name, array in few.items()):
        save_tensors(path, {name: array.contiguous() for name, array in few.items()}, kind=ARRAYS)
    return path


def is_copy(target: Path, source: Path) -> bool:
    """Whether a task's folder has the records of another one: a model that was trained again has others, on a GPU."""
    return (target / "records.jsonl").read_text() == _records(source)


def _copy_task(source: Path, target: Path, images: int) -> list[Path]:
    told = json.loads((source / "done.json").read_text())
    found, files = Result(source, told["options"]), [target / "records.jsonl", target / "done.json"]
    target.mkdir(parents=True, exist_ok=True)
    save_text(files[0], _records(source))
    if images and found.arrays:
        files.insert(1, copy_arrays(source, target, found.arrays, images=images))
    save_text(target / "done.json", json.dumps(told | {"partial": True}, indent=1) + "\n")
    return files


def _records(task: Path) -> str:
    """The records of a task, as they travel."""
    lines = ({name: shorter(value) for name, value in record.items()} for record in Result(task, {}).records)
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def _copy_study(source: Path, target: Path) -> list[Path]:
    """Its plan, with all studies that it was asked for anywhere and without the path of the images, and its machines."""
    sessions = {session["started"]: session for run in (target, source) for session in _sessions(run)}
    if len(sessions) == len(_sessions(target)):
        return []
    config = json.loads((source / "config.json").read_text())
    config["config"]["data"] = Path(config["config"]["data"]).name
    asked = {name for run in (target, source) for name in _studies(run)}
    config["config"]["studies"] = [name for name in STUDIES if name in asked]
    provenance = {"sessions": [sessions[started] for started in sorted(sessions)]}
    target.mkdir(parents=True, exist_ok=True)
    save_text(target / "config.json", json.dumps(config, indent=1) + "\n")
    save_text(target / "provenance.json", json.dumps(provenance, indent=1) + "\n")
    return [target / "config.json", target / "provenance.json"]


def _sessions(run: Path) -> list[Any]:
    path = run / "provenance.json"
    return list(json.loads(path.read_text())["sessions"]) if path.exists() else []


def _studies(run: Path) -> list[str]:
    path = run / "config.json"
    return list(json.loads(path.read_text())["config"]["studies"]) if path.exists() else []


def shorter(value: object) -> object:
    """A number as it travels, with six digits; anything else as it is."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
