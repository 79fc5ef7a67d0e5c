"""A snapshot: a file of weights, raw and averaged, with all that is needed to build their denoiser."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..atomic_files import load_tensors, save_tensors
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from ..errors import CheckpointError, one_line
from ..nn import build_network

_KIND = "gausslens snapshot"


def build_denoiser(description: Mapping[str, Any]) -> Preconditioned:
    """A denoiser with initial weights, from what `describe_denoiser` wrote down."""
    described = description["network"].items()
    network: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in described}
    return Preconditioned(build_network(**network), kind=description["kind"], sigma_data=description["sigma_data"])


def describe_denoiser(config: TrainConfig, shape: tuple[int, ...], classes: int, augment_inputs: int) -> dict[str, Any]:
    """All that is needed to build the denoiser of a resolved config, as JSON can hold it."""
    settings = asdict(config)
    chosen = {name: settings[name] for name in ("width", "multipliers", "blocks", "attention", "dropout")}
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
    tensors = {f"raw.{name}": tensor for name, tensor in (raw or {}).items()}
    tensors |= {f"ema.{name}": tensor for name, tensor in ema.items()}
    save_tensors(path, tensors, kind=_KIND, denoiser=denoiser, **metadata)


def load_snapshot(path: Path, *, ema: bool = True, device: torch.device | str | None = None) -> Preconditioned:
    """The denoiser in a snapshot file, in eval mode."""
    tensors, metadata = load_tensors(path, kind=_KIND)
    weights = _chosen(tensors, ema)
    if not weights and not ema:
        raise CheckpointError(f"{path} was converted from a file of averaged weights alone; it has no raw ones.")
    try:
        _check_fit(metadata["denoiser"], weights)
        denoiser = build_denoiser(metadata["denoiser"])
        denoiser.load_state_dict(weights)
    except Exception as error:  # a description can be wrong in every way
        raise CheckpointError(
            f"the weights in {path} do not fit the network they name: {one_line(error)}. "
            "Use the version of gausslens that wrote it."
        ) from None
    denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions are faster so
    return denoiser.requires_grad_(False).eval().to(device or "cpu")


def read_weights(path: Path, *, ema: bool = True) -> dict[str, Tensor]:
    """The weights in a snapshot file by name, averaged or raw, on the CPU."""
    return _chosen(load_tensors(path, kind=_KIND)[0], ema)


def _check_fit(description: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless a description calls for just these weights.

    A small file can describe a network that no memory holds, so the network is first built without any.
    """
    blocks, multipliers = (description["network"].get(name) for name in ("blocks", "multipliers"))
    levels = len(multipliers) if isinstance(multipliers, list) else 1
    if (blocks if isinstance(blocks, int) else 1) * levels > len(weights):  # each has its own
        raise ValueError(f"it calls for more blocks than there are tensors, {len(weights)}")
    with torch.device("meta"):
        wanted = {name: tuple(tensor.shape) for name, tensor in build_denoiser(description).state_dict().items()}
    held = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(wanted.keys() | held.keys()):
        if wanted.get(name) != held.get(name):
            raise ValueError(
                f"expected {name[:80]} of shape {wanted.get(name, 'none at all')}; got {held.get(name, 'none at all')}"
            )


def _chosen(tensors: Mapping[str, Tensor], ema: bool) -> dict[str, Tensor]:
    prefix = "ema." if ema else "raw."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
