"""The multi-delta denoiser against a loop over the images, where it is hardest to be exact."""

import copy
import pathlib

import numpy as np
import pytest
import torch
from reference import as_rows, multi_delta

import gausslens
from gausslens._kernels import softmax, tiles
from gausslens.denoisers import multidelta

SIGMAS = [1e-3, 1e-2, 0.1, 0.5, 1.0, 4.0, 20.0, 80.0, 1e3]


def _hard_set(n, shape, seed=0):
    """uint8 images with exact ties, an image one grey level off, and many near-duplicates of one image."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, shape[0], 2, 2, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")
    texture = 0.05 * torch.randn(n, *shape, generator=generator)
    images = ((0.5 * smooth + texture).clamp(-1, 1) * 127.5 + 127.5).round().to(torch.uint8)
    images[1] = images[0]
    images[2] = images[0]
    images[2, 0, 0, 0] ^= 1
    near = min(200, n // 2)
    steps = torch.randint(-1, 2, (near, *shape), generator=generator)
    images[-near:] = (images[5:6].int() + steps).clamp(0, 255).to(torch.uint8)
    return images


def _hard_queries(images, sigma, seed=1):
    """Noisy images, midpoints of ties, of near-duplicates and of unlike images, and noise far from all of them."""
    generator = torch.Generator().manual_seed(seed)
    values = images.float() / 127.5 - 1
    noise = torch.randn(12, *images.shape[1:], generator=generator)
    return torch.cat(
        [
            values[:4] + sigma * noise[:4],
            (values[[0, 3, 5, 7]] + values[[2, 4, 6, 8]]) / 2,
            (values[-5:] + values[-10:-5]) / 2,
            values[-2:] + sigma * noise[4:6],
            sigma * noise[6:9],
            noise[9:12],
        ]
    )


def _error(denoiser, x, images, sigma, dtype):
    rows = as_rows(images, dtype)
    expected, _ = multi_delta(as_rows(x), rows, sigma)
    return float((as_rows(denoiser(x, sigma)) - expected).norm(dim=1).max() / rows.norm(dim=1).mean())


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("route", ["exact", "whole numbers", "repaired"])
def test_float32_queries_match_the_loop(sigma, route, monkeypatch):
    images = _hard_set(420, (3, 8, 8))
    if route != "exact":  # small problems are solved in float64; send this one the way of large ones
        monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
        monkeypatch.setattr(tiles, "_cpu_multiplies_int8", lambda: True)
    if route == "repaired":
        monkeypatch.setitem(softmax._MANY_PAIRS, "cpu", 1.0)
    x = _hard_queries(images, sigma)
    assert _error(gausslens.MultiDeltaDenoiser(images), x, images, sigma, torch.float32) < 1e-6


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 0.5, 10.0])
@pytest.mark.parametrize("tile_size", [None, 64])
def test_steps_that_do_not_depend_on_the_numbers_give_the_same(sigma, tile_size, monkeypatch):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
    monkeypatch.setattr(tiles, "_cpu_multiplies_int8", lambda: True)
    images = _hard_set(420, (3, 8, 8))
    x = _hard_queries(images, sigma)
    denoiser = gausslens.MultiDeltaDenoiser(images, tile_size=tile_size)
    levels = torch.full((len(x),), sigma)
    monkeypatch.setattr(multidelta, "_PAIRS_PER_QUERY", 420)
    mean, overflow = denoiser._mean_and_overflow(x.flatten(1), levels)
    assert not overflow
    rows = as_rows(images, torch.float32)
    expected, _ = multi_delta(as_rows(x), rows, sigma)
    assert float((mean - expected).norm(dim=1).max() / rows.norm(dim=1).mean()) < 1e-6


def test_want_of_room_is_noticed(monkeypatch):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
    monkeypatch.setattr(tiles, "_cpu_multiplies_int8", lambda: True)
    monkeypatch.setattr(multidelta, "_PAIRS_PER_QUERY", 1)
    images = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8).expand(64, -1, -1, -1).contiguous()
    images[:, 0, 0, 0] = torch.arange(64)  # all nearly alike: each is seen
    x = images[:8] / 127.5 - 1
    denoiser = gausslens.MultiDeltaDenoiser(images)
    assert denoiser._mean_and_overflow(x.flatten(1), torch.full((8,), 1e-2))[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replays_on_a_gpu_give_the_same(monkeypatch):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
    images = _hard_set(424, (3, 8, 8))
    denoiser = gausslens.MultiDeltaDenoiser(images, resident=True).to("cuda")
    rows = as_rows(images, torch.float32)
    for sigma in (1e-3, 0.02, 0.3, 2.0, 50.0):
        x = _hard_queries(images, sigma)
        expected, _ = multi_delta(as_rows(x), rows, sigma)
        for _ in range(3):
            error = as_rows(denoiser(x.cuda(), sigma).cpu()) - expected
            assert float(error.norm(dim=1).max() / rows.norm(dim=1).mean()) < 1e-5
    assert denoiser._replay is not None
    again = copy.deepcopy(denoiser)
    assert again._replay is None
    assert torch.equal(again(x.cuda(), 2.0).isfinite().all().cpu(), torch.tensor(True))


@pytest.mark.parametrize("tile_size", [1, 7, 64, 100, 4096])
@pytest.mark.parametrize("sigma", [1e-3, 0.5, 10.0])
def test_every_tile_size_gives_the_same(tile_size, sigma, monkeypatch):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
    images = _hard_set(100, (1, 8, 8))
    denoiser = gausslens.MultiDeltaDenoiser(images, tile_size=tile_size)
    assert _error(denoiser, _hard_queries(images, sigma), images, sigma, torch.float32) < 1e-6


@pytest.mark.parametrize("sigma", SIGMAS)
def test_float64_queries_match_the_loop_to_rounding(sigma):
    images = _hard_set(100, (1, 8, 8))
    x = _hard_queries(images, sigma).double()
    assert _error(gausslens.MultiDeltaDenoiser(images), x, images, sigma, torch.float64) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("sigma", SIGMAS)
def test_large_images_match_the_loop(sigma, monkeypatch):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
    images = _hard_set(400, (3, 32, 32))
    x = _hard_queries(images, sigma)
    for stored in (images, images.float() / 127.5 - 1):
        assert _error(gausslens.MultiDeltaDenoiser(stored), x, images, sigma, torch.float32) < 1e-6


@pytest.mark.parametrize("sigma", [0.3, 2.0, 50.0])
def test_posterior_matches_the_loop(sigma):
    images = _hard_set(60, (1, 6, 6))
    x = _hard_queries(images, sigma).double()
    _, weights = multi_delta(as_rows(x), as_rows(images), sigma)
    posterior = gausslens.MultiDeltaDenoiser(images).posterior(x, sigma)
    torch.testing.assert_close(posterior.effective_count, 1 / weights.square().sum(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(posterior.weight, weights.amax(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(weights[torch.arange(len(x)), posterior.index], weights.amax(1), rtol=1e-6, atol=0)


def test_one_image_is_the_only_answer():
    image = _hard_set(12, (1, 4, 4))[:1]
    denoised = gausslens.MultiDeltaDenoiser(image)(torch.randn(3, 1, 4, 4), 5.0)
    torch.testing.assert_close(denoised, (image.float() / 127.5 - 1).expand(3, -1, -1, -1))


def test_many_equal_images_do_not_drift(monkeypatch):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", 0)
    image = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8)
    denoised = gausslens.MultiDeltaDenoiser(image.expand(5000, -1, -1, -1).contiguous())(torch.randn(8, 1, 8, 8), 10.0)
    torch.testing.assert_close(denoised, (image.float() / 127.5 - 1).expand(8, -1, -1, -1), atol=2e-7, rtol=0)


def test_images_with_a_large_offset_keep_their_digits():
    images = 1e4 + torch.randn(50, 1, 4, 4, dtype=torch.float64)
    x = images[:5] + 0.5 * torch.randn(5, 1, 4, 4, dtype=torch.float64)
    expected, _ = multi_delta(as_rows(x), as_rows(images), 0.5)
    denoised = gausslens.MultiDeltaDenoiser(images, bounds=None)(x, 0.5)
    assert (as_rows(denoised) - expected).abs().max() < 1e-6


def test_a_memory_map_stays_on_disk(tmp_path: pathlib.Path):
    path = tmp_path / "images.npy"
    images = _hard_set(600, (1, 8, 8))
    np.save(path, images.numpy())
    mapped = np.load(path, mmap_mode="r")
    denoiser = gausslens.MultiDeltaDenoiser(mapped, tile_size=50)
    x = _hard_queries(images, 0.5)
    torch.testing.assert_close(denoiser(x, 0.5), gausslens.MultiDeltaDenoiser(images)(x, 0.5))
    assert denoiser.images.data_ptr() == mapped.ctypes.data


def test_state_belongs_to_its_images():
    images = _hard_set(20, (1, 4, 4))
    state = gausslens.MultiDeltaDenoiser(images).state_dict()
    assert sum(tensor.numel() for tensor in state.values()) < 100
    gausslens.MultiDeltaDenoiser(images).load_state_dict(state)
    with pytest.raises(gausslens.CheckpointError, match="other images"):
        gausslens.MultiDeltaDenoiser(images.flip(0)).load_state_dict(state)


def test_per_class_sees_only_its_class():
    images, labels = _hard_set(40, (1, 4, 4)), torch.arange(40) % 3
    denoiser = gausslens.MultiDeltaDenoiser.per_class(images, labels)
    x = torch.randn(6, 1, 4, 4)
    wanted = torch.tensor([0, 1, 2, 2, 1, 0])
    for k in range(3):
        alone = gausslens.MultiDeltaDenoiser(images[labels == k])(x[wanted == k], 0.7)
        torch.testing.assert_close(denoiser(x, 0.7, wanted)[wanted == k], alone)
        torch.testing.assert_close(denoiser[k](x[wanted == k], 0.7), alone)
    for ask in (lambda: denoiser[7], lambda: denoiser(x, 0.7, torch.full((6,), 7))):
        with pytest.raises(gausslens.DataError, match="among 0, 1, 2; got 7"):
            ask()


@pytest.mark.parametrize("small", [1 << 31, 0])
def test_derivatives_by_the_noise_level_are_followed(monkeypatch, small):
    monkeypatch.setattr(multidelta, "_SMALL_PROBLEM", small)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (300, 1, 6, 6), generator=generator).byte()
    denoiser, clean = multidelta.MultiDeltaDenoiser(images), images[:4].double() / 127.5 - 1
    eps, weights = torch.randn(2, 4, 1, 6, 6, generator=generator, dtype=torch.float64)

    def answer(sigma):
        return (denoiser(clean + sigma.reshape(-1, 1, 1, 1) * eps, sigma) * weights).flatten(1).sum(1)

    sigma, step = torch.full((4,), 1.0, dtype=torch.float64, requires_grad=True), 1e-5
    (found,) = torch.autograd.grad(answer(sigma).sum(), sigma)
    with torch.no_grad():
        expected = (answer(sigma + step) - answer(sigma - step)) / (2 * step)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    fixed = clean + eps
    (alone,) = torch.autograd.grad((denoiser(fixed, sigma) * weights).sum(), sigma)
    assert float(alone.abs().max()) > 1e-3
