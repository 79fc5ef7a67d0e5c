"""Arrays of images: layouts, depths and the files that hold them."""

import gzip
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gausslens.data import load_images
from gausslens.data.arrays import channels_first, check_depth, check_range, quantize
from gausslens.errors import ConfigError, DataError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (7, 6, 5), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (7, 6, 5, 3), dtype=np.uint8)
GREY.flat[:2] = COLOUR.flat[:2] = (0, 255)
LABELS = np.array([3, 0, 1, 2, 9, 9, 1], np.uint8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("key", ["images", "arr_0"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_in_every_layout_gives_the_same_pixels(tmp_path, key, save):
    for number, images in enumerate([COLOUR, COLOUR.transpose(0, 3, 1, 2)]):
        save(tmp_path / f"{number}.npz", **{key: images, "labels": LABELS})
        loaded = load_images(tmp_path / f"{number}.npz")
        assert np.array_equal(loaded.images, COLOUR.transpose(0, 3, 1, 2))
        assert loaded.labels.dtype == np.int64
        assert loaded.labels.tolist() == LABELS.tolist()
        assert (loaded.name, loaded.shape, len(loaded)) == (str(number), (3, 6, 5), 7)


def test_positional_npz_arrays_are_images_and_labels(tmp_path):
    np.savez(tmp_path / "a.npz", GREY, LABELS)
    loaded = load_images(tmp_path / "a.npz")
    assert np.array_equal(loaded.images, GREY[:, None])
    assert loaded.labels.tolist() == LABELS.tolist()


def test_npy_is_mapped_where_it_is_and_copied_only_if_it_must_be(tmp_path):
    np.save(tmp_path / "ready.npy", COLOUR.transpose(0, 3, 1, 2).copy())
    np.save(tmp_path / "grey.npy", GREY)
    np.save(tmp_path / "last.npy", COLOUR)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(GREY))
    for name, expected, copied in [
        ("ready", COLOUR.transpose(0, 3, 1, 2), False),
        ("grey", GREY[:, None], False),
        ("last", COLOUR.transpose(0, 3, 1, 2), True),
        ("fortran", GREY[:, None], True),
    ]:
        for _ in range(2):
            loaded = load_images(tmp_path / f"{name}.npy")
            assert np.array_equal(loaded.images, expected)
            assert isinstance(loaded.images, np.memmap)
            assert not loaded.images.flags.writeable
        assert bool(list((tmp_path / "cache").glob(f"{name}-*/images.npy"))) == copied


def test_the_content_hash_is_that_of_the_core(tmp_path):
    import torch

    from gausslens.images import content_hash

    np.save(tmp_path / "last.npy", COLOUR)
    np.save(tmp_path / "first.npy", COLOUR.transpose(0, 3, 1, 2).copy())
    expected = content_hash(torch.from_numpy(COLOUR).permute(0, 3, 1, 2))
    assert load_images(tmp_path / "last.npy").content_hash == expected
    assert load_images(tmp_path / "first.npy").content_hash == expected


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((6, 5, 3), "looks like one image"),
        ((7, 6), "Reshape"),
        ((7, 3, 6, 3), "first or last"),
        ((7, 6, 5, 4), "alpha"),
        ((0, 6, 5), "no pixels"),
        ((7, 1, 1, 6, 5), "Reshape"),
    ],
)
def test_layouts_that_are_unclear_are_errors_that_show_the_shape(shape, words):
    with pytest.raises(DataError, match=words) as caught:
        channels_first(np.zeros(shape, np.uint8), "here")
    assert str(shape) in str(caught.value)
    assert "here" in str(caught.value)


def test_floats_need_their_range_and_map_linearly(tmp_path):
    pixels = COLOUR / 127.5 - 1
    np.savez(tmp_path / "a.npz", images=pixels.astype(np.float32))
    with pytest.raises(DataError, match=r"float32 images need the range.*from -1 to 1.*--range -1 1"):
        load_images(tmp_path / "a.npz")
    loaded = load_images(tmp_path / "a.npz", value_range=(-1, 1))
    assert np.array_equal(loaded.images, COLOUR.transpose(0, 3, 1, 2))
    assert loaded.options == {"size": None, "value_range": (-1.0, 1.0)}
    halved = load_images(tmp_path / "a.npz", value_range=(-3, 1)).images
    assert np.abs(halved - (COLOUR.transpose(0, 3, 1, 2) + 255.0) / 2).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.int64, ">u2", np.float16, np.float64])
def test_wider_numbers_need_their_range(tmp_path, dtype):
    np.save(tmp_path / "a.npy", (GREY.astype(np.int64) * 4).astype(dtype))
    with pytest.raises(DataError, match="--range 0 1020 "):
        load_images(tmp_path / "a.npy")
    assert np.array_equal(load_images(tmp_path / "a.npy", value_range=(0, 1020)).images[:, 0], GREY)


def test_values_outside_the_range_are_counted():
    values = np.zeros((3000, 2, 2), np.float32)
    values[[0, 1500, 2999], 0, 0] = [-2, 7, 3]
    with pytest.raises(DataError, match=r"3 of 12000 values lie outside the range -1 … 1; they go from -2 to 7"):
        check_depth(values, (-1.0, 1.0), "a")
    check_depth(values, (-2.0, 7.0), "a")
    check_depth(np.full((1, 2, 2), 0.1, np.float32), (0.0, 0.1), "the bound itself, rounded")


def test_values_that_are_not_numbers_are_counted():
    values = np.zeros((3000, 2, 2), np.float32)
    values[[0, 2999], 0, 0] = [np.nan, np.inf]
    for value_range in (None, (0.0, 1.0)):
        with pytest.raises(DataError, match="2 of 12000 values are NaN"):
            check_depth(values, value_range, "a")
    for wrong in (np.zeros((2, 4, 4), bool), np.zeros((2, 4, 4), complex), np.full((2, 4, 4), "a")):
        with pytest.raises(DataError, match="Convert to uint8"):
            check_depth(wrong, None, "a")


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_the_range_ends_at_0_and_255_and_errs_by_half_a_level(low, width):
    high = low + width
    values = np.linspace(low, high, 97)
    levels = quantize(values, (low, high))
    assert (levels[0], levels[-1]) == (0, 255)
    assert np.abs(levels - np.linspace(0, 255, 97)).max() < 0.5 + 1e-6


@pytest.mark.parametrize("wrong", [(1, 0), (0, 0), (0, float("nan")), (0, float("inf")), (1,), 3, "ab"])
def test_impossible_ranges_are_refused(wrong):
    with pytest.raises(ConfigError, match="LOW"):
        check_range(wrong)


def idx(array, code=0x08):
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        ("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte.gz"),
    ],
)
def test_idx_comes_with_the_labels_beside_it(tmp_path, images, labels):
    for name, array in [(images, GREY), (labels, LABELS)]:
        content = idx(array)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    loaded = load_images(tmp_path / images)
    assert np.array_equal(loaded.images[:, 0], GREY)
    assert loaded.labels.tolist() == LABELS.tolist()
    assert loaded.name == images.partition("-images")[0] + "-images"


def test_labels_that_appear_later_are_noticed(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(GREY))
    assert load_images(tmp_path / "train-images-idx3-ubyte").labels is None
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS))
    assert load_images(tmp_path / "train-images-idx3-ubyte").labels.tolist() == LABELS.tolist()


def test_idx_of_wider_numbers_is_read_in_its_byte_order(tmp_path):
    (tmp_path / "a").write_bytes(idx(GREY.astype(np.int16) * 100, code=0x0B))
    assert np.array_equal(load_images(tmp_path / "a", value_range=(0, 25500)).images[:, 0], GREY)


def test_damaged_array_files_are_one_clear_error(tmp_path):
    np.savez(tmp_path / "a.npz", images=GREY)
    np.savez(tmp_path / "other.npz", pictures=GREY)
    np.savez(tmp_path / "objects.npz", images=np.array([{}, {}], object))
    np.savez(tmp_path / "labels.npz", images=GREY, labels=LABELS[:3])
    np.savez(tmp_path / "onehot.npz", images=GREY, labels=np.eye(10)[LABELS])
    np.save(tmp_path / "a.npy", GREY)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-40])
    (tmp_path / "cut.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-40])
    (tmp_path / "cut-idx3-ubyte").write_bytes(idx(GREY)[:-1])
    (tmp_path / "cut-idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREY))[:-20])
    (tmp_path / "labels-idx1-ubyte").write_bytes(idx(LABELS))
    for name, words in [
        ("other.npz", "holds pictures"),
        ("objects.npz", "without objects"),
        ("labels.npz", r"expected 7 integer labels.*\(3,\)"),
        ("onehot.npz", r"\.argmax\(1\)"),
        ("cut.npz", "cut.npz"),
        ("cut.npy", "cut.npy"),
        ("cut-idx3-ubyte", "226 bytes in all, but has 225"),
        ("cut-idx3-ubyte.gz", "could not read"),
        ("labels-idx1-ubyte", "labels and not images"),
    ]:
        with pytest.raises(DataError, match=words):
            load_images(tmp_path / name)


def test_the_range_that_is_suggested_is_taken(tmp_path):
    values = np.random.default_rng(0).uniform(2.0, 3.0, (4, 6, 6))
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(DataError) as caught:
        load_images(tmp_path / "a.npy")
    low, high = (float(word) for word in re.search(r"--range (\S+) (\S+) ", str(caught.value)).groups())
    assert load_images(tmp_path / "a.npy", value_range=(low, high)).images.max() == 255


def test_ranges_as_wide_as_numbers_go_and_of_half_precision(tmp_path):
    np.save(tmp_path / "a.npy", np.full((9, 6, 6), 1e308))
    assert load_images(tmp_path / "a.npy", value_range=(-1e308, 1e308)).images.min() == 255
    np.save(tmp_path / "b.npy", np.ones((9, 6, 6), np.float16))
    assert load_images(tmp_path / "b.npy", value_range=(0, 1e6)).images.max() == 0


@pytest.mark.parametrize("labels", [[-1, 0], [0, 20231105], np.array([2**64 - 1, 0], np.uint64)])
def test_labels_number_classes(tmp_path, labels):
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.array(labels))
    with pytest.raises(DataError, match="from 0 on"):
        load_images(tmp_path / "a.npz")


def test_a_single_number_is_no_set_of_images(tmp_path):
    np.save(tmp_path / "a.npy", np.float64(3.0))
    with pytest.raises(DataError, match="single number"):
        load_images(tmp_path / "a.npy")


def test_a_single_number_with_labels_is_no_set_of_images(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.uint8(3), labels=np.array([1]))
    with pytest.raises(DataError, match="expected images of shape"):
        load_images(tmp_path / "a.npz")
