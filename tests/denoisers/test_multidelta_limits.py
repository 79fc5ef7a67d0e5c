"""The multi-delta denoiser at the ends of its range: dimensions, noise, dtypes, memory, and what it refuses."""

import json
import subprocess
import sys

import pytest
import torch
from reference import as_rows, multi_delta

from gausslens import ConfigError, DataError, MultiDeltaDenoiser

SHAPES = {16: (1, 4, 4), 192: (3, 8, 8), 3072: (3, 32, 32)}


def images_of(n, shape, seed=0):
    """Random images, the second a copy of the first and the third one grey level from it in one pixel."""
    images = torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    images[1:3] = images[0]
    images[2, 0, 0, 0] ^= 1
    return images


def queries_of(images, sigma, seed=1):
    """Noisy images, an exact one, midpoints of like and unlike images, zero, and noise far from all of them."""
    generator = torch.Generator().manual_seed(seed)
    values = images.double() / 127.5 - 1
    noise = torch.randn(4, *images.shape[1:], generator=generator, dtype=torch.float64)
    midpoints = (values[[0, 3]] + values[[2, 4]]) / 2
    return torch.cat([values[3:5] + sigma * noise[:2], values[:1], midpoints, 0 * values[:1], 100 * noise[2:3]])


def relative_error(denoiser, x, rows, sigma):
    level = float(torch.tensor(sigma, dtype=x.dtype))
    expected, _ = multi_delta(as_rows(x), rows, level)
    return float((as_rows(denoiser(x, sigma)) - expected).norm(dim=1).max() / rows.norm(dim=1).mean())


@pytest.mark.parametrize("dim", SHAPES)
@pytest.mark.parametrize("sigma", [1e-3, 0.03, 0.5, 5.0, 1e3])
@pytest.mark.parametrize("kind", ["uint8", "float32", "float64"])
def test_any_dimension_noise_and_dtype(dim, sigma, kind):
    pixels = images_of(40, SHAPES[dim])
    images = pixels if kind == "uint8" else pixels.to(getattr(torch, kind)) / 127.5 - 1
    denoiser = MultiDeltaDenoiser(images, tile_size=None if dim == 3072 else 7)
    x = queries_of(pixels, sigma)
    assert relative_error(denoiser, x.float(), as_rows(images, torch.float32), sigma) <= 1e-6
    # At σ = 1e-3 a logit of 3072 pixels is 1e9, of which float64 holds seven decimal places.
    assert relative_error(denoiser, x, as_rows(images, torch.float64), sigma) <= (1e-9 if sigma > 0.01 else 1e-7)


def test_the_posterior_spreads_with_the_noise():
    images = images_of(50, (1, 4, 4))[3:]  # without the copies
    denoiser = MultiDeltaDenoiser(images)
    x = images[[7, 20]].double() / 127.5 - 1
    wide, narrow = denoiser.posterior(x, 1e6), denoiser.posterior(x, 0.01)
    torch.testing.assert_close(wide.effective_count, torch.full((2,), 47.0, dtype=torch.float64), rtol=1e-9, atol=0)
    torch.testing.assert_close(wide.weight, torch.full((2,), 1 / 47, dtype=torch.float64), rtol=1e-9, atol=0)
    torch.testing.assert_close(narrow.effective_count, torch.ones(2).double(), rtol=1e-12, atol=0)
    assert narrow.index.tolist() == [7, 20]


def test_copies_share_the_posterior():
    images = images_of(10, (1, 4, 4))[[0, 0, 0, 5]]
    posterior = MultiDeltaDenoiser(images, tile_size=1).posterior(images[:1].double() / 127.5 - 1, 0.01)
    assert float(posterior.effective_count) == pytest.approx(3, rel=1e-9)
    assert float(posterior.weight) == pytest.approx(1 / 3, rel=1e-9)
    assert int(posterior.index) in (0, 1, 2)


PEAK = """
import json, resource, sys, torch
from gausslens import MultiDeltaDenoiser
images = torch.randint(0, 256, (20_000, 3, 32, 32), dtype=torch.uint8)
denoiser = MultiDeltaDenoiser(images)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for dtype in (torch.float32, torch.float64):
    for sigma in (0.1, 5.0, 80.0):
        denoiser(torch.randn(128, 3, 32, 32, dtype=dtype), sigma)
print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20))
"""


@pytest.mark.slow
def test_extra_memory_is_that_of_a_tile():
    """As float32 the images would take 0.23 GiB and as float64 0.46 GiB."""
    ran = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(ran.stdout) < 1.0


def test_bad_input_is_named():
    images = images_of(6, (1, 4, 4))
    for wrong in (0, -3):
        with pytest.raises(ConfigError, match="tile_size must be at least 1"):
            MultiDeltaDenoiser(images, tile_size=wrong)
    floats = images.double() / 127.5 - 1
    with pytest.raises(DataError, match="bounds=None"):
        MultiDeltaDenoiser(3 * floats)
    with pytest.raises(DataError, match="NaN or infinite"):
        MultiDeltaDenoiser(floats / 0.0)
    with pytest.raises(DataError, match="empty"):
        MultiDeltaDenoiser(images[:0])
    with pytest.raises(DataError, match=r"\(6, 16\)"):
        MultiDeltaDenoiser(images.flatten(1))
    with pytest.raises(DataError, match="6 integers"):
        MultiDeltaDenoiser.per_class(images, torch.arange(5))
