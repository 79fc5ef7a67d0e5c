"""A source is recognised by what it holds; what is not known is explained."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

import gausslens.data
from gausslens.data import load_images
from gausslens.errors import DataError
from gausslens.images import gather


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_the_digits_are_embedded():
    digits = load_images("digits")
    assert (digits.images.shape, digits.images.dtype, digits.name) == ((1797, 1, 8, 8), np.uint8, "digits")
    levels = np.rint(np.arange(17) * 255 / 16).astype(np.uint8)
    assert np.array_equal(np.unique(digits.images), levels)
    # The first row of the published file.
    assert (digits.images[0, 0, 0] * (16 / 255)).round().tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert np.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_fashion_is_embedded():
    fashion = load_images("fashion")
    assert (fashion.images.shape, fashion.images.dtype) == ((2560, 1, 28, 28), np.uint8)
    assert np.bincount(fashion.labels).tolist() == [256] * 10
    assert fashion.labels[:8].tolist() == [9, 0, 0, 3, 0, 2, 7, 2]
    assert len(np.unique(fashion.images.reshape(2560, -1), axis=0)) == 2560


def test_embedded_images_are_resized_on_request_and_need_no_cache(monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", "/proc/nowhere")
    assert load_images("digits", size=4).shape == (1, 4, 4)
    assert load_images("digits").content_hash == load_images("digits", size=8).content_hash


def test_the_attribution_is_beside_the_embedded_images():
    text = (gausslens.data.loading.Path(gausslens.data.__file__).parent / "embedded" / "ATTRIBUTION.md").read_text(
        "utf-8"
    )
    assert "CC BY 4.0" in text
    assert "Copyright © 2017 Zalando SE" in text


def test_content_decides_and_not_the_name(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 6), dtype=np.uint8)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", images=images)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        for number, image in enumerate(images):
            with archive.open(f"{number}.png", "w") as file:
                Image.fromarray(image).save(file, "PNG")
    for name in ("a.npy", "b.npz", "c.zip"):
        renamed = (tmp_path / name).rename(tmp_path / f"{name[0]} set.dat")
        loaded = load_images(renamed)
        assert np.array_equal(loaded.images[:, 0], images)
        assert loaded.name == f"{name[0]}-set.dat"
        assert loaded.source == str(renamed)


def test_links_are_called_what_they_are_called_themselves(tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    np.savez(tmp_path / "store" / "5f3a", images=np.zeros((5, 4, 6), np.uint8))
    (tmp_path / "faces.npz").symlink_to(tmp_path / "store" / "5f3a.npz")
    Image.new("L", (3, 4)).save(tmp_path / "store" / "a.png")
    (tmp_path / "photos").symlink_to(tmp_path / "store")
    monkeypatch.chdir(tmp_path / "store")
    names = [
        load_images(path).name for path in (tmp_path / "faces.npz", tmp_path / "photos", ".", "../photos/../photos")
    ]
    assert names == ["faces", "photos", "store", "photos"]


def test_an_embedded_name_is_never_a_path_but_dot_slash_is(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    Image.new("L", (3, 4)).save(tmp_path / "digits" / "a.png")
    monkeypatch.chdir(tmp_path)
    assert len(load_images("digits")) == 1797
    assert load_images("./digits").images.shape == (1, 1, 4, 3)


def test_what_is_not_known_lists_what_is(tmp_path):
    (tmp_path / "a.txt").write_text("hello, world")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx" / "train-images-idx3-ubyte.gz").write_bytes(b"")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_info.json").write_text("{}")
    Image.new("L", (3, 4)).save(tmp_path / "a.png")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "hello")
    (tmp_path / "cut.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:-8])
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08")
    for name, words in [
        ("nothing", "neither a name nor an existing file or folder"),
        ("a.txt", "format is not known.*b'hello, w'"),
        ("empty", "format is not known"),
        ("folder", "holds no images"),
        ("idx", "such as .*train-images-idx3-ubyte.gz"),
        ("saved", "hf:.*saved"),
        ("a.png", r"one image is no data set; pass its folder\. Sources are"),
    ]:
        with pytest.raises(DataError, match=words) as caught:
            load_images(tmp_path / name)
        assert "Sources are digits, fashion, hf:NAME" in str(caught.value)
    for name, words in [("a.zip", "found a.txt"), ("cut.zip", "could not read"), ("cut.gz", "could not read")]:
        with pytest.raises(DataError, match=words):
            load_images(tmp_path / name)


def test_loaded_images_are_images_everywhere_in_the_package(tmp_path):
    from gausslens import Moments

    np.save(tmp_path / "a.npy", load_images("digits").images[:50])
    loaded = load_images(tmp_path / "a.npy")
    assert isinstance(loaded.images, np.memmap)
    assert gather(loaded.images).shape == (50, 1, 8, 8)
    assert Moments.fit(loaded.images).count == 50


def test_nothing_heavy_is_imported_before_it_is_needed():
    program = (
        "import sys, gausslens.data\n"
        "from gausslens.data import load_images\n"
        "print(sorted({'torch', 'PIL', 'datasets'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "[]\n"


def test_the_names_are_these():
    assert dir(gausslens.data) == sorted(gausslens.data.__all__)
    assert all(getattr(gausslens.data, name).__doc__ for name in gausslens.data.__all__)
    with pytest.raises(AttributeError, match="load_image"):
        gausslens.data.load_image  # noqa: B018
