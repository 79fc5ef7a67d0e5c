"""Networks of matrices: a dense one for images of few pixels, and the linear autoencoder F(x) = Wx + b.

The dense network maps pixels → a vector → blocks x + W₂ silu(W₁ norm(x)) → pixels. The noise level is no input: the
network infers it from the image, so it extrapolates nothing at levels that training rarely draws. Reference: Sun, Jiang,
Zhao, He (2025), arXiv:2502.13129.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .embedding import NoiseEmbedding, check_conditions


def zero_linear(channels_in: int, channels_out: int) -> nn.Linear:
    """A linear layer whose initial weights are zero."""
    layer = nn.Linear(channels_in, channels_out)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class DenseBlock(nn.Module):
    """x + W₂ dropout(silu(W₁ norm(x))), on vectors, with twice the channels between the matrices."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(channels)
        self.first = nn.Linear(channels, 2 * channels)
        self.second = nn.Linear(2 * channels, channels)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, (b, channels) as x."""
        hidden = F.silu(self.first(self.norm(x)))
        return x + self.second(F.dropout(hidden, self.dropout, self.training))


class DenseNetwork(nn.Module):
    """A network F(x, noise, labels, augment) of matrices that ignores the noise; `width` is the vector's length.

    With classes or augmentation inputs, `width` must be even.
    """

    def __init__(
        self, shape: tuple[int, int, int], *, width: int, blocks: int, dropout: float, **conditions: int
    ) -> None:
        super().__init__()
        self.shape, self.classes = shape, conditions["classes"]
        self.conditions: nn.ModuleList | None = None
        if any(conditions.values()):
            embedding = NoiseEmbedding(width, "sin_cos", late_labels=False, **conditions)
            self.conditions = nn.ModuleList([embedding, nn.Linear(embedding.channels, width)])
        self.input = nn.Linear(math.prod(shape), width)
        self.blocks = nn.ModuleList(DenseBlock(width, dropout) for _ in range(blocks))
        self.output = nn.Linear(width, math.prod(shape))
        nn.init.zeros_(self.output.weight)

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x)."""
        vector = self.input(x.flatten(1))
        if self.conditions is None:
            check_conditions(labels, augment)
        else:
            embedding, into_vector = self.conditions
            vector = vector + into_vector(embedding(torch.zeros_like(noise), labels, augment))
        for block in self.blocks:
            vector = block(vector)
        return self.output(vector).reshape(x.shape).to(x.dtype)


class LinearNetwork(nn.Module):
    """F(x) = Wx + b on flattened images, at any noise level; initially W = 0 and b = 0.

    Trained without preconditioning at one noise level, its optimum is the Gaussian denoiser of the training images.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape, self.classes = shape, 0
        self.map = zero_linear(math.prod(shape), math.prod(shape))

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x) = Wx + b."""
        check_conditions(labels, augment)
        return self.map(x.flatten(1)).to(x.dtype).reshape(x.shape)
