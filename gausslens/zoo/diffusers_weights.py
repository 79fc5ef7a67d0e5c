"""The configs and weights in a folder of diffusers, checked to be safe before diffusers loads them.

Diffusers goes by what the config and the index of shards say: it builds any network, however large, and reads shards
that are pickles. Here the headers of the files come first: all of them are safetensors, and they hold about as many
numbers as the network needs.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ..errors import CheckpointError, one_line
from .model import as_checkpoint_errors

_STEM = "diffusion_pytorch_model"
_ENDING = ".safetensors"


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"expected a JSON object in {path}; got {type(value).__name__}.")
    return value


def check_weights(folder: Path, kind: Any, settings: Mapping[str, Any]) -> str | None:
    """See that a folder has weights for a model, without loading them."""
    variant, names = _files(folder, kind.__name__)
    shapes: dict[str, list[int]] = {}
    for name in names:
        try:
            with safe_open(folder / name, framework="pt") as file:
                shapes |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{folder / name} cannot be read: {one_line(error)}. Get the file again; where it stands for a larger one, "
                "`git lfs pull` does."
            ) from None
    blocks, layers = settings.get("block_out_channels"), settings.get("layers_per_block")
    many = isinstance(blocks, list) and isinstance(layers, int) and len(blocks) * layers > len(shapes)
    held = sum(math.prod(shape) for shape in shapes.values())
    with as_checkpoint_errors(f"{kind.__name__} in {folder} cannot be made"), torch.device("meta"):
        model = None if many else kind.from_config(dict(settings))
    wanted = math.inf if model is None else sum(tensor.numel() for tensor in model.state_dict().values())
    if wanted > 2 * held:  # by less, it is diffusers that says what is missing
        raise CheckpointError(
            f"the weights in {folder} do not fill {kind.__name__}: its config calls for far more than the {held:,} numbers "
            "that they are. Save network and config together, with save_pretrained."
        )
    return variant


def _files(folder: Path, name: str) -> tuple[str | None, list[str]]:
    """The variant, and the files that diffusers would load."""
    index = folder / f"{_STEM}{_ENDING}.index.json"
    if index.is_file():
        shards = read_object(index).get("weight_map")
        listed = list(shards.values()) if isinstance(shards, dict) else []
        if not listed or not all(isinstance(shard, str) and shard.endswith(_ENDING) for shard in listed):
            raise CheckpointError(f"expected the names of safetensors files in {index}. {_advice(folder, name)}")
        return None, sorted(set(listed))
    if (folder / f"{_STEM}{_ENDING}").is_file():
        return None, [f"{_STEM}{_ENDING}"]
    variants = sorted(path.name for path in folder.glob(f"{_STEM}.*{_ENDING}"))
    if len(variants) == 1:
        return variants[0].removeprefix(f"{_STEM}.").removesuffix(_ENDING), variants
    found = ", ".join(sorted(path.name for path in folder.glob(f"{_STEM}*"))) or "no weights"
    raise CheckpointError(
        f"expected weights as safetensors in {folder}, {_STEM}{_ENDING}; found {found}. {_advice(folder, name)}"
    )


def _advice(folder: Path, name: str) -> str:
    return (
        "Pickles (.bin) can run code and are not read: if you trust them, convert them with diffusers, "
        f"{name}.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})."
    )
