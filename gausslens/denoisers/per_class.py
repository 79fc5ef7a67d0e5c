"""A class-conditional denoiser D(x, σ, label) put together from one denoiser per class."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Sigma
from ..errors import ConfigError, DataError
from ..images import check_labels
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

    def __getitem__(self, label: int) -> nn.Module:
        """The denoiser of one class."""
        if str(label) not in self.denoisers:
            raise ConfigError(f"no denoiser for label {label!r}; there are {', '.join(self.denoisers)}.")
        return self.denoisers[str(label)]

    def forward(self, x: Tensor, sigma: Sigma, labels: Any) -> Tensor:
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
        classes = check_labels(labels, len(x)).to(x.device)
        levels = expand_sigma(sigma, x)
        denoised = torch.empty_like(x)
        for label in classes.unique().tolist():
            if str(label) not in self.denoisers:
                known = ", ".join(self.denoisers)
                raise DataError(f"expected labels among those this denoiser was made for, {known}; got {label}.")
            here = classes == label
            denoised[here] = self.denoisers[str(label)](x[here], levels[here])
        return denoised
