"""Resampling is the filter it says it is."""

import pytest
import torch
import torch.nn.functional as F

from gausslens.nn.resampling import blur, downsample, from_patches, to_patches, upsample

FILTERS = {True: [1.0, 3.0, 3.0, 1.0], False: [1.0, 1.0]}


def kernel(smooth, channels):
    taps = torch.tensor(FILTERS[smooth], dtype=torch.float64)
    square = torch.outer(taps, taps) / taps.sum() ** 2
    return square.expand(channels, 1, -1, -1), (len(taps) - 1) // 2


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("size", [(2, 2), (8, 6), (4, 10)])
def test_resampling_is_a_depthwise_convolution(smooth, size):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    weight, padding = kernel(smooth, 3)
    down = F.conv2d(x, weight, stride=2, padding=padding, groups=3)
    up = F.conv_transpose2d(x, 4 * weight, stride=2, padding=padding, groups=3)
    torch.testing.assert_close(downsample(x, smooth=smooth), down, rtol=0, atol=1e-15)
    torch.testing.assert_close(upsample(x, smooth=smooth), up, rtol=0, atol=1e-15)


@pytest.mark.parametrize("smooth", [True, False])
def test_the_two_directions_are_transposes(smooth):
    fine = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    coarse = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    downwards = (downsample(fine, smooth=smooth) * coarse).sum()
    upwards = (fine * upsample(coarse, smooth=smooth)).sum() / 4
    torch.testing.assert_close(downwards, upwards)


def test_blur_without_padding_is_the_inside_of_blur_with_it():
    x = torch.randn(1, 2, 7, 5, dtype=torch.float64)
    assert blur(x).shape == x.shape
    torch.testing.assert_close(blur(x, padding=0), blur(x)[..., 1:-1, 1:-1], rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_patches_are_pixels_as_channels(size):
    x = torch.randn(2, 3, 8, 4, dtype=torch.float64)
    patches = to_patches(x, size)
    assert torch.equal(patches, F.pixel_unshuffle(x, size))
    assert torch.equal(from_patches(patches, size), x)
    assert from_patches(to_patches(x[:0], size), size).shape == (0, 3, 8, 4)
