"""What `gausslens measure` is asked to do: one frozen `MeasureConfig`, which imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError

MEASURES = (
    *("duplicates", "denoising_loss", "linearity", "gap", "linear_gap", "identity_gap"),
    *("distillation", "alignment", "memorization", "agreement", "jacobian"),
)
"""Names of the measures, in the order they are taken."""


@dataclass(frozen=True)
class MeasureConfig:
    """What to measure, on which network.

    Raises:
        ConfigError: if a field cannot be meant.
    """

    run: str
    """The folder of a training run."""
    only: tuple[str, ...] = ()
    """Which measures to take, out of duplicates, denoising_loss, linearity, gap, linear_gap, identity_gap, distillation,
    alignment, memorization, agreement, jacobian; by default all."""
    sigmas: tuple[float, ...] = ()
    """The noise levels; by default ten from 80 down to 0.002."""
    count: int = 100
    """Images, or pairs of images, behind every number."""
    samples: int = 256
    """Generated images for memorization and agreement."""
    steps: int = 18
    """Noise levels of the sampler, Heun's."""
    calls: int | None = None
    """Network calls for each distilled level; by default ten a dimension, up to 3072 dimensions (on a large GPU 12288), and
    none above."""
    seed: int = 0
    """Decides images and noise."""
    kimg: float | None = None
    """Which snapshot of the network; by default the last."""
    weights: Literal["ema", "raw"] = "ema"
    """The moving average of the weights, or the weights themselves."""
    data: str | None = None
    """Where the images are now, if they have moved."""
    out: str | None = None
    """The folder that holds the folder of results; by default the one that holds the run."""
    cpu: bool = False
    """Measure on the CPU even if there is a GPU."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.only if name not in MEASURES]
        if unknown:
            raise ConfigError(f"only must name some of {', '.join(MEASURES)}; got {', '.join(unknown)}.")
        for name, least in (("count", 2), ("samples", 2), ("steps", 1), ("calls", 4)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}; got {value}.")
        if not all(0 < sigma < float("inf") for sigma in self.sigmas):
            raise ConfigError(f"sigmas must be above 0 and finite; got {', '.join(map(str, self.sigmas))}.")
