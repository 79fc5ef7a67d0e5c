"""The U-Net that NCSN++, DDPM++ and ADM share.

A 3×3 convolution; per resolution a block that halves it (except at the first) and `blocks` blocks; at the lowest one block
with attention and one without; per resolution, upwards, a block that doubles it (except at the lowest) and `blocks` + 1
blocks that each take one skip; normalisation and a 3×3 convolution. NCSN++ adds a residual encoder: the image,
convolved and halved along with the activations, joins them at every level. A block is

    h = conv(resample(silu(norm(x)))),    h = silu(norm(h + noise))  or  silu(norm(h)·(1 + scale) + shift)
    y = s·(skip(x) + conv(dropout(h))),   y = s·(y + attention(norm(y)))  where there is attention

`Architecture` has the differences between the three.

References: Song et al. (2021), arXiv:2011.13456, App. H; Dhariwal, Nichol (2021), arXiv:2105.05233; Karras et al.
(2022), arXiv:2206.00364, App. F.6, whose variants of the three these are.

Annotations of blocks are plain tensors, since checks of shapes would be compiled along with them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._kernels import group_norm as kernels
from ..errors import require
from .embedding import Features, NoiseEmbedding
from .normalization import GroupNorm
from .resampling import blur, downsample, halve, upsample

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)
Resample: TypeAlias = Literal["down", "up", "none"]


@dataclass(frozen=True)
class Architecture:
    """The differences between the published networks; the defaults are those of NCSN++."""

    features: Features = "fourier"  # of the noise level
    late_labels: bool = False  # classes join the embedding, or the features
    residual_encoder: bool = True  # the image joins the encoder at every level
    attention_everywhere: bool = False  # all decoder blocks at an attention resolution attend, or the last one alone
    widened_stem: bool = False  # the first convolution is as wide as the first blocks, or has `width` channels
    adaptive: bool = False  # the noise scales and shifts a block's second normalisation, or is added before it
    smooth: bool = True  # resampling uses the filter [1, 3, 3, 1], or [1, 1]
    residual_scale: float = math.sqrt(0.5)  # factor on the sum of a block's input and output
    epsilon: float = 1e-6  # of the normalisations
    head_channels: int | None = None  # channels of one attention head; None is a single head
    project_resampled: bool = True  # a block that resamples has a 1×1 convolution on its skip even if channels stay
    xavier: bool = True  # weights start as Xavier-uniform with zero biases, or as torch makes them
    last_gain: float = 1e-5  # factor on the initial weights of each branch's last layer: blocks begin as skips
    attention_gain: float = math.sqrt(0.2)  # factor on the initial weights that make queries, keys and values

    def initialize(self, layer: Layer, gain: float = 1.0) -> Layer:
        """The layer with this network's initial weights, times `gain`."""
        if self.xavier:
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(gain)
        return layer

    def norm(self, channels: int) -> GroupNorm:
        """Group normalisation with up to 32 groups of at least 4 channels."""
        return GroupNorm(_largest_divisor(channels, min(32, channels // 4)), channels, eps=self.epsilon)


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above `most`, at least 1."""
    return next((n for n in range(most, 1, -1) if number % n == 0), 1)


NCSNPP = Architecture()
DDPMPP = Architecture(features="sin_cos", residual_encoder=False, smooth=False)
ADM = Architecture(
    features="cos_sin",
    late_labels=True,
    residual_encoder=False,
    attention_everywhere=True,
    widened_stem=True,
    adaptive=True,
    smooth=False,
    residual_scale=1.0,
    epsilon=1e-5,
    head_channels=64,
    project_resampled=False,
    xavier=False,
    last_gain=0.0,
    attention_gain=1.0,
)


def attend(qkv: Tensor, heads: int) -> Tensor:
    """softmax(QKᵀ/√d)V over n tokens; (b, n, 3·c), all queries, all keys, all values, each head by head, to (b, n, c)."""
    # In the channels-last layout every one of these is a view.
    query, key, value = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Self-attention over pixels, y = s·(x + W softmax(QKᵀ/√d)V)."""

    def __init__(self, channels: int, style: Architecture) -> None:
        super().__init__()
        self.heads = _largest_divisor(channels, channels // (style.head_channels or channels))
        self.scale = style.residual_scale
        self.norm = style.norm(channels)
        self.qkv = style.initialize(nn.Conv2d(channels, 3 * channels, 1), style.attention_gain)
        self.project = style.initialize(nn.Conv2d(channels, channels, 1), style.last_gain)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; (b, c, h, w) to (b, c, h, w)."""
        mixed = attend(self.qkv(self.norm(x)).flatten(2).transpose(1, 2), self.heads)
        return (x + self.project(mixed.transpose(1, 2).unflatten(2, x.shape[2:]))) * self.scale


class ResidualBlock(nn.Module):
    """One block of the U-Net, conditioned on a noise embedding of `embedding` channels; "down" halves the resolution."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        embedding: int,
        style: Architecture,
        *,
        resample: Resample = "none",
        attention: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.resample, self.dropout = resample, dropout
        self.adaptive, self.smooth, self.scale = style.adaptive, style.smooth, style.residual_scale
        self.norm_in = style.norm(channels_in)
        self.first = style.initialize(nn.Conv2d(channels_in, channels_out, 3, padding=1))
        self.noise = style.initialize(nn.Linear(embedding, channels_out * (2 if style.adaptive else 1)))
        self.norm_mid = style.norm(channels_out)
        self.second = style.initialize(nn.Conv2d(channels_out, channels_out, 3, padding=1), style.last_gain)
        projected = channels_in != channels_out or (resample != "none" and style.project_resampled)
        self.skip = style.initialize(nn.Conv2d(channels_in, channels_out, 1)) if projected else nn.Identity()
        self.attention = Attention(channels_out, style) if attention else nn.Identity()

    def forward(self, x: Tensor, embedding: Tensor, skipped: Tensor | None = None) -> Tensor:
        """The block's output."""
        if skipped is not None:
            x = torch.cat([x, skipped], 1)
        activated, noise = self._resample(self.norm_in(x, activate=True)), self.noise(embedding)
        # Biases are added together with other terms: each would cost a pass over memory on its own.
        if self.adaptive:
            scale, shift = noise[:, :, None, None].chunk(2, dim=1)
            hidden = self.norm_mid(self.first(activated)) * (1 + scale) + shift
            hidden = F.silu(hidden, inplace=not torch.is_grad_enabled())
        else:
            hidden = F.conv2d(activated, self.first.weight, padding=1)
            hidden = self.norm_mid(hidden, noise + _bias(self.first), activate=True)
        hidden = F.conv2d(F.dropout(hidden, self.dropout, self.training), self.second.weight, padding=1)
        x, bias = self._resample(x), _bias(self.second)
        if isinstance(self.skip, nn.Conv2d):
            x, bias = F.conv2d(x, self.skip.weight), bias + _bias(self.skip)
        return self.attention(_add_scaled(x, hidden, self.scale * bias, self.scale))

    def _resample(self, x: Tensor) -> Tensor:
        if self.resample == "down":
            return downsample(x, smooth=self.smooth)
        return upsample(x, smooth=self.smooth) if self.resample == "up" else x


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
        dropout: float,
        **conditions: int,
    ) -> None:
        super().__init__()
        unit = 2 ** (len(multipliers) - 1)
        require(
            shape[1] % unit == shape[2] % unit == 0,
            f"{len(multipliers)} multipliers halve an image {len(multipliers) - 1} times, so its sides must be "
            f"multiples of {unit}; got {shape[1]}×{shape[2]}. Use fewer multipliers, images of another size, or the "
            "network 'unet', which takes any size.",
        )
        self.shape, self.classes = shape, conditions["classes"]
        self.scale = style.residual_scale
        self.embedding = NoiseEmbedding(width, style.features, late_labels=style.late_labels, **conditions)
        for layer in self.embedding.children():
            style.initialize(layer)  # type: ignore[type-var]
        widths = [width * multiplier for multiplier in multipliers]
        attends = [max(shape[1:]) >> level in attention for level in range(len(widths))]
        block = partial(ResidualBlock, embedding=self.embedding.channels, style=style, dropout=dropout)
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


def _add_scaled(p: Tensor, q: Tensor, bias: Tensor, scale: float) -> Tensor:
    """scale·(p + q) + bias; (b, c, h, w), bias (c,)."""
    if kernels.usable(p) and kernels.usable(q) and p.dtype == q.dtype:
        return kernels.add_scaled(p, q, bias, scale)
    both = p + q
    return torch.add(bias[:, None, None].to(both.dtype), both, alpha=scale)


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias
