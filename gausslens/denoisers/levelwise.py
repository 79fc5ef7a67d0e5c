"""Several denoisers of one noise level each as one: D(x; σ) = D_i(x; σ) where σ is the level of the i-th."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .._typing import Sigma
from ..errors import ConfigError
from .protocol import expand_sigma

_SAME_LEVEL = 2**-8  # in |ln σ − ln σ_i|: a level that went through bfloat16 is still the same level


class LevelwiseDenoiser(nn.Module):
    """A denoiser at exactly the noise levels that it has one for, such as the autoencoders of App. G.2 of arXiv:2410.24060.

    Args:
        denoisers: one for each level.
        sigmas: their noise levels, above 0.

    Raises:
        ConfigError: if there is no denoiser, or not one level for each.
    """

    def __init__(self, denoisers: Sequence[nn.Module], sigmas: Sequence[float]) -> None:
        super().__init__()
        if not denoisers or len(denoisers) != len(sigmas) or not all(0 < sigma < math.inf for sigma in sigmas):
            raise ConfigError(
                f"one noise level above 0 is needed for each denoiser; got {len(denoisers)} denoisers and {list(sigmas)}."
            )
        self.denoisers, self.sigmas = nn.ModuleList(denoisers), tuple(sigmas)

    def forward(self, x: Tensor, sigma: Sigma) -> Tensor:
        """The estimates of the denoisers whose levels these are."""
        levels = expand_sigma(sigma, x)
        known = levels.unique().tolist()
        if len(known) == 1:  # the usual case, which Jacobians can follow
            only: Tensor = self.denoisers[self._index(known[0])](x, levels)
            return only
        denoised = torch.empty_like(x)
        for level in known:
            here = levels == level
            denoised[here] = self.denoisers[self._index(level)](x[here], levels[here])
        return denoised

    def _index(self, level: float) -> int:
        distances = [abs(math.log(level) - math.log(sigma)) for sigma in self.sigmas]
        nearest = min(range(len(distances)), key=distances.__getitem__)
        if distances[nearest] > _SAME_LEVEL:
            known = ", ".join(f"{sigma:g}" for sigma in self.sigmas)
            raise ConfigError(f"there are denoisers for sigma = {known}; got {level:g}. Use one of them.")
        return nearest
