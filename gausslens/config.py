"""The options of a training run, `TrainConfig`, and the options that it shares with the configs of other commands.

`resolve` chooses the fields that are None from the network and the image size. The fields that change what is learned are
the identity of the run, together with the images and `VERSION`. The others, `_RUNTIME_OPTIONS`, may change from one call to
the next without starting another run. Precisions "float32" and "bf16" are two runs; "auto" is one run that may move between
devices.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from .errors import ConfigError, require
from .identity import identity_of, semantic_fields

T = TypeVar("T")

NetworkName: TypeAlias = Literal["unet", "ncsnpp", "ddpmpp", "adm", "linear", "skipnet", "dit"]
Preconditioning: TypeAlias = Literal["edm", "vp", "ve", "none"]
Precision: TypeAlias = Literal["auto", "float32", "bf16"]

Images: TypeAlias = Literal["shown", "blurred", "none"]
"""How a page shows images."""

VERSION = 1
"""The version of the training code. It changes when the same config gives other weights."""

AUGMENT_INPUTS = 9

_RUNTIME_OPTIONS = {
    *("data", "size", "value_range", "skip_broken", "groups"),  # hashes of the images and groups stand for these
    *("kimg", "snapshots", "monitor", "stop_when_memorizing", "compile", "cpu", "tracker", "out"),
}


class Recipe(NamedTuple):
    """How a network is trained: the fields of a `TrainConfig` that `resolve` sets."""

    batch: int
    learning_rate: float
    ramp_kimg: float
    ema_kimg: float
    kimg: float
    level_mean: float = -1.2
    level_spread: float = 1.2


Rule: TypeAlias = tuple[str, str, Callable[[Any], bool]]
"""Names of fields, what their values must be, and a test of a value. A field whose default is None may also be None."""


def check_fields(config: Any, *rules: Rule) -> None:
    """Raise an error if a field of a config breaks a rule."""
    optional = {field.name for field in fields(config) if field.default is None}
    for names, expected, holds in rules:
        for name in names.split():
            value = getattr(config, name)
            if not (value is None and name in optional) and not holds(value):
                given = ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else repr(value)
                raise ConfigError(f"{name} must be {expected}; got {given}.")


def whole(names: str, least: int) -> Rule:
    """Fields that hold integers."""
    return names, f"an integer of at least {least}", lambda value: _is_whole(value) and value >= least


def positive(names: str) -> Rule:
    """Fields that hold numbers above 0."""
    return names, "a finite number above 0", lambda value: _is_number(value) and value > 0


def among(names: str, choices: Sequence[str]) -> Rule:
    """Fields that hold some of these words."""
    return names, f"among {', '.join(choices)}", lambda values: set(values) <= set(choices)


def levels(names: str) -> Rule:
    """Fields that hold noise levels."""
    return names, "above 0 and finite", lambda values: all(0 < value < math.inf for value in values)


def different(names: str, least: int) -> Rule:
    """Fields that hold numbers to compare."""
    expected = f"two or more different integers, each at least {least}"
    return names, expected, lambda values: not values or (len(set(values)) > 1 and min(values) >= least)


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How images are read."""

    size: int | None = None
    """Resize and centre-crop the images to this height and width. Default: the images stay as they are."""
    value_range: tuple[float, float] | None = None
    """The pixel values that are mapped to black (LOW) and to white (HIGH). 16-bit and float images need it. Default: 0 255
    for 8-bit images."""
    skip_broken: bool = False
    """Skip files that cannot be decoded instead of stopping."""

    @property
    def reading(self) -> dict[str, Any]:
        """The options as `load_images` takes them."""
        return {"size": self.size, "value_range": self.value_range, "skip_broken": self.skip_broken}


@dataclass(frozen=True)
class NetworkOptions(ImageOptions):
    """Which network is trained, on which images, and where it is saved."""

    data: str
    """The images: an embedded set ("digits", "fashion"), a folder, a file, or "hf:NAME"."""
    _: KW_ONLY
    held_out: int | None = None
    """Number of images to hold out from every training set. Default: a fifth of all images."""
    network: NetworkName = "unet"
    """The architecture of the network."""
    width: int | None = None
    """Number of channels at full resolution. Default: chosen for the network and the image size."""
    batch: int | None = None
    """Images per training step, over all devices. Default: chosen for the network and the image size."""
    learning_rate: float | None = None
    """Adam's step size after its initial rise. Default: chosen for the network and the image size."""
    kimg: float | None = None
    """How long to train a network, in thousands of images seen, counting repeats. Default: chosen for the network and the
    image size."""
    out: str = "runs"
    """The parent folder. Each result gets its own folder in it."""
    cpu: bool = False
    """Use the CPU even if there is a GPU."""


@dataclass(frozen=True)
class RunOptions:
    """Which trained network to use, and how to sample from it."""

    run: str
    """The folder of a run of `gausslens train`."""
    _: KW_ONLY
    kimg: float | None = None
    """Which snapshot to use: its length of training in thousands of images. Default: the last."""
    weights: Literal["ema", "raw"] = "ema"
    """Use the moving average of the weights (ema) or the weights themselves (raw)."""
    data: str | None = None
    """Where the training images are now, if they have moved. Default: where they were during training."""
    steps: int = 18
    """Number of noise levels of the sampler."""
    seed: int = 0
    """Seed of the noise and, in `gausslens measure`, of the choice of images."""
    cpu: bool = False
    """Use the CPU even if there is a GPU."""


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What a page may show."""

    no_images: bool = False
    """Embed no images in the page, for private data."""
    blur: bool = False
    """Blur the images in the page beyond recovery."""

    def __post_init__(self) -> None:
        if self.no_images and self.blur:
            raise ConfigError("images can be left out (--no-images) or blurred (--blur), not both.")

    @property
    def images(self) -> Images:
        """How the page shows images."""
        return "none" if self.no_images else "blurred" if self.blur else "shown"


def _checks_itself(cls: type[T]) -> type[T]:
    """Leave checks of arguments to `__post_init__`, also where tests check the types of every call."""
    cls.__init__.__annotations__.clear()
    return cls


@_checks_itself
@dataclass(frozen=True, kw_only=True)
class TrainConfig(NetworkOptions):
    """Everything that decides a training run.

    With `sigma`, the network is trained for one noise level on the plain error ‖D(x; σ) − x0‖², as the denoising
    autoencoders of App. G.2 of arXiv:2410.24060 are. Without it, the network is trained for all noise levels on Eq. (52).

    Raises:
        ConfigError: on an invalid value.

    >>> TrainConfig("digits", split="1400").resolve((1, 8, 8)).preconditioning
    'edm'
    """

    split: str = "all"
    """The images to train on: "all" (those not held out), a number of them such as "1400", or one of two disjoint sets such
    as "s1:700" and "s2:700". "1400@2" is another 1,400 images: draw 2, counted from 0."""
    split_seed: int = 0
    """Seed of the random split into training and held-out images."""
    groups: str | None = None
    """Which images belong together, such as those of one patient: "FILE.csv:COLUMN", or a regular expression on file names.
    A group is held out as a whole or not at all. Default: each image is its own group."""
    multipliers: tuple[int, ...] | None = None
    """Channels at each resolution, as multiples of the width. Default: the architecture's own."""
    blocks: int | None = None
    """Number of residual blocks per resolution. Default: the architecture's own."""
    attention: tuple[int, ...] | None = None
    """Resolutions with self-attention. Default: the architecture's own."""
    dropout: float = 0.0
    """Probability of dropping an activation."""
    augment: float = 0.0
    """Probability of each geometric transformation of a training image. An extra input of the network says which were
    applied."""
    flip: bool = False
    """Train on mirror images as well, which doubles the data."""
    labels: bool = False
    """Train a network that is conditioned on the labels of the images."""
    preconditioning: Preconditioning | None = None
    """How the input and the output of the network are scaled (Karras et al., 2022). Default: "edm"; with --sigma, "none"."""
    sigma: float | None = None
    """Train for this noise level only. Default: all noise levels."""
    level_mean: float | None = None
    """Mean of ln σ over the noise levels of training, for the preconditionings "edm" and "none". Default: chosen for the
    network and the image size."""
    level_spread: float | None = None
    """Standard deviation of ln σ over the noise levels of training. Default: chosen for the network and the image size."""
    ramp_kimg: float | None = None
    """Thousands of images over which the learning rate rises from 0. Default: chosen for the network."""
    ema_kimg: float | None = None
    """Half-life of the moving average of the weights, in thousands of images. Early in training it is 5 % of the images seen
    so far. Default: chosen for the network."""
    snapshots: tuple[float, ...] = ()
    """When to save the weights, in thousands of images. They are always saved at the end. Default: only at the end."""
    monitor: bool = False
    """Watch whether the network begins to memorise, and save the weights from before memorising begins. This does not change
    the training."""
    stop_when_memorizing: bool = False
    """Watch the network as --monitor does, and stop as soon as it memorises."""
    seed: int = 0
    """Seed of the initial weights, of the order of the images and of the noise."""
    precision: Precision = "auto"
    """Arithmetic of the network. "auto" is bf16 on a GPU that supports it, and float32 elsewhere."""
    compile: bool | None = None
    """Compile the network's blocks. Default: only on a GPU, if training is long enough to gain from it."""
    tracker: str | None = None
    """Also log to a tracker that accelerate supports, such as "tensorboard" or "wandb". Default: none."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), list):  # JSON and Python users bring lists
                object.__setattr__(self, field.name, tuple(value))
        check_fields(self, *_RULES)
        kept = tuple(sorted({_ten_digits(value) for value in self.snapshots}))
        object.__setattr__(self, "snapshots", kept)
        for name in _NUMBERS.split():  # 1 and 1.0 are the same run
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _ten_digits(value) if name == "kimg" else float(value))
        fits = self.kimg is None or all(value <= self.kimg for value in kept)
        require(fits, f"snapshots must be at most kimg, which is {self.kimg}; got {kept!r}.")

    def resolve(self, shape: tuple[int, int, int]) -> "TrainConfig":
        """This config with a value in place of every None that is a choice, for images of `shape` (c, h, w)."""
        side = max(shape[1:])
        recipe = next(row for names, most, row in _RECIPES if self.network in names.split() and side <= most)
        chosen = {name: value for name, value in recipe._asdict().items() if getattr(self, name) is None}
        if self.preconditioning is None:
            chosen["preconditioning"] = "edm" if self.sigma is None else "none"
        return replace(self, **chosen)

    def identity(self, content_hash: str, labels_hash: str | None = None, groups_hash: str | None = None) -> str:
        """Eight hexadecimal digits that name what is learned: the semantic fields, the images and `VERSION`.

        Args:
            content_hash: of the images.
            labels_hash: of their labels, if the network is conditioned on them.
            groups_hash: of their groups, if splits keep groups together.

        Returns:
            The digits; equal for two resolved configs exactly when one run can serve both.
        """
        learned: Any = content_hash if labels_hash is None else [content_hash, labels_hash]
        if groups_hash is not None:
            learned = [content_hash, labels_hash, groups_hash]
        return identity_of(VERSION, learned, semantic_fields(self, _RUNTIME_OPTIONS))

    @property
    def recipe(self) -> Recipe:
        """Batch, learning rate, ramp, moving average, length and noise levels of a resolved config."""
        values = {name: getattr(self, name) for name in Recipe._fields}
        for name, value in values.items():
            require(value is not None, f"{name} is still open; resolve the config for the shape of the images first.")
        return Recipe(**values)

    @property
    def steps(self) -> int:
        """Training steps of a resolved config: the images of `kimg`, rounded up to whole batches."""
        return self.step_at(self.recipe.kimg)

    def step_at(self, kimg: float | int) -> int:
        """The step after which a resolved config has seen `kimg` thousands of images."""
        return math.ceil(round(kimg * 1000) / self.recipe.batch)


# Networks, the largest image side and the recipe for it; the large networks' recipes follow Karras et al. (2022).
_RECIPES = (
    # So few pixels show little detail. What they show is decided at noise levels of the order of the image.
    ("unet", 8, Recipe(256, 6e-3, ramp_kimg=10, ema_kimg=50, kimg=250, level_mean=-0.3, level_spread=0.6)),
    ("unet", math.inf, Recipe(128, 5e-3, ramp_kimg=10, ema_kimg=50, kimg=180)),
    ("linear skipnet dit", math.inf, Recipe(128, 1e-3, ramp_kimg=10, ema_kimg=50, kimg=500)),
    ("ncsnpp ddpmpp adm", 63, Recipe(512, 1e-3, ramp_kimg=500, ema_kimg=500, kimg=5000)),
    ("ncsnpp ddpmpp adm", math.inf, Recipe(256, 2e-4, ramp_kimg=500, ema_kimg=500, kimg=5000)),
)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ten_digits(kimg: float | int) -> float:
    """A length of training with the digits that the name of a snapshot has."""
    return float(f"{kimg:.10g}")


def _choice(choices: Any) -> tuple[str, Callable[[Any], bool]]:
    return f"one of {', '.join(get_args(choices))}", lambda value: value in get_args(choices)


_NUMBERS = "sigma level_mean level_spread learning_rate kimg ramp_kimg ema_kimg dropout augment"
_RULES: tuple[Rule, ...] = (
    ("network", *_choice(NetworkName)),
    ("precision", *_choice(Precision)),
    ("preconditioning", *_choice(Preconditioning)),
    ("data split out groups", "a text that is not empty", lambda value: isinstance(value, str) and value != ""),
    whole("size width blocks batch", 1),
    whole("held_out split_seed seed", 0),
    positive("sigma level_spread learning_rate kimg"),
    ("level_mean", "a finite number", _is_number),
    ("ramp_kimg ema_kimg", "a finite number, at least 0", lambda value: _is_number(value) and value >= 0),
    ("dropout augment", "a probability, at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1),
    ("multipliers attention", "integers above 0", lambda values: all(_is_whole(n) and n > 0 for n in values)),
    ("snapshots", "numbers of kimg, at least 0", lambda values: all(_is_number(n) and n >= 0 for n in values)),
    (
        "value_range",
        "two numbers, LOW below HIGH",
        lambda ends: len(ends) == 2 and all(map(_is_number, ends)) and ends[0] < ends[1],
    ),
)
