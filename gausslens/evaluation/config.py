"""The options of `gausslens measure`: one frozen `MeasureConfig`. This file imports nothing heavy."""

from dataclasses import dataclass

from ..config import RunOptions, among, check_fields, levels, whole

MEASURES = (
    *("duplicates", "denoising_loss", "linearity", "gap", "linear_gap", "identity_gap"),
    *("distillation", "alignment", "memorization", "agreement", "jacobian"),
)
"""Names of the measures, in the order they are taken."""


@dataclass(frozen=True, kw_only=True)
class MeasureConfig(RunOptions):
    """What to measure, on which network.

    Raises:
        ConfigError: on an invalid value.
    """

    only: tuple[str, ...] = ()
    """The measures to take, out of duplicates, denoising_loss, linearity, gap, linear_gap, identity_gap, distillation,
    alignment, memorization, agreement, jacobian. Default: all."""
    sigmas: tuple[float, ...] = ()
    """The noise levels. Default: ten from 80 down to 0.002."""
    count: int = 100
    """Images, or pairs of images, behind every number."""
    samples: int = 256
    """Generated images for memorization and agreement."""
    calls: int | None = None
    """Network calls for each distilled noise level. Default: ten a dimension up to 3,072 dimensions (12,288 on a large GPU),
    and none above."""
    out: str | None = None
    """The folder that holds the folder of results. Default: the one that holds the run."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            among("only", MEASURES),
            whole("count samples", 2),
            whole("steps", 1),
            whole("calls", 4),
            levels("sigmas"),
        )
