"""A plan: what a study trains and measures, with every number decided, and the tasks that do it.

All studies take their models from here, so that two that need the same model name the same task and it is trained once.
By default, of `available` training images (all but those held out), models are trained on

    sizes  the least that make sense · a few · between · half · all
    few    a 64th of them, at least 48: small for the network, for the studies of width and time

as the paper does with 70,000/2ᵏ and 50,000/2ᵏ images. Subsets of at most half are the first of two disjoint sets ("s1:64"),
so that models for the study of strong generalisation are the same ones.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from ..config import TrainConfig
from ..data.loading import ImageSet
from ..data.splits import Splits
from ..errors import CheckpointError, ConfigError
from ..evaluation.model_tasks import measure_model, sample_model, train_model
from ..experiments.costs import seconds_to_call, seconds_to_train
from ..experiments.task import Task, Work
from ..nn import default_options
from ..store.typed_command import typed_command
from .config import StudyConfig

_REPETITION = 100  # added to all seeds for each repetition of a study
OTHER_HALF = 1000  # added to the seed of a model on the second of two disjoint sets: the two share nothing
_TIMES = (1 / 48, 1 / 32, 1 / 24, 1 / 16, 1 / 12, 1 / 8, 1 / 6, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
_EARLY_KIMG = 12.0  # by when a network on small images has learned something, and has not turned to its own images yet
# Images of few pixels: a network that two cores train in a quarter of a minute, and that can memorise in that time.
_QUICK_PIXELS = 16
_LAYOUT = ("width", "multipliers", "blocks", "attention")
_COUNT = 200  # images behind a number
_FEWEST = 10  # images that a model must surely memorise
_FEW = 48  # images that it comes to memorise while it is trained
_LEAST_SUBSET = 64  # images whose covariance means something
_QUICK = {"width": 24, "multipliers": (1,), "blocks": 1, "batch": 64, "learning_rate": 6e-3, "kimg": 80.0}
_RISE = 1 / 20  # the share of training over which the step size may rise
_QUICK_TRAINING = {"ramp_kimg": 2.0, "ema_kimg": 10.0, "level_mean": -1.2, "level_spread": 1.2}


@dataclass(frozen=True)
class Plan:
    """What a study trains and measures.

    Attributes:
        data: where the images are.
        name: of the data.
        content_hash: of the images.
        shape: of one image, (c, h, w).
        available: images that may be trained on.
        studies: names of the studies to do.
        options: what was typed to get this plan, for a reader who wants the same.
        training: fields of the `TrainConfig` that all models share.
        sizes: numbers of training images, ascending.
        few: the number for the studies of width and time.
        subset: the number whose Gaussian is held against that of all images.
        widths: channels to compare at `few`, ascending; the model's own is among them.
        narrow: channels of a narrow model.
        kimg: how long every model is trained.
        early: when training is stopped early.
        seeds: how often every model is trained.
        sweep_seeds: how often where numbers of images, widths, lengths of training or pairs of models are compared.
        shown: the training, from 0, that pictures are of, and whatever is looked at once only; it changes no number that
            others are compared with.
        repetition: of the whole study.
        count: images behind every number.
        samples: generated images of each model.
        cpu: whether a GPU is left alone.
    """

    data: str
    name: str
    content_hash: str
    shape: tuple[int, int, int]
    available: int
    studies: tuple[str, ...]
    options: str
    training: Mapping[str, Any]
    sizes: tuple[int, ...]
    few: int
    subset: int
    widths: tuple[int, ...]
    narrow: int
    kimg: float
    early: float
    seeds: int
    sweep_seeds: int
    shown: int
    repetition: int
    count: int
    samples: int
    cpu: bool

    @property
    def command(self) -> str:
        """What a reader would type to make the same."""
        return typed_command("study", self.data, self.options)

    @property
    def width(self) -> int:
        """Channels of the models that are studied."""
        return int(self.training["width"])

    @property
    def dim(self) -> int:
        """Pixels of an image times its channels."""
        return math.prod(self.shape)

    @property
    def times(self) -> tuple[float, ...]:
        """When the study of time looks, in kimg; the end is the last. A long training is looked at early as well."""
        halvings = max(math.ceil(math.log2(_TIMES[0] * self.kimg / _EARLY_KIMG)), 0)
        shares = (*(_TIMES[0] / 2**n for n in range(halvings, 0, -1)), *_TIMES)
        return (*(_rounded(share * self.kimg) for share in shares), self.kimg)

    @property
    def short(self) -> float:
        """A shorter training, to compare widths after."""
        return _rounded(self.kimg / 4)

    def seed(self, number: int) -> int:
        """The seed that is the first, second, … of this repetition, counted from 0."""
        return number + _REPETITION * self.repetition

    def split(self, n: int, half: int = 1) -> str:
        """The name of a training set: of one of two disjoint sets while there are enough images for two."""
        return f"s{half}:{n}" if 2 * n <= self.available else str(n)

    def model(self, n: int, seed: int, *, half: int = 1, width: int | None = None, **changes: Any) -> Task:
        """The task that trains a model."""
        width = width or self.width
        given = {**self.training, "split": self.split(n, half), "width": width, "kimg": self.kimg}
        given |= {"seed": self.seed(seed) + (OTHER_HALF if half == 2 else 0), **changes}
        known = default_options(given["network"], self.shape)
        given = {name: value for name, value in given.items() if name in known or name not in _LAYOUT}
        given.setdefault("snapshots", self._snapshots(n, given["width"]) if not changes else ())
        config = TrainConfig(data=self.data, **given)
        said = {name: _listed(value) for name, value in given.items()}
        return Task(
            train_model,
            {"config": said, "content_hash": self.content_hash},
            runtime={"data": self.data, "cpu": self.cpu},
            cost=seconds_to_train(config, self.shape, cpu=self.cpu),
        )

    def measured(self, model: Task, *measures: str, kimg: float | None = None, **options: Any) -> Task:
        """The task that takes measures of `gausslens measure` on a model."""
        return self.on_model(measure_model, model, kimg=kimg, measures=list(measures), **options)

    def sampled(self, model: Task, *, kimg: float | None = None) -> Task:
        """The task that samples a model and its controls, finds nearest training images and counts copies."""
        return self.on_model(sample_model, model, kimg=kimg, samples=self.samples)

    def on_model(self, work: Work, *needs: Task, calls: int | None = None, **options: Any) -> Task:
        """A task that works on models."""
        config = TrainConfig(data=self.data, **needs[0].options["config"]) if "config" in needs[0].options else None
        given = {name: _listed(value) for name, value in options.items() if value is not None}
        return Task(
            work,
            {"count": self.count, **given},
            needs,
            runtime={"data": self.data, "cpu": self.cpu},
            cost=seconds_to_call(config, self.shape, calls or 300 * self.count, cpu=self.cpu) if config else 1.0,
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON can hold it; `Plan.from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        """The plan that `as_json` wrote down; a field that is newer than the plan has its default."""
        known = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        if other := ", ".join(sorted((set(value) - known) | (needed - set(value)))):
            raise CheckpointError(f"this study was planned by another version of gausslens ({other}); run it again.")
        return cls(**{name: _tupled(part) for name, part in value.items()})

    def _snapshots(self, n: int, width: int) -> tuple[float, ...]:
        """What other studies look at of the same model."""
        kept: set[float] = set()
        if width == self.width and n in (self.few, self.sizes[-1]):
            kept |= set(self.times)
        if n == self.few:
            kept.add(self.short)
        if n == self.sizes[0]:
            kept.add(self.early)
        return tuple(sorted(kept - {self.kimg}))


def make_plan(config: StudyConfig, images: ImageSet) -> Plan:
    """Decide every number of a study."""
    splits = Splits(len(images), held_out=config.held_out, seed=config.repetition)
    available, side = splits.available, max(images.shape[1:])
    if available < 64 or len(splits.held_out) < 20:
        raise ConfigError(
            f"expected at least 64 images to train on and 20 held out; {images.name} has {available} and "
            f"{len(splits.held_out)}."
        )
    quick = config.model == "unet" and side <= _QUICK_PIXELS
    own: dict[str, Any] = {
        **default_options(config.model, images.shape),
        **_recipe(config, images),
        **(_QUICK if quick else {}),
    }
    asked = {name: getattr(config, name) for name in ("width", "batch", "learning_rate", "kimg")}
    own |= {name: value for name, value in asked.items() if value is not None}
    half = available // 2
    few = config.few or min(max(_FEW, available // 64), half)
    sizes = config.sizes or (max(_FEWEST, available // 512), few, round(math.sqrt(few * half)), half, available)
    sizes = tuple(sorted(n for n in set(sizes)))
    if config.subset and config.subset > half:
        raise ConfigError(f"--subset must be at most {half}, half of the training images; got {config.subset}.")
    if few > half:
        raise ConfigError(f"--few must be at most {half}, half of the training images; got {few}.")
    if sizes[-1] > available or sizes[0] > half:
        raise ConfigError(f"--sizes must be at most {available}, and the least at most {half}; got {sizes}.")
    training: dict[str, Any] = {"network": config.model, "width": own["width"]}
    if quick:
        training |= {"multipliers": own["multipliers"], "blocks": own["blocks"]}
    training |= {"batch": own["batch"], "learning_rate": own["learning_rate"], **(_QUICK_TRAINING if quick else {})}
    if not quick:  # the step size rises for no longer than it must, however short the training
        training["ramp_kimg"] = min(own["ramp_kimg"], _rounded(float(own["kimg"]) * _RISE))
    training |= {"held_out": len(splits.held_out), "size": config.size, "value_range": config.value_range}
    training |= {"skip_broken": config.skip_broken, "split_seed": config.repetition}
    kimg = float(own["kimg"])
    early = config.early or _rounded(kimg / 16)
    if early >= kimg:
        raise ConfigError(f"--early must be below --kimg, which is {kimg:g}; got {early:g}.")
    return Plan(
        data=config.data,
        name=images.name,
        content_hash=images.content_hash,
        shape=images.shape,
        available=available,
        studies=config.studies,
        options=config.words,
        training=training,
        sizes=sizes,
        few=few,
        subset=config.subset or min(max(few, _LEAST_SUBSET), half),
        widths=tuple(sorted({*(config.widths or _widths(own["width"], full=config.full)), own["width"]})),
        narrow=config.narrow or _even(own["width"] / 6),
        kimg=kimg,
        early=early,
        seeds=config.seeds,
        # The least linearity of so small a network varies more from training to training than anything else that is judged.
        sweep_seeds=config.seeds + (quick and config.seeds > 2),
        shown=config.shown,
        repetition=config.repetition,
        count=config.count or min(len(splits.held_out) // 2, _COUNT),
        samples=config.samples,
        cpu=config.cpu,
    )


def _recipe(config: StudyConfig, images: ImageSet) -> dict[str, Any]:
    resolved = TrainConfig(data=config.data, network=config.model).resolve(images.shape)
    return resolved.recipe._asdict()


def _widths(width: int, *, full: bool) -> tuple[int, ...]:
    """Narrower networks, down to a third: still narrower ones miss more than they leave unlearned."""
    shares = (1 / 3, 1 / 2, 2 / 3, 1) if full else (1 / 3, 1 / 2, 1)
    return tuple(_even(share * width) for share in shares)


def _even(width: float | int) -> int:
    return max(2, 2 * round(width / 2))  # as the networks ask for


def _rounded(kimg: float) -> float:
    return float(f"{kimg:.3g}")


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _tupled(part) for name, part in value.items()}
    return tuple(_tupled(part) for part in value) if isinstance(value, list | tuple) else value
