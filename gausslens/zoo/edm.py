"""Network pickles of EDM (`network-snapshot-….pkl`, `edm-cifar10-32x32-uncond-vp.pkl`, …) as denoisers.

The `ema` entry of such a file is a preconditioning around a network. The file is read as data (see `pickles`): the class
names and constructor arguments say which of our networks it is, and its tensors fill that network (see `edm_weights`).
What the source code in the file says is never looked at, so a network that was changed there is not seen as changed.

Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..denoisers.preconditioned import Preconditioned
from ..errors import CheckpointError
from ..safe_pickle import Instance, kind_of
from ..store.weights import build_denoiser
from .edm_weights import translate_weights
from .model import Model, fingerprint
from .pickles import read_pickle

# Arguments of their constructors in order, with the defaults. A preconditioning passes others on to its network.
_IMAGE = {"img_resolution": None, "img_channels": None, "label_dim": 0, "use_fp16": False}
_PRECONDITIONINGS: dict[str, dict[str, Any]] = {
    "EDMPrecond": {**_IMAGE, "sigma_min": 0, "sigma_max": math.inf, "sigma_data": 0.5, "model_type": "DhariwalUNet"},
    "VPPrecond": {**_IMAGE, "beta_d": 19.9, "beta_min": 0.1, "M": 1000, "epsilon_t": 1e-5, "model_type": "SongUNet"},
    "VEPrecond": {**_IMAGE, "sigma_min": 0.02, "sigma_max": 100, "model_type": "SongUNet"},
}
_KINDS = {"EDMPrecond": "edm", "VPPrecond": "vp", "VEPrecond": "ve"}
_SHAPE = {"img_resolution": None, "in_channels": None, "out_channels": None, "label_dim": 0, "augment_dim": 0}
_DHARIWAL = {
    **_SHAPE,
    "model_channels": 192,
    "channel_mult": (1, 2, 3, 4),
    "channel_mult_emb": 4,
    "num_blocks": 3,
    "attn_resolutions": (32, 16, 8),
    "dropout": 0.1,
    "label_dropout": 0,
}
_SONG = {
    **_DHARIWAL,
    "model_channels": 128,
    "channel_mult": (1, 2, 2, 2),
    "num_blocks": 4,
    "attn_resolutions": (16,),
    "embedding_type": "positional",
    "channel_mult_noise": 1,
    "encoder_type": "standard",
    "decoder_type": "standard",
    "resample_filter": (1, 1),
}
_NETWORKS: dict[str, dict[str, Any]] = {"SongUNet": _SONG, "DhariwalUNet": _DHARIWAL}
_SONGS = {  # by the last five arguments
    ("fourier", 2, "residual", "standard", (1, 3, 3, 1)): "ncsnpp",
    ("positional", 1, "standard", "standard", (1, 1)): "ddpmpp",
}
_MOST_MODULES = 3000  # published networks have up to a quarter of it
_LARGEST = 2**16
_LONGEST_NAME = 1000  # published networks stay below a tenth of it


def load_edm(path: str | os.PathLike[str]) -> Model:
    """The denoiser in an EDM network pickle, without running anything in it."""
    description, denoiser = read_edm(path)
    network = description["network"]
    denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions are faster so
    return Model(
        denoiser,
        shape=tuple(network["shape"]),
        classes=network["classes"],
        sigma_range=denoiser.sigma_range,
        source=str(path),
        identity=fingerprint(denoiser.state_dict(), **description),
    )


def read_edm(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Preconditioned]:
    """The description of the denoiser in an EDM network pickle, as `snapshots.build_denoiser` takes it, and the denoiser."""
    content = read_pickle(path)
    try:
        outer = _ema(content)
        inner = _modules(outer).get("model")
        if type(inner) is not Instance or inner.class_name not in _NETWORKS:
            raise ValueError(
                f"expected a network of class {_either(_NETWORKS)} inside {outer.class_name}; got {_called(inner)}"
            )
        description, theirs = _description(outer, inner), _tensors(inner)
        if sum(tensor.nbytes for tensor in theirs.values()) > os.path.getsize(path):
            raise ValueError("its tensors take more memory than the file has, so they share it")
        blocks = (2 * description["network"]["blocks"] + 1) * len(description["network"]["multipliers"])
        if blocks > len(theirs):
            raise ValueError(f"its arguments call for {blocks} blocks, and it has {len(theirs)} tensors to fill them")
        with torch.device("meta"):  # shapes without memory, which the file's own tensors then bring
            denoiser = build_denoiser(description)
        wanted = denoiser.network.state_dict()
        denoiser.network.load_state_dict(translate_weights(theirs, wanted, description["network"]), assign=True)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: {str(error).rstrip('.')}. What is read are EDM's networks NCSN++, DDPM++ and ADM, with its "
            "preconditionings EDM, VP and VE; for others, pass the denoiser as package.module:object."
        ) from None
    return description, denoiser.requires_grad_(False).eval()


def _ema(content: Any) -> Instance:
    """The preconditioned network in what a file holds."""
    if type(content) is not dict or "ema" not in content:
        held = f"the entries {', '.join(map(repr, sorted(content)[:9]))}" if type(content) is dict else kind_of(content)
        raise ValueError(f"expected a network under the name ema; the file holds {held[:200]}")
    network = content["ema"]
    if type(network) is not Instance or network.class_name not in _PRECONDITIONINGS:
        raise ValueError(f"expected a network of class {_either(_PRECONDITIONINGS)}; got {_called(network)}")
    return network


def _description(outer: Instance, inner: Instance) -> dict[str, Any]:
    """What `snapshots.build_denoiser` needs, as JSON can hold it."""
    around = _Arguments(outer, _PRECONDITIONINGS[outer.class_name], passes_on=True)
    within = _Arguments(inner, _NETWORKS[inner.class_name])
    if outer.class_name == "VPPrecond":
        process = around.number("beta_d"), around.number("beta_min"), around.number("M")
        if process != (19.9, 0.1, 1000):
            raise ValueError(f"expected the VP process with (beta_d, beta_min, M) = (19.9, 0.1, 1000); got {process}")
    channels, size = within.whole("in_channels"), within.whole("img_resolution")
    if within.whole("out_channels") != channels:
        raise ValueError(f"it has {channels} channels going in and {within.whole('out_channels')} coming out")
    width, multipliers = within.whole("model_channels"), within.wholes("channel_mult")
    if width * max(multipliers, default=1) > _LARGEST:
        raise ValueError(f"its arguments call for {width * max(multipliers):,} channels")
    network = {
        "name": _network_name(inner.class_name, within),
        "shape": [channels, size, size],
        "width": width,
        "multipliers": multipliers,
        "blocks": within.whole("num_blocks"),
        "attention": within.wholes("attn_resolutions"),
        "dropout": within.number("dropout"),
        "classes": within.whole("label_dim"),
        "augment_inputs": within.whole("augment_dim"),
    }
    sigma_data = around.number("sigma_data") if outer.class_name == "EDMPrecond" else 0.5
    return {"network": network, "kind": _KINDS[outer.class_name], "sigma_data": sigma_data}


def _network_name(class_name: str, arguments: "_Arguments") -> str:
    if arguments.whole("channel_mult_emb") != 4:
        raise ValueError(f"expected channel_mult_emb = 4; got {arguments.whole('channel_mult_emb')}")
    if class_name == "DhariwalUNet":
        return "adm"
    options = (
        arguments.text("embedding_type"),
        arguments.whole("channel_mult_noise"),
        arguments.text("encoder_type"),
        arguments.text("decoder_type"),
        tuple(arguments.wholes("resample_filter")),
    )
    if options not in _SONGS:
        raise ValueError(f"its embedding, encoder, decoder and filter are {options}, neither NCSN++'s nor DDPM++'s")
    return _SONGS[options]


class _Arguments:
    """What a constructor was called with.

    Args:
        instance: an object that recorded it.
        defaults: the constructor's arguments in order; None has no default.
        passes_on: whether the constructor takes others, which are not its own.
    """

    def __init__(self, instance: Instance, defaults: Mapping[str, Any], *, passes_on: bool = False) -> None:
        positional, keywords = instance.state.get("_init_args"), instance.state.get("_init_kwargs")
        if type(positional) is not tuple or type(keywords) is not dict or len(positional) > len(defaults):
            raise ValueError(f"{instance.class_name} has no record of the arguments it was made with")
        unknown = sorted(keywords.keys() - defaults.keys())
        if unknown and not passes_on:
            raise ValueError(f"{instance.class_name} has an argument {unknown[0][:80]!r}, which is not known here")
        self._values = {**defaults, **dict(zip(defaults, positional, strict=False)), **keywords}

    def whole(self, name: str) -> int:
        """A whole number."""
        return self._whole(name, self._values[name])

    def wholes(self, name: str) -> list[int]:
        """A list of whole numbers."""
        values = self._values[name]
        if type(values) not in (list, tuple) or len(values) > 64:
            raise ValueError(f"expected a short list for {name}; got {kind_of(values)}")
        return [self._whole(name, value) for value in values]

    def number(self, name: str) -> float | int:
        """Any finite number."""
        value = self._values[name]
        if isinstance(value, int | float) and abs(value) < 1e12:
            return value
        raise ValueError(f"expected a number for {name}; got {kind_of(value)}")

    def text(self, name: str) -> str:
        """A text of a few words at most."""
        value = self._values[name]
        if type(value) is not str or len(value) > 80:
            raise ValueError(f"expected a short text for {name}; got {kind_of(value)}")
        return value

    @staticmethod
    def _whole(name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= _LARGEST:
            found = f"{value:.0f}" if type(value) is int and abs(value) < 2**63 else kind_of(value)
            raise ValueError(f"expected whole numbers from 0 to {_LARGEST:,} for {name}; got {found}")
        return value


def _tensors(module: Instance) -> dict[str, Tensor]:
    """All parameters and buffers of a module and those inside it, by name."""
    found: dict[str, Tensor] = {}
    waiting = [("", module)]
    visited = 0
    while waiting:
        prefix, current = waiting.pop()
        for group in ("_parameters", "_buffers"):
            members = _members(current, group)
            for name, tensor in members.items():
                if tensor is None:
                    continue
                path = _joined(prefix, name)
                if not isinstance(tensor, Tensor):
                    raise ValueError(f"{path[:80]!r} is {kind_of(tensor)}, where a tensor was expected")
                found[path] = tensor
        inside = [(_joined(prefix, name, "."), child) for name, child in _modules(current).items() if child is not None]
        visited += len(inside)
        if visited > _MOST_MODULES or len(found) > _MOST_MODULES:
            raise ValueError(f"it has more than {_MOST_MODULES:,} modules or tensors")
        waiting += inside
    return found


def _joined(*parts: str) -> str:
    """The name of a tensor or module; a module inside itself could make one without end."""
    if sum(map(len, parts)) > _LONGEST_NAME:
        raise ValueError(f"it has a module or tensor with a name of more than {_LONGEST_NAME:,} letters")
    return "".join(parts)


def _modules(module: Instance) -> dict[str, Any]:
    return _members(module, "_modules")


def _members(module: Any, group: str) -> dict[str, Any]:
    if type(module) is not Instance or type(module.state) is not dict or type(module.state.get(group)) is not dict:
        raise ValueError(f"expected a module with {group}; got {_called(module)}")
    members: dict[str, Any] = module.state[group]
    return members


def _called(value: Any) -> str:
    return repr(value.class_name[:80]) if type(value) is Instance else kind_of(value)


def _either(names: Mapping[str, Any]) -> str:
    return " or ".join(names)
