"""What `gausslens how-many` is asked to do: one frozen `HowManyConfig`, which imports nothing heavy."""

from dataclasses import dataclass

from ..config import NetworkName
from ..errors import require
from ..paper.config import StudyConfig, Where

_SHARED = (
    *("data", "model", "width", "kimg", "batch", "learning_rate", "size", "value_range", "skip_broken", "held_out"),
    *("on", "workers", "no_images", "blur", "out", "cpu"),
)


@dataclass(frozen=True)
class HowManyConfig:
    """Which network, on which images, and how carefully to look.

    Raises:
        ConfigError: if a field cannot be meant.
    """

    data: str
    """Where the images are: an embedded set ("digits", "fashion"), a folder, a file, or "hf:NAME"."""
    model: NetworkName = "unet"
    """The architecture of the network."""
    width: int | None = None
    """Channels of the network; by default chosen by image size, as for the next three."""
    kimg: float | None = None
    """How long to train, in thousands of images: the answer is for networks that are trained so long."""
    batch: int | None = None
    """Images per training step."""
    learning_rate: float | None = None
    """Adam's step size."""
    sizes: tuple[int, ...] = ()
    """Numbers of training images to try first; by default 16, 32, 64, … up to all."""
    seeds: int = 4
    """How many times to train around the number that is looked for, each time on other images."""
    samples: int = 256
    """Generated images of each network, among which copies are counted."""
    size: int | None = None
    """Resize and centre-crop the images to this height and width; by default they stay as they are."""
    value_range: tuple[float, float] | None = None
    """The values that become black and white, 0 and 255; needed for 16-bit and float images."""
    skip_broken: bool = False
    """Leave files that cannot be decoded out, instead of stopping."""
    held_out: int | None = None
    """How many images no network is trained on; by default a fifth."""
    on: Where = "pool"
    """Where to work: in a pool of processes, in this process ("here"), or on a Ray cluster ("ray")."""
    workers: int | None = None
    """How many networks to train at a time; by default one for each core, and one with a GPU."""
    budget: float | None = None
    """Minutes to spend; the answer is from whatever was finished by then."""
    no_images: bool = False
    """Embed no images in the page, for private data."""
    blur: bool = False
    """Blur the images in the page beyond recovery."""
    out: str = "runs"
    """The folder that holds the answer's folder, and the models."""
    cpu: bool = False
    """Use the CPU even if there is a GPU."""

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("samples", 16), ("batch", 1)):
            value = getattr(self, name)
            require(value is None or value >= least, f"{name} must be at least {least}; got {value}.")
        for name in ("learning_rate", "budget"):
            value = getattr(self, name)
            require(value is None or 0 < value < float("inf"), f"{name} must be a finite number above 0; got {value}.")
        require(
            not self.sizes or (len(set(self.sizes)) > 1 and min(self.sizes) > 1),
            f"sizes must be two or more different numbers, each at least 2; got {', '.join(map(str, self.sizes))}.",
        )
        _ = self.study  # which checks the options that both have

    @property
    def study(self) -> StudyConfig:
        """The study whose plan says how networks on these images are trained; its sizes are not used."""
        return StudyConfig(**{name: getattr(self, name) for name in _SHARED}, few=2)
