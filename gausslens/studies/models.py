"""What cells do: train a model, sample it, measure it. Every record says which model it is of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cells import Record, Result, Task, versioned

_SAID_BY_RECORDS = ("data", "network", "width", "preconditioning", "split", "seed", "labels", "sigma")


@versioned(1)
def train_model(task: Task) -> Iterator[Record]:
    """Train. Options: `config`, the fields of a `TrainConfig` but for `out`, and the images' `content_hash`.

    Yields:
        The training's records.
    """
    from ..config import TrainConfig
    from ..training.running import train

    run = train(TrainConfig(**task.options["config"], out=str(task.folder)), report=task.report)
    for record in run.records():
        yield {**_tags(run), **record}


@versioned(1)
def sample_model(task: Task) -> Iterator[Record]:
    """Sample the model of the first input. Options: count, seed, steps, and kimg or None for the last snapshot.

    Its arrays hold the `samples`, uint8 (count, c, h, w); latent i is the same for every model.

    Yields:
        How many there are.
    """
    from ..generation import best_device, generate
    from ..runs import load_denoiser

    run = run_of(task.inputs[0])
    kimg, seed, count = (task.options.get(name) for name in ("kimg", "seed", "count"))
    denoiser = load_denoiser(run, kimg=kimg, device=best_device(cpu=run.config.cpu))
    shape = tuple(denoiser.network.shape)  # type: ignore[arg-type]
    samples = generate(denoiser, shape, int(count or 256), steps=task.options.get("steps", 18), seed=seed or 0)
    task.save_arrays(samples=samples)
    yield {**_tags(run, kimg), "quantity": "samples", "value": len(samples)}


@versioned(1)
def measure_model(task: Task) -> Iterator[Record]:
    """Measure the model of the first input. Options: those of a `MeasureConfig` but for `run` and `out`.

    Yields:
        The records of `gausslens measure`.
    """
    from ..measuring.config import MeasureConfig
    from ..measuring.running import measure

    trained = run_of(task.inputs[0])
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in task.options.items()
    }
    run = measure(MeasureConfig(run=str(trained.path), out=str(task.folder), **options))
    for record in run.records():
        yield {**_tags(trained, task.options.get("kimg")), **record}


def run_of(result: Result) -> Any:
    """The training run in the folder of a finished `train_model`."""
    from ..runs import Run

    (folder,) = Path(result.folder).glob("train-*")
    return Run.open(folder)


def _tags(run: Any, kimg: float | int | None = None) -> Record:
    """Which model it is: what was trained, on how many images, for how long."""
    config = run.config
    said = {name: getattr(config, name) for name in _SAID_BY_RECORDS if getattr(config, name) not in (None, False)}
    return {**said, "n": run.manifest["splits"][config.split]["count"], "kimg": kimg or run.snapshots[-1]}
