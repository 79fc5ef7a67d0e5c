"""A small U-Net for a CPU: few, fat convolutions at low resolution.

    patches of 2×2 pixels as channels → residual blocks, halving between levels → and back, skips added → patches as pixels

A block is x + conv(silu(conv(silu(norm(x))) + noise)). There is no attention. Any image size will do: images are
padded with zeros to the next size that can be halved, and the result is cropped.
"""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from .embedding import NoiseEmbedding
from .resampling import from_patches, to_patches


class SmallBlock(nn.Module):
    """x + conv(silu(conv(silu(norm(x))) + noise)).

    Args:
        channels: of input and output.
        embedding: channels of the noise embedding.
        dropout: probability of dropping an activation before the second convolution.
    """

    def __init__(self, channels: int, embedding: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.GroupNorm(channels // 16 if channels % 16 == 0 else 1, channels)
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.noise = nn.Linear(embedding, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """The block's output; (b, c, h, w) and (b, embedding) to (b, c, h, w)."""
        hidden = F.silu(self.first(F.silu(self.norm(x))) + self.noise(embedding)[:, :, None, None])
        y: Tensor = x + self.second(F.dropout(hidden, self.dropout, self.training))
        return y


class Level(nn.Module):
    """Blocks at one resolution.

    Args:
        blocks: how many.
        channels: of input and output.
        embedding: channels of the noise embedding.
        dropout: of the blocks.
    """

    def __init__(self, blocks: int, channels: int, embedding: int, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SmallBlock(channels, embedding, dropout) for _ in range(blocks))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """All blocks in turn; (b, c, h, w) and (b, embedding) to (b, c, h, w)."""
        for block in self.blocks:
            x = block(x, embedding)
        return x


class SmallUNet(nn.Module):
    """A network F(x, noise, labels, augment) that trains on a CPU, in seconds on 8×8 images.

    Args:
        shape: of one image, (c, h, w); any size.
        width: channels at the first level, which has half the image's resolution; even.
        multipliers: channels at each level, in units of `width`; each but the first halves again.
        blocks: residual blocks per level, in the encoder and again in the decoder.
        dropout: probability in every block.
        classes: number of classes; 0 takes no labels.
        augment_inputs: number of augmentation inputs; 0 takes none.

    Raises:
        ConfigError: if `width` is odd.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        width: int,
        multipliers: tuple[int, ...],
        blocks: int,
        dropout: float = 0.0,
        classes: int = 0,
        augment_inputs: int = 0,
    ) -> None:
        super().__init__()
        self.shape, self.classes, self.augment_inputs = shape, classes, augment_inputs
        self.unit = 2 ** len(multipliers)
        self.embedding = NoiseEmbedding(width, "sin_cos", classes, augment_inputs)

        def level(channels: int) -> Level:
            return Level(blocks, channels, self.embedding.channels, dropout)

        widths = [width * multiplier for multiplier in multipliers]
        self.stem = nn.Conv2d(4 * shape[0], widths[0], 3, padding=1)
        self.encoder = nn.ModuleList(level(channels) for channels in widths)
        self.decoder = nn.ModuleList(level(channels) for channels in widths[-2::-1])
        steps = list(pairwise(widths))
        self.down = nn.ModuleList(nn.Conv2d(fine, coarse, 2, stride=2) for fine, coarse in steps)
        self.up = nn.ModuleList(nn.Conv2d(coarse, 4 * fine, 1) for fine, coarse in reversed(steps))
        self.output = nn.Conv2d(widths[0], 4 * shape[0], 3, padding=1)
        nn.init.zeros_(self.output.weight)

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x, noise).

        Args:
            x: scaled noisy images, (b, c, h, w).
            noise: c_noise(σ), (b,).
            labels: integers (b,), if the network has classes.
            augment: augmentation inputs (b, augment_inputs), or None.

        Returns:
            The network's output in x's dtype, also under autocast, (b, c, h, w).
        """
        embedding = self.embedding(noise, labels, augment)
        height, width = x.shape[2:]
        padded = F.pad(x, (0, -width % self.unit, 0, -height % self.unit))
        hidden = self.stem(to_patches(padded, 2))
        hidden = self.encoder[0](hidden, embedding)
        skips = []
        for down, level in zip(self.down, self.encoder[1:], strict=True):
            skips.append(hidden)
            hidden = level(down(hidden), embedding)
        for up, level in zip(self.up, self.decoder, strict=True):
            hidden = level(skips.pop() + from_patches(up(hidden), 2), embedding)
        output = from_patches(self.output(F.silu(hidden)), 2)
        return output[..., :height, :width].to(x.dtype)
