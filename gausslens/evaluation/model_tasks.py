"""Tasks on models: train, measure, sample with controls. Every record says which model it is of."""

from collections.abc import Iterator
from functools import partial

from ..config import TrainConfig
from ..errors import DivergedError, GausslensError
from ..experiments.task import Result, TaskContext, task
from ..identity import identity_of
from ..measures.neighbors import nearest
from ..store.records import Record
from ..store.run import Run
from ..training.collapse import collapse_warning
from ..training.train import train
from .config import MeasureConfig
from .context import MeasureContext
from .evaluators import TAKE, take_memorization
from .references import load_run_images

_SAID_BY_RECORDS = ("network", "width", "preconditioning", "split", "seed", "labels", "sigma")
_MEASURED_WITH = ("sigmas", "count", "samples", "steps", "calls", "kimg")
_DISTILLED_WITH = ("sigmas", "calls", "kimg")


@task("train_model", version=1, of_0_1="studies.models")
def train_model(context: TaskContext) -> list[Record] | None:
    """Train. Options: `config`, the fields of a `TrainConfig` without data, cpu and out; and the images' `content_hash`.

    The run is in the task's folder, so that its records are the task's; version 0.1 gave it a folder within. A training that
    diverges on a GPU is resumed once from its last state, since rounding on GPUs varies.
    """
    where = {"data": context.options["data"], "cpu": context.options.get("cpu", False), "out": str(context.folder)}
    config = TrainConfig(**context.options["config"], **where)
    within = any(context.folder.glob("train-*/config.json"))
    begin = partial(train, config, report=context.report, folder=None if within else context.folder)
    run = None
    try:
        run = begin()
    except DivergedError:
        if context.device.type == "cpu":
            raise
    run = run or begin()  # not in the handler, where the error would keep the memory of what diverged
    if told := collapse_warning(run.records()):
        raise GausslensError(told)
    context.tags.update(tags_of(run))
    return run.records() if within else None


@task("measure_model", version=3, of_0_1="studies.models")
def measure_model(context: TaskContext) -> Iterator[Record]:
    """Measure the model of the first input. Options: `measures`, names; and those of `evaluation_of`."""
    evaluation = evaluation_of(context)
    for name in context.each(context.options["measures"]):
        yield from TAKE[name](evaluation)


@task("sample_model", version=1, of_0_1="studies.models")
def sample_model(context: TaskContext) -> Iterator[Record]:
    """Sample the model of the first input and its controls from the same noise, and search for copies.

    Options are those of `evaluation_of`. The arrays are uint8 (samples, c, h, w): `network`, `gaussian`, `multidelta`, and
    `nearest`, the training image nearest to each of the network's samples. The records are of the measure `memorization`.
    """
    evaluation = evaluation_of(context)
    samples = evaluation.samples
    _, indices = nearest(samples["network"], evaluation.images.train, device=evaluation.device)
    context.save_arrays(**samples, nearest=evaluation.images.train[indices[:, 0]])
    yield from take_memorization(evaluation)


def evaluation_of(context: TaskContext) -> MeasureContext:
    """The model of a task's first input, with its images and references; adds the model's tags to the task's records.

    Options: those of `MeasureConfig` in `_MEASURED_WITH`, and `data`.
    """
    run = run_of(context.inputs[0])
    given = {name: context.options[name] for name in _MEASURED_WITH if name in context.options}
    config = MeasureConfig(run=str(run.path), **{**given, "sigmas": tuple(given.get("sigmas") or ())})
    context.tags.update(tags_of(run, config.kimg))
    images = load_run_images(run, data=context.options.get("data"))
    # Distilled maps are kept with the model, for all tasks that measure it in the same way.
    maps = context.inputs[0].folder / f"maps-{identity_of([given.get(name) for name in _DISTILLED_WITH])}"
    return MeasureContext.of_run(run, images, config, maps, context.device)


def run_of(result: Result) -> Run:
    """The training run in the folder of a finished `train_model`."""
    # Version 0.1 kept it in a folder within; there may be a second one, begun before the images were renamed.
    runs = [Run.open(folder) for folder in result.folder.glob("train-*")]
    return next((run for run in runs if run.is_finished), None) or Run.open(result.folder)


def tags_of(run: Run, kimg: float | int | None = None) -> Record:
    """The tags of a model: its network and training, the number of images, and the length of training."""
    config = run.config
    values = {name: getattr(config, name) for name in _SAID_BY_RECORDS}
    said = {name: value for name, value in values.items() if value is not None and value is not False}  # seed 0 is said
    return {**said, "n": run.manifest["splits"][config.split]["count"], "kimg": kimg or run.snapshots[-1]}
