"""Folders and zips of image files: order, labels, modes, depths, sizes, and files that are broken."""

import io
import json
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from gausslens.data import decoding, load_images
from gausslens.errors import ConfigError, DataError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path_factory.mktemp("cache")))


def colours(n, height=9, width=9):
    return RNG.integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def encode(image, kind="PNG", **options):
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def fill(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def pack(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def planes(images):
    return images.transpose(0, 3, 1, 2)


def deep_png(image):
    """A PNG of 16 bits per sample, in colour, which pillow cannot write; every line filtered as the one above it."""
    height, width, channels = image.shape
    lines = image.astype(">u2").view(np.uint8).reshape(height, -1)
    above = np.vstack([np.zeros_like(lines[:1]), lines[:-1]])
    raw = b"".join(b"\2" + line.tobytes() for line in lines - above)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("put", [fill, pack])
def test_images_come_in_the_order_of_their_names_whatever_their_format(tmp_path, put):
    images = colours(5)
    names = ["b.png", "a/2.webp", "a/10.bmp", "c/d/e.PNG", "a.tiff"]
    kinds = [("PNG", {}), ("WEBP", {"lossless": True}), ("BMP", {}), ("PNG", {}), ("TIFF", {})]
    files = {name: encode(image, kind, **how) for name, image, (kind, how) in zip(names, images, kinds, strict=True)}
    noise = {"notes.txt": b"hello", ".hidden.png": b"", "__MACOSX/._b.png": b"", "a/Thumbs.db": b""}
    loaded = load_images(put(tmp_path / "set", noise | files))
    assert np.array_equal(loaded.images, planes(images[[4, 2, 1, 0, 3]]))
    assert loaded.labels is None
    assert loaded.name == "set"


@pytest.mark.parametrize("put", [fill, pack])
@pytest.mark.parametrize("root", ["", "all/of/it/"])
def test_subfolders_are_classes_in_sorted_order(tmp_path, put, root):
    image = encode(colours(1)[0])
    names = ["dog/1.png", "cat/9.png", "dog/deep/0.png", "eel/2.png"]
    loaded = load_images(put(tmp_path / "set", {root + name: image for name in names}))
    assert loaded.labels.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("put", [fill, pack])
def test_one_folder_mixed_depths_and_buckets_are_no_classes(tmp_path, put):
    image = encode(colours(1)[0])
    for number, names in enumerate(
        [["cat/1.png", "cat/2.png"], ["cat/1.png", "2.png"], ["00000/img0.png", "00001/img1.png"]]
    ):
        assert load_images(put(tmp_path / str(number), dict.fromkeys(names, image))).labels is None


@pytest.mark.parametrize("put", [fill, pack])
def test_stored_labels_are_kept_by_name(tmp_path, put):
    images = colours(3)
    names = ["00000/img0.png", "00000/img1.png", "00001/img2.png"]
    files = {name: encode(image) for name, image in zip(names, images, strict=True)}

    def labels(value):
        return load_images(put(tmp_path / str(len(list(tmp_path.iterdir()))), files | {"dataset.json": value})).labels

    stored = [[names[2], 5], [names[0], 7], [names[1], 0]]
    assert labels(json.dumps({"labels": stored}).encode()).tolist() == [7, 0, 5]
    one_hot = [[names[0], [0, 1, 0]], [names[1], [0, 0, 1]], [names[2], [1, 0, 0]]]
    assert labels(json.dumps({"labels": one_hot}).encode()).tolist() == [1, 2, 0]
    assert labels(b'{"labels": null}') is None
    for wrong, words in [
        (json.dumps({"labels": stored[:2]}), f"no label for {names[1]}"),
        (json.dumps({"labels": [[name, 0.5] for name in names]}), "or one-hot"),
        ("{}", "KeyError"),
        ("labels", "reading it failed"),
    ]:
        with pytest.raises(DataError, match=words):
            labels(wrong.encode())


def test_a_jpeg_is_what_pillow_decodes(tmp_path):
    content = encode(colours(1, 20, 30)[0], "JPEG", quality=80)
    loaded = load_images(fill(tmp_path / "set", {"a.jpg": content, "b.jpeg": content}))
    expected = np.asarray(Image.open(io.BytesIO(content))).transpose(2, 0, 1)
    assert np.array_equal(loaded.images, [expected, expected])


def test_grey_stays_grey_and_becomes_colour_only_beside_colour(tmp_path):
    grey, colour = colours(40)[..., 0], colours(2)
    files = {f"{number:02}.png": encode(image) for number, image in enumerate(grey)}
    assert np.array_equal(load_images(fill(tmp_path / "grey", files)).images, grey[:, None])
    mixed = load_images(fill(tmp_path / "mixed", files | {"30x.png": encode(colour[0]), "90.png": encode(colour[1])}))
    expected = np.repeat(grey[:, None], 3, 1)
    expected = np.concatenate([expected[:31], planes(colour[:1]), expected[31:], planes(colour[1:])])
    assert np.array_equal(mixed.images, expected)


def test_every_mode_becomes_grey_or_colour(tmp_path):
    base = Image.fromarray(colours(1)[0])
    palette = base.quantize(16)
    modes = {
        "rgba": (base.convert("RGBA"), base),
        "palette": (palette, palette.convert("RGB")),
        "clear": (palette, palette.convert("RGB")),
        "bilevel": (base.convert("1"), base.convert("1").convert("L")),
        "alpha": (base.convert("LA"), base.convert("L")),
    }
    for name, (picture, expected) in modes.items():
        how = {"transparency": bytes(range(16))} if name == "clear" else {}
        files = {"a.png": encode(picture, **how)}
        found = load_images(fill(tmp_path / name, files)).images[0]
        assert np.array_equal(
            found.squeeze(), np.asarray(expected).transpose(2, 0, 1) if found.shape[0] == 3 else expected
        )
        assert found.shape[0] == len(expected.getbands())
    cmyk = encode(base.convert("CMYK"), "TIFF")
    assert load_images(fill(tmp_path / "cmyk", {"a.tif": cmyk})).shape == (3, 9, 9)


def test_deep_images_need_their_range_and_keep_their_depth(tmp_path):
    grey = RNG.integers(0, 4096, (2, 9, 9)).astype(np.uint16)
    files = {f"{number}.png": encode(image) for number, image in enumerate(grey)}
    folder = fill(tmp_path / "grey", files)
    with pytest.raises(DataError, match=r"0\.png: uint16 images need the range.*--range"):
        load_images(folder)
    expected = np.rint(grey * (255 / 4095))[:, None]
    assert np.array_equal(load_images(folder, value_range=(0, 4095)).images, expected)
    with pytest.raises(DataError, match=r"0\.png: \d+ of 81 values lie outside the range 0 … 1000"):
        load_images(folder, value_range=(0, 1000))
    for channels in (3, 4):
        colour = RNG.integers(0, 65536, (8, 9, channels)).astype(np.uint16)
        folder = fill(tmp_path / str(channels), {"a.png": deep_png(colour)})
        with pytest.raises(DataError, match="uint16 images need the range"):
            load_images(folder)
        expected = np.rint(colour[..., :3] / 257).transpose(2, 0, 1)
        assert np.array_equal(load_images(folder, value_range=(0, 65535)).images[0], expected)
    with pytest.raises(DataError, match=r"\.npz"):
        load_images(fill(tmp_path / "alpha", {"a.png": deep_png(colour[..., :2])}), value_range=(0, 65535))
    floats = RNG.random((9, 9), np.float32)
    folder = fill(tmp_path / "float", {"a.tif": encode(Image.fromarray(floats), "TIFF")})
    assert np.array_equal(load_images(folder, value_range=(0, 1)).images[0, 0], np.rint(floats * 255))


def test_mixed_depths_are_refused(tmp_path):
    files = {"a.png": encode(np.ones((9, 9), np.uint16)), "b.png": encode(np.ones((9, 9), np.uint8))}
    with pytest.raises(DataError, match=r"a\.png is uint16, b\.png is uint8"):
        load_images(fill(tmp_path / "set", files), value_range=(0, 65535))


def test_mixed_sizes_name_two_files_and_the_way_out(tmp_path):
    files = {"a.png": encode(colours(1)[0]), "b.png": encode(colours(1, 10, 12)[0])}
    folder = fill(tmp_path / "set", files)
    with pytest.raises(DataError, match=r"a\.png is 9×9, b\.png is 12×10.*--size"):
        load_images(folder)
    assert load_images(folder, size=8).shape == (3, 8, 8)


def test_mixed_sizes_and_broken_files_are_told_at_once(tmp_path):
    sizes = {"a.png": encode(colours(1)[0]), "b.png": encode(colours(1, 10, 12)[0])}
    folder = fill(tmp_path / "set", sizes | {"z.png": b"hello"})
    with pytest.raises(DataError, match=r"(?s)a\.png is 9×9, b\.png is 12×10.*1 broken files.*z\.png"):
        load_images(folder)
    with pytest.raises(DataError, match=r"b\.png is 12×10") as caught:
        load_images(folder, skip_broken=True)
    assert "z.png" not in str(caught.value)


@pytest.mark.parametrize("put", [fill, pack])
def test_size_crops_the_centre_square_before_resizing(tmp_path, put):
    image = colours(1, 16, 25)[0]
    folder = put(tmp_path / "set", {"a.png": encode(image)})
    square = image[:, 4:20]
    assert np.array_equal(load_images(folder, size=16).images[0], square.transpose(2, 0, 1))
    shrunk = np.asarray(Image.fromarray(square).resize((7, 7), Image.Resampling.LANCZOS))
    assert np.array_equal(load_images(folder, size=7).images[0], shrunk.transpose(2, 0, 1))


def test_arrays_are_cropped_and_resized_as_files_are(tmp_path):
    images = colours(3, 20, 12)
    files = fill(tmp_path / "set", {f"{number}.png": encode(image) for number, image in enumerate(images)})
    np.savez(tmp_path / "colour.npz", images=images)
    np.save(tmp_path / "grey.npy", images[..., 0])
    for size in (5, 12, 15):
        resized = load_images(files, size=size).images
        assert np.array_equal(load_images(tmp_path / "colour.npz", size=size).images, resized)
    grey = load_images(tmp_path / "grey.npy", size=12).images
    assert np.array_equal(grey, images[:, None, 4:16, :, 0])


@pytest.mark.parametrize("put", [fill, pack])
def test_broken_files_are_all_listed_and_may_be_skipped(tmp_path, put):
    images = colours(6)
    files = {f"{'ab'[number % 2]}/{number}.png": encode(image) for number, image in enumerate(images)}
    whole = encode(colours(1)[0], "WEBP", lossless=True)
    bad = {"a/cut.png": files["a/0.png"][:150], "b/empty.png": b"", "b/text.jpg": b"hello", "a/cut.webp": whole[:100]}
    source = put(tmp_path / "set", files | bad)
    with pytest.raises(DataError, match="4 broken files") as caught:
        load_images(source)
    assert all(name in str(caught.value) for name in bad)
    assert "--skip-broken" in str(caught.value)
    for _ in range(2):  # decoded, then cached
        loaded = load_images(source, skip_broken=True)
        assert sorted(loaded.skipped) == sorted(bad)
        assert np.array_equal(loaded.images, planes(images[[0, 2, 4, 1, 3, 5]]))
        assert loaded.labels.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(DataError, match="4 broken files"):
        load_images(source)


def test_a_long_list_of_broken_files_is_cut_and_counted(tmp_path):
    files = {f"{number:02}.png": b"" for number in range(25)} | {"x.png": encode(colours(1)[0])}
    with pytest.raises(DataError, match=r"25 broken files") as caught:
        load_images(fill(tmp_path / "set", files))
    assert str(caught.value).count(".png:") == 10
    assert "… and 15 more" in str(caught.value)


def test_nothing_but_broken_files_is_an_error_even_if_skipped(tmp_path):
    with pytest.raises(DataError, match="1 broken files"):
        load_images(fill(tmp_path / "set", {"a.png": b"hello"}), skip_broken=True)


def test_a_damaged_member_of_a_zip_is_a_broken_file(tmp_path):
    images = colours(2)
    path = pack(tmp_path / "a.zip", {f"{number}.bmp": encode(image, "BMP") for number, image in enumerate(images)})
    content = bytearray(path.read_bytes())
    content[120] ^= 1
    path.write_bytes(content)
    assert load_images(path, skip_broken=True).skipped == ("0.bmp",)


@pytest.mark.parametrize("workers", [1, 7])
def test_the_result_does_not_depend_on_the_number_of_threads(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(decoding, "available_cores", lambda: workers)
    images = colours(100)
    folder = fill(tmp_path / "set", {f"{number:03}.png": encode(image) for number, image in enumerate(images)})
    loaded = load_images(folder, cache=tmp_path / "cache", progress=True)
    assert np.array_equal(loaded.images, planes(images))


def test_impossible_options_are_refused():
    with pytest.raises(ConfigError, match="size"):
        load_images("digits", size=0)


def test_photographs_are_held_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # held sideways
    stored = np.zeros((8, 16, 3), np.uint8)
    stored[:, :8] = 255
    fill(tmp_path / "a", {"0.png": encode(stored, exif=exif.tobytes())})
    images = load_images(tmp_path / "a").images
    assert images.shape == (1, 3, 16, 8)
    assert images[0, 0, :8].min() == 255
    assert images[0, 0, 8:].max() == 0


def test_links_to_nothing_and_back_are_no_trap(tmp_path):
    folder = fill(tmp_path / "a", {"0.png": encode(colours(1)[0]), "set.gif/1.png": encode(colours(1)[0])})
    (folder / "round").symlink_to(folder)
    assert len(load_images(folder).images) == 2
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.raises(DataError, match=r"gone\.png"):
        load_images(folder)
    found = load_images(folder, skip_broken=True)
    assert (len(found.images), found.skipped) == (2, ("gone.png",))


def test_labels_in_the_top_folder_of_a_zip_are_found(tmp_path):
    names = ["00000/img0.png", "00000/img1.png"]
    stored = json.dumps({"labels": [[name, 1 - i] for i, name in enumerate(names)]})
    files = {f"photos/{name}": encode(colours(1)[0]) for name in names} | {"photos/dataset.json": stored.encode()}
    assert load_images(pack(tmp_path / "a.zip", files)).labels.tolist() == [1, 0]


@pytest.mark.parametrize("label", [-1, 20231105, 2**70, ["x", 1]])
def test_labels_that_number_no_classes_are_refused(tmp_path, label):
    stored = json.dumps({"labels": [["0.png", label]]})
    with pytest.raises(DataError, match="from 0 on"):
        load_images(fill(tmp_path / "a", {"0.png": encode(colours(1)[0]), "dataset.json": stored.encode()}))
