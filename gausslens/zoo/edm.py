"""Network pickles of EDM (`network-snapshot-….pkl`, `edm-cifar10-32x32-uncond-vp.pkl`, …) as denoisers.

The `ema` entry of such a file is a preconditioning around a network. The file is read as data (see `pickles`): the class
names and constructor arguments say which of our networks it is, and its tensors fill that network (see `edm_weights`).
The source code in the file is never looked at, so a network that was changed there is not seen as changed.

Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364.
"""

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

# Arguments of their constructors in order. An argument has the type of its default; None stands for a whole number without
# one, and dots for what is not needed here. A preconditioning passes others on to its network.
_IMAGE = {"img_resolution": ..., "img_channels": ..., "label_dim": ..., "use_fp16": ...}
_PRECONDITIONINGS: dict[str, dict[str, Any]] = {
    "EDMPrecond": {**_IMAGE, "sigma_min": ..., "sigma_max": ..., "sigma_data": 0.5, "model_type": ...},
    "VPPrecond": {**_IMAGE, "beta_d": 19.9, "beta_min": 0.1, "M": 1000.0, "epsilon_t": ..., "model_type": ...},
    "VEPrecond": {**_IMAGE, "sigma_min": ..., "sigma_max": ..., "model_type": ...},
}
_KINDS = {"EDMPrecond": "edm", "VPPrecond": "vp", "VEPrecond": "ve"}
_DHARIWAL = {
    **{"img_resolution": None, "in_channels": None, "out_channels": None, "label_dim": 0, "augment_dim": 0},
    "model_channels": 192,
    "channel_mult": (1, 2, 3, 4),
    "channel_mult_emb": 4,
    "num_blocks": 3,
    "attn_resolutions": (32, 16, 8),
    "dropout": 0.1,
    "label_dropout": ...,
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
_SONG_OPTIONS = ("embedding_type", "channel_mult_noise", "encoder_type", "decoder_type", "resample_filter")
_SONGS = {
    "ncsnpp": ["fourier", 2, "residual", "standard", [1, 3, 3, 1]],
    "ddpmpp": ["positional", 1, "standard", "standard", [1, 1]],
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
    """The description of the denoiser in an EDM network pickle, as `build_denoiser` takes it, and the denoiser."""
    content = read_pickle(path)
    try:
        outer = _ema(content)
        inner = dict(_members(outer, "_modules")).get("model")
        if type(inner) is not Instance or inner.class_name not in _NETWORKS:
            raise ValueError(
                f"expected a network of class {' or '.join(_NETWORKS)} inside {outer.class_name}; got {_called(inner)}"
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
            f"{path}: {str(error).rstrip('.')}. The known networks are EDM's NCSN++, DDPM++ and ADM, with its "
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
        raise ValueError(f"expected a network of class {' or '.join(_PRECONDITIONINGS)}; got {_called(network)}")
    return network


def _description(outer: Instance, inner: Instance) -> dict[str, Any]:
    """What `build_denoiser` needs, as JSON can hold it."""
    around = _arguments(outer, _PRECONDITIONINGS[outer.class_name], passes_on=True)
    within = _arguments(inner, _NETWORKS[inner.class_name])
    if outer.class_name == "VPPrecond":
        process = [around[name] for name in ("beta_d", "beta_min", "M")]
        if process != [19.9, 0.1, 1000]:
            got = ", ".join(f"{number:.9g}" for number in process)
            raise ValueError(f"expected the VP process with (beta_d, beta_min, M) = (19.9, 0.1, 1000); got ({got})")
    if within["out_channels"] != within["in_channels"]:
        raise ValueError(f"it has {within['in_channels']} channels going in and {within['out_channels']} coming out")
    if within["channel_mult_emb"] != 4:
        raise ValueError(f"expected channel_mult_emb = 4; got {within['channel_mult_emb']}")
    widest = within["model_channels"] * max(within["channel_mult"], default=1)
    if widest > _LARGEST:
        raise ValueError(f"its arguments call for {widest:,} channels")
    network = {
        "name": "adm" if inner.class_name == "DhariwalUNet" else _song_name(within),
        "shape": [within["in_channels"], within["img_resolution"], within["img_resolution"]],
        "width": within["model_channels"],
        "multipliers": within["channel_mult"],
        "blocks": within["num_blocks"],
        "attention": within["attn_resolutions"],
        "dropout": within["dropout"],
        "classes": within["label_dim"],
        "augment_inputs": within["augment_dim"],
    }
    return {"network": network, "kind": _KINDS[outer.class_name], "sigma_data": around.get("sigma_data", 0.5)}


def _song_name(arguments: Mapping[str, Any]) -> str:
    options = [arguments[name] for name in _SONG_OPTIONS]
    for name, known in _SONGS.items():
        if options == known:
            return name
    raise ValueError(f"its embedding, encoder, decoder and filter are {options}, neither NCSN++'s nor DDPM++'s")


def _arguments(instance: Instance, defaults: Mapping[str, Any], *, passes_on: bool = False) -> dict[str, Any]:
    """What a constructor was called with; `passes_on` if it takes arguments that are not its own."""
    positional, keywords = instance.state.get("_init_args"), instance.state.get("_init_kwargs")
    if type(positional) is not tuple or type(keywords) is not dict or len(positional) > len(defaults):
        raise ValueError(f"{instance.class_name} has no record of the arguments it was made with")
    unknown = sorted(keywords.keys() - defaults.keys())
    if unknown and not passes_on:
        raise ValueError(f"{instance.class_name} has an argument {unknown[0][:80]!r}, which is not known here")
    given = {**defaults, **dict(zip(defaults, positional, strict=False)), **keywords}
    return {name: _checked(name, given[name], default) for name, default in defaults.items() if default is not ...}


def _checked(name: str, value: Any, default: Any) -> Any:
    """An argument, if it has the type of its default and is neither too long nor too large."""
    if isinstance(default, tuple):
        if type(value) not in (list, tuple) or len(value) > 64:
            raise ValueError(f"expected a short list for {name}; got {kind_of(value)}")
        return [_checked(name, item, 0) for item in value]
    if isinstance(default, str):
        if type(value) is not str or len(value) > 80:
            raise ValueError(f"expected a short text for {name}; got {kind_of(value)}")
    elif isinstance(default, float):
        if not isinstance(value, int | float) or not abs(value) < 1e12:
            raise ValueError(f"expected a number for {name}; got {kind_of(value)}")
    elif type(value) is not int or not 0 <= value <= _LARGEST:
        found = f"{value:.0f}" if type(value) is int and abs(value) < 2**63 else kind_of(value)
        raise ValueError(f"expected whole numbers from 0 to {_LARGEST:,} for {name}; got {found}")
    return value


def _tensors(module: Instance) -> dict[str, Tensor]:
    """All parameters and buffers of a module and those inside it, by name."""
    found: dict[str, Tensor] = {}
    waiting: list[tuple[str, Any]] = [("", module)]
    visited = 0
    while waiting:
        prefix, current = waiting.pop()
        for name, tensor in (*_members(current, "_parameters"), *_members(current, "_buffers")):
            path = _join(prefix, name)
            if not isinstance(tensor, Tensor):
                raise ValueError(f"{path[:80]!r} is {kind_of(tensor)}, where a tensor was expected")
            found[path] = tensor
        inside = [(_join(prefix, name, "."), child) for name, child in _members(current, "_modules")]
        visited += len(inside)
        if visited > _MOST_MODULES or len(found) > _MOST_MODULES:
            raise ValueError(f"it has more than {_MOST_MODULES:,} modules or tensors")
        waiting += inside
    return found


def _join(*parts: str) -> str:
    """The name of a tensor or module; a module inside itself could make one without end."""
    if sum(map(len, parts)) > _LONGEST_NAME:
        raise ValueError(f"it has a module or tensor with a name of more than {_LONGEST_NAME:,} letters")
    return "".join(parts)


def _members(module: Any, group: str) -> list[tuple[str, Any]]:
    """The parameters, buffers or modules of a module by name, without those that are None."""
    if type(module) is not Instance or type(module.state) is not dict or type(module.state.get(group)) is not dict:
        raise ValueError(f"expected a module with {group}; got {_called(module)}")
    return [(name, member) for name, member in module.state[group].items() if member is not None]


def _called(value: Any) -> str:
    return repr(value.class_name[:80]) if type(value) is Instance else kind_of(value)
