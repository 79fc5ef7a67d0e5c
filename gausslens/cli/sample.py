"""`gausslens sample`: images from a trained network, or from a denoiser in closed form on the same images."""

import hashlib
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..config import RunOptions, check_fields, whole
from ..errors import ConfigError
from . import GlobalOptions, open_training_run, print_options

if TYPE_CHECKING:
    from torch import Tensor

    from ..denoisers.preconditioned import Preconditioned
    from ..evaluation.references import RunImages
    from ..store.run import Run

DESCRIPTION = """\
Sample images from a run of `gausslens train`, or from the denoisers that follow from its training images. Image i
depends only on the seed and on i. Files that are there already are not made again.

examples:
  gausslens sample runs/train-digits-1a2b3c4d
  gausslens sample runs/train-digits-1a2b3c4d --count 10000 --solver heun --steps 18
  gausslens sample runs/train-digits-1a2b3c4d --denoiser gaussian --format png
  gausslens sample runs/train-digits-1a2b3c4d --kimg 50 --weights raw --out pictures"""

_FORMATS = ("png", "npz", "zip")
_LONGEST = 60  # characters of labels in a file's name


@dataclass(frozen=True)
class Options(RunOptions):
    """What to sample, and where to put it."""

    count: int = 256
    """How many images to sample."""
    denoiser: Literal["network", "gaussian", "multidelta", "linear"] = "network"
    """The network; the Gaussian or the multi-delta denoiser of its training images; or its linear distillation."""
    solver: Literal["heun", "euler", "dpmpp_2m"] = "heun"
    """The solver of the ODE."""
    labels: tuple[int, ...] = ()
    """The classes to sample in turn, for a network with labels. Default: all classes."""
    format: tuple[str, ...] = _FORMATS
    """What to write: png (a grid of the first 256), npz (`images`, uint8, n × h × w × c) and zip (a PNG for each image)."""
    out: str | None = None
    """The folder to write into. Default: `samples` in the run."""
    batch: int = 256
    """Images to sample at a time."""

    def __post_init__(self) -> None:
        known = f"some of {', '.join(_FORMATS)}"
        check_fields(
            self,
            whole("count steps batch", 1),
            ("format", known, lambda values: values and set(values) <= set(_FORMATS)),
        )


def run(options: Options, how: GlobalOptions) -> None:
    """Sample, and write the files that are not there yet."""
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
        inputs = _load(run, options, progress=how.progress)
    if how.dry_run:
        print_options(options, files=[str(path) for path in paths.values()])
        return
    for path in paths.values():
        if path not in missing.values():
            print(f"{path} is there already.")
    if not missing:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"could not make the folder {folder}: {error.strerror}. Choose another with --out.") from None
    images, labels = _sample(run, options, *inputs, progress=how.progress), inputs[1]
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
    """What the files are called: all that decides their content."""
    trained = f"-{options.kimg:g}kimg-{options.weights}" if options.denoiser in ("network", "linear") else ""
    labels = "-labels" + "-".join(map(str, options.labels)) if options.labels else ""
    if len(labels) > _LONGEST:
        labels = f"-labels-{hashlib.sha256(labels.encode()).hexdigest()[:8]}"
    return f"{options.denoiser}{trained}-{options.solver}{options.steps}-seed{options.seed}{labels}-{options.count}"


def _check_folder(folder: Path) -> None:
    """See that files can be written into a folder, which need not be there yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "cannot be written" if there.is_dir() else "is a file"
        raise ConfigError(f"could not make the folder {folder}: {there} {why}. Choose another with --out.")


def _load(run: "Run", options: Options, *, progress: bool) -> "tuple[Preconditioned, Tensor | None, RunImages | None]":
    """The network, the labels to sample if it has any, and the training images if the denoiser needs them."""
    import torch

    from ..evaluation.references import load_run_images
    from ..generation import best_device
    from ..store.run import load_trained

    network = load_trained(run, kimg=options.kimg, ema=options.weights == "ema", device=best_device(cpu=options.cpu))
    classes, labels = int(getattr(network.network, "classes", 0)), None
    if options.labels and not classes:
        raise ConfigError(f"labels are for networks trained with labels; {run.path} was not. Leave them out.")
    if any(not 0 <= label < classes for label in options.labels):
        given = ", ".join(map(str, options.labels))
        raise ConfigError(f"labels must be from 0 to {classes - 1}, the classes of {run.path}; got {given}.")
    if classes:
        turns = torch.tensor(options.labels or run.manifest.get("classes") or tuple(range(classes)))
        labels = turns[torch.arange(options.count) % len(turns)]
    images = None if options.denoiser == "network" else load_run_images(run, data=options.data, progress=progress)
    return network, labels, images


def _sample(
    run: "Run",
    options: Options,
    network: "Preconditioned",
    labels: "Tensor | None",
    images: "RunImages | None",
    *,
    progress: bool,
) -> "Tensor":
    """The images, uint8."""
    import torch

    from ..evaluation.references import gaussian_denoiser, linear_denoiser, multidelta_denoiser
    from ..generation import best_device, generate
    from ..nn.acceleration import FastDenoiser, limit_threads, pays_to_compile

    device, shape = best_device(cpu=options.cpu), tuple(run.manifest["shape"])
    denoiser: Any
    if images is None:
        compile = pays_to_compile(device, 2 * options.steps * options.count)
        denoiser = FastDenoiser(network, device, run.config.precision, compile=compile)
    elif options.denoiser == "linear":
        denoiser = linear_denoiser(run, network, images, options, progress=progress)
    elif options.denoiser == "gaussian":
        denoiser = gaussian_denoiser(images, device=device).to(device, torch.float32)
    else:
        denoiser = multidelta_denoiser(images).to(device, torch.float32)
    with limit_threads(device, min(options.count, options.batch) * math.prod(shape)):
        return generate(
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
            progress=progress,
        )
