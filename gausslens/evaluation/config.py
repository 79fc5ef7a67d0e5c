"""The options of `gausslens measure`, `MeasureConfig`. This file imports nothing heavy."""

from dataclasses import dataclass

from ..config import RunOptions, among, check_fields, levels, whole

MEASURES = (
    *("duplicates", "denoising_loss", "linearity", "gap", "linear_gap", "identity_gap"),
    *("distillation", "alignment", "memorization", "agreement", "jacobian"),
)
"""Names of the measures in the order in which they are taken."""


@dataclass(frozen=True, kw_only=True)
class MeasureConfig(RunOptions):
    """What to measure, on which network.

    Raises:
        ConfigError: on an invalid value.
    """

    only: tuple[str, ...] = ()
    """The measures to take, among duplicates (of training images among the held-out ones), denoising_loss, linearity, gap
    (distance between the network and the closed-form denoisers), linear_gap (distance of the network's closest linear map to
    the network and to the Gaussian), identity_gap (distance of outputs from inputs), distillation (error of the closest
    linear map), alignment (of that map with the principal components), memorization (copies among samples), agreement (of
    samples from the same noise) and jacobian (singular values of the Jacobian). Default: all."""
    sigmas: tuple[float, ...] = ()
    """The noise levels. Default: ten from 80 down to 0.002."""
    count: int = 100
    """Number of images, or of pairs of images, to measure on."""
    samples: int = 256
    """Number of images to sample for memorization and agreement."""
    calls: int | None = None
    """Number of network calls for the distillation at each noise level. Default: ten per dimension up to 3,072 dimensions
    (12,288 on a large GPU). With more dimensions than that, nothing is distilled unless this is given."""
    out: str | None = None
    """The parent folder. The results get their own folder in it. Default: the folder that holds the run."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            among("only", MEASURES),
            whole("count samples", 2),
            whole("steps", 1),
            whole("calls", 4),
            levels("sigmas"),
        )
