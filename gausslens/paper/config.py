"""The options of `gausslens study`, `StudyConfig`. This file imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..config import NetworkOptions, PageOptions, among, check_fields, different, positive, whole
from ..errors import require

STUDIES = (
    *("references", "distillation", "linearity", "size", "time", "capacity", "strong"),
    *("networks", "autoencoders", "identity", "jacobian"),
)
"""Names of the studies in the order in which they are done. The first shows results after a minute."""

DEFAULT_STUDIES = STUDIES[:7]
"""The studies that are done by default."""

Where: TypeAlias = Literal["pool", "here", "ray"]


@dataclass(frozen=True, kw_only=True)
class GridOptions(NetworkOptions, PageOptions):
    """The options of all commands that train many networks."""

    on: Where = "pool"
    """Where to compute: in a pool of processes, in this process ("here"), or on a Ray cluster ("ray")."""
    workers: int | None = None
    """Number of tasks to do at a time. Default: one per core; with a GPU, one."""
    budget: float | None = None
    """Minutes to spend. The result uses what is finished by then and says what was left out. Default: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_width = ("network", "one whose width can be chosen", lambda name: name != "linear")
        check_fields(self, has_width, whole("width workers batch", 1), positive("kimg learning_rate budget"))


@dataclass(frozen=True, kw_only=True)
class StudyConfig(GridOptions):
    """The options of a study.

    Raises:
        ConfigError: on an invalid value.
    """

    only: tuple[str, ...] = ()
    """The studies to do, among references (how close is the network to known denoisers?), distillation (is its closest
    linear map the Gaussian's?), linearity (how linear are denoisers?), size (how many images?), time (how long a training?),
    capacity (how wide a network?), strong (do models on disjoint images agree?), networks (does the architecture matter?),
    autoencoders (is it the training over all noise levels?), identity (is the input returned without noise?) and jacobian
    (which changes of an image are kept?). Default: the first seven."""
    full: bool = False
    """Do all studies, for every figure and claim of the paper."""
    sizes: tuple[int, ...] = ()
    """Numbers of training images to compare. Default: chosen for the number of images."""
    few: int | None = None
    """A small number of training images, for the studies of width and of time. Default: chosen for the number of images."""
    subset: int | None = None
    """Number of images whose Gaussian denoiser is compared with that of all images. Default: --few, but at least 64."""
    widths: tuple[int, ...] = ()
    """Numbers of channels to compare, with --few training images. Default: chosen for --width."""
    narrow: int | None = None
    """Number of channels of a narrow network that is trained on the fewest images. Default: chosen for --width."""
    early: float | None = None
    """Length of training with early stopping, in thousands of images. Default: chosen for --kimg."""
    seeds: int = 3
    """How many times to train each network. With fewer than three, no claim can hold. With three or more, the studies
    linearity, size, time, capacity and strong train once more if images have at most 16 pixels a side and the network is the
    default."""
    shown: int = 0
    """Index of the training seed whose images are shown."""
    repetition: int = 0
    """Index of the repetition. Each repetition has its own training seeds and its own split of the images."""
    count: int | None = None
    """Number of images, or of pairs of images, to measure on. Default: half of the held-out images, at most 200."""
    samples: int = 512
    """Number of images to sample from each network."""
    svg: bool = False
    """Also write every figure as an SVG file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            among("only", STUDIES),
            whole("seeds narrow", 1),
            whole("shown repetition", 0),
            whole("count samples few subset", 2),
            positive("early"),
            different("sizes", 2),
            different("widths", 1),
        )
        require(self.shown < self.seeds, f"shown must be below seeds, which is {self.seeds}; got {self.shown}.")

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies to do, in order."""
        wanted = self.only or (STUDIES if self.full else DEFAULT_STUDIES)
        return tuple(name for name in STUDIES if name in wanted)
