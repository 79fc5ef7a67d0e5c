"""What `gausslens audit` is asked to do: one frozen `AuditConfig`, which imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..errors import require

Augment: TypeAlias = Literal["flip"]
FAIL_ON = ("memorizing", "partly-memorizing", "membership", "cannot-tell")
"""What an audit can be asked to fail on."""

_ALIASES = {"memorising": "memorizing", "partly-memorising": "partly-memorizing", "in-transition": "partly-memorizing"}


@dataclass(frozen=True)
class AuditConfig:
    """Which model to audit, against which images.

    Raises:
        ConfigError: if a field cannot be meant.
    """

    model: str
    """The model: a run of `gausslens train` or one of its snapshots, an EDM network (.pkl), a folder of diffusers, or
    package.module:object."""
    train: str | None = None
    """The images it was trained on: a folder, a file, an embedded set, or "hf:NAME"; a run of ours knows its own."""
    held_out: str | None = None
    """Images of the same source that it has not seen; without them most numbers have nothing to be compared with."""
    unseen: int | None = None
    """How many of the last images of --train it has not seen: they are held out."""
    size: int | None = None
    """Resize and centre-crop the images to this height and width, as was done for training."""
    value_range: tuple[float, float] | None = None
    """The values that become black and white, 0 and 255; needed for 16-bit and float images."""
    skip_broken: bool = False
    """Leave files that cannot be decoded out, instead of stopping."""
    kimg: float | None = None
    """Which snapshot of a run of ours, in thousands of images; by default the last."""
    augment: Augment | None = None
    """"flip" for a model that was trained on mirror images, too."""
    sigmas: tuple[float, ...] = ()
    """The noise levels; by default ten from 80 down to 0.002, within the model's own range."""
    groups: str | None = None
    """Which images belong together, such as those of one patient: FILE.csv:COLUMN, or a regular expression on file names.
    They are then one unit, and copies of any of them are copies of one original. A run of ours knows its own."""
    count: int = 1000
    """Training images, and as many held-out ones, behind every number that needs no samples."""
    noises: int | None = None
    """Noises for each of these images and noise levels; by default 16 for up to 200 images, fewer for more."""
    samples: int | None = None
    """Generated images, 0 for none; by default 10,000 with a GPU, without 2,000 of small images or 256 of larger ones."""
    steps: int = 18
    """Noise levels of the sampler, Heun's."""
    features: str | None = None
    """Compare samples in a feature space, too: "efficientnet-lite0", a TorchScript or ONNX file, or
    package.module:object."""
    seed: int = 0
    """Decides images, noise and samples."""
    fail_on: tuple[str, ...] = ()
    """End with exit code 3 if one of these is found: memorizing; partly-memorizing, or worse; membership, if the model leaks
    it; cannot-tell. Several are separated by spaces or commas."""
    json: bool = False
    """Print the audit as JSON."""
    no_images: bool = False
    """Embed no images in the page, for private data."""
    blur: bool = False
    """Blur the images in the page beyond recovery."""
    out: str = "runs"
    """The folder that holds the audit's folder."""
    cpu: bool = False
    """Use the CPU even if there is a GPU."""

    def __post_init__(self) -> None:
        entries = (self.fail_on,) if isinstance(self.fail_on, str) else self.fail_on
        asked = [part for entry in entries for part in entry.replace("_", "-").split(",") if part]
        limits = tuple(dict.fromkeys(_ALIASES.get(part, part) for part in asked))
        unknown = [limit for limit in limits if limit not in FAIL_ON]
        require(not unknown, f"fail_on must be among {', '.join(FAIL_ON)}; got {', '.join(unknown)}.")
        object.__setattr__(self, "fail_on", limits)
        for name, least in (("count", 4), ("noises", 1), ("steps", 1), ("unseen", 1), ("samples", 0), ("size", 1)):
            value = getattr(self, name)
            require(value is None or value >= least, f"{name} must be at least {least}; got {value}.")
        require(
            all(0 < sigma < float("inf") for sigma in self.sigmas),
            f"sigmas must be above 0 and finite; got {', '.join(map(str, self.sigmas))}.",
        )
        require(
            self.held_out is None or self.unseen is None,
            "held-out images are given by --held-out or by --unseen, not by both.",
        )
        require(
            self.train is not None or (self.held_out is None and self.unseen is None),
            "--held-out and --unseen go with --train; a run of ours knows its own images.",
        )
        require(
            self.train is not None or not (self.size or self.value_range or self.skip_broken or self.groups),
            "--size, --range, --skip-broken and --groups go with --train; a run of ours knows its own images.",
        )
        require(
            self.features is None or self.samples != 0,
            "features must be left out with --samples 0: they are of samples.",
        )
        require(
            not (self.no_images and self.blur), "images can be left out (--no-images) or blurred (--blur), not both."
        )
