"""Halving and doubling the resolution with short symmetric filters.

The box filter [1, 1] averages four pixels, or repeats one four times. The smooth filter [1, 3, 3, 1] is
the box convolved with the blur [1, 2, 1], a sum of shifted images that a compiler fuses; as a depthwise convolution it
would be slow. Pixels are averaged and repeated with the channels last, which is how they lie in a GPU's memory.
Outside the image everything is zero. Patches are the lossless way: k×k pixels become channels, and back.
"""

import torch.nn.functional as F
from torch import Tensor

from .._kernels import group_norm as kernels


def downsample(x: Tensor, *, smooth: bool) -> Tensor:
    """Half the resolution: filter with [1, 1] or [1, 3, 3, 1] of sum 1 along both axes, keep every second pixel."""
    return halve(blur(x) if smooth else x)


def upsample(x: Tensor, *, smooth: bool) -> Tensor:
    """Twice the resolution: the transpose of `downsample`, times 4 so that the mean stays."""
    pixels = x.permute(0, 2, 3, 1)[:, :, None, :, None]
    doubled = pixels.expand(-1, -1, 2, -1, 2, -1).flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)
    return blur(doubled) if smooth else doubled


def halve(x: Tensor) -> Tensor:
    """The mean of every 2×2 pixels."""
    pixels = x.permute(0, 2, 3, 1).unflatten(2, (-1, 2)).unflatten(1, (-1, 2))
    return pixels.mean((2, 4)).permute(0, 3, 1, 2)


def blur(x: Tensor, *, padding: int = 1) -> Tensor:
    """Filter with [1, 2, 1] / 4 along both axes."""
    if kernels.usable(x):  # [1, 2, 1] is [1, 1] twice, each a single pass
        return F.avg_pool2d(F.avg_pool2d(x, 2, stride=1, padding=padding), 2, stride=1)
    x = F.pad(x, (padding, padding, padding, padding))
    x = 0.25 * (x[..., :-2, :] + x[..., 2:, :]) + 0.5 * x[..., 1:-1, :]
    return 0.25 * (x[..., :-2] + x[..., 2:]) + 0.5 * x[..., 1:-1]


def to_patches(x: Tensor, size: int) -> Tensor:
    """Patches of size × size pixels as channels: (b, c, h, w) to (b, c·size², h/size, w/size)."""
    # torch's own `pixel_unshuffle` returns a wrong shape for an empty batch.
    return x.unflatten(3, (-1, size)).unflatten(2, (-1, size)).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def from_patches(x: Tensor, size: int) -> Tensor:
    """The inverse of `to_patches`: (b, c·size², h, w) to (b, c, h·size, w·size)."""
    return x.unflatten(1, (-1, size, size)).permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
