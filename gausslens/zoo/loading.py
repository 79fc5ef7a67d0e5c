"""Any model from its source, whatever wrote it.

| source | is read by |
|---|---|
| a run of `gausslens train`, its folder, or a snapshot or converted file (.safetensors) | `gausslens.store.run` |
| an EDM network pickle (.pkl), without running anything in it | `zoo.edm` |
| a folder of diffusers | `zoo.diffusers_folder` |
| `package.module:object`; in Python also a module, a function or a `Model` | `zoo.python_objects` |
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import CheckpointError, ConfigError, require, reraise_as
from ..store.artifact import expect, runs_in
from ..store.run import Run, load_trained
from . import edm
from .diffusers_folder import is_diffusers, load_diffusers
from .model import Model
from .python_objects import as_model, is_object_name, load_object

_WRAP = (
    "is a pickle of PyTorch, which may run anything when it is read. Load it in a Python file of your own, and name the "
    "denoiser that is made there, such as my_models:denoiser."
)
_ADVICE = {
    ".py": "is Python code: name the object in it, {0}:OBJECT, from the folder that holds it.",
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), _WRAP),
}
_ACCEPTED = "the directory of a run, a .safetensors or .pkl file, a folder of diffusers, or package.module:object"
_CORRECTIONS = ("shape", "classes", "bounds", "encode")


def load_model(
    source: Any,
    *,
    kimg: float | int | None = None,
    ema: bool = True,
    device: torch.device | str | None = None,
    **corrections: Any,
) -> Model:
    """A model from its source: the denoiser D(x, σ), and what it is a denoiser of; arguments are those of `load_denoiser`.

    `corrections` are the `shape`, `classes`, `bounds` or `encode` of the model, where the source does not say or is wrong.
    """
    unknown = ", ".join(sorted(corrections.keys() - set(_CORRECTIONS)))
    require(not unknown, f"expected corrections among {', '.join(_CORRECTIONS)}; got {unknown}.")
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if isinstance(source, Run) or (path is not None and _is_ours(path)):
        denoiser = load_trained(path or source, kimg=kimg, ema=ema, device=device)
        model = as_model(denoiser, source=str(source.path if isinstance(source, Run) else source))
    elif kimg is not None or not ema:
        raise ConfigError(f"kimg and ema=False choose among a training run's snapshots; {source!r} has none.")
    elif path is None:
        model = as_model(source, device=device)
    elif _is_pickle(path):
        model = edm.load_edm(path, device=device)
    elif path.is_dir():
        model = load_diffusers(path, device=device)
    elif is_object_name(str(source)):
        model = load_object(str(source), device=device)
    else:
        expected = f"expected a model at {source}: {_ACCEPTED}"
        raise CheckpointError(f"{expected}. There is no such file or folder, and nothing is downloaded.")
    return replace(model, **corrections)


def load_denoiser(
    source: Any,
    *,
    kimg: float | int | None = None,
    ema: bool = True,
    device: torch.device | str | None = None,
) -> nn.Module:
    """The denoiser D(x, σ) of a model from any source, in eval mode; a module that is given stays as it is.

    Args:
        source: a run of `gausslens train`, its directory or a snapshot (.safetensors); an EDM network pickle (.pkl), of
            which nothing is run; a diffusers folder; or `package.module:object`, a module, a function D(x, sigma) or
            D(x, sigma, labels), or a factory of one.
        kimg: which snapshot of a run, in thousands of images; None is the last.
        ema: the moving average of a run's weights rather than the raw ones.
        device: where to put it; None is the CPU.

    Returns:
        The denoiser; a conditional one takes labels third.

    Raises:
        CheckpointError: if there is no such source, or it cannot be read.
        ConfigError: if `kimg` or `ema` are given for a source without snapshots.
        MissingExtraError: if the source needs a package that is not installed.
    """
    return load_model(source, kimg=kimg, ema=ema, device=device).denoiser


def _is_ours(path: Path) -> bool:
    """Whether `gausslens.store.run` reads what is there; raises if no reader can."""
    expect(path.suffix not in _ADVICE, f"{path} {_ADVICE.get(path.suffix, '').format(path.stem)}")
    # A name may be too long, a folder or file may not be opened.
    with reraise_as(CheckpointError, f"expected a model at {path!s:.200}, which cannot be opened", "Name another."):
        is_run = path.is_dir() and not is_diffusers(path)
        is_snapshot = path.is_file() and not _is_pickle(path)
        is_known = not is_snapshot or path.suffix == ".safetensors" or _has_header(path)
        has_config = not is_run or (path / "config.json").exists()
    files = "the directory of a run has a config.json, a folder of diffusers a model_index.json"
    expect(has_config, f"expected a model at {path}: {files}; this one has neither.{runs_in(path)}")
    expect(is_known, f"expected a model at {path}: {_ACCEPTED}. This file is none of these.")
    return is_run or is_snapshot


def _is_pickle(path: Path) -> bool:
    return path.suffix.lower() in (".pkl", ".pickle")


def _has_header(path: Path) -> bool:
    """Whether a file begins as safetensors do, whatever its name: with eight bytes, then JSON."""
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"
