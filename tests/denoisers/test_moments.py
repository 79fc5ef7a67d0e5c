"""Mean and spectrum against a covariance added up image by image: every source, route, rank, merge and file."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import as_rows, mean_and_covariance
from safetensors.torch import save_file
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gausslens import CheckpointError, ConfigError, DataError, GaussianDenoiser, Moments
from gausslens.denoisers import scatter

SHAPE = (1, 3, 4)
DIM = 12


def images_of(n, shape=SHAPE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -1.5, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    noise = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return (0.2 * scales * noise + 0.1).clamp(-1, 1)


def bytes_of(n, seed=0):
    return torch.randint(0, 256, (n, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def covariance_of(moments):
    """U diag(λ) Uᵀ + floor (I − U Uᵀ)."""
    projection = moments.eigvecs @ moments.eigvecs.T
    inside = (moments.eigvecs * moments.eigvals) @ moments.eigvecs.T
    return inside + moments.floor * (torch.eye(moments.dim, dtype=torch.float64) - projection)


def assert_equal_moments(found, expected, tolerance=1e-12):
    assert (found.count, found.shape, found.truncated) == (expected.count, expected.shape, expected.truncated)
    size = float(expected.eigvals[:1].sum()) or 1.0
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(found.eigvals, expected.eigvals, rtol=0, atol=tolerance * size)
    torch.testing.assert_close(covariance_of(found), covariance_of(expected), rtol=0, atol=tolerance * size)


def assert_moments_of(found, images, tolerance=1e-12):
    """The moments are those of the images, and in order."""
    mean, covariance = mean_and_covariance(as_rows(images))
    size = float(covariance.diagonal().max()) or 1.0
    assert found.count == len(images)
    assert found.shape == tuple(images.shape[1:])
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=tolerance * max(1.0, float(mean.abs().max())))
    torch.testing.assert_close(covariance_of(found), covariance, rtol=0, atol=tolerance * size)
    identity = torch.eye(len(found.eigvals), dtype=torch.float64)
    torch.testing.assert_close(found.eigvecs.T @ found.eigvecs, identity, rtol=0, atol=1e-12)
    assert bool((found.eigvals.diff() <= 0).all())
    assert bool((found.eigvals >= 0).all())


# --- sources -----------------------------------------------------------------------------------------------------------


class Indexed(Dataset):
    """A map-style dataset of (image, label) pairs."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], 7


def reused_buffer(images):
    """Batches that all live in one buffer, as some loaders hand them out."""
    buffer = torch.empty_like(images[:5])
    for batch in images.split(5):
        buffer[: len(batch)] = batch
        yield buffer[: len(batch)]


SOURCES = {
    "tensor": lambda images: images,
    "array": lambda images: images.numpy(),
    "flipped array": lambda images: images.flip(3).numpy()[..., ::-1],
    "permuted tensor": lambda images: images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "list of batches": lambda images: list(images.split(7)),
    "list of images": list,
    "generator": lambda images: (batch for batch in images.split(7)),
    "generator of arrays": lambda images: (batch.numpy() for batch in images.split(7)),
    "generator with one buffer": reused_buffer,
    "dataset": Indexed,
    "loader": lambda images: DataLoader(TensorDataset(images), batch_size=9),
    "iterator of a loader": lambda images: iter(DataLoader(TensorDataset(images), batch_size=9)),
}


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


# --- rank and floor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "shape"), [(40, SHAPE), (10, SHAPE), (12, SHAPE), (20, (3, 8, 8))])
@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_floor_spreads_what_is_discarded(n, shape, rank):
    images = images_of(n, shape)
    _, covariance = mean_and_covariance(as_rows(images))
    eigvals = torch.linalg.eigvalsh(covariance).flip(0)
    moments = Moments.fit(images, rank=rank)
    torch.testing.assert_close(moments.eigvals, eigvals[:rank], rtol=1e-11, atol=0)
    floor = (float(covariance.trace()) - float(eigvals[:rank].sum())) / (len(covariance) - rank)
    assert moments.floor == pytest.approx(floor, rel=1e-10)
    assert moments.truncated
    assert moments.trace == pytest.approx(float(covariance.trace()), rel=1e-12)
    full = Moments.fit(images)
    projection = full.eigvecs[:, :rank] @ full.eigvecs[:, :rank].T
    torch.testing.assert_close(moments.eigvecs @ moments.eigvecs.T, projection, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("n", "rank"), [(40, DIM), (DIM, DIM), (8, 8), (8, 7), (1, 1)])
def test_the_floor_is_zero_when_nothing_is_discarded(n, rank):
    moments = Moments.fit(images_of(n), rank=rank)
    assert (moments.floor, moments.truncated) == (0.0, False)
    assert_moments_of(moments, images_of(n))


@pytest.mark.parametrize(("n", "rank"), [(8, 9), (40, DIM + 1), (40, 0), (40, -2)])
def test_a_rank_out_of_range_is_named(n, rank):
    with pytest.raises(ConfigError, match=str(rank)):
        Moments.fit(images_of(n), rank=rank)


SKETCH_SHAPE = (3, 10, 10)
SKETCH_DIM = 300


def falling_images(n, seed=0):
    """Images whose covariance has exactly the eigenvalues λ_k ∝ 1/k."""
    generator = torch.Generator().manual_seed(seed)
    rank = min(n - 1, SKETCH_DIM)
    left = torch.randn(n, rank, generator=generator, dtype=torch.float64)
    left, _ = torch.linalg.qr(left - left.mean(0))
    right, _ = torch.linalg.qr(torch.randn(SKETCH_DIM, rank, generator=generator, dtype=torch.float64))
    eigvals = 1 / torch.arange(1, rank + 1, dtype=torch.float64)
    images = (n**0.5 * left * eigvals.sqrt()) @ right.T
    return images.reshape(n, *SKETCH_SHAPE) + 0.5, eigvals


@pytest.fixture(name="sketching")
def make_sketches_begin_early(monkeypatch):
    """A Gram matrix of 80 rows is too large, so that everything here becomes a sketch of 40."""
    monkeypatch.setattr(scatter, "_GRAM_ROWS", 80)
    monkeypatch.setattr(scatter, "_ROWS_AT_ONCE", 200)
    folds = []
    to_factor = scatter.Scatter.to_factor

    def recorded(self, keep=None):
        folds.append((len(self.factor) + self._n_waiting, keep))
        return to_factor(self, keep)

    monkeypatch.setattr(scatter.Scatter, "to_factor", recorded)
    return folds


@pytest.mark.parametrize("source", ["tensor", "array", "list of batches", "loader", "dataset"])
def test_a_sketch_is_sharpened_where_images_can_be_read_again(source, sketching):
    images, eigvals = falling_images(600)
    moments = Moments.fit(SOURCES[source](images), rank=10, bounds=None)
    assert len(sketching) > 2
    assert max(rows for rows, _ in sketching) <= 80 + 200 + 1
    torch.testing.assert_close(moments.eigvals, eigvals[:10], rtol=1e-3, atol=0)
    assert moments.trace == pytest.approx(float(eigvals.sum()), rel=1e-10)
    assert moments.floor == pytest.approx(float(eigvals[10:].sum()) / (SKETCH_DIM - 10), rel=1e-3)
    assert moments.truncated
    torch.testing.assert_close(moments.mean, images.mean(0).flatten(), rtol=0, atol=1e-12)
    torch.testing.assert_close(moments.eigvecs.T @ moments.eigvecs, torch.eye(10).double(), rtol=0, atol=1e-12)
    rows = images.flatten(1) - images.flatten(1).mean(0)
    exact = torch.linalg.svd(rows, full_matrices=False).Vh[:5]
    overlap = (exact @ moments.eigvecs).square().sum(1)  # how much of each leading component was found
    assert float(overlap.min()) > 1 - 1e-3


def test_a_stream_that_cannot_be_read_again_is_sketched_in_one_pass(sketching):
    images, eigvals = falling_images(400)
    moments = Moments.fit((batch for batch in images.split(23)), rank=10, bounds=None)
    assert len(sketching) > 3
    assert max(rows for rows, _ in sketching) <= 80 + 23 + 1
    assert moments.count == 400
    # What a sketch drops is lost, so eigenvalues come out too small; the trace knows of it and the floor takes it up.
    assert bool((moments.eigvals <= eigvals[:10] * (1 + 1e-12)).all())
    torch.testing.assert_close(moments.eigvals[:3], eigvals[:3], rtol=0.01, atol=0)
    torch.testing.assert_close(moments.eigvals, eigvals[:10], rtol=0.1, atol=0)
    assert moments.trace == pytest.approx(float(eigvals.sum()), rel=1e-10)
    torch.testing.assert_close(moments.mean, images.mean(0).flatten(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("read_again", [True, False])
def test_a_sketch_of_few_directions_is_exact(read_again, sketching):
    images, _ = falling_images(30)
    images = images[torch.arange(400) % 30]
    source = images if read_again else (batch for batch in images.split(23))
    moments = Moments.fit(source, rank=29, bounds=None)
    assert sketching
    mean, covariance = mean_and_covariance(as_rows(images))
    torch.testing.assert_close(moments.mean, mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(covariance_of(moments), covariance, rtol=0, atol=1e-12)
    assert moments.floor == 0.0


def test_bytes_in_flight_are_bounded_too(monkeypatch):
    """Copies of a stream are folded when they take too many bytes; views of a tensor take none."""
    monkeypatch.setattr(scatter, "_GRAM_ROWS", 200)
    monkeypatch.setattr(scatter, "_HELD_BYTES", 90 * SKETCH_DIM * 8)
    images, eigvals = falling_images(150)
    held = scatter.Scatter(SKETCH_SHAPE, rank=10, copy=False)
    copied = scatter.Scatter(SKETCH_SHAPE, rank=10, copy=True)
    permuted = scatter.Scatter((10, 10, 3), rank=10, copy=False)
    for batch in images.split(20):
        held.update(batch)
        copied.update(batch)
        permuted.update(batch.permute(0, 2, 3, 1))
    assert (held.sketched, copied.sketched, permuted.sketched) == (False, True, True)
    torch.testing.assert_close(held.spectrum()[0], eigvals[:10], rtol=1e-10, atol=0)
    assert copied.n_seen == permuted.n_seen == 150


def test_without_a_sketch_a_stream_equals_the_tensor():
    images = images_of(60, (3, 8, 8))
    for rank in (None, 12):
        stream = Moments.fit((batch for batch in images.split(7)), rank=rank)
        assert_equal_moments(stream, Moments.fit(images, rank=rank))


@pytest.mark.usefixtures("sketching")
def test_a_source_that_runs_dry_is_named():
    class OnceOnly:
        def __init__(self, batches):
            self.batches = iter(batches)

        def __iter__(self):
            return self.batches

    images, _ = falling_images(200)
    with pytest.raises(DataError, match="empty"):
        Moments.fit(OnceOnly(images.split(50)), rank=10, bounds=None)

    class Shrinking:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(images.split(50)[: 5 - self.passes])

    with pytest.raises(DataError, match=r"200 images when first read and 150.*iter\(images\)"):
        Moments.fit(Shrinking(), rank=10, bounds=None)


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


@pytest.mark.dist
def test_two_processes_get_the_moments_of_the_union(tmp_path):
    script = Path(__file__).with_name("distributed_moments.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    ran = subprocess.run(
        [*launch, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    results = json.loads((tmp_path / "0.json").read_text())
    assert results == json.loads((tmp_path / "1.json").read_text())
    assert set(results) == {"dense", "few images", "rank", "rank of few images", "sketch", "uint8", "errors"}
    for name in ("dense", "few images", "rank", "rank of few images", "uint8"):
        assert results[name] <= 1e-12, name
    assert results["sketch"] <= 1e-3
    assert results["errors"] == 3
