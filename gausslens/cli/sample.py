"""Sample images from a trained network, its closest linear map, or a closed-form denoiser of its training images.

The network is a run of `gausslens train`. Image i depends only on the seed and on i. Files that exist already are not made
again.

Examples:
  gausslens sample runs/train-digits-1a2b3c4d
  gausslens sample runs/train-digits-1a2b3c4d --count 10000 --solver heun --steps 18
  gausslens sample runs/train-digits-1a2b3c4d --denoiser gaussian --format png
  gausslens sample runs/train-digits-1a2b3c4d --kimg 50 --weights raw --out pictures
"""

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..config import RunOptions, check_fields, whole
from ..errors import ConfigError
from . import GlobalOptions, open_training_run, print_options

if TYPE_CHECKING:
    from torch import Tensor, device, nn

    from ..store.run import Run

_FORMATS = ("png", "npz", "zip")
_LONGEST = 60  # characters of labels in a file's name


@dataclass(frozen=True)
class Options(RunOptions):
    """The options of `gausslens sample`."""

    count: int = 256
    """How many images to sample."""
    denoiser: Literal["network", "gaussian", "multidelta", "linear"] = "network"
    """What to sample from: the network, the Gaussian or the multi-delta denoiser of its training images, or the linear
    distillation of the network."""
    solver: Literal["heun", "euler", "dpmpp_2m"] = "heun"
    """The solver of the sampling ODE."""
    labels: tuple[int, ...] = ()
    """The classes to sample, in turn, for a network with labels. Default: all classes."""
    format: tuple[str, ...] = _FORMATS
    """The files to write: png (a grid of the first 256 images), npz (the array `images`, uint8, n × h × w × c) and zip (one
    PNG per image)."""
    out: str | None = None
    """The folder to write into. Default: the folder `samples` of the run."""
    batch: int = 256
    """How many images to sample at a time."""

    def __post_init__(self) -> None:
        known = f"some of {', '.join(_FORMATS)}"
        check_fields(
            self,
            whole("count steps batch", 1),
            ("format", known, lambda values: values and set(values) <= set(_FORMATS)),
        )


def run(options: Options, how: GlobalOptions) -> None:
    """Sample, and write the files that do not exist yet."""
    import torch

    from ..generation import best_device, generate
    from ..nn.acceleration import limit_threads
    from ..store.image_io import save_grid, save_npz, save_zip

    run, kimg = open_training_run(options.run, options.kimg)
    if run.config.sigma is not None:
        raise ConfigError(
            f"{run.path} was trained for sigma = {run.config.sigma:g} alone; sampling needs a network for all noise levels."
        )
    folder = Path(options.out or run.path / "samples")
    options = replace(options, kimg=kimg, out=str(folder))
    paths = {name: folder / f"{_stem(options)}.{name}" for name in _FORMATS if name in options.format}
    missing = {name: path for name, path in paths.items() if not path.exists()}
    if missing:
        _check_folder(folder)
        device = best_device(cpu=options.cpu)
        make_denoiser, labels = _prepare(run, options, device, progress=how.progress)
    if how.dry_run:
        print_options(options, files=[str(path) for path in paths.values()])
        return
    for path in paths.values():
        if path not in missing.values():
            print(f"{path} exists already.")
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    denoiser, shape = make_denoiser(), tuple(run.manifest["shape"])
    with limit_threads(device, min(options.count, options.batch) * math.prod(shape)):
        images = generate(
            denoiser,
            shape,
            options.count,
            solver=options.solver,
            steps=options.steps,
            seed=options.seed,
            labels=labels,
            batch=options.batch,
            device=device,
            dtype=torch.float32,
            progress=how.progress,
        )
    for name, path in missing.items():
        if name == "png":
            save_grid(path, images)
        elif name == "npz":
            save_npz(path, images, labels)
        else:
            save_zip(path, images, labels)
        print(f"wrote {path}")
    print(f"{len(images)} images of the {options.denoiser} denoiser. Next: gausslens measure {run.path}")


def _stem(options: Options) -> str:
    """The name of the files without ending: everything that decides their content."""
    trained = f"-{options.kimg:g}kimg-{options.weights}" if options.denoiser in ("network", "linear") else ""
    labels = "-labels" + "-".join(map(str, options.labels)) if options.labels else ""
    if len(labels) > _LONGEST:
        labels = f"-labels-{hashlib.sha256(labels.encode()).hexdigest()[:8]}"
    return f"{options.denoiser}{trained}-{options.solver}{options.steps}-seed{options.seed}{labels}-{options.count}"


def _check_folder(folder: Path) -> None:
    """Check that files can be written into a folder, which need not exist yet."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "cannot be written to" if nearest.is_dir() else "is a file"
        raise ConfigError(f"could not make the folder {folder}: {nearest} {why}. Choose another with --out.")


def _prepare(
    run: "Run", options: Options, device: "device", *, progress: bool
) -> "tuple[Callable[[], nn.Module], Tensor | None]":
    """A function that makes the denoiser, and the labels to sample if the network has any."""
    import torch

    from ..evaluation.references import gaussian_denoiser, linear_denoiser, load_run_images, multidelta_denoiser
    from ..nn.acceleration import FastDenoiser, pays_to_compile
    from ..store.run import load_trained

    network = load_trained(run, kimg=options.kimg, ema=options.weights == "ema", device=device)
    classes, labels = int(getattr(network.network, "classes", 0)), None
    if options.labels and not classes:
        raise ConfigError(f"labels are for networks trained with labels; {run.path} was not. Leave them out.")
    if any(not 0 <= label < classes for label in options.labels):
        given = ", ".join(map(str, options.labels))
        raise ConfigError(f"labels must be from 0 to {classes - 1}, the classes of {run.path}; got {given}.")
    if classes:
        turns = torch.tensor(options.labels or run.manifest.get("classes") or tuple(range(classes)))
        labels = turns[torch.arange(options.count) % len(turns)]
    if options.denoiser == "network":
        compile = pays_to_compile(device, 2 * options.steps * options.count)
        return lambda: FastDenoiser(network, device, run.config.precision, compile=compile), labels
    images = load_run_images(run, data=options.data, progress=progress)
    made: dict[str, Callable[[], nn.Module]] = {
        "gaussian": lambda: gaussian_denoiser(images, device=device).to(device, torch.float32),
        "multidelta": lambda: multidelta_denoiser(images).to(device, torch.float32),
        "linear": lambda: linear_denoiser(run, network, images, options, progress=progress),
    }
    return made[options.denoiser], labels
