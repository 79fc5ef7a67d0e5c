"""The stationary Gaussian denoiser against the Wiener filter of an explicit circulant covariance."""

import pytest
import torch
from reference import as_rows, wiener

from gausslens import DataError
from gausslens.denoisers.stationary import StationaryDenoiser

SHAPES = [(1, 4, 5), (3, 4, 4), (2, 5, 3)]


def images_of(shape, n=7):
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(n, *shape, generator=generator, dtype=torch.float64)
    return 0.4 * (smooth + smooth.roll(1, 3)) - 0.3


def circulant(images):
    """Mean colour and covariance, averaged over all shifts of the images: those of the law that no shift changes."""
    _, _, height, width = images.shape
    shifted = torch.cat([images.roll((i, j), (2, 3)) for i in range(height) for j in range(width)])
    rows = as_rows(shifted)
    mean = rows.mean(0)
    return mean, (rows - mean).T @ (rows - mean) / len(rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sigma", [0.02, 0.5, 80.0])
def test_it_is_the_wiener_filter_of_all_shifts(shape, sigma):
    images = images_of(shape)
    x = 0.5 + max(sigma, 1) * torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = wiener(as_rows(x), sigma, *circulant(images))
    found = as_rows(StationaryDenoiser(images)(x, sigma))
    assert float((found - expected).norm() / expected.norm()) < 1e-12


def test_levels_may_differ_by_image_and_dtypes_are_kept():
    images = images_of((3, 4, 4))
    denoiser = StationaryDenoiser(images)
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    both = denoiser(x, torch.tensor([0.1, 3.0]))
    for index, sigma in enumerate((0.1, 3.0)):
        assert torch.allclose(both[index], denoiser(x[index : index + 1], sigma)[0])
    single = denoiser.to(torch.float32)(x.float(), 0.1)
    assert single.dtype == torch.float32
    assert torch.allclose(single[0].double(), both[0], atol=1e-5)


def test_other_shapes_are_refused():
    with pytest.raises(DataError, match="shape"):
        StationaryDenoiser(images_of((1, 4, 5)))(torch.zeros(1, 1, 5, 4), 1.0)
