"""The linear autoencoder: one affine map of all pixels, F(x) = Wx + b."""

import math

from torch import Tensor, nn

from .embedding import refuse_conditions


def zero_linear(channels_in: int, channels_out: int) -> nn.Linear:
    """A linear layer that begins as zero."""
    layer = nn.Linear(channels_in, channels_out)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class LinearNetwork(nn.Module):
    """F(x) = Wx + b on flattened images, whatever the noise level; W = 0 and b = 0 to begin with.

    Trained without preconditioning at one noise level, its optimum is the Gaussian denoiser of the training images.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape, self.classes = shape, 0
        self.map = zero_linear(math.prod(shape), math.prod(shape))

    def forward(self, x: Tensor, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """F(x) = Wx + b."""
        refuse_conditions(labels, augment)
        return self.map(x.flatten(1)).to(x.dtype).reshape(x.shape)
