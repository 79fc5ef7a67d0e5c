"""The options of `gausslens audit`, `AuditConfig`. This file imports nothing heavy."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from ..config import ImageOptions, PageOptions, among, check_fields, levels, whole
from ..errors import ConfigError

Augment: TypeAlias = Literal["flip"]
FAIL_ON = ("memorizing", "partly-memorizing", "membership", "cannot-tell")
"""The results that --fail-on accepts."""

_ALIASES = {"memorising": "memorizing", "partly-memorising": "partly-memorizing", "in-transition": "partly-memorizing"}


@dataclass(frozen=True)
class AuditConfig(ImageOptions, PageOptions):
    """Which model to audit, against which images.

    Raises:
        ConfigError: on an invalid value.
    """

    model: str
    """The model: a run of `gausslens train` or one of its snapshots, an EDM network (.pkl), a diffusers folder, or
    package.module:object."""
    train: str | None = None
    """The images it was trained on: a folder, a file, an embedded set, or "hf:NAME". Default: those that a run of
    `gausslens train` names."""
    held_out: str | None = None
    """Images of the same source that the model was not trained on. Without them most results cannot be judged. Default:
    none, or those of a run of `gausslens train`."""
    _: KW_ONLY
    unseen: int | None = None
    """Treat the last N images of --train as held out: the model was not trained on them. Default: none."""
    kimg: float | None = None
    """Which snapshot of a run of `gausslens train` to use: its length of training in thousands of images. Default: the
    last."""
    augment: Augment | None = None
    """"flip" for a model that was also trained on mirror images. Default: none."""
    sigmas: tuple[float, ...] = ()
    """The noise levels. Default: ten from 80 down to 0.002, within the model's own range."""
    groups: str | None = None
    """Which images belong together, such as those of one patient: FILE.csv:COLUMN, or a regular expression on file names.
    A group counts as one image: copies of any of its images count as copies of the same original. Default: each image is
    its own group, or the groups of a run of `gausslens train`."""
    count: int = 1000
    """Number of training images, and of held-out images, for every measure that needs no samples."""
    noises: int | None = None
    """Number of draws of noise for each image and noise level. Default: 16 for up to 200 images, fewer for more."""
    samples: int | None = None
    """Number of images to sample; 0 for none. Default: 10,000 with a GPU; without one, 2,000 small images or 256 larger
    ones."""
    steps: int = 18
    """Number of noise levels of the sampler."""
    features: str | None = None
    """Also compare samples in a feature space: "efficientnet-lite0", a TorchScript or ONNX file, or package.module:object.
    Default: only pixels are compared."""
    seed: int = 0
    """Seed of the choice of images, of the noise and of the samples."""
    fail_on: tuple[str, ...] = ()
    """End with exit code 3 on these results: memorizing; partly-memorizing, which includes memorizing; membership, if the
    losses reveal training images; cannot-tell. Default: none."""
    json: bool = False
    """Print the audit as JSON."""
    out: str = "runs"
    """The parent folder. The audit gets its own folder in it."""
    cpu: bool = False
    """Use the CPU even if there is a GPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fail_on", tuple(_ALIASES.get(name, name) for name in self.fail_on))
        check_fields(
            self,
            among("fail_on", FAIL_ON),
            whole("count", 4),
            whole("noises steps unseen size", 1),
            whole("samples", 0),
            levels("sigmas"),
        )
        if self.held_out is not None and self.unseen is not None:
            raise ConfigError("held-out images are named by --held-out or by --unseen, not by both.")
        of_train = (self.held_out, self.unseen, self.size, self.value_range, self.skip_broken or None, self.groups)
        if self.train is None and any(option is not None for option in of_train):
            raise ConfigError(
                "--held-out, --unseen, --size, --range, --skip-broken and --groups need --train; a run of `gausslens train` "
                "records its own images."
            )
        if self.features is not None and self.samples == 0:
            raise ConfigError("features must be left out with --samples 0, since they compare samples.")
