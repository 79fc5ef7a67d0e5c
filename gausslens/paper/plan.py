"""A plan: every number of what a study trains and measures, and the tasks that do it.

All studies take their models from the plan, so that two studies that need the same model name the same task, and it is
trained once. By default, of `available` training images (all but those held out), models are trained on

    sizes  very few · few · between · half · all
    few    a 64th of them, at least 48: small for the network, for the studies of width and time

as the paper does with 70,000/2ᵏ and 50,000/2ᵏ images. Subsets of at most half are the first of two disjoint sets ("s1:64"),
so that the study of strong generalisation uses the same models.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..config import TrainConfig
from ..data.loading import ImageSet
from ..data.splits import Splits
from ..errors import CheckpointError, require
from ..evaluation.model_tasks import measure_model, sample_model, train_model
from ..experiments.costs import seconds_to_call, seconds_to_train
from ..experiments.task import Task, Work
from ..nn import LAYOUT, default_options
from ..store.typed_command import typed_command, typed_options
from .config import StudyConfig

READING = ("size", "value_range", "skip_broken")
"""Fields of a `TrainConfig` that say how images are read."""

_SPLITTING = ("held_out", "split_seed")
_REPETITION = 100  # added to all seeds for each repetition of a study
OTHER_HALF = 1000  # added to the seed of a model on the second of two disjoint sets: the two share nothing
_TIMES = (1 / 48, 1 / 32, 1 / 24, 1 / 16, 1 / 12, 1 / 8, 1 / 6, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
_EARLY_KIMG = 12.0  # when a network on small images has learned something, and does not memorise yet
_COUNT = 200  # images behind a number
_FEWEST = 10  # images that every model memorises
_FEW = 48  # images that a model memorises in the course of training
_LEAST_SUBSET = 64  # images for a meaningful covariance
_RISE = 1 / 20  # the share of training over which the step size may rise
_SMALL_PIXELS = 16
# A network for small images that two cores train in a quarter of a minute, and that can memorise in that time.
_QUICK: dict[str, Any] = {
    **{"width": 24, "multipliers": (1,), "blocks": 1, "batch": 64, "learning_rate": 6e-3, "kimg": 80.0},
    **{"ramp_kimg": 2.0, "ema_kimg": 10.0, "level_mean": -1.2, "level_spread": 1.2},
}


@dataclass(frozen=True)
class Plan:
    """Every number of what a study trains and measures."""

    data: str  # where the images are
    name: str  # of the data
    content_hash: str  # of the images
    shape: tuple[int, int, int]  # of one image, (c, h, w)
    available: int  # images that may be trained on
    studies: tuple[str, ...]  # names of the studies to do
    options: str  # the options that were typed to get this plan
    training: Mapping[str, Any]  # fields of the `TrainConfig` that all models share
    sizes: tuple[int, ...]  # numbers of training images, ascending
    few: int  # the number for the studies of width and time
    subset: int  # the number whose Gaussian is compared with that of all images
    widths: tuple[int, ...]  # channels to compare at `few`, ascending; the model's own is among them
    narrow: int  # channels of a narrow model
    kimg: float  # how long every model is trained
    early: float  # when training is stopped early
    seeds: int  # how often every model is trained
    sweep_seeds: int  # how often where numbers of images, widths, lengths of training or pairs of models are compared
    shown: int  # index of the training seed of image figures, and of all that is measured once
    repetition: int  # of the whole study
    count: int  # images behind every number
    samples: int  # generated images of each model
    cpu: bool  # whether a GPU is left alone

    @property
    def command(self) -> str:
        """The command that repeats the study."""
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
    def has_small_images(self) -> bool:
        """Whether reduced networks and short training suffice."""
        return max(self.shape[1:]) <= _SMALL_PIXELS

    @property
    def loading(self) -> dict[str, Any]:
        """The fields of a `TrainConfig` that say how images are read and split."""
        return {name: self.training.get(name) for name in (*READING, *_SPLITTING)}

    @property
    def times(self) -> tuple[float, ...]:
        """The snapshots of the study of time, in kimg, the end last. A long training has early snapshots as well."""
        halvings = max(math.ceil(math.log2(_TIMES[0] * self.kimg / _EARLY_KIMG)), 0)
        shares = (*(_TIMES[0] / 2**n for n in range(halvings, 0, -1)), *_TIMES)
        return (*(rounded(share * self.kimg) for share in shares), self.kimg)

    @property
    def short(self) -> float:
        """The length of a shorter training, to compare widths."""
        return rounded(self.kimg / 4)

    def seed(self, number: int) -> int:
        """The seed of this number, counted from 0, in this repetition."""
        return number + _REPETITION * self.repetition

    def split(self, n: int, half: int = 1) -> str:
        """The name of a training set: one of two disjoint sets if there are enough images for two."""
        return f"s{half}:{n}" if 2 * n <= self.available else str(n)

    def model(self, n: int, seed: int, *, half: int = 1, width: int | None = None, **changes: Any) -> Task:
        """The task that trains a model."""
        given = {**self.training, "split": self.split(n, half), "width": width or self.width, "kimg": self.kimg}
        given |= {"seed": self.seed(seed) + (OTHER_HALF if half == 2 else 0), **changes}
        known = default_options(given["network"], self.shape)
        given = {name: value for name, value in given.items() if name in known or name not in LAYOUT}
        given.setdefault("snapshots", () if changes else self._snapshots(n, given["width"]))
        cost = seconds_to_train(TrainConfig(data=self.data, **given), self.shape, cpu=self.cpu)
        return self._task(train_model, {"config": given, "content_hash": self.content_hash}, cost=cost)

    def measured(self, model: Task, *measures: str, kimg: float | None = None, **options: Any) -> Task:
        """The task that takes measures of a model, as `gausslens measure` does."""
        return self.on_model(measure_model, model, kimg=kimg, measures=measures, **options)

    def sampled(self, model: Task, *, kimg: float | None = None) -> Task:
        """The task that samples a model and its controls, and searches for copies."""
        return self.on_model(sample_model, model, kimg=kimg, samples=self.samples)

    def on_model(self, work: Work, *needs: Task, calls: int | None = None, **options: Any) -> Task:
        """A task on models, or on results of other tasks; options that are None are left out."""
        cost = 1.0
        if training := needs[0].options.get("config"):
            config = TrainConfig(data=self.data, **training)
            cost = seconds_to_call(config, self.shape, calls or 300 * self.count, cpu=self.cpu)
        given = {name: value for name, value in options.items() if value is not None}
        return self._task(work, {"count": self.count, **given}, needs, cost=cost)

    def on_images(self, work: Work, *, split: bool = True, cost: float = 1.0, **options: Any) -> Task:
        """A task on images alone, which are read as for training, and unless `split` is false also split as for training."""
        loading = {name: value for name, value in self.loading.items() if split or name in READING}
        return self._task(work, {"content_hash": self.content_hash, **loading, **options}, cost=cost)

    def _task(self, work: Work, options: dict[str, Any], needs: tuple[Task, ...] = (), *, cost: float) -> Task:
        return Task(work, options, needs, runtime={"data": self.data, "cpu": self.cpu}, cost=cost)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        """The plan of a JSON of its fields (`dataclasses.asdict`)."""
        if other := ", ".join(sorted({field.name for field in fields(cls)} ^ set(value))):
            raise CheckpointError(f"this study was planned by another version of gausslens ({other}); run it again.")
        return cls(**{name: _tupled(part) for name, part in value.items()})

    def _snapshots(self, n: int, width: int) -> tuple[float, ...]:
        """The snapshots that any study needs of a model."""
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
    available, held_out, half = splits.available, len(splits.held_out), splits.available // 2
    require(
        available >= 64 and held_out >= 20,
        f"expected at least 64 images to train on and 20 held out; {images.name} has {available} and {held_out}.",
    )
    quick = config.network == "unet" and max(images.shape[1:]) <= _SMALL_PIXELS
    recipe = TrainConfig(data=config.data, network=config.network).resolve(images.shape).recipe
    own = {**default_options(config.network, images.shape), **recipe._asdict(), **(_QUICK if quick else {})}
    asked = {name: getattr(config, name) for name in ("width", "batch", "learning_rate", "kimg")}
    own |= {name: value for name, value in asked.items() if value is not None}
    width, kimg = own["width"], float(own["kimg"])
    # Narrower networks, down to a third: still narrower ones also fail to learn what they should.
    shares = (1 / 3, 1 / 2, 2 / 3, 1) if config.full else (1 / 3, 1 / 2, 1)
    few = config.few or min(max(_FEW, available // 64), half)
    sizes = config.sizes or (max(_FEWEST, available // 512), few, round(math.sqrt(few * half)), half, available)
    sizes = tuple(sorted(set(sizes)))
    early = config.early or rounded(kimg / 16)
    subset = config.subset or min(max(few, _LEAST_SUBSET), half)
    for option, n in (("subset", subset), ("few", few)):
        require(n <= half, f"--{option} must be at most {half}, half of the training images; got {n}.")
    fit = sizes[-1] <= available and sizes[0] <= half
    require(fit, f"--sizes must be at most {available}, and the smallest at most {half}; got {sizes}.")
    require(early < kimg, f"--early must be below --kimg, which is {kimg:g}; got {early:g}.")
    if not quick:  # the step size rises for no longer than it must, however short the training
        own["ramp_kimg"] = min(own["ramp_kimg"], rounded(kimg * _RISE))
    trained = _QUICK.keys() - {"kimg"} if quick else {"width", "batch", "learning_rate", "ramp_kimg"}
    training = {"network": config.network, **{name: own[name] for name in sorted(trained)}}
    training |= {name: getattr(config, name) for name in READING}
    return Plan(
        data=config.data,
        name=images.name,
        content_hash=images.content_hash,
        shape=images.shape,
        available=available,
        studies=config.studies,
        options=typed_options(config),
        training=training | {"held_out": held_out, "split_seed": config.repetition},
        sizes=sizes,
        few=few,
        subset=subset,
        widths=tuple(sorted({*(config.widths or (_even(share * width) for share in shares)), width})),
        narrow=config.narrow or _even(width / 6),
        kimg=kimg,
        early=early,
        seeds=config.seeds,
        # The least linearity of so small a network varies more from training to training than anything else that is judged.
        sweep_seeds=config.seeds + (quick and config.seeds > 2),
        shown=config.shown,
        repetition=config.repetition,
        count=config.count or min(held_out // 2, _COUNT),
        samples=config.samples,
        cpu=config.cpu,
    )


def _even(width: float | int) -> int:
    return max(2, 2 * round(width / 2))  # as the networks ask for


def rounded(number: float) -> float:
    """A number with three digits."""
    return float(f"{number:.3g}")


def _tupled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _tupled(part) for name, part in value.items()}
    return tuple(map(_tupled, value)) if isinstance(value, list | tuple) else value
