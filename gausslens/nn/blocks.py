"""The residual block and the self-attention that NCSN++, DDPM++ and ADM are made of.

    h = conv(resample(silu(norm(x)))),    h = silu(norm(h + noise))  or  silu(norm(h)·(1 + scale) + shift)
    y = s·(skip(x) + conv(dropout(h))),   y = s·(y + attention(norm(y)))  where there is attention

Annotations are plain tensors here, since checks of shapes would be compiled along with the block.
"""

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._kernels import group_norm as kernels
from .published import Architecture, largest_divisor
from .resampling import downsample, upsample

Resample: TypeAlias = Literal["down", "up", "none"]


def attend(qkv: Tensor, heads: int) -> Tensor:
    """softmax(QKᵀ/√d)V over n tokens; (b, n, 3·c), all queries, all keys, all values, each head by head, to (b, n, c)."""
    # In the channels-last layout every one of these is a view.
    query, key, value = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Self-attention over pixels, y = s·(x + W softmax(QKᵀ/√d)V)."""

    def __init__(self, channels: int, style: Architecture) -> None:
        super().__init__()
        self.heads = largest_divisor(channels, channels // (style.head_channels or channels))
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
        # Biases are added where something is added anyway: by themselves they cost a pass over memory each.
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


def _add_scaled(p: Tensor, q: Tensor, bias: Tensor, scale: float) -> Tensor:
    """scale·(p + q) + bias; (b, c, h, w), bias (c,)."""
    if kernels.usable(p) and kernels.usable(q) and p.dtype == q.dtype:
        return kernels.add_scaled(p, q, bias, scale)
    both = p + q
    return torch.add(bias[:, None, None].to(both.dtype), both, alpha=scale)


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias
