"""Finished tasks on the move: what travels, what is done again, and what is left alone."""

import json
import shutil

import torch
from toy_tasks import add

from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.paper.copy_finished import copy_finished, is_copy
from gausslens.store.run import Run


def _done(folder, *tasks):
    run_tasks(tasks, folder / "cells", on="here")
    return TaskStore(folder / "cells")


def _log(folder):
    log = folder / "cells" / "log"
    return log.read_text().split() if log.exists() else []


def test_what_was_copied_is_not_done_again_and_what_it_needed_is_not_asked_for(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    root = add(2)
    top = add(3, root)
    _done(here, top)
    copy_finished(here, there)
    store = _done(there, top)
    assert _log(there) == []
    assert store.result(top).records[0]["value"] == 5
    assert store.result(top).arrays == {}


def test_a_partial_task_that_another_needs_is_done_again_first(tmp_path):
    """As a network whose weights stayed elsewhere; what was measured of the first stays as it was."""
    here, there = tmp_path / "here", tmp_path / "there"
    root = add(2)
    measured, other = add(3, root), add(4, root)
    _done(here, measured)
    copy_finished(here, there)
    store = _done(there, measured, other)
    assert _log(there) == [root.name, other.name]
    assert store.is_complete(root)
    assert store.is_done(measured)
    assert not store.is_complete(measured)


def test_what_a_complete_task_was_made_of_is_not_done_again_for_those_that_need_it(tmp_path):
    """As a network whose samples are all there, to be compared with those of another."""
    here, there = tmp_path / "here", tmp_path / "there"
    root = add(2)
    sampled = add(3, root)
    _done(here, sampled)
    copy_finished(here, there, names={root.name})
    shutil.copytree(here / "cells" / sampled.name, there / "cells" / sampled.name)
    compared = add(4, sampled)
    store = _done(there, compared)
    assert _log(there) == [compared.name]
    assert store.result(compared).records[0]["value"] == 9


def test_complete_tasks_replace_partial_ones_and_never_the_reverse(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    task = add(2)
    _done(here, task)
    assert copy_finished(here, there)
    assert not copy_finished(here, here)
    assert not copy_finished(there, here)
    assert TaskStore(here / "cells").is_complete(task)
    record = there / "cells" / task.name / "records.jsonl"
    record.write_text("{}\n")
    assert copy_finished(here, there)
    assert json.loads(record.read_text())["value"] == 2


def test_records_keep_six_digits_and_arrays_a_few_images(tmp_path):
    folder = tmp_path / "here" / "cells" / "look-0a1b"
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text(json.dumps({"value": 0.123456789, "n": 12345678, "on": "train"}) + "\n")
    (folder / "done.json").write_text(json.dumps({"options": {}, "seconds": 1.0}))
    from gausslens.atomic_files import load_tensors, save_tensors
    from gausslens.experiments.task import ARRAYS

    images = torch.randint(0, 256, (9, 3, 4, 4), dtype=torch.uint8)
    sigmas = torch.linspace(80.0, 0.002, 9)
    save_tensors(folder / "arrays.safetensors", {"network": images, "sigmas": sigmas}, kind=ARRAYS)
    (folder / "weights.safetensors").write_bytes(b"large")
    written = copy_finished(tmp_path / "here", tmp_path / "there", images=4)
    copied = tmp_path / "there" / "cells" / "look-0a1b"
    assert sorted(path.name for path in copied.iterdir()) == sorted(path.name for path in written)
    assert json.loads((copied / "records.jsonl").read_text()) == {"value": 0.123457, "n": 12345678, "on": "train"}
    arrays, _ = load_tensors(copied / "arrays.safetensors", kind=ARRAYS)
    assert torch.equal(arrays["network"], images[:4])
    assert torch.equal(arrays["sigmas"], sigmas)
    assert not (copied / "weights.safetensors").exists()


def test_a_study_takes_its_sessions_along_adds_to_those_asked_for_and_leaves_the_path_of_its_images(tmp_path):
    names, studies = (
        {"here": "2026-01-02", "there": "2026-01-01"},
        {"here": ["time", "size"], "there": ["size", "strong"]},
    )
    for name, started in names.items():
        settings = {"data": f"/home/{name}/digits.npz", "studies": studies[name]}
        run = Run.create(tmp_path / name, "study", "digits", "0a1b2c3d", settings)
        run.save_json("provenance.json", {"sessions": [{"started": started}]})
    copy_finished(tmp_path / "here", tmp_path / "there")
    copied = Run.open(tmp_path / "there" / "study-digits-0a1b2c3d")
    assert copied.settings["data"] == "digits.npz"
    assert copied.settings["studies"] == ["size", "time", "strong"]
    assert [session["started"] for session in copied.provenance["sessions"]] == sorted(names.values())
    assert not copy_finished(tmp_path / "here", tmp_path / "there")


def test_a_copy_is_told_from_the_same_task_done_again_with_another_outcome(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    task = add(2 / 3)
    _done(here, task)
    copy_finished(here, there)
    source, target = (folder / "cells" / task.name for folder in (here, there))
    assert is_copy(target, source)
    record = json.loads((source / "records.jsonl").read_text())
    (source / "records.jsonl").write_text(json.dumps(record | {"value": 0.67}) + "\n")
    assert not is_copy(target, source)
