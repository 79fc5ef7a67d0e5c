"""Measuring a trained network, into a `Run` of its own from which the same call continues.

The identity of the results is that of the training run, the snapshot, the options that change a number, and `VERSION`; which
measures are taken is not part of it. A measure's records are written when it is complete: an interrupted measure leaves no
records, and a finished one is not taken again.
"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from ..errors import ConfigError
from ..generation import best_device
from ..identity import identity_of, semantic_fields
from ..nn.acceleration import limit_threads
from ..progress import track
from ..store.run import Run
from ..store.steps import Steps
from .config import MEASURES, MeasureConfig
from .context import MeasureContext
from .evaluators import TAKE
from .references import RunImages, load_run_images

VERSION = 5
"""Counts changes of the measures after which the same config gives other numbers."""

_RUNTIME_OPTIONS = ("run", "only", "data", "out", "cpu")


def measure(config: MeasureConfig, *, progress: bool = False) -> Run:
    """Measure a trained network, or continue; finished measures are not taken again."""
    config, trained, images = _prepare(config, progress=progress)
    run = Run.create(str(config.out), "measure", images.name, identity(config, trained), asdict(config))
    with run.locked():
        steps = Steps("measure", run)
        missing = [name for name in config.only if name not in steps.finished]
        if missing:
            device = best_device(cpu=config.cpu)
            evaluation = MeasureContext.of_run(trained, images, config, run.path, device)
            run.begin_session(device)
            with limit_threads(device, config.count * evaluation.dim):
                for name in track(missing, label="measuring", enabled=progress):
                    steps.run(name, partial(TAKE[name], evaluation))
    return run


def rehearse(config: MeasureConfig, *, progress: bool = False) -> tuple[MeasureConfig, Path]:
    """The resolved config and the folder of `measure`, with the same errors, without measuring."""
    config, trained, images = _prepare(config, progress=progress)
    folder = Run.folder(str(config.out), "measure", images.name, identity(config, trained))
    evaluation = MeasureContext.of_run(trained, images, config, folder, best_device(cpu=config.cpu))
    sigmas, data = tuple(evaluation.sigmas.tolist()), config.data or trained.config.data
    return replace(config, sigmas=sigmas, calls=evaluation.calls, data=data), folder


def resolve(config: MeasureConfig, trained: Run) -> MeasureConfig:
    """The config with its defaults filled in: measures, snapshot and folder."""
    kimg = trained.snapshots[-1] if config.kimg is None else config.kimg
    folder = Path(config.run)
    beside = folder.parent if folder.name not in ("", "..") else folder.resolve().parent
    only = tuple(name for name in MEASURES if name in (config.only or MEASURES))
    sigmas = tuple(sorted(set(config.sigmas), reverse=True))
    return replace(config, kimg=kimg, out=config.out or str(beside), only=only, sigmas=sigmas)


def _prepare(config: MeasureConfig, *, progress: bool) -> tuple[MeasureConfig, Run, RunImages]:
    """The resolved config, the run and its images."""
    trained = Run.open(config.run)
    config = resolve(config, trained)
    if trained.config.sigma is not None and config.sigmas not in ((), (trained.config.sigma,)):
        raise ConfigError(f"{trained.path} was trained for sigma = {trained.config.sigma:g} alone; leave --sigmas out.")
    return config, trained, load_run_images(trained, data=config.data, progress=progress)


def identity(config: MeasureConfig, trained: Run) -> str:
    """Eight hexadecimal digits that name what a resolved config measures."""
    return identity_of(VERSION, trained.identity, semantic_fields(config, _RUNTIME_OPTIONS))
