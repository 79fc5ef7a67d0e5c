"""Images that the machine has no room for are refused before one is resized."""

from collections import namedtuple

import numpy as np
import pytest
from PIL import Image
from tiny_command import command

from gausslens.data import decoding, load_images
from gausslens.errors import DataError

GB = 10**9


@pytest.fixture(autouse=True)
def _nothing_is_resized(monkeypatch):
    """And the memory is what tests were made with."""

    def refuse(*unused):
        raise AssertionError("resized an image")

    monkeypatch.setattr("gausslens.data.decoding.fit", refuse)
    monkeypatch.setattr(decoding, "_memory", lambda: 8 * GB)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "set").mkdir()
    for number in range(40):
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(tmp_path / "set" / f"{number:02}.png")
    return tmp_path / "set"


def set_free_disk(monkeypatch, free):
    usage = namedtuple("usage", "free")(free)
    monkeypatch.setattr(decoding.shutil, "disk_usage", lambda folder: usage)


@pytest.mark.parametrize("size", [20_000, 100_000])
def test_a_dry_run_refuses_sizes_that_do_not_fit_into_memory(size, capsys):
    code, out, err = command(capsys, "train", "digits", "--size", size, "--dry-run")
    assert (code, out) == (2, "")
    assert err == (
        f"gausslens: digits: to make 1,797 images of {size} × {size} takes {2 * 1797 * size**2 / GB:,.1f} GB of memory; "
        "this machine has 8.0 GB. Choose a smaller --size.\n"
    )


def test_images_on_disk_may_be_more_than_the_memory_but_not_than_the_disk(folder, tmp_path, monkeypatch):
    set_free_disk(monkeypatch, 15 * GB)
    monkeypatch.setattr(decoding, "available_cores", lambda: 1)
    size = 20_000  # 0.4 GB each: 16 of them are held at a time, and 40 are written
    with pytest.raises(
        DataError, match=r"40 images of 20000 × 20000 takes 16\.0 GB free in .*cache; this machine has 15"
    ):
        load_images(folder, size=size, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    set_free_disk(monkeypatch, 17 * GB)
    with pytest.raises(AssertionError, match="resized an image"):
        load_images(folder, size=size, cache=tmp_path / "cache")
    monkeypatch.setattr(decoding, "available_cores", lambda: 2)
    with pytest.raises(DataError, match=r"takes 12\.8 GB of memory; this machine has 8\.0 GB"):
        load_images(folder, size=size, cache=tmp_path / "cache")


def test_arrays_count_their_channels(tmp_path, monkeypatch):
    np.savez(tmp_path / "set.npz", images=np.zeros((10, 3, 8, 8), np.uint8))
    set_free_disk(monkeypatch, 5 * GB)
    with pytest.raises(DataError, match=r"10 images of 16000 × 16000 takes 7\.7 GB free in"):
        load_images(tmp_path / "set.npz", size=16_000, cache=tmp_path / "cache")


@pytest.mark.parametrize("error", [AttributeError, ValueError, OSError])
def test_a_machine_that_does_not_say_what_it_has_is_not_asked(error, monkeypatch):
    monkeypatch.undo()

    def refuse(name):
        raise error(name)

    assert decoding._memory() > 10**8
    monkeypatch.setattr(decoding.os, "sysconf", refuse)
    assert decoding._memory() is None
    assert load_images("digits", size=9).shape == (1, 9, 9)
