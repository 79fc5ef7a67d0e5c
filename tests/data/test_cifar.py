"""CIFAR-10's pickles are read, and never run."""

import io
import pickle
import struct
import tarfile
import time

import numpy as np
import pytest
from hostile_pickles import DOUBLE, bombs

from gausslens.data import load_images
from gausslens.errors import DataError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS = [3, 1, 9, 0, 2, 2]


def as_python_2_wrote_it(images, labels):
    """A pickle of protocol 2 with byte strings and NumPy's old module, as in the published archive."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    rows = images.reshape(len(images), -1)
    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = b"".join(b"M" + struct.pack("<H", length) for length in rows.shape) + b"\x86"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<I", rows.nbytes) + rows.tobytes() + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"](" + b"".join(text(b"img%d.png" % number) for number in range(len(labels))) + b"e"
    fields = [(b"data", array), (b"labels", listed), (b"batch_label", text(b"training")), (b"filenames", names)]
    return b"\x80\x02}(" + b"".join(text(key) + value for key, value in fields) + b"u."


def as_python_3_writes_it(images, labels, protocol):
    return pickle.dumps({b"data": images.reshape(len(images), -1), b"labels": labels}, protocol)


def archive(path, batches):
    with tarfile.open(path, "w:gz") as file:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def batches():
    parts = {f"data_batch_{k + 1}": as_python_2_wrote_it(IMAGES[k : k + 1], LABELS[k : k + 1]) for k in range(5)}
    test = as_python_2_wrote_it(IMAGES[5:], LABELS[5:])
    return {"batches.meta": pickle.dumps({}, 2), "test_batch": test, **dict(reversed(parts.items()))}


def test_the_archive_gives_its_training_images_in_order(tmp_path, batches):
    archive(tmp_path / "cifar-10-python.tar.gz", batches)
    loaded = load_images(tmp_path / "cifar-10-python.tar.gz")
    assert np.array_equal(loaded.images, IMAGES[:5])
    assert loaded.labels.tolist() == LABELS[:5]
    assert (loaded.name, loaded.shape) == ("cifar-10-python", (3, 32, 32))


def test_the_extracted_archive_is_the_same_and_one_batch_is_a_source(tmp_path, batches):
    inner = tmp_path / "cifar" / "cifar-10-batches-py"
    inner.mkdir(parents=True)
    for name, content in batches.items():
        (inner / name).write_bytes(content)
    for folder in (inner, inner.parent):
        loaded = load_images(folder)
        assert np.array_equal(loaded.images, IMAGES[:5])
        assert loaded.labels.tolist() == LABELS[:5]
    test = load_images(inner / "test_batch")
    assert np.array_equal(test.images, IMAGES[5:])
    assert test.labels.tolist() == LABELS[5:]


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("order", ["C", "F"])
def test_batches_of_python_3_are_read_too(tmp_path, protocol, order):
    rows = np.asarray(IMAGES.reshape(len(IMAGES), -1), order=order)
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": rows, "labels": LABELS}, protocol))
    loaded = load_images(tmp_path / "batch")
    assert np.array_equal(loaded.images, IMAGES)
    assert loaded.labels.tolist() == LABELS


class Evil:
    def __init__(self, target, call):
        self.target, self.call = target, call

    def __reduce__(self):
        return self.call, (self.target,)


@pytest.mark.parametrize("hidden_as", ["the batch", "labels", "data"])
def test_a_pickle_that_would_run_a_program_is_refused_unrun(tmp_path, hidden_as):
    import os

    target = tmp_path / "made"
    evil = Evil(str(target), os.mkdir)
    batch = {"data": IMAGES.reshape(6, -1), "labels": LABELS, hidden_as: evil}
    content = pickle.dumps(evil if hidden_as == "the batch" else batch, 2)
    (tmp_path / "data_batch_1").write_bytes(content)
    archive(tmp_path / "cifar.tar.gz", {"data_batch_1": content})
    for source in (tmp_path / "data_batch_1", tmp_path / "cifar.tar.gz"):
        with pytest.raises(DataError, match=r"asks for 'posix\.mkdir'.*not read, since they can run any program"):
            load_images(source)
    assert not target.exists()
    pickle.loads(content)  # the control: it would have
    assert target.exists()


@pytest.mark.slow
def test_pickles_that_ask_for_much_are_refused_at_once(tmp_path):
    doubled = b"\x80\x02}(X\x04\x00\x00\x00data)" + DOUBLE * 300 + b"u."
    contents = {
        **bombs(),
        "doubled data": doubled,
        "doubled labels": doubled.replace(b"\x04\x00\x00\x00data", b"\x06\x00\x00\x00labels"),
    }
    dtype = b"cnumpy\ndtype\n)" + DOUBLE * 300 + b"\x85R"
    contents["doubled type"] = (
        b"\x80\x02}X\x04\x00\x00\x00datacnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x01"
        + dtype
        + b"K\x00X\x00\x00\x00\x00tbs."
    )
    for name, content in contents.items():
        (tmp_path / "batch").write_bytes(content)
        started = time.process_time()
        with pytest.raises(DataError, match="CIFAR-10's python version"):
            load_images(tmp_path / "batch")
        assert time.process_time() - started < 5, name


def test_other_pickles_and_archives_are_explained(tmp_path, batches):
    (tmp_path / "list").write_bytes(pickle.dumps([1, 2], 2))
    (tmp_path / "narrow").write_bytes(pickle.dumps({"data": IMAGES[:, :, :30].reshape(6, -1)}, 2))
    (tmp_path / "wide").write_bytes(pickle.dumps({"data": IMAGES.reshape(6, -1).astype(np.int32)}, 2))
    (tmp_path / "labels").write_bytes(as_python_3_writes_it(IMAGES, LABELS[:2], 2))
    (tmp_path / "cut").write_bytes(batches["test_batch"][:-50])
    for name, words in [
        ("list", "save images as .npz"),
        ("narrow", "uint8 rows of 3,072"),
        ("wide", "pixels of type 'i4'"),
        ("labels", "expected 6 integer labels"),
        ("cut", "uint8 rows of 3,072"),
    ]:
        with pytest.raises(DataError, match=words):
            load_images(tmp_path / name)
    archive(tmp_path / "other.tar.gz", {"a.txt": b"hello"})
    archive(tmp_path / "whole.tar.gz", batches)
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "whole.tar.gz").read_bytes()[:-5000])
    with pytest.raises(DataError, match=r"data_batch_1 … data_batch_5.*found cifar-10-batches-py/a\.txt"):
        load_images(tmp_path / "other.tar.gz")
    with pytest.raises(DataError, match="Get the file again"):
        load_images(tmp_path / "cut.tar.gz")
