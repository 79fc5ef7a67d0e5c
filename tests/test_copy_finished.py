"""Finished tasks on the move: what travels, what is done again, and what is left alone."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from toy_tasks import add

from gausslens.errors import CheckpointError
from gausslens.experiments.archive import TaskArchive, open_tasks, save_archive
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.store.run import Run

sys.path += [str(Path(__file__).parents[1] / "commands")]
from copy_finished import copy_finished, is_copy


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
        settings = {"name": "digits", "data": f"/home/{name}/digits.npz", "studies": studies[name]}
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
    source, target = (open_tasks(folder).find(task.name) for folder in (here, there))
    assert is_copy(target, source)
    record = json.loads((source.folder / "records.jsonl").read_text())
    (source.folder / "records.jsonl").write_text(json.dumps(record | {"value": 0.67}) + "\n")
    assert not is_copy(target, open_tasks(here).find(task.name))


def _archived(folder, archive, *tasks):
    """The finished tasks of a folder as a published study of the same folder's plan."""
    store = _done(folder, *tasks)
    copy_finished(folder, folder / "copy", images=4)
    settings = {"name": "digits", "data": "digits.npz", "studies": ["size"]}
    run = Run.create_at(archive, "study", "0a1b2c3d", settings)
    run.save_json("provenance.json", {"sessions": [{"started": "2026-01-01"}]})
    save_archive(open_tasks(folder / "copy"), archive)
    return store


def test_an_archive_holds_what_folders_hold(tmp_path):
    root = add(2)
    top, other = add(3, root), add(9)
    folders = _archived(tmp_path / "here", tmp_path / "archive", top)
    archive = open_tasks(tmp_path / "archive")
    assert archive.names() == folders.names() == sorted((root.name, top.name))
    for task in (root, top):
        assert archive.is_done(task)
        assert not archive.is_complete(task)
        expected, found = folders.result(task), archive.result(task)
        assert found.records == expected.records
        assert {name: array.tolist() for name, array in found.arrays.items()} == {
            "value": expected.arrays["value"].tolist()
        }
    assert not archive.is_done(other)
    with pytest.raises(CheckpointError, match="not finished"):
        archive.result(other)


def test_what_an_archive_holds_is_not_done_again(tmp_path):
    root = add(2)
    top = add(3, root)
    _archived(tmp_path / "here", tmp_path / "archive", top)
    copy_finished(tmp_path / "archive", tmp_path / "there")
    store = _done(tmp_path / "there", top, add(4, root))
    assert _log(tmp_path / "there") == [root.name, add(4, root).name]
    assert store.result(top).records[0]["value"] == 5
    run = Run.open(tmp_path / "there" / "study-digits-0a1b2c3d")
    assert run.provenance["sessions"] == [{"started": "2026-01-01"}]


def test_records_of_an_archive_have_current_names(tmp_path):
    task = add(2)
    folder = tmp_path / "here" / "cells" / task.name
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text(json.dumps({"quantity": "gap_rmse", "value": 0.5}) + "\n")
    (folder / "done.json").write_text(json.dumps({"options": {}, "seconds": 1.0, "tags": {"n": 9}}))
    (tmp_path / "archive").mkdir()
    save_archive(open_tasks(tmp_path / "here"), tmp_path / "archive")
    assert TaskArchive(tmp_path / "archive").result(task).records == [{"quantity": "rmse", "value": 0.5, "n": 9}]


@pytest.mark.parametrize("name", ["tasks.json", "records.jsonl.xz", "arrays.safetensors.xz"])
@pytest.mark.parametrize("content", [b"", b"\xfd7zXZ\x00", b"\x00" * 200, b"[1]"])
def test_a_damaged_archive_is_an_error_that_names_the_file(name, content, tmp_path):
    task = add(2)
    _archived(tmp_path / "here", tmp_path / "archive", task)
    (tmp_path / "archive" / name).write_bytes(content)
    archive = open_tasks(tmp_path / "archive")
    with pytest.raises(CheckpointError, match=name):
        _ = archive.done, archive.records, archive.arrays
