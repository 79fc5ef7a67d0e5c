"""A class-conditional denoiser D(x, σ, label) put together from one denoiser per class."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..errors import ConfigError, DataError
from .protocol import expand_sigma


class PerClassDenoiser(nn.Module):
    """Sends each image to the denoiser of its label.

    Args:
        denoisers: denoisers by label.

    Raises:
        ConfigError: if there are none.
    """

    def __init__(self, denoisers: Mapping[int, nn.Module]) -> None:
        super().__init__()
        if not denoisers:
            raise ConfigError("a per-class denoiser needs at least one class; got none.")
        self.denoisers = nn.ModuleDict({str(int(label)): denoiser for label, denoiser in denoisers.items()})

    def forward(self, x: Tensor, sigma: float | Tensor, labels: Tensor) -> Tensor:
        """Denoise each image with its class's denoiser.

        Args:
            x: noisy images, (b, *shape).
            sigma: noise levels, a number or (b,).
            labels: integer labels, (b,).

        Returns:
            The denoised images, (b, *shape).

        Raises:
            DataError: if labels do not match the images, or name a class that is not there.
        """
        if labels.shape != (len(x),) or labels.is_floating_point():
            raise DataError(
                f"labels must be {len(x)} integers, one per image; got shape {tuple(labels.shape)}, dtype {labels.dtype}."
            )
        levels = expand_sigma(sigma, x)
        denoised = torch.empty_like(x)
        for label in labels.unique().tolist():
            if str(label) not in self.denoisers:
                raise DataError(f"no denoiser for label {label}; there are {', '.join(self.denoisers)}.")
            here = labels == label
            denoised[here] = self.denoisers[str(label)](x[here], levels[here])
        return denoised
