"""Rank-limited moments: the floor, sketches of what does not fit, and streams that can be read once."""

import pytest
import torch
from moment_cases import DIM, SHAPE, SOURCES, assert_equal_moments, assert_moments_of, covariance_of, images_of
from reference import as_rows, mean_and_covariance

from gausslens import ConfigError, DataError, Moments
from gausslens.denoisers import scatter


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
