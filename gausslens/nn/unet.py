"""The U-Net that NCSN++, DDPM++ and ADM share.

A 3×3 convolution; per resolution a block that halves it (but at the first) and `blocks` blocks; at the lowest one block
with attention and one without; per resolution, upwards, a block that doubles it (but at the lowest) and `blocks` + 1
blocks that each take one skip; normalisation and a 3×3 convolution. NCSN++ adds a residual encoder: the image,
convolved and halved along with the activations, joins them at every level.
"""

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn

from ..errors import ConfigError
from .blocks import ResidualBlock
from .embedding import NoiseEmbedding
from .published import Architecture
from .resampling import blur, halve


class HalvedConv(nn.Module):
    """A 3×3 convolution, then [1, 3, 3, 1] downsampling; zeros are put around the image once, before both."""

    def __init__(self, channels_in: int, channels_out: int, style: Architecture) -> None:
        super().__init__()
        self.conv = style.initialize(nn.Conv2d(channels_in, channels_out, 3, padding=2))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve and halve; (b, channels_in, h, w) to (b, channels_out, h/2, w/2)."""
        return halve(blur(self.conv(x), padding=0))


class Output(nn.Module):
    """Normalisation, SiLU and a 3×3 convolution."""

    def __init__(self, channels_in: int, channels_out: int, style: Architecture) -> None:
        super().__init__()
        self.norm = style.norm(channels_in)
        self.conv = style.initialize(nn.Conv2d(channels_in, channels_out, 3, padding=1), style.last_gain)

    def forward(self, x: Tensor) -> Tensor:
        """Activations, (b, channels_in, h, w), to (b, channels_out, h, w)."""
        return self.conv(self.norm(x, activate=True))


class UNet(nn.Module):
    """A network F(x, noise, labels, augment) of one of the published architectures, with options of `build_network`."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        style: Architecture,
        *,
        width: int,
        multipliers: tuple[int, ...],
        blocks: int,
        attention: tuple[int, ...],
        dropout: float = 0.0,
        classes: int = 0,
        augment_inputs: int = 0,
    ) -> None:
        super().__init__()
        unit = 2 ** (len(multipliers) - 1)
        if shape[1] % unit or shape[2] % unit:
            raise ConfigError(
                f"{len(multipliers)} multipliers halve an image {len(multipliers) - 1} times, so its sides must be "
                f"multiples of {unit}; got {shape[1]}×{shape[2]}. Use fewer multipliers, images of another size, or the "
                "network 'unet', which takes any size."
            )
        self.shape, self.classes = shape, classes
        self.scale = style.residual_scale
        self.embedding = NoiseEmbedding(width, style.features, classes, augment_inputs, late_labels=style.late_labels)
        for layer in self.embedding.children():
            style.initialize(layer)  # type: ignore[type-var]
        widths = [width * multiplier for multiplier in multipliers]
        attends = [max(shape[1:]) >> level in attention for level in range(len(widths))]

        def block(channels_in: int, channels_out: int, **options: Any) -> ResidualBlock:
            return ResidualBlock(channels_in, channels_out, self.embedding.channels, style, dropout=dropout, **options)

        channels, image_channels = widths[0] if style.widened_stem else width, shape[0]
        self.stem = style.initialize(nn.Conv2d(shape[0], channels, 3, padding=1))
        self.encoder, self.image = nn.ModuleList(), nn.ModuleList()
        skips = [channels]
        for level, level_width in enumerate(widths):
            if level > 0:
                self.encoder.append(block(channels, channels, resample="down"))
                skips.append(channels)
                if style.residual_encoder:
                    self.image.append(HalvedConv(image_channels, channels, style))
                    image_channels = channels
            for _ in range(blocks):
                self.encoder.append(block(channels, level_width, attention=attends[level]))
                channels = level_width
                skips.append(channels)
        self.middle = nn.ModuleList([block(channels, channels, attention=True), block(channels, channels)])
        self.decoder = nn.ModuleList()
        for level, level_width in reversed(list(enumerate(widths))):
            if level < len(widths) - 1:
                self.decoder.append(block(channels, channels, resample="up"))
            for index in range(blocks + 1):
                here = attends[level] and (style.attention_everywhere or index == blocks)
                self.decoder.append(block(channels + skips.pop(), level_width, attention=here))
                channels = level_width
        self.output = Output(channels, shape[0], style)

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x, noise)."""
        embedding = self.embedding(noise, labels, augment)
        halved = iter(self.image)
        image, hidden = x, self.stem(x)
        skips = [hidden]
        for block in cast("Iterable[ResidualBlock]", self.encoder):
            hidden = block(hidden, embedding)
            if block.resample == "down" and self.image:
                image = hidden = (hidden + next(halved)(image)) * self.scale
            skips.append(hidden)
        for block in cast("Iterable[ResidualBlock]", self.middle):
            hidden = block(hidden, embedding)
        for block in cast("Iterable[ResidualBlock]", self.decoder):
            hidden = block(hidden, embedding, None if block.resample == "up" else skips.pop())
        return self.output(hidden).to(x.dtype)
