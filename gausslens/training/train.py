"""Training a denoiser: Eq. (52) of arXiv:2410.24060 by Adam, on one or many devices.

All randomness is a function of the seed and the count of images (see `batches`), so a run is the same on one process
and on several, up to rounding, and on a CPU the same to the last bit whether or not it was stopped. Only dropout, which
is drawn on the device for each process's part of the batch, depends on the number of processes. Several processes are
started by `torchrun` and share the file system.
"""

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..config import TrainConfig
from ..data.duplicates import find_duplicates
from ..data.groups import with_groups
from ..data.loading import ImageSet, load_images
from ..data.splits import Splits, manifest
from ..errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    OutOfMemoryError,
    check_choice,
    is_short_of_memory,
    require,
    reraise_as,
)
from ..generation import best_device
from ..images import as_tensor
from ..nn import LAYOUT, build_network, default_options
from ..nn.acceleration import limit_threads
from ..store.run import Run
from .batches import TrainingData
from .monitored import REPORT
from .session import Session
from .state import load_state

# Up to here, looking for duplicates takes a few seconds on two cores.
_SEARCHED_PIXELS = 50_000_000


def train(
    config: TrainConfig,
    *,
    progress: bool = False,
    report: Callable[[float], None] | None = None,
    folder: Path | None = None,
) -> Run:
    """Train a denoiser, or continue training it, or find it trained.

    The same config continues a run that was stopped and returns one that is finished; a larger `kimg` extends it. What
    was computed is kept: the state is saved at least every 30 seconds, at snapshots, and on Ctrl-C and SIGTERM.

    Args:
        config: what to train, on what and for how long.
        progress: show a progress bar.
        report: is called after every step with the share of the training that is done.
        folder: the run's folder; None is one in `config.out`, named for the data and the run's identity.

    Returns:
        The finished run; `load_denoiser` makes a denoiser of it.

    Raises:
        ConfigError: on options that do not fit the data, the network or the run that is there.
        DataError: on images or labels that cannot be used.
        CheckpointError: if the run cannot be read or written, or another process is writing it.
        GausslensError: if training diverges.
        OutOfMemoryError: if memory does not suffice.
        KeyboardInterrupt: after Ctrl-C, with the state saved; after SIGTERM the program exits with code 143.
    """
    is_config = isinstance(config, TrainConfig)
    require(is_config, f"expected a TrainConfig, such as TrainConfig('digits'); got {type(config).__name__}.")
    accelerator = _accelerator(config)
    writes = accelerator.is_main_process
    one_by_one = accelerator.main_process_first()  # the others find the images in the cache
    config, images = prepare(config, accelerator.num_processes, loading=one_by_one, progress=progress and writes)
    splits = _splits(config, images)
    data = TrainingData(
        as_tensor(images.images),
        as_tensor(images.labels) if config.labels else None,
        as_tensor(splits.named(config.split)),
        as_tensor(splits.held_out),
        None if images.groups is None else as_tensor(images.groups),
    )
    with accelerator.main_process_first():
        run = Run.create_at(folder or run_folder(config, images), "train", _identity(config, images), asdict(config))
    gpus = [accelerator.device] if accelerator.device.type == "cuda" else []
    numbers = config.recipe.batch // accelerator.num_processes * data.images[0].numel()
    try:
        with (
            run.locked() if writes else nullcontext(),
            torch.random.fork_rng(gpus),
            limit_threads(accelerator.device, numbers),
        ):
            finished = {config.recipe.kimg, *config.snapshots} <= set(run.snapshots) and not _lacks_report(config, run)
            if writes:
                also: dict[str, Any] = {"duplicates": _duplicates(run, data, accelerator.device)}
                if data.labels is not None:
                    also["classes"] = data.labels[data.train].unique().tolist()
                run.save_json("manifest.json", manifest(images, splits, [config.split]) | also)
                if finished:  # its images may have been moved
                    run.save_config(asdict(replace(run.config, data=config.data, groups=config.groups)))
            accelerator.wait_for_everyone()
            if not finished:
                Session(config, data, run, accelerator).advance(progress=progress and writes, report=report)
                for tracker in accelerator.trackers:
                    tracker.finish()
            accelerator.wait_for_everyone()
    except (RuntimeError, MemoryError) as error:
        if not is_short_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"memory does not suffice for {config.network} with a batch of {config.batch} images: "
            "use a smaller batch or width, or more devices; what was saved is kept."
        ) from error
    return run


def prepare(
    config: TrainConfig,
    processes: int = 1,
    *,
    loading: AbstractContextManager[object] | None = None,
    progress: bool = False,
) -> tuple[TrainConfig, ImageSet]:
    """The resolved config and its images, if training can begin; makes no network in memory and no folder on disk.

    `loading` is the context to load the images in. Whatever is refused later is refused by every process.
    """
    with loading or nullcontext():
        images = load_images(config.data, **config.reading, progress=progress)
    images = with_groups(images, config.groups)
    config = resolve(config, images)
    _check(config, images, processes)
    return config, images


def resolve(config: TrainConfig, images: ImageSet) -> TrainConfig:
    """The config with every choice left open made, for these images: training, network and held-out images."""
    options = default_options(config.network, images.shape)
    network = {name: options[name] for name in LAYOUT if name in options and getattr(config, name) is None}
    return replace(config.resolve(images.shape), held_out=len(_splits(config, images).held_out), **network)


def _check(config: TrainConfig, images: ImageSet, processes: int) -> None:
    batch, kimg = config.recipe.batch, config.recipe.kimg
    require(batch % processes == 0, f"the batch must divide evenly among {processes} processes; got {batch} images.")
    require(
        batch <= 1000 * kimg,
        f"a batch of {batch} images is more than the whole run of {kimg:g} kimg; use a smaller batch, or train for longer.",
    )
    is_tested = config.split == "held-out"
    require(not is_tested, "networks are tested on the held-out images; train on another split, such as all.")
    require(
        not config.labels or images.labels is not None,
        f"labels=True needs labelled images, and {config.data} has none. In a folder, each subfolder is a class; "
        "an .npz has them under `labels`.",
        DataError,
    )
    _splits(config, images).named(config.split)
    with torch.device("meta"):  # raises what building the network would raise
        build_network(config.network, images.shape, **{name: getattr(config, name) for name in LAYOUT})


def check_tracker(config: TrainConfig) -> None:
    """See that there is the tracker that a config asks for, if it does."""
    if config.tracker is None:
        return
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    check_choice("tracker", config.tracker, sorted(str(name) for name in LoggerType.list() if name != "all"))
    is_there = config.tracker in {str(name) for name in get_available_trackers()}
    advice = f"the tracker {config.tracker!r} is not installed: pip install {config.tracker}."
    require(is_there, advice, MissingExtraError)


def run_folder(config: TrainConfig, images: ImageSet) -> Path:
    """The folder that the run of a resolved config has, or will have; the images have the groups it asks for."""
    return Run.folder(config.out, "train", images.name, _identity(config, images))


def _identity(config: TrainConfig, images: ImageSet) -> str:
    return config.identity(images.content_hash, images.labels_hash if config.labels else None, images.groups_hash)


def _splits(config: TrainConfig, images: ImageSet) -> Splits:
    return Splits(len(images), held_out=config.held_out, seed=config.split_seed, groups=images.groups)


def _lacks_report(config: TrainConfig, run: Run) -> bool:
    """Whether a run was and shall be monitored, and stopped before it wrote down what was found."""
    if not (config.monitor or config.stop_when_memorizing) or (run.path / REPORT).exists():
        return False
    found = load_state(run)
    return found is not None and "monitor" in found[1]


def _duplicates(run: Run, data: TrainingData, device: torch.device) -> str:
    """Whether held-out images repeat training images, searched once in a run."""
    if (run.path / "manifest.json").exists() and "duplicates" in run.manifest:
        return str(run.manifest["duplicates"])
    if len(data.held_out) == 0:
        return "no image is held out"
    if (len(data.train) + len(data.held_out)) * data.images[0].numel() > _SEARCHED_PIXELS:
        return "not looked for in a set of this size; gausslens measure looks for them"
    return str(find_duplicates(data.images[data.train], data.images[data.held_out], device=device))


def _accelerator(config: TrainConfig) -> Any:
    """accelerate's device, processes and trackers; precision and compilation are ours (see `acceleration`)."""
    from accelerate import Accelerator

    check_tracker(config)
    cpu = best_device(cpu=config.cpu).type == "cpu"  # unless told, accelerate joins no processes on CPUs
    logs = str(Path(config.out) / "logs")
    # It holds one device for the life of a process.
    with reraise_as(ConfigError, f"cpu={config.cpu} differs from an earlier run of this process", caught=ValueError):
        made = Accelerator(cpu=cpu, mixed_precision="no", log_with=config.tracker, project_dir=logs)
    if made.num_processes > 1:
        atexit.register(_leave_group)
    return made


def _leave_group() -> None:
    """Take leave of the other processes: one that ends with open connections may be aborted."""
    if dist.is_initialized():
        dist.destroy_process_group()
