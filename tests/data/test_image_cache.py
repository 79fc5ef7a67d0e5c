"""Images are decoded once; the cache is whole or absent, and never stale."""

import itertools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import pytest
from PIL import Image

from gausslens.data import cache, decoding, load_images
from gausslens.errors import DataError

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "set").mkdir()
    for number in range(40):
        save(tmp_path / "set" / f"{number:02}.png", number)
    return tmp_path / "set"


def save(path, value):
    Image.fromarray(np.full((4, 5), value, np.uint8)).save(path)


def entries(place):
    return sorted(path.name for path in place.iterdir()) if place.exists() else []


def test_a_second_start_decodes_nothing_and_is_the_same(tmp_path, folder, monkeypatch):
    first = load_images(folder, cache=tmp_path / "cache")

    def refuse(*args):
        raise AssertionError("opened an image")

    monkeypatch.setattr(Image, "open", refuse)
    second = load_images(folder, cache=tmp_path / "cache")
    assert isinstance(second.images, np.memmap)
    assert np.array_equal(first.images, second.images)
    assert first.content_hash == second.content_hash
    assert (first.name, first.source, first.options) == (second.name, second.source, second.options)


def test_one_entry_holds_one_array_of_bytes(tmp_path, folder):
    load_images(folder, cache=tmp_path / "cache")
    (entry,) = (tmp_path / "cache").iterdir()
    assert entry.name.startswith("set-")
    images = np.load(entry / "images.npy")
    assert (images.dtype, images.shape) == (np.uint8, (40, 1, 4, 5))
    assert json.loads((entry / "info.json").read_text())["source"] == str(folder)


def test_every_change_of_the_source_or_the_options_is_noticed(tmp_path, folder):
    def seen(**options):
        return [int(image[0, 0, 0]) for image in load_images(folder, cache=tmp_path / "cache", **options).images]

    assert seen() == list(range(40))
    save(folder / "40.png", 200)
    assert seen() == [*range(40), 200]
    (folder / "00.png").unlink()
    assert seen() == [*range(1, 40), 200]
    status = (folder / "40.png").stat()
    save(folder / "40.png", 201)  # as long as before
    os.utime(folder / "40.png", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert seen() == [*range(1, 40), 201]
    (folder / "01.png").rename(folder / "99.png")
    assert seen() == [*range(2, 40), 201, 1]
    assert len(seen(size=3)) == 40
    assert load_images(folder, cache=tmp_path / "cache", size=3).shape == (1, 3, 3)
    assert load_images(folder, cache=tmp_path / "cache").shape == (1, 4, 5)


def test_arrays_are_noticed_to_change_too(tmp_path):
    for value in (1, 2):
        np.savez(tmp_path / "a.npz", images=np.full((2, 4, 5), value, np.uint8))
        os.utime(tmp_path / "a.npz", ns=(0, value))
        assert (load_images(tmp_path / "a.npz", cache=tmp_path / "cache").images == value).all()


def test_the_cache_is_where_it_is_said_to_be(tmp_path, folder, monkeypatch):
    for name in ("XDG_CACHE_HOME", "GAUSSLENS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable, place in [
        (None, tmp_path / "home" / ".cache" / "gausslens"),
        ("XDG_CACHE_HOME", tmp_path / "xdg" / "gausslens"),
        ("GAUSSLENS_CACHE", tmp_path / "own"),
    ]:
        if variable:
            monkeypatch.setenv(variable, str(place.parent if variable.startswith("XDG") else place))
        load_images(folder)
        assert len(entries(place)) == 1
    load_images(folder, cache=tmp_path / "given")
    assert len(entries(tmp_path / "given")) == 1


@pytest.mark.parametrize("damage", ["images.npy", "info.json", "labels.npy"])
def test_a_damaged_entry_is_made_again(tmp_path, damage):
    for name in ("x", "y"):
        (tmp_path / "set" / name).mkdir(parents=True)
        save(tmp_path / "set" / name / "a.png", 7)
    before = load_images(tmp_path / "set", cache=tmp_path / "cache")
    (entry,) = (tmp_path / "cache").iterdir()
    (entry / damage).write_bytes((entry / damage).read_bytes()[:-10])
    after = load_images(tmp_path / "set", cache=tmp_path / "cache")
    assert np.array_equal(after.images, np.full((2, 1, 4, 5), 7))
    assert after.labels.tolist() == [0, 1]
    assert after.content_hash == before.content_hash
    assert entries(tmp_path / "cache") == [entry.name]


def test_writers_at_the_same_time_leave_one_whole_entry(tmp_path, folder, monkeypatch):
    barrier = threading.Barrier(4)
    rename = cache.Path.rename

    def together(path, target):
        barrier.wait(timeout=30)
        return rename(path, target)

    monkeypatch.setattr(cache.Path, "rename", together)
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: load_images(folder, cache=tmp_path / "cache"), range(4)))
    assert all(np.array_equal(one.images[:, 0, 0, 0], range(40)) for one in loaded)
    assert len(entries(tmp_path / "cache")) == 1


@pytest.mark.parametrize("failure", [KeyboardInterrupt, DataError])
def test_a_stop_in_the_middle_leaves_nothing(tmp_path, folder, monkeypatch, failure):
    def stop_later(*args, **options):
        yield from itertools.islice(decoding.decode_images(*args, **options), 20)
        raise failure

    monkeypatch.setattr("gausslens.data.loading.decode_images", stop_later)
    with pytest.raises(failure):
        load_images(folder, cache=tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_broken_files_leave_nothing(tmp_path, folder):
    (folder / "39.png").write_bytes(b"hello")
    with pytest.raises(DataError, match="1 broken files"):
        load_images(folder, cache=tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, folder, monkeypatch):
    def on_a_full_disk(path, mode):
        return open("/dev/full", mode) if str(path).endswith("images.npy") else open(path, mode)

    monkeypatch.setattr(cache, "open", on_a_full_disk, raising=False)
    with pytest.raises(DataError, match=r"No space left on device\. Free some space.*GAUSSLENS_CACHE") as caught:
        load_images(folder, cache=tmp_path / "cache")
    assert str(tmp_path / "cache") in str(caught.value)
    assert entries(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_says_so(tmp_path, folder):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="could not write the decoded images"):
        load_images(folder, cache=tmp_path / "file")


@pytest.mark.slow
def test_ten_thousand_files_open_at_once_the_second_time(tmp_path):
    (tmp_path / "set").mkdir()
    images = RNG.integers(0, 256, (10_000, 16, 16, 3), dtype=np.uint8)
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "set" / f"{number:05}.png", compress_level=1)
    times = []
    for _ in range(2):
        start = perf_counter()
        loaded = load_images(tmp_path / "set", cache=tmp_path / "cache")
        times.append(perf_counter() - start)
    print(f"10,000 PNG files: {times[0]:.2f} s, then {times[1]:.2f} s")
    assert np.array_equal(loaded.images, images.transpose(0, 3, 1, 2))
    assert times[1] < 1
