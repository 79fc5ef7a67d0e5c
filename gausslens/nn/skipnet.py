"""The Skip-Net autoencoder: a U-Net of convolutions, batch norms and leaky ReLUs with convolutional skips.

Per level, downwards: a 1×1 convolution to a thin skip; a 3×3 convolution of stride 2 and one of stride 1. Upwards:
the level below, doubled, is concatenated with the skip; a 3×3 and a 1×1 convolution. The noise level is no input: one
network is trained per level, as in App. G.2 of arXiv:2410.24060.

Reference: Ulyanov, Vedaldi, Lempitsky (2018), arXiv:1711.10925.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .embedding import check_conditions

_SKIP_CHANNELS = 4


def _layer(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2),
        nn.BatchNorm2d(channels_out),
        nn.LeakyReLU(0.2),
    )


class SkipNet(nn.Module):
    """An autoencoder F(x) for one noise level, with one multiplier of `width` per halving of the image."""

    def __init__(self, shape: tuple[int, int, int], *, width: int, multipliers: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.classes = shape, 0
        widths = [width * multiplier for multiplier in multipliers]
        above = [shape[0], *widths[:-1]]
        below = [*widths[1:], widths[-1]]
        self.skip = nn.ModuleList(_layer(channels, _SKIP_CHANNELS, 1) for channels in above)
        self.down = nn.ModuleList(
            nn.Sequential(_layer(channels, level, 3, stride=2), _layer(level, level, 3))
            for channels, level in zip(above, widths, strict=True)
        )
        self.up = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + _SKIP_CHANNELS),
                _layer(channels + _SKIP_CHANNELS, level, 3),
                _layer(level, level, 1),
            )
            for channels, level in zip(below, widths, strict=True)
        )
        self.output = nn.Conv2d(widths[0], shape[0], 1)

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x)."""
        check_conditions(labels, augment)
        hidden, skips = x, []
        for skip, down in zip(self.skip, self.down, strict=True):
            skips.append(skip(hidden))
            hidden = down(hidden)
        for up in reversed(self.up):
            skipped = skips.pop()
            doubled = F.interpolate(hidden, scale_factor=2, mode="nearest")
            # A level of odd size came from one more pixel than the doubled one needs.
            doubled = doubled[..., : skipped.shape[2], : skipped.shape[3]]
            hidden = up(torch.cat([doubled, skipped], 1))
        return self.output(hidden).to(x.dtype)
