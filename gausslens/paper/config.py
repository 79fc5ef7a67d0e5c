"""What `gausslens study` is asked to do: one frozen `StudyConfig`, which imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..config import NetworkName
from ..errors import ConfigError
from ..store.invocation import typed_options

STUDIES = (
    *("references", "distillation", "linearity", "size", "time", "capacity", "strong"),
    *("networks", "autoencoders", "identity", "jacobian"),
)
"""Names of the studies, in the order they are done: the first tells something after a minute."""

DEFAULT_STUDIES = STUDIES[:7]
"""Those that are done unless others, or all, are asked for."""

_CIRCUMSTANCES = ("data", "only", "on", "workers", "budget", "svg", "no_images", "blur", "out", "cpu")

Where: TypeAlias = Literal["pool", "here", "ray"]


@dataclass(frozen=True)
class StudyConfig:
    """What to study, on which images, and how.

    Raises:
        ConfigError: if a field cannot be meant.
    """

    data: str
    """Where the images are: an embedded set ("digits", "fashion"), a folder, a file, or "hf:NAME"."""
    only: tuple[str, ...] = ()
    """Which studies to do, out of references, distillation, linearity, size, time, capacity, strong, networks,
    autoencoders, identity, jacobian; by default the first seven."""
    full: bool = False
    """Do all studies: every figure and claim of the paper."""
    model: NetworkName = "unet"
    """The architecture of the models that are studied."""
    width: int | None = None
    """Channels of the models; by default chosen by image size, as for the options below."""
    sizes: tuple[int, ...] = ()
    """Numbers of training images to compare."""
    few: int | None = None
    """A number of training images that is small for the network, for the studies of width and time."""
    subset: int | None = None
    """A number of images whose Gaussian is held against that of all; by default --few, but at least 64."""
    widths: tuple[int, ...] = ()
    """Channels to compare at that number of images."""
    narrow: int | None = None
    """Channels of a narrow model, on the fewest images."""
    kimg: float | None = None
    """How long to train each model, in thousands of images."""
    early: float | None = None
    """When training is stopped early, in thousands of images."""
    batch: int | None = None
    """Images per training step."""
    learning_rate: float | None = None
    """Adam's step size."""
    seeds: int = 3
    """How many times to train each model; a claim needs three to hold. Small images get one more for sizes and pairs."""
    shown: int = 0
    """Which of these trainings the pictures are of, counted from 0."""
    repetition: int = 0
    """Another number repeats the whole study: with other training seeds, and another split of the images."""
    count: int | None = None
    """Images, or pairs of images, behind every number; by default half of those held out, at most 200."""
    samples: int = 512
    """Generated images of each model."""
    size: int | None = None
    """Resize and centre-crop the images to this height and width; by default they stay as they are."""
    value_range: tuple[float, float] | None = None
    """The values that become -1 and 1, needed for 16-bit and float images."""
    skip_broken: bool = False
    """Leave files that cannot be decoded out, instead of stopping."""
    held_out: int | None = None
    """How many images no training set touches; by default a fifth."""
    on: Where = "pool"
    """Where to work: in a pool of processes, in this process ("here"), or on a Ray cluster ("ray")."""
    workers: int | None = None
    """How many models to work on at a time; by default one for each core, and one with a GPU."""
    budget: float | None = None
    """Minutes to spend; what tells most is done first, and what was left out is said."""
    svg: bool = False
    """Also write every figure as an SVG file."""
    no_images: bool = False
    """Embed no images in the page, for private data."""
    blur: bool = False
    """Blur the images in the page beyond recovery."""
    out: str = "runs"
    """The folder that holds the study's folder, and the models."""
    cpu: bool = False
    """Use the CPU even if there is a GPU."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.only if name not in STUDIES]
        if unknown:
            raise ConfigError(f"only must name some of {', '.join(STUDIES)}; got {', '.join(unknown)}.")
        for name, least in (
            ("seeds", 1),
            ("shown", 0),
            ("repetition", 0),
            ("count", 2),
            ("samples", 2),
            ("workers", 1),
            ("few", 2),
            ("subset", 2),
            ("width", 1),
            ("narrow", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}; got {value}.")
        for name in ("kimg", "early", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be a finite number above 0; got {value}.")
        if self.sizes and (len(set(self.sizes)) < 2 or min(self.sizes) < 2):
            raise ConfigError(f"sizes must be two or more different numbers, each at least 2; got {self.sizes}.")
        if self.widths and (len(set(self.widths)) < 2 or min(self.widths) < 1):
            raise ConfigError(f"widths must be two or more different numbers above 0; got {self.widths}.")
        if self.shown >= self.seeds:
            raise ConfigError(f"shown must be below seeds, which is {self.seeds}; got {self.shown}.")
        if self.no_images and self.blur:
            raise ConfigError("images can be left out (--no-images) or blurred (--blur), not both.")

    @property
    def words(self) -> str:
        """The options that decide a number, as they are typed: those that differ from their defaults."""
        return typed_options(self, _CIRCUMSTANCES)

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies to do, in their order."""
        wanted = self.only or (STUDIES if self.full else DEFAULT_STUDIES)
        return tuple(name for name in STUDIES if name in wanted)
