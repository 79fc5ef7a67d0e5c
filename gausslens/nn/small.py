"""A small U-Net for a CPU: few convolutions at low resolution, and one vector for the whole image below them.

    patches of 2×2 pixels as channels → convolutional blocks, halving between levels → a vector → dense blocks
    → and back, each level added to the one it came from → channels as pixels

A block is x + W₂ silu((1 + scale)·W₁ silu(norm(x)) + shift), with scale and shift linear in the noise embedding and W
3×3 convolutions or matrices. Any image size will do: images are padded with zeros to the next size that can be halved,
and the result is cropped.
"""

import math
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from .embedding import NoiseEmbedding
from .resampling import from_patches, to_patches


class SmallBlock(nn.Module):
    """x + W₂ silu((1 + scale)·W₁ silu(norm(x)) + shift).

    `dense` blocks have matrices on (b, c), with twice the channels between them; others have convolutions on (b, c, h,
    w).
    """

    def __init__(self, channels: int, embedding: int, dropout: float, *, dense: bool) -> None:
        super().__init__()
        self.dropout, self.dense = dropout, dense
        hidden = 2 * channels if dense else channels
        self.norm = nn.GroupNorm(1 if dense or channels % 16 else channels // 16, channels)
        self.first = nn.Linear(channels, hidden) if dense else nn.Conv2d(channels, hidden, 3, padding=1)
        self.noise = nn.Linear(embedding, 2 * hidden)
        self.second = nn.Linear(hidden, channels) if dense else nn.Conv2d(hidden, channels, 3, padding=1)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """The block's output, of x's shape; the embedding is (b, embedding)."""
        hidden = self.first(F.silu(self.norm(x)))
        noise = self.noise(embedding)
        scale, shift = (noise if self.dense else noise[:, :, None, None]).chunk(2, dim=1)
        hidden = F.silu(hidden * (1 + scale) + shift)
        return x + self.second(F.dropout(hidden, self.dropout, self.training))


class Level(nn.Module):
    """Blocks in a row."""

    def __init__(self, blocks: int, channels: int, embedding: int, dropout: float, *, dense: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SmallBlock(channels, embedding, dropout, dense=dense) for _ in range(blocks))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """All blocks in turn; x keeps its shape."""
        for block in self.blocks:
            x = block(x, embedding)
        return x


class SmallUNet(nn.Module):
    """A network F(x, noise, labels, augment) that trains on a CPU, in seconds on 8×8 images.

    The first level has half the image's resolution and `width` channels. The vector has twice as many, and twice the
    blocks.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        width: int,
        multipliers: tuple[int, ...],
        blocks: int,
        dropout: float,
        **conditions: int,
    ) -> None:
        super().__init__()
        self.shape, self.classes = shape, conditions["classes"]
        self.unit = 2 ** len(multipliers)
        self.embedding = NoiseEmbedding(width, "sin_cos", late_labels=False, **conditions)
        widths = [width * multiplier for multiplier in multipliers]
        steps = list(pairwise(widths))
        pixels = math.prod(math.ceil(side / self.unit) for side in shape[1:])

        def level(channels: int) -> Level:
            return Level(blocks, channels, self.embedding.channels, dropout)

        self.stem = nn.Conv2d(4 * shape[0], widths[0], 3, padding=1)
        self.encoder = nn.ModuleList(level(channels) for channels in widths)
        self.down = nn.ModuleList(nn.Conv2d(fine, coarse, 2, stride=2) for fine, coarse in steps)
        self.gather = nn.Linear(widths[-1] * pixels, 2 * width)
        self.vector = Level(2 * blocks, 2 * width, self.embedding.channels, dropout, dense=True)
        self.spread = nn.Linear(2 * width, widths[-1] * pixels)
        self.up = nn.ModuleList(nn.Conv2d(coarse, 4 * fine, 1) for fine, coarse in reversed(steps))
        self.decoder = nn.ModuleList(level(channels) for channels in reversed(widths))
        self.output = nn.Conv2d(widths[0], 4 * shape[0], 3, padding=1)
        nn.init.zeros_(self.output.weight)

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x, noise)."""
        embedding = self.embedding(noise, labels, augment)
        height, width = x.shape[2:]
        padded = F.pad(x, (0, -width % self.unit, 0, -height % self.unit))
        hidden = self.encoder[0](self.stem(to_patches(padded, 2)), embedding)
        skips = [hidden]
        for down, level in zip(self.down, self.encoder[1:], strict=True):
            hidden = level(down(hidden), embedding)
            skips.append(hidden)
        vector = self.vector(self.gather(hidden.flatten(1)), embedding)
        hidden = self.decoder[0](skips.pop() + self.spread(vector).reshape(hidden.shape), embedding)
        for up, level in zip(self.up, self.decoder[1:], strict=True):
            hidden = level(skips.pop() + from_patches(up(hidden), 2), embedding)
        output = from_patches(self.output(F.silu(hidden)), 2)
        return output[..., :height, :width].to(x.dtype)
