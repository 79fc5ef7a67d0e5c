"""The options of `gausslens how-many`, `HowManyConfig`. This file imports nothing heavy."""

from dataclasses import asdict, dataclass, fields

from ..config import check_fields, different, whole
from ..paper.config import GridOptions, StudyConfig


@dataclass(frozen=True, kw_only=True)
class HowManyConfig(GridOptions):
    """Which network, on which images, and how many times to train it.

    Raises:
        ConfigError: on an invalid value.
    """

    sizes: tuple[int, ...] = ()
    """Numbers of training images to try first. Default: 16, 32, 64, … up to all."""
    seeds: int = 4
    """How many networks to train at each size near the one at which copying stops, each on different images."""
    samples: int = 256
    """Number of images to sample from each network. Copies are counted among them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, whole("seeds", 1), whole("samples", 16), different("sizes", 2))

    @property
    def study(self) -> StudyConfig:
        """The study whose plan decides how networks are trained on these images. Its sizes are not used."""
        shared = asdict(self)
        return StudyConfig(**{field.name: shared[field.name] for field in fields(GridOptions)}, few=2)
