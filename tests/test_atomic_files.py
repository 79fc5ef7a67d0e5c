"""A file is complete or absent, and says what it is."""

import os

import pytest
import torch
from safetensors.torch import save_file

from gausslens import atomic_files as storage
from gausslens.atomic_files import load_tensors, save_tensors
from gausslens.errors import CheckpointError

TENSORS = {
    "doubles": torch.linspace(0, 1, 12, dtype=torch.float64).reshape(3, 4),
    "pixels": torch.arange(6, dtype=torch.uint8),
    "scalar": torch.tensor(0.1),
    "empty": torch.empty(0, 3),
}


def test_what_is_saved_is_what_is_loaded(tmp_path):
    save_tensors(tmp_path / "a.safetensors", TENSORS, kind="moments", count=7, shape=[3, 4], note="σ", nothing=None)
    tensors, metadata = load_tensors(tmp_path / "a.safetensors", kind="moments")
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)
    assert metadata == {"count": 7, "shape": [3, 4], "note": "σ", "nothing": None}
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_views_and_shared_memory_are_stored_by_value(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    save_tensors(tmp_path / "a", {"base": base, "transposed": base.T, "row": base[1]}, kind="views")
    tensors, _ = load_tensors(tmp_path / "a", kind="views")
    assert torch.equal(tensors["transposed"], base.T)
    assert torch.equal(tensors["row"], base[1])


def test_loaded_tensors_outlive_their_file(tmp_path):
    save_tensors(tmp_path / "a", {"x": torch.ones(5000)}, kind="ones")
    tensors, _ = load_tensors(tmp_path / "a", kind="ones")
    save_tensors(tmp_path / "a", {"x": torch.zeros(5000)}, kind="ones")
    assert torch.equal(tensors["x"], torch.ones(5000))


def test_files_have_the_permissions_of_any_other_file(tmp_path):
    (tmp_path / "plain").touch()
    save_tensors(tmp_path / "a", TENSORS, kind="moments")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("step", ["save_file", "os.fsync", "os.replace"])
@pytest.mark.parametrize("failure", [OSError("no space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, failure):
    target = tmp_path / "a.safetensors"
    save_tensors(target, {"x": torch.ones(3)}, kind="ones")
    before = target.read_bytes()

    def fail(*args, **kwargs):
        if step == "save_file":
            with open(args[1], "wb") as file:
                file.write(b"half a fi")
        raise failure

    owner, name = (storage, step) if step == "save_file" else (os, step.removeprefix("os."))
    expected = CheckpointError if isinstance(failure, OSError) else KeyboardInterrupt
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fail)
        with pytest.raises(expected) as caught:
            save_tensors(target, {"x": torch.zeros(3)}, kind="ones")
    if expected is CheckpointError:
        assert "could not write" in str(caught.value)
        assert "no space left on device" in str(caught.value)
    assert target.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_targets_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"could not write .*missing.*Check that the folder exists"):
        save_tensors(tmp_path / "missing" / "a", TENSORS, kind="moments")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=r"could not write .*folder"):
        save_tensors(tmp_path / "folder", TENSORS, kind="moments")
    assert os.listdir(tmp_path) == ["folder"]


def test_missing_files_are_named(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"expected a safetensors file with moments at .*nowhere; there is no such"
    ):
        load_tensors(tmp_path / "nowhere", kind="moments")


@pytest.mark.parametrize("kept", [0, 4, 8, 40, -1])
def test_truncated_files_are_refused(tmp_path, kept):
    save_tensors(tmp_path / "a", TENSORS, kind="moments")
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[:kept])
    with pytest.raises(CheckpointError, match=r"a is not a readable safetensors file.*truncated"):
        load_tensors(tmp_path / "a", kind="moments")


def test_other_formats_are_refused(tmp_path):
    torch.save(TENSORS, tmp_path / "a")
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load_tensors(tmp_path / "a", kind="moments")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "expected a file of kind 'moments' at .*; this one has 'no kind, so another program wrote it'"),
        ({"kind": "linear", "metadata": "{}"}, "this one has 'linear'"),
        ({"kind": "moments"}, "not a readable"),
        ({"kind": "moments", "metadata": "{"}, "not a readable"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, metadata, message):
    save_file({"x": torch.ones(2)}, tmp_path / "a", metadata=metadata)
    with pytest.raises(CheckpointError, match=message):
        load_tensors(tmp_path / "a", kind="moments")


def test_a_name_that_is_too_long_is_the_error_that_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="could not write"):
        storage.save_text(tmp_path / ("x" * 300), "")
