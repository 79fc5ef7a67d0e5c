"""Denoisers put together from others: one for each class, or one for each noise level."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Sigma
from ..errors import DataError, require
from ..images import check_labels
from .protocol import expand_sigma

_SAME_LEVEL = 2**-8  # in |ln σ − ln σ_i|: a level that went through bfloat16 is still the same level


class PerClassDenoiser(nn.Module):
    """A class-conditional denoiser D(x, σ, label) that sends each image to the denoiser of its label.

    Args:
        denoisers: denoisers by label.

    Raises:
        ConfigError: if there are none.
    """

    def __init__(self, denoisers: Mapping[int, nn.Module]) -> None:
        super().__init__()
        require(denoisers, "a per-class denoiser needs at least one class; got none.")
        self.denoisers = nn.ModuleDict({str(int(label)): denoiser for label, denoiser in denoisers.items()})

    def __getitem__(self, label: int) -> nn.Module:
        """The denoiser of one class."""
        known = ", ".join(self.denoisers)
        require(str(label) in self.denoisers, f"expected a label among {known}; got {label!r}.", DataError)
        return self.denoisers[str(label)]

    def forward(self, x: Tensor, sigma: Sigma, labels: Any) -> Tensor:
        """Denoise each image with its class's denoiser; see `Denoiser`.

        Raises:
            DataError: if labels do not match the images, or name a class that is not there.
        """
        classes = check_labels(labels, len(x)).to(x.device)
        return denoise_by(classes, x, expand_sigma(sigma, x), self.__getitem__)


class LevelwiseDenoiser(nn.Module):
    """One denoiser for each of some noise levels, such as the autoencoders of App. G.2 of arXiv:2410.24060."""

    def __init__(self, denoisers: Sequence[nn.Module], sigmas: Sequence[float]) -> None:
        super().__init__()
        require(
            denoisers and len(denoisers) == len(sigmas) and all(0 < sigma < math.inf for sigma in sigmas),
            f"one noise level above 0 is needed for each denoiser; got {len(denoisers)} denoisers and {list(sigmas)}.",
        )
        self.denoisers, self.sigmas = nn.ModuleList(denoisers), tuple(sigmas)

    def forward(self, x: Tensor, sigma: Sigma) -> Tensor:
        """Denoise each image with the denoiser of its noise level, which must be one of the known ones; see `Denoiser`."""
        levels = expand_sigma(sigma, x)
        return denoise_by(levels, x, levels, lambda level: self.denoisers[level_index(level, self.sigmas)])


def level_index(sigma: float, sigmas: Sequence[float]) -> int:
    """The index in `sigmas` of the level sigma; raises if it is not there."""
    distances = [abs(math.log(sigma / level)) if sigma > 0 else math.inf for level in sigmas]
    known = ", ".join(f"{level:g}" for level in sigmas)
    message = f"this denoiser is defined only at sigma = {known}; got {sigma:g}. Use one of them."
    require(min(distances) <= _SAME_LEVEL, message)
    return distances.index(min(distances))


def denoise_by(keys: Tensor, x: Tensor, levels: Tensor, at: Callable[[Any], Callable[..., Tensor]]) -> Tensor:
    """Denoise each image with the denoiser of its key; keys and levels are (b,)."""
    distinct = keys.unique().tolist()
    if len(distinct) == 1:  # the usual case, which Jacobians can follow
        return at(distinct[0])(x, levels)
    denoised = torch.empty_like(x)
    for key in distinct:
        here = keys == key
        denoised[here] = at(key)(x[here], levels[here])
    return denoised
