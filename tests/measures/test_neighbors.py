"""Nearest neighbours and duplicates against a brute-force float64 loop."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gausslens.errors import ConfigError, DataError
from gausslens.images import dequantize
from gausslens.measures import neighbors
from gausslens.measures.neighbors import duplicates, nearest, resident
from gausslens.precision import float32_products


def reference_nearest(queries, images, k):
    """Every distance in a float64 loop, sorted by (distance, index)."""
    values = [
        dequantize(x).double().flatten(1) if x.dtype == torch.uint8 else x.double().flatten(1)
        for x in (queries, images)
    ]
    distances, indices = [], []
    for query in values[0]:
        pairs = sorted((float((query - image).square().sum()), j) for j, image in enumerate(values[1]))
        distances.append([math.sqrt(square) for square, _ in pairs[:k]])
        indices.append([j for _, j in pairs[:k]])
    return torch.tensor(distances, dtype=torch.float64), torch.tensor(indices)


def hard_images(dtype, *, n=150, seed=0):
    """Images with exact copies, groups one grey level apart and a large common offset."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(200, 250, (n, 1, 6, 6), generator=generator).to(torch.uint8)
    pixels[20] = pixels[5]
    pixels[n - 1] = pixels[5]
    for offset in range(30):  # near-duplicates of image 7, one grey level apart in one pixel each
        pixels[40 + offset] = pixels[7]
        pixels[40 + offset].view(-1)[offset] += 1
    # Steps of 1/128 are exact in binary, so that images equally far by design are equally far in float64 too.
    return pixels if dtype == torch.uint8 else pixels.to(dtype) / 128 - 1


@pytest.fixture(params=[(4096, 1024), (64, 40), (7, 3)], ids=["one tile", "tiles", "tiles below k"])
def tiling(request, monkeypatch):
    monkeypatch.setattr(neighbors, "_TILE_ROWS", request.param[0])
    monkeypatch.setattr(neighbors, "_BLOCK_ROWS", request.param[1])


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 9, 150])
def test_nearest_equals_a_float64_loop(dtype, k):
    images = hard_images(dtype)
    noise = torch.randn(6, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = dequantize(images).double() if dtype == torch.uint8 else images.double()
    queries = torch.cat([values[[5, 7, 43]], (values[41] + values[52])[None] / 2, values[:6] + 1e-3 * noise])
    queries = queries.to(dtype if dtype.is_floating_point else torch.float32)

    distances, indices = nearest(queries, images, k)

    expected_distances, expected_indices = reference_nearest(queries, images, k)
    assert torch.equal(indices, expected_indices)
    torch.testing.assert_close(distances, expected_distances, rtol=1e-13, atol=1e-15)
    assert distances.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_nothing_within_a_distance_is_missed(dtype, monkeypatch):
    """Whatever lies within is found as without a limit; places left over hold no image."""
    monkeypatch.setattr(neighbors, "_TILE_ROWS", 7)
    images = hard_images(dtype)
    queries = images[::3]
    everything = nearest(queries, images, 5)
    reach = everything[0][:, 2].clone()
    reach[::4] = 0.0
    distances, indices = nearest(queries, images, 5, within=reach)
    inside = everything[0] <= reach[:, None]
    assert torch.equal(distances[inside], everything[0][inside])
    assert torch.equal(indices[inside], everything[1][inside])
    assert bool((distances[~inside] >= everything[0][~inside]).all())
    missing = distances.isinf()
    assert bool(missing.any())
    assert bool((indices[missing] == len(images)).all())


def test_images_move_to_no_gpu_where_none_is_asked_for():
    images = hard_images(torch.uint8)
    assert resident(images, None) is images
    assert resident(images, "cpu") is images


def test_queries_equal_to_data_find_themselves_at_distance_zero():
    images = hard_images(torch.uint8)
    for queries in (images, dequantize(images)):
        distances, indices = nearest(queries, images, 2)
        assert torch.equal(distances[:, 0], torch.zeros(len(images), dtype=torch.float64))
        first_copy = torch.arange(len(images))
        first_copy[[20, -1]] = 5
        assert torch.equal(indices[:, 0], first_copy)
    assert distances[43, 1] == pytest.approx(1 / 127.5, rel=1e-6)  # image 7, one grey level away


def test_screening_alone_would_be_wrong():
    """Far from the origin, float32 products cannot rank these images: the float64 pass is what makes them exact."""
    generator = torch.Generator().manual_seed(2)
    base = 100 * torch.randn(1, 1, 8, 8, generator=generator, dtype=torch.float64)
    images = torch.cat([-base, base + 1e-3 * torch.randn(300, 1, 8, 8, generator=generator, dtype=torch.float64)])
    query = images[[17]] + 1e-5
    x, y = query.flatten(1).float(), images.flatten(1).float()
    screened = y.square().sum(1) - 2 * (y @ x[0])
    expected = reference_nearest(query, images, 5)
    assert screened.topk(5, largest=False).indices.tolist() != expected[1][0].tolist()
    assert torch.equal(nearest(query, images, 5)[1], expected[1])


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 40), st.floats(1e-6, 1e6))
def test_error_bound_of_screening_holds(seed, dim, n, offset):
    generator = torch.Generator().manual_seed(seed)
    images = offset + torch.randn(n, dim, generator=generator, dtype=torch.float64)
    queries = offset * torch.randn(5, dim, generator=generator, dtype=torch.float64)
    center = neighbors._center(images, torch.device("cpu"))
    block, tile = (neighbors._load(part, center) for part in (queries, images))
    screened, slack = neighbors._screen(block, tile)
    exact = (queries[:, None] - images[None]).square().sum(2)
    assert bool(((screened.double() + block.norms[:, None] ** 2 - exact).abs() <= slack[:, None]).all())


def test_diverged_queries_are_still_ranked():
    images = torch.randn(50, 4, dtype=torch.float64)
    queries = torch.tensor([[1e30, 0, 0, 0], [-1e37, 1e37, 0, 0]], dtype=torch.float64)
    _, indices = nearest(queries, images, 50)
    assert torch.equal(indices.sort(1).values, torch.arange(50).expand(2, 50))


def test_memory_mapped_images_stay_on_disk(tmp_path, monkeypatch):
    images = hard_images(torch.uint8)
    path = tmp_path / "images.npy"
    np.save(path, images.numpy())
    mapped = torch.from_numpy(np.load(path, mmap_mode="r+"))
    largest = 0

    def watch(pixels, dtype=torch.float32):
        nonlocal largest
        largest = max(largest, len(pixels))
        return dequantize(pixels, dtype)

    monkeypatch.setattr(neighbors, "dequantize", watch)
    monkeypatch.setattr(neighbors, "_TILE_ROWS", 32)
    monkeypatch.setattr(neighbors, "_BLOCK_ROWS", 16)
    monkeypatch.setattr(neighbors, "_CENTER_ROWS", 32)
    expected = reference_nearest(images[:20], images, 3)
    assert torch.equal(nearest(images[:20], mapped, 3)[1], expected[1])
    assert largest == 32


def test_result_ignores_lowered_matmul_precision():
    images, queries = torch.randn(400, 64), torch.randn(20, 64)
    expected = reference_nearest(queries, images, 4)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _, indices = nearest(queries, images, 4)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(indices, expected[1])


def test_float32_products_are_given_back_after_an_error():
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(RuntimeError, match="stop"), float32_products(torch.device("cpu")):
            raise RuntimeError("stop")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def reference_duplicates(images, others, tolerance):
    pairs = []
    for j, other in enumerate(others if others is not None else images):
        for i, image in enumerate(images):
            if others is None and i >= j:
                break
            if math.sqrt(float((image.double() - other.double()).square().sum())) <= tolerance:
                pairs.append([i, j])
                break
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("tolerance", [0.0, 1.0001 / 127.5, 1.5 / 127.5, 0.4, 100.0])
def test_duplicates_equal_a_float64_loop(tolerance):
    images = hard_images(torch.uint8)
    values = dequantize(images)
    others = torch.cat([values[[3, 41]], values[:10] + 1e-3])
    assert torch.equal(duplicates(images, tolerance=tolerance), reference_duplicates(values, None, tolerance))
    assert torch.equal(duplicates(images, others, tolerance=tolerance), reference_duplicates(values, others, tolerance))


@pytest.mark.parametrize("tolerance", [0.0, 0.15, 0.25])
def test_repeats_of_near_images_name_the_first_of_either(tolerance):
    """Equal images stand between others that are near them, and near ones between equal ones."""
    images = torch.tensor([0.1, 0.0, 0.2, 0.0, 0.1, 0.3, 0.2, 0.2, 0.3, 0.0])[:, None]
    assert torch.equal(duplicates(images, tolerance=tolerance), reference_duplicates(images, None, tolerance))


def test_dropping_duplicates_leaves_each_image_once():
    images = hard_images(torch.uint8)
    pairs = duplicates(images)
    assert pairs.tolist() == [[5, 20], [5, 149]]
    kept = [j for j in range(len(images)) if j not in pairs[:, 1].tolist()]
    assert len(torch.unique(images[kept].flatten(1), dim=0)) == len(kept)
    assert len(duplicates(images[kept])) == 0


def test_images_all_alike_are_copies_of_the_first():
    pairs = duplicates(torch.full((2000, 1, 4, 4), 0.3))
    assert torch.equal(pairs, torch.stack([torch.zeros(1999, dtype=torch.long), torch.arange(1, 2000)], 1))


def test_bad_input_is_named():
    images = torch.zeros(4, 1, 3, 3)
    with pytest.raises(ConfigError, match="between 1 and the number of images, 4; got 5"):
        nearest(images, images, 5)
    with pytest.raises(DataError, match=r"shape .*\(1, 3, 3\); got \(1, 2, 2\)"):
        duplicates(images, torch.zeros(2, 1, 2, 2))


def test_sets_that_lie_apart_have_no_duplicates():
    dark, bright = (torch.full((30, 1, 4, 4), value) + 0.1 * torch.rand(30, 1, 4, 4) for value in (-0.9, 0.8))
    assert duplicates(dark, bright, tolerance=0.01).shape == (0, 2)
    assert duplicates(bright, dark, tolerance=0.01).shape == (0, 2)
