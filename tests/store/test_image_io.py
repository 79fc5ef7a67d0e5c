"""Images written to files come back as they were."""

import json
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from gausslens import CheckpointError
from gausslens.data import load_images
from gausslens.images import dequantize, quantize
from gausslens.store.image_io import save_grid, save_npz, save_zip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


def some_images(n, channels, height=8, width=8):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, channels, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("save", "suffix"), [(save_npz, "npz"), (save_zip, "zip")])
def test_what_is_written_is_read_back(save, suffix, labelled, channels, tmp_path):
    images = some_images(1002, channels)
    labels = torch.arange(1002) % 7 if labelled else None
    save(tmp_path / f"set.{suffix}", images, labels)
    found = load_images(tmp_path / f"set.{suffix}")
    assert np.array_equal(found.images, images.numpy())
    assert (found.labels is None) == (labels is None)
    assert labels is None or np.array_equal(found.labels, labels.numpy())
    assert [path.name for path in tmp_path.glob("*set*")] == [f"set.{suffix}"]


def test_a_zip_has_folders_of_a_thousand_and_the_list_of_labels(tmp_path):
    save_zip(tmp_path / "set.zip", some_images(1001, 1), torch.arange(1001))
    with zipfile.ZipFile(tmp_path / "set.zip") as archive:
        names = archive.namelist()
        listed = json.loads(archive.read("dataset.json"))["labels"]
    assert names[:2] == ["00000/img00000000.png", "00000/img00000001.png"]
    assert names[1000:] == ["00001/img00001000.png", "dataset.json"]
    assert listed[1000] == ["00001/img00001000.png", 1000]


def test_an_npz_has_channels_last(tmp_path):
    images = some_images(5, 3, 8, 12)
    save_npz(tmp_path / "set.npz", images, torch.arange(5))
    with np.load(tmp_path / "set.npz") as arrays:
        assert sorted(arrays) == ["images", "labels"]
        assert arrays["images"].shape == (5, 8, 12, 3)
        assert np.array_equal(arrays["images"].transpose(0, 3, 1, 2), images.numpy())


def test_a_grid_is_square_and_enlarges_small_images(tmp_path):
    images = some_images(7, 1)
    save_grid(tmp_path / "grid.png", images)
    with Image.open(tmp_path / "grid.png") as grid:
        page = np.asarray(grid)
    assert page.shape == (3 * 34 + 2, 3 * 34 + 2)
    for index, image in enumerate(images):
        top, left = 2 + 34 * (index // 3), 2 + 34 * (index % 3)
        assert np.array_equal(page[top : top + 32 : 4, left : left + 32 : 4], image[0].numpy())
    assert (page[2 + 2 * 34 :, 2 + 34 :] == 255).all()  # nothing after the seventh


def test_a_grid_shows_256_images_at_most(tmp_path):
    save_grid(tmp_path / "grid.png", some_images(300, 3, 40, 40))
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (16 * 42 + 2, 16 * 42 + 2)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "set.zip").mkdir()
    with pytest.raises(CheckpointError, match="could not write"):
        save_zip(tmp_path / "set.zip", some_images(3, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


def test_quantizing_undoes_dequantizing_and_cuts():
    pixels = torch.arange(256, dtype=torch.uint8)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert torch.equal(quantize(dequantize(pixels, torch.float32).to(dtype)), pixels) or dtype == torch.bfloat16
    assert quantize(torch.tensor([-3.0, -1.0, 0.0, 1.0, 9.0])).tolist() == [0, 0, 128, 255, 255]
    assert quantize(pixels) is pixels
