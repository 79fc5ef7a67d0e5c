"""Mean and spectrum against a covariance added up image by image: every source, route, rank, merge and file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from moment_cases import DIM, SHAPE, SOURCES, assert_equal_moments, assert_moments_of, bytes_of, images_of
from safetensors.torch import save_file
from two_processes import run_on_two

from gausslens import CheckpointError, ConfigError, DataError, GaussianDenoiser, Moments
from gausslens.denoisers import scatter

# --- sources -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [8, 40])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32, torch.float64])
def test_every_source_gives_the_moments_of_its_images(source, n, kind):
    images = bytes_of(n) if kind == torch.uint8 else images_of(n).to(kind)
    assert_moments_of(Moments.fit(SOURCES[source](images)), images)


def test_a_memory_map_gives_the_moments_of_its_images(tmp_path):
    images = bytes_of(40)
    np.save(tmp_path / "images.npy", images.numpy())
    assert_moments_of(Moments.fit(np.load(tmp_path / "images.npy", mmap_mode="r")), images)


def test_uint8_images_have_the_moments_of_their_floats():
    pixels = bytes_of(30)
    assert_equal_moments(Moments.fit(pixels), Moments.fit(pixels.double() / 127.5 - 1))


def test_images_are_not_changed():
    for images in (images_of(40), bytes_of(8)):
        before = images.clone()
        Moments.fit(images)
        Moments.fit(images, rank=3)
        assert torch.equal(images, before)


# --- the two routes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, DIM - 1, DIM, DIM + 1, DIM + 2, 2 * DIM, 300])
def test_any_number_of_images(n):
    found = Moments.fit(images_of(n))
    assert_moments_of(found, images_of(n))
    assert len(found.eigvals) == min(n - 1, DIM)
    assert (found.floor, found.truncated) == (0.0, False)


@pytest.mark.parametrize("n", [1, DIM - 1, DIM, DIM + 1, 700])
def test_gram_and_dense_route_agree(n):
    dense, factor = scatter.Scatter(SHAPE), scatter.Scatter(SHAPE)
    for batch in images_of(n).split(200):
        dense.update(batch)
        factor.update(batch)
    lower = dense.to_dense().tril()
    full = lower + lower.tril(-1).T
    rows = factor.to_factor()
    torch.testing.assert_close(rows.T @ rows, full, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(rows @ rows.T, (rows @ rows.T).diagonal().diag(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", [[3000], [1, 2999], [1025, 1025, 950], [500] * 6])
def test_more_images_than_wait_at_once(sizes):
    images = images_of(3000)
    assert_moments_of(Moments.fit(list(images.split(sizes))), images)


@pytest.mark.parametrize("n", [9, 40])
def test_tiles_and_panels_change_nothing(n, monkeypatch):
    whole = Moments.fit(images_of(n))
    monkeypatch.setattr(scatter, "_TILE_NUMBERS", 5)
    monkeypatch.setattr(scatter, "_PANEL", 5)
    assert_equal_moments(Moments.fit(images_of(n)), whole)


@pytest.mark.parametrize("n", [8, 40])
def test_images_that_are_all_alike_have_no_variance(n):
    images = images_of(1).expand(n, *SHAPE)
    moments = Moments.fit(images)
    assert moments.trace <= 1e-30
    assert moments.floor == 0.0
    torch.testing.assert_close(moments.mean, images[0].flatten(), rtol=0, atol=1e-15)
    x = torch.randn(2, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(GaussianDenoiser(moments)(x, 0.1), images[:2], rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [10, 60])
def test_duplicates_add_no_directions(n):
    few = images_of(4)
    images = few[torch.arange(n) % 4]
    moments = Moments.fit(images)
    assert_moments_of(moments, images)
    assert int((moments.eigvals > 1e-12).sum()) == 3
    assert Moments.fit(images, rank=6).floor == 0.0


@pytest.mark.parametrize("n", [10, 300])
def test_a_large_offset_leaves_the_spectrum_unchanged(n):
    images = images_of(n)
    plain, moved = Moments.fit(images, bounds=None), Moments.fit(images + 1e4, bounds=None)
    torch.testing.assert_close(moved.eigvals, plain.eigvals, rtol=0, atol=1e-6 * float(plain.eigvals[0]))
    torch.testing.assert_close(moved.mean - 1e4, plain.mean, rtol=0, atol=1e-11)
    limited = Moments.fit((batch for batch in (images + 1e4).split(3)), rank=3, bounds=None)
    torch.testing.assert_close(limited.eigvals, plain.eigvals[:3], rtol=0, atol=1e-6 * float(plain.eigvals[0]))
    left, right = (Moments.fit(part + 1e4, bounds=None) for part in images.split(n - n // 3))
    torch.testing.assert_close(left.merge(right).eigvals, plain.eigvals, rtol=0, atol=1e-6 * float(plain.eigvals[0]))


# --- merging -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 25), min_size=2, max_size=4), st.integers(0, 5))
def test_merged_moments_are_those_of_the_union(sizes, seed):
    parts = [images_of(n, seed=seed + i) + 0.1 * i for i, n in enumerate(sizes)]
    merged = Moments.fit(parts[0], bounds=None)
    for part in parts[1:]:
        merged = merged.merge(Moments.fit(part, bounds=None))
    assert_moments_of(merged, torch.cat(parts))


def test_merging_leaves_its_parts_alone():
    a, b = Moments.fit(images_of(30)), Moments.fit(images_of(5, seed=1))
    before = [tensor.clone() for m in (a, b) for tensor in (m.mean, m.eigvals, m.eigvecs)]
    a.merge(b)
    after = [tensor for m in (a, b) for tensor in (m.mean, m.eigvals, m.eigvecs)]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def test_a_rank_that_discards_nothing_can_be_merged():
    a, b = images_of(6), images_of(30, seed=1)
    assert_moments_of(Moments.fit(a, rank=6).merge(Moments.fit(b, rank=DIM)), torch.cat([a, b]))


def test_truncated_moments_are_not_merged():
    full, truncated = Moments.fit(images_of(30)), Moments.fit(images_of(30), rank=4)
    for pair in ((full, truncated), (truncated, full)):
        with pytest.raises(ConfigError, match="rank-truncated"):
            pair[0].merge(pair[1])
    with pytest.raises(ConfigError, match=r"\(1, 3, 4\) and \(1, 4, 3\)"):
        full.merge(Moments.fit(images_of(30, (1, 4, 3))))


def test_each_class_has_its_moments():
    images, labels = bytes_of(40), torch.arange(40) % 3 - 1
    by_label = Moments.per_class(images, labels)
    assert list(by_label) == [-1, 0, 1]
    for label, moments in by_label.items():
        assert_equal_moments(moments, Moments.fit(images[labels == label]))
    with pytest.raises(DataError, match="40 integers"):
        Moments.per_class(images, labels[1:])


# --- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "rank"), [(40, None), (8, None), (40, 4), (1, None)])
def test_what_is_saved_is_loaded(tmp_path, n, rank):
    moments = Moments.fit(images_of(n), rank=rank)
    moments.save(tmp_path / "moments.safetensors")
    loaded = Moments.load(tmp_path / "moments.safetensors")
    for name in ("mean", "eigvals", "eigvecs"):
        assert torch.equal(getattr(loaded, name), getattr(moments, name))
    assert (loaded.floor, loaded.count, loaded.shape) == (moments.floor, moments.count, moments.shape)
    assert loaded.truncated == moments.truncated
    assert repr(loaded) == repr(moments)
    assert [path.name for path in tmp_path.iterdir()] == ["moments.safetensors"]


def test_files_that_are_no_moments_are_named(tmp_path):
    path = tmp_path / "moments.safetensors"
    with pytest.raises(CheckpointError, match="no such file"):
        Moments.load(path)
    Moments.fit(images_of(40)).save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="truncated"):
            Moments.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match=r"gausslens\.moments"):
        Moments.load(path)
    kind = {"kind": "gausslens.moments", "metadata": json.dumps({"count": 3})}
    save_file({"mean": torch.zeros(3)}, path, metadata=kind)
    with pytest.raises(CheckpointError, match="Fit and save again"):
        Moments.load(path)


def test_saving_where_one_cannot_leaves_nothing_behind(tmp_path):
    with pytest.raises(CheckpointError, match="could not write"):
        Moments.fit(images_of(8)).save(tmp_path / "missing" / "moments.safetensors")
    (tmp_path / "taken").mkdir()
    with pytest.raises(CheckpointError, match="could not write"):
        Moments.fit(images_of(8)).save(tmp_path / "taken")
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]


# --- what is refused ---------------------------------------------------------------------------------------------------


def broken(value):
    images = images_of(20)
    images[13, 0, 1, 2] = value
    return images


REFUSED = {
    "NaN": (lambda: broken(float("nan")), "1 of 240 values are NaN or infinite"),
    "infinite": (lambda: broken(float("inf")), "1 of 240 values are NaN or infinite"),
    "out of bounds": (lambda: broken(3.0), "to 3"),
    "out of bounds, late in a stream": (lambda: (b for b in broken(-2.0).split(4)), "from -2"),
    "empty tensor": (lambda: images_of(0), "empty"),
    "empty list": (list, "empty"),
    "empty stream": (lambda: iter([]), "empty"),
    "vectors": (lambda: images_of(20).flatten(1), r"\(20, 12\)"),
    "channels last": (lambda: torch.rand(5, 16, 16, 3), "channels last"),
    "integers": (lambda: torch.zeros(4, 1, 2, 2, dtype=torch.long), "int64"),
    "two shapes": (lambda: [images_of(3), images_of(3, (1, 4, 3))], r"\(1, 4, 3\) after \(1, 3, 4\)"),
    "no source": (lambda: 3.5, "float"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("rank", [None, 2])
def test_images_that_cannot_be_used_are_named(name, rank):
    make, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        Moments.fit(make(), rank=rank)


def test_other_units_are_taken_on_request():
    images = 50 * images_of(30)
    with pytest.raises(DataError, match="bounds=None"):
        Moments.fit(images)
    assert_moments_of(Moments.fit(images, bounds=None), images, tolerance=1e-11)


# --- several processes -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_get_the_moments_of_the_union(tmp_path):
    run_on_two(Path(__file__).with_name("distributed_moments.py"), tmp_path)
    results = json.loads((tmp_path / "0.json").read_text())
    assert results == json.loads((tmp_path / "1.json").read_text())
    assert set(results) == {"dense", "few images", "rank", "rank of few images", "sketch", "uint8", "errors", "looks"}
    for name in ("dense", "few images", "rank", "rank of few images", "uint8"):
        assert results[name] <= 1e-12, name
    assert results["sketch"] <= 1e-3
    assert results["errors"] == 3
    assert results["looks"] == 1


def test_classes_of_few_images_have_a_lower_rank():
    labels = torch.tensor([0] * 20 + [1] * 2)
    found = Moments.per_class(images_of(22), labels, rank=4)
    assert (len(found[0].eigvals), len(found[1].eigvals)) == (4, 1)
