"""Every source of images gives the same pixels; everything else is refused with a reason."""

import re

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from gausslens.errors import DataError
from gausslens.images import as_tensor, check_labels, check_values, content_hash, dequantize, gather, iterate

PIXELS = torch.randint(0, 256, (11, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
FLOATS = dequantize(PIXELS)


class EndlessByIndex(Dataset):
    """A map-style dataset that, as is usual, does not raise IndexError past its end."""

    def __len__(self):
        return len(FLOATS)

    def __getitem__(self, index):
        return FLOATS[index % len(FLOATS)], index


class StreamWithLength(IterableDataset):
    """Has `__len__` and inherits a `__getitem__` that raises."""

    def __len__(self):
        return len(FLOATS)

    def __iter__(self):
        return iter(FLOATS)


SOURCES = {
    "tensor": lambda: FLOATS,
    "array": lambda: FLOATS.numpy(),
    "tensor dataset": lambda: TensorDataset(FLOATS, torch.arange(11)),
    "map-style dataset": EndlessByIndex,
    "iterable dataset": StreamWithLength,
    "loader of batches": lambda: DataLoader(TensorDataset(FLOATS), batch_size=4),
    "loader with labels": lambda: DataLoader(TensorDataset(FLOATS, torch.arange(11)), batch_size=4),
    "generator of batches": lambda: (batch for batch in FLOATS.split(3)),
    "generator of (batch, labels)": lambda: ((batch, torch.zeros(len(batch))) for batch in FLOATS.split(3)),
    "list of images": lambda: list(FLOATS),
    "list of arrays": lambda: [image.numpy() for image in FLOATS],
    "list of (image, label)": lambda: [(image, 7) for image in FLOATS],
    "images, then a batch, then images": lambda: [*FLOATS[:2], FLOATS[2:9], *FLOATS[9:]],
    "batches, one empty": lambda: [FLOATS[:4], FLOATS[4:4], FLOATS[4:]],
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_every_source_gives_the_same_images_in_order(source):
    assert torch.equal(gather(source()), FLOATS)
    batches = list(iterate(source(), batch_size=3))
    assert torch.equal(torch.cat(batches), FLOATS)
    assert all(len(batch) > 0 for batch in batches)


def test_memory_maps_are_shared_not_copied(tmp_path):
    np.save(tmp_path / "pixels.npy", PIXELS.numpy())
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r+")
    pixels = gather(mapped)
    assert pixels.dtype == torch.uint8
    mapped[3, 0, 0, 0] = 255 - PIXELS[3, 0, 0, 0].item()
    assert pixels[3, 0, 0, 0] == mapped[3, 0, 0, 0]


def test_read_only_maps_are_accepted_silently(tmp_path):
    np.save(tmp_path / "pixels.npy", PIXELS.numpy())
    assert torch.equal(gather(np.load(tmp_path / "pixels.npy", mmap_mode="r")), PIXELS)


def test_flipped_arrays_keep_their_values():
    assert torch.equal(as_tensor(PIXELS.numpy()[..., ::-1]), PIXELS.flip(-1))


def test_uint8_becomes_the_interval_from_minus_one_to_one():
    grey = torch.arange(256, dtype=torch.uint8)
    expected = torch.tensor([p / 127.5 - 1 for p in range(256)], dtype=torch.float64)
    assert torch.equal(dequantize(grey, torch.float64), expected)
    torch.testing.assert_close(dequantize(grey).double(), expected, rtol=0, atol=1e-7)
    assert dequantize(grey)[[0, 255]].tolist() == [-1.0, 1.0]
    assert grey[0] == 0  # the input is left alone


def test_sources_of_mixed_dtypes_end_in_one_scale():
    assert torch.equal(gather([PIXELS[:4], FLOATS[4:]]), FLOATS)


def test_vectors_pass_without_bounds_only():
    vectors = 100 * torch.randn(6, 9)
    assert torch.equal(gather(vectors, bounds=None), vectors)
    with pytest.raises(DataError, match=r"got images of shape \(6, 9\).*vectors need bounds=None"):
        gather(vectors)


def test_values_may_leave_the_bounds_by_a_thousandth():
    check_values(torch.full((1, 1, 2, 2), 1.0009), (-1.0, 1.0))
    with pytest.raises(DataError, match=r"\[-1, 1\]; got values from 1.002 to 1.002"):
        check_values(torch.full((1, 1, 2, 2), 1.002), (-1.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_float_dtype_is_checked(dtype):
    images = torch.zeros(2, 1, 3, 3, dtype=dtype)
    assert gather(images).dtype == dtype
    images[1, 0, 2, 2] = 2
    with pytest.raises(DataError, match="to 2"):
        gather(images)


def broken(value):
    images = FLOATS.clone()
    images[2, 1, 0, 0] = images[5, 0, 0, 0] = value
    return images


REFUSED = {
    "nan": (lambda: broken(float("nan")), "faces must be finite; 2 of 660 values are NaN or infinite"),
    "infinite": (lambda: broken(float("inf")), "faces must be finite; 2 of 660 values are NaN or infinite"),
    "0-255 floats": (lambda: PIXELS.float(), r"float faces must lie in \[-1, 1\]; got values from \d+ to \d+.*Rescale"),
    "one image": (lambda: FLOATS[0], r"got faces of shape \(3, 5, 4\).*images\[None\]"),
    "channels last": (
        lambda: torch.zeros(2, 16, 16, 3),
        r"shape \(2, 16, 16, 3\), which has its channels last.*permute",
    ),
    "integers": (lambda: PIXELS.long(), "got faces of dtype torch.int64. Convert to uint8"),
    "no pixels": (lambda: FLOATS[:, :, :0], r"got faces of shape \(11, 3, 0, 4\)"),
    "empty tensor": (lambda: FLOATS[:0], "faces is empty; expected at least one image"),
    "empty list": (list, "faces is empty; expected at least one image"),
    "empty batches": (lambda: [FLOATS[:0]], "faces is empty; expected at least one image"),
    "batches of two shapes": (lambda: [FLOATS, FLOATS[:, :, 1:]], r"one shape; got \(3, 4, 4\) after \(3, 5, 4\)"),
    "images of two shapes": (lambda: [FLOATS[0], FLOATS[0, :, 1:]], r"one shape; got \(3, 4, 4\) after \(3, 5, 4\)"),
    "a number": (lambda: 3, "expected a tensor, an array, a dataset or an iterable of batches as faces; got int"),
    "dictionaries": (lambda: [{"image": FLOATS[0]}], "got faces of type dict that is no numeric array"),
    "words": (lambda: "digits", "got faces of type str that is no numeric array"),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_images_is_refused_with_a_reason(source, message):
    with pytest.raises(DataError, match=message):
        gather(source(), name="faces")
    with pytest.raises(DataError, match=message):
        list(iterate(source(), name="faces"))


def test_values_are_checked_beyond_the_first_batch():
    images = torch.zeros(2049, 1, 1, 2)
    images[-1] = 3
    with pytest.raises(DataError, match="got values from"):
        gather(images)


def test_content_hash_depends_on_content_alone():
    same = PIXELS.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)
    assert content_hash(PIXELS) == content_hash(same)
    long = torch.arange(3000, dtype=torch.float32).reshape(3000, 1)
    assert content_hash(long) != content_hash(long.flip(0))
    assert content_hash(PIXELS) != content_hash(PIXELS.reshape(11, 3, 4, 5))
    changed = PIXELS.clone()
    changed[-1, -1, -1, -1] ^= 1
    assert content_hash(PIXELS) != content_hash(changed)
    assert re.fullmatch(r"[0-9a-f]{64}", content_hash(FLOATS))


@pytest.mark.parametrize("labels", [[0, 1, 2], np.array([0, 1, 2], dtype=np.int16), torch.tensor([0, 1, 2])])
def test_labels_become_integers(labels):
    assert torch.equal(check_labels(labels, 3), torch.tensor([0, 1, 2]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"labels must be 3 integers, one per image; got shape \(2,\)"),
        (torch.eye(3), r"got shape \(3, 3\), dtype torch.float32.*argmax\(1\)"),
        ([0.0, 1.0, 2.0], "dtype torch.float32"),
        (["cat", "dog", "cat"], "labels must be 3 integers, one per image; got list"),
        (None, "got NoneType"),
    ],
)
def test_labels_that_do_not_match_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        check_labels(labels, 3)
