"""The diffusion transformer (DiT): patches as tokens, conditioned on the noise through adaLN-Zero.

    t = patches·W + b + position,   t ← t + g₁·attention(a₁·norm(t) + s₁),   t ← t + g₂·mlp(a₂·norm(t) + s₂)

with shifts s, scales a − 1 and gates g linear in the noise embedding, initially zero. Images of a root mean square above 2,
as without preconditioning at high noise, are scaled down to 2: at σ = 80 tokens would otherwise be so large that after
the norms nothing of the positions is left.

Reference: Peebles, Xie (2023), arXiv:2212.09748.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import require
from .dense import zero_linear
from .embedding import NoiseEmbedding
from .resampling import from_patches, to_patches
from .unet import attend

_HEAD_CHANNELS = 64
_LARGEST_RMS = 2.0


class TransformerBlock(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm that the noise scales, shifts and gates."""

    def __init__(self, width: int, embedding: int, dropout: float) -> None:
        super().__init__()
        self.heads = max(width // _HEAD_CHANNELS, 1)
        self.width, self.dropout = width, dropout
        self.modulation = zero_linear(embedding, 6 * width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor, embedding: Tensor) -> Tensor:
        """The block's output; (b, n, width) and (b, embedding) to (b, n, width)."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(embedding)[:, None].chunk(6, dim=2)
        qkv = self.qkv(self._norm(tokens) * (1 + scale_1) + shift_1)
        tokens = tokens + gate_1 * self.project(attend(qkv, self.heads))
        hidden = F.gelu(self.wide(self._norm(tokens) * (1 + scale_2) + shift_2), approximate="tanh")
        return tokens + gate_2 * self.narrow(F.dropout(hidden, self.dropout, self.training))

    def _norm(self, tokens: Tensor) -> Tensor:
        return F.layer_norm(tokens, (self.width,), eps=1e-6)


class DiT(nn.Module):
    """A transformer F(x, noise, labels, augment) on patches of 2×2 pixels, or 4×4 where a side is above 32."""

    position: Tensor

    def __init__(
        self, shape: tuple[int, int, int], *, width: int, blocks: int, dropout: float, **conditions: int
    ) -> None:
        super().__init__()
        self.shape, self.classes = shape, conditions["classes"]
        self.patch = 2 if max(shape[1:]) <= 32 else 4
        require(
            shape[1] % self.patch == shape[2] % self.patch == 0,
            f"a DiT cuts images of this size into patches of {self.patch}×{self.patch}, so their sides must be "
            f"multiples of {self.patch}; got {shape[1]}×{shape[2]}. Resize them, or use another network.",
        )
        is_multiple = width % 4 == width % max(width // _HEAD_CHANNELS, 1) == 0
        require(is_multiple, f"the width of a DiT must be a multiple of 4, of 64 from 128 on; got {width}.")
        self.embedding = NoiseEmbedding(width, "cos_sin", late_labels=True, **conditions)
        self.stem = nn.Linear(shape[0] * self.patch**2, width)
        grid = (shape[1] // self.patch, shape[2] // self.patch)
        self.register_buffer("position", _positions(*grid, width), persistent=False)
        self.blocks = nn.ModuleList(TransformerBlock(width, self.embedding.channels, dropout) for _ in range(blocks))
        self.modulation = zero_linear(self.embedding.channels, 2 * width)
        self.output = zero_linear(width, shape[0] * self.patch**2)

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x, noise)."""
        embedding = self.embedding(noise, labels, augment)
        excess = (x.square().mean((1, 2, 3), keepdim=True) / _LARGEST_RMS**2).clamp_min(1).sqrt()
        patches = to_patches(x / excess, self.patch)
        tokens = self.stem(patches.flatten(2).transpose(1, 2)) + self.position
        for block in self.blocks:
            tokens = block(tokens, embedding)
        shift, scale = self.modulation(embedding)[:, None].chunk(2, dim=2)
        tokens = self.output(F.layer_norm(tokens, tokens.shape[2:], eps=1e-6) * (1 + scale) + shift)
        return from_patches(tokens.transpose(1, 2).unflatten(2, patches.shape[2:]), self.patch).to(x.dtype)


def _positions(height: int, width: int, channels: int) -> Tensor:
    """Sines and cosines of the row and of the column of every patch, (height·width, channels)."""
    frequencies = (-math.log(10_000) * torch.arange(channels // 4) / (channels // 4)).exp()
    rows, columns = (torch.arange(n)[:, None] * frequencies for n in (height, width))
    rows = rows[:, None].expand(-1, width, -1)
    columns = columns[None].expand(height, -1, -1)
    return torch.cat([rows.sin(), rows.cos(), columns.sin(), columns.cos()], 2).flatten(0, 1)
