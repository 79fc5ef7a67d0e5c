"""A snapshot: a file of weights, raw and averaged, with all that is needed to build their denoiser."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..atomic_files import load_tensors, save_tensors
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from ..errors import CheckpointError, reraise_as
from ..nn import LAYOUT, build_network
from .artifact import expect

USE_ITS_VERSION = "Use the version of gausslens that wrote it."
_KIND = "gausslens snapshot"


def build_denoiser(description: Mapping[str, Any]) -> Preconditioned:
    """A denoiser with initial weights, from what `describe_denoiser` wrote down."""
    described = description["network"].items()
    network: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in described}
    return Preconditioned(build_network(**network), kind=description["kind"], sigma_data=description["sigma_data"])


def describe_denoiser(config: TrainConfig, shape: tuple[int, ...], classes: int, augment_inputs: int) -> dict[str, Any]:
    """All that is needed to build the denoiser of a resolved config, as JSON can hold it."""
    chosen = {name: getattr(config, name) for name in (*LAYOUT, "dropout")}
    network = {"name": config.network, "shape": shape, **chosen, "classes": classes, "augment_inputs": augment_inputs}
    return {"network": network, "kind": config.preconditioning, "sigma_data": 0.5}


def save_denoiser(
    path: str | os.PathLike[str],
    denoiser: Mapping[str, Any],
    *,
    ema: Mapping[str, Tensor],
    raw: Mapping[str, Tensor] | None = None,
    **metadata: Any,
) -> None:
    """Write a snapshot file, all that `load_trained` needs."""
    save_tensors(path, named("raw.", raw or {}) | named("ema.", ema), kind=_KIND, denoiser=denoiser, **metadata)


def read_snapshot(path: Path, *, ema: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights in a snapshot file by name, averaged or raw, on the CPU, and what else the file says."""
    tensors, metadata = load_tensors(path, kind=_KIND)
    return under("ema." if ema else "raw.", tensors), metadata


def named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under names that begin with a prefix."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def load_snapshot(path: Path, *, ema: bool = True, device: torch.device | str | None = None) -> Preconditioned:
    """The denoiser in a snapshot file, in eval mode."""
    weights, metadata = read_snapshot(path, ema=ema)
    expect(weights or ema, f"{path} was converted from a file of averaged weights alone; it has no raw ones.")
    with reraise_as(CheckpointError, f"the weights in {path} do not fit the network they name", USE_ITS_VERSION):
        _check_shapes(weights, build_without_memory(metadata["denoiser"], len(weights)).state_dict())
        denoiser = build_denoiser(metadata["denoiser"])
        denoiser.load_state_dict(weights)
    denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions are faster so
    return denoiser.requires_grad_(False).eval().to(device or "cpu")


def build_without_memory(description: Mapping[str, Any], n_tensors: int) -> Preconditioned:
    """The denoiser that a file of `n_tensors` tensors describes: shapes without values, on the device meta.

    A small file can describe a network that no memory holds, or with more blocks than anyone waits for.
    """
    blocks, multipliers = (description["network"].get(name) for name in ("blocks", "multipliers"))
    levels = len(multipliers) if isinstance(multipliers, list) else 1
    n_blocks = (blocks if isinstance(blocks, int) else 1) * levels
    if n_blocks > n_tensors:  # each block has its own
        raise ValueError(f"it calls for {n_blocks:,} blocks, so for more blocks than there are tensors, {n_tensors}")
    with torch.device("meta"):
        return build_denoiser(description)


def _check_shapes(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless the names and shapes of weights are those wanted."""
    shapes, expected = ({name: tuple(one.shape) for name, one in tensors.items()} for tensors in (weights, wanted))
    for name in sorted(shapes.keys() | expected.keys()):
        held, needed = (known.get(name, "none at all") for known in (shapes, expected))
        if held != needed:
            raise ValueError(f"expected {name[:80]} of shape {needed}; got {held}")
