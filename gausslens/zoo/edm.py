"""Network pickles of EDM (`network-snapshot-….pkl`, `edm-cifar10-32x32-uncond-vp.pkl`, …) as denoisers.

The `ema` entry of such a file is a preconditioning around a network. The file is read as data (see `pickles`): the class
names and constructor arguments say which of our networks it is, and its tensors fill that network.
The source code in the file is never looked at, so a network that was changed there is not seen as changed.

Names of weights in an EDM network, and in the networks of gausslens:

| EDM | gausslens |
|---|---|
| enc.32x32_conv, then _block0 …, 16x16_down, 16x16_block0, … | stem, then encoder.0, encoder.1, … |
| enc.16x16_aux_residual, … | image.0.conv, … |
| dec.8x8_in0, 8x8_in1, then _block0 …, 16x16_up, 16x16_block0, … | middle.0, middle.1, then decoder.0, decoder.1, … |
| dec.32x32_aux_norm and _aux_conv, or out_norm and out_conv | output.norm, output.conv |

The layers of the embedding and of blocks are listed below. Three layouts differ. EDM orders the rows of qkv by (head,
channel, which of the three), gausslens by (which, head, channel). The Fourier features of NCSN++ are (sin, cos) in EDM and
(cos, sin) in gausslens. EDM's ADM has no attention where a block has fewer channels than a head; the network of gausslens
has attention there that adds zero.

Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from ..denoisers.preconditioned import Preconditioned
from ..errors import CheckpointError
from ..safe_pickle import Instance, kind_of
from ..store.artifact import expect
from ..store.weights import build_without_memory
from .model import Model, fingerprint
from .pickles import read_pickle

# Arguments of EDM's constructors in order, with their defaults, whose types they must have. None is a whole number without
# a default, and dots are arguments that are not needed here. A preconditioning passes other arguments on to its network.
_IMAGE = {"img_resolution": ..., "img_channels": ..., "label_dim": ..., "use_fp16": ...}
_PRECONDITIONINGS: dict[str, dict[str, Any]] = {
    "EDMPrecond": {**_IMAGE, "sigma_min": ..., "sigma_max": ..., "sigma_data": 0.5, "model_type": ...},
    "VPPrecond": {**_IMAGE, "beta_d": 19.9, "beta_min": 0.1, "M": 1000.0, "epsilon_t": ..., "model_type": ...},
    "VEPrecond": {**_IMAGE, "sigma_min": ..., "sigma_max": ..., "model_type": ...},
}
_DHARIWAL = {
    **{"img_resolution": None, "in_channels": None, "out_channels": None, "label_dim": 0, "augment_dim": 0},
    **{"model_channels": 192, "channel_mult": (1, 2, 3, 4), "channel_mult_emb": 4, "num_blocks": 3},
    **{"attn_resolutions": (32, 16, 8), "dropout": 0.1, "label_dropout": ...},
}
_SONG_STYLE = {
    **{"embedding_type": "positional", "channel_mult_noise": 1},
    **{"encoder_type": "standard", "decoder_type": "standard", "resample_filter": (1, 1)},
}
_SONG = {
    **_DHARIWAL,
    **{"model_channels": 128, "channel_mult": (1, 2, 2, 2), "num_blocks": 4, "attn_resolutions": (16,)},
    **_SONG_STYLE,
}
_NETWORKS: dict[str, dict[str, Any]] = {"SongUNet": _SONG, "DhariwalUNet": _DHARIWAL}
_STYLES = {
    "ncsnpp": ["fourier", 2, "residual", "standard", [1, 3, 3, 1]],
    "ddpmpp": ["positional", 1, "standard", "standard", [1, 1]],
}
# Arguments for which gausslens has one value only.
_FIXED = {"channel_mult_emb": 4, "beta_d": 19.9, "beta_min": 0.1, "M": 1000}
_OPTIONS = {
    **{"width": "model_channels", "multipliers": "channel_mult", "blocks": "num_blocks"},
    **{"attention": "attn_resolutions", "dropout": "dropout", "classes": "label_dim", "augment_inputs": "augment_dim"},
}
# Layers in gausslens, and their names in EDM.
_EMBEDDING = {
    "frequencies": "map_noise.freqs",
    "first": "map_layer0",
    "second": "map_layer1",
    "label": "map_label",
    "augment": "map_augment",
}
_BLOCK = {
    "norm_in": "norm0",
    "first": "conv0",
    "noise": "affine",
    "norm_mid": "norm1",
    "second": "conv1",
    "skip": "skip",
    "attention.norm": "norm2",
    "attention.qkv": "qkv",
    "attention.project": "proj",
}
_HEAD = 64  # channels of ADM's attention heads
_MOST_MODULES = 3000  # published networks have up to a quarter of it
_LARGEST = 2**16
_LONGEST_NAME = 1000  # published networks stay below a tenth of it

_ARGUMENTS: dict[type, tuple[str, Callable[[Any], bool]]] = {
    tuple: ("a short list", lambda value: type(value) in (list, tuple) and len(value) <= 64),
    str: ("a short text", lambda value: type(value) is str and len(value) <= 80),
    float: ("a number", lambda value: isinstance(value, int | float) and abs(value) < 1e12),
    int: (f"whole numbers from 0 to {_LARGEST:,}", lambda value: type(value) is int and 0 <= value <= _LARGEST),
}
"""What an argument must be, by the type of its default."""


def load_edm(path: str | os.PathLike[str], *, device: torch.device | str | None = None) -> Model:
    """The denoiser in an EDM network pickle, without running anything in it."""
    description, denoiser = read_edm(path)
    network = description["network"]
    denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions are faster so
    return Model(
        denoiser.to(device or "cpu"),
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
        inner = _instance(dict(_members(outer, "_modules")).get("model"), _NETWORKS, f" inside {outer.class_name}")
        description, theirs = _description(outer, inner), _tensors(inner)
        n_bytes = sum(tensor.nbytes for tensor in theirs.values())
        expect(n_bytes <= os.path.getsize(path), "its tensors take more memory than the file has, so they share it")
        denoiser = build_without_memory(description, len(theirs))
        weights = translate_weights(theirs, denoiser.network.state_dict(), description["network"])
        denoiser.network.load_state_dict(weights, assign=True)  # the memory is that of the file's own tensors
    except ValueError as error:
        raise CheckpointError(
            f"{path}: {str(error).rstrip('.')}. The known networks are EDM's NCSN++, DDPM++ and ADM, with the "
            "preconditionings EDM, VP and VE; for others, pass the denoiser as package.module:object."
        ) from None
    return description, denoiser.requires_grad_(False).eval()


def _ema(content: Any) -> Instance:
    """The preconditioned network in what a file holds."""
    is_dict = type(content) is dict
    held = f"the entries {', '.join(map(repr, sorted(content)[:9]))}" if is_dict else kind_of(content)
    expect(is_dict and "ema" in content, f"expected a network under the name ema; the file holds {held[:200]}")
    return _instance(content["ema"], _PRECONDITIONINGS)


def _instance(value: Any, known: Collection[str], where: str = "") -> Instance:
    """The value, if it is of one of the known classes."""
    is_known = type(value) is Instance and value.class_name in known
    expect(is_known, f"expected a network of class {' or '.join(known)}{where}; got {_called(value)}")
    return cast("Instance", value)


def _description(outer: Instance, inner: Instance) -> dict[str, Any]:
    """What `build_denoiser` needs, as JSON can hold it."""
    around = _arguments(outer, _PRECONDITIONINGS[outer.class_name], passes_on=True)
    within = _arguments(inner, _NETWORKS[inner.class_name])
    for name, value in (around | within).items():
        expect(_FIXED.get(name, value) == value, f"expected {name} = {_FIXED.get(name)}; got {value!s:.80}")
    channels, returned, side = within["in_channels"], within["out_channels"], within["img_resolution"]
    expect(returned == channels, f"it has {channels} channels going in and {returned} coming out")
    widest = within["model_channels"] * max(within["channel_mult"], default=1)
    expect(widest <= _LARGEST, f"its arguments call for {widest:,} channels")
    style = [within.get(name) for name in _SONG_STYLE]
    names = ["adm"] if inner.class_name == "DhariwalUNet" else [key for key, known in _STYLES.items() if known == style]
    expect(names, f"its embedding, encoder, decoder and filter are {style}, neither NCSN++'s nor DDPM++'s")
    network = {"name": names[0], "shape": [channels, side, side]}
    network |= {ours: within[theirs] for ours, theirs in _OPTIONS.items()}
    kind = outer.class_name.removesuffix("Precond").lower()
    return {"network": network, "kind": kind, "sigma_data": around.get("sigma_data", 0.5)}


def _arguments(instance: Instance, defaults: Mapping[str, Any], *, passes_on: bool = False) -> dict[str, Any]:
    """What a constructor was called with; `passes_on` if it takes arguments that are not its own."""
    positional, keywords = instance.state.get("_init_args"), instance.state.get("_init_kwargs")
    recorded = type(positional) is tuple and type(keywords) is dict and len(positional) <= len(defaults)
    expect(recorded, f"{instance.class_name} has no record of the arguments it was made with")
    unknown = sorted(keywords.keys() - defaults.keys())
    first = "".join(unknown[:1])[:80]
    expect(passes_on or not unknown, f"{instance.class_name} has an argument {first!r}, which is not known here")
    given = {**defaults, **dict(zip(defaults, positional, strict=False)), **keywords}
    return {name: _checked(name, given[name], default) for name, default in defaults.items() if default is not ...}


def _checked(name: str, value: Any, default: Any) -> Any:
    """An argument, if it has the type of its default and is neither too long nor too large."""
    expected, holds = _ARGUMENTS[int if default is None else type(default)]
    got = f"{value:.0f}" if type(value) is int and abs(value) < 2**63 else kind_of(value)
    expect(holds(value), f"expected {expected} for {name}; got {got}")
    return [_checked(name, item, 0) for item in value] if isinstance(default, tuple) else value


def _tensors(module: Instance) -> dict[str, Tensor]:
    """All parameters and buffers of a module and those inside it, by name."""
    found: dict[str, Tensor] = {}
    waiting: list[tuple[str, Any]] = [("", module)]
    visited = 0
    while waiting:
        prefix, current = waiting.pop()
        for name, tensor in (*_members(current, "_parameters"), *_members(current, "_buffers")):
            expect(isinstance(tensor, Tensor), f"{name[:80]!r} is {kind_of(tensor)}, where a tensor was expected")
            found[_join(prefix, name)] = tensor
        inside = [(_join(prefix, name, "."), child) for name, child in _members(current, "_modules")]
        visited += len(inside)
        expect(max(visited, len(found)) <= _MOST_MODULES, f"it has more than {_MOST_MODULES:,} modules or tensors")
        waiting += inside
    return found


def _join(*parts: str) -> str:
    """The name of a tensor or module; a module inside itself could make one without end."""
    is_short = sum(map(len, parts)) <= _LONGEST_NAME
    expect(is_short, f"it has a module or tensor with a name of more than {_LONGEST_NAME:,} letters")
    return "".join(parts)


def _members(module: Any, group: str) -> list[tuple[str, Any]]:
    """The parameters, buffers or modules of a module by name, without those that are None."""
    state = module.state if type(module) is Instance else None
    members: Any = state.get(group) if type(state) is dict else None
    expect(type(members) is dict, f"expected a module with {group}; got {_called(module)}")
    return [(name, member) for name, member in members.items() if member is not None]


def _called(value: Any) -> str:
    return repr(value.class_name[:80]) if type(value) is Instance else kind_of(value)


def translate_weights(
    theirs: Mapping[str, Tensor], wanted: Mapping[str, Tensor], network: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of an EDM network for a network of gausslens, in float32."""
    layers, unused, weights = _layer_names(network), set(theirs), {}
    for ours, like in wanted.items():
        layer, _, kind = ours.rpartition(".")
        name = layers[ours] if ours in layers else f"{layers[layer]}.{kind}"
        if name not in theirs:
            may_lack = network["name"] == "adm" and ".attention." in ours and _channels(wanted, ours) < _HEAD
            expect(may_lack, f"it has no weights {name}")
            weights[ours] = torch.zeros(like.shape)
            continue
        tensor = theirs[name]
        fits = tensor.shape == like.shape and tensor.is_floating_point()
        held = f"{tuple(tensor.shape)} and {tensor.dtype}"
        expect(fits, f"it has {name} of shape {held}; a network of its arguments has floating {tuple(like.shape)}")
        expect(tensor.isfinite().all(), f"the weights {name} have values that are not finite")
        unused.remove(name)
        weights[ours] = _our_layout(tensor.float(), ours, network["name"]).contiguous()
    unused = {name for name in unused if not name.endswith(".resample_filter")}
    expect(not unused, f"it has {len(unused)} tensors too many, such as {min(unused, default='')[:80]!r}")
    return weights


def _layer_names(network: Mapping[str, Any]) -> dict[str, str]:
    """The layers of a network of gausslens, each with its name in an EDM file."""
    sides = ["{0}x{0}".format(network["shape"][1] >> level) for level in range(len(network["multipliers"]))]
    names = [f"block{index}" for index in range(network["blocks"] + 1)]
    encoder = [f"{side}_{name}" for side in sides for name in ("down", *names[:-1])]
    decoder = [f"{side}_{name}" for side in sides[::-1] for name in ("up", *names)]
    last = "out_" if network["name"] == "adm" else f"dec.{sides[0]}_aux_"
    blocks = {
        # The first side of either has nothing to resample.
        **{f"encoder.{index}": f"enc.{name}" for index, name in enumerate(encoder[1:])},
        **{f"middle.{index}": f"dec.{sides[-1]}_in{index}" for index in range(2)},
        **{f"decoder.{index}": f"dec.{name}" for index, name in enumerate(decoder[1:])},
    }
    return {
        **{f"embedding.{ours}": theirs for ours, theirs in _EMBEDDING.items()},
        "stem": f"enc.{sides[0]}_conv",
        **{f"image.{index}.conv": f"enc.{side}_aux_residual" for index, side in enumerate(sides[1:])},
        **{f"{ours}.{layer}": f"{theirs}.{name}" for ours, theirs in blocks.items() for layer, name in _BLOCK.items()},
        "output.norm": f"{last}norm",
        "output.conv": f"{last}conv",
    }


def _channels(wanted: Mapping[str, Tensor], ours: str) -> int:
    """Channels of the attention that a tensor belongs to."""
    return len(wanted[ours[: ours.index(".attention.")] + ".attention.norm.weight"])


def _our_layout(tensor: Tensor, ours: str, network: str) -> Tensor:
    """A tensor of an EDM file in the layout of gausslens, by its name in gausslens."""
    if ".attention.qkv." in ours:
        heads = max(len(tensor) // 3 // _HEAD, 1) if network == "adm" else 1
        rows: Tensor = tensor.unflatten(0, (heads, -1, 3))
        return rows.movedim(2, 0).flatten(0, 2)
    if network == "ncsnpp" and ours == "embedding.first.weight":
        return tensor.roll(tensor.shape[1] // 2, 1)
    if network == "ncsnpp" and ours.startswith(("embedding.label.", "embedding.augment.")):
        return tensor.roll(len(tensor) // 2, 0)
    return tensor
