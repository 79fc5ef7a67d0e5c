"""How the weights of an EDM network become those of ours.

| there | here |
|---|---|
| map_noise.freqs, map_layer0, map_layer1, map_label, map_augment | embedding.frequencies, first, second, label, augment |
| enc.32x32_conv, then _block0 …, 16x16_down, 16x16_block0, … | stem, then encoder.0, encoder.1, … |
| enc.16x16_aux_residual, … | image.0.conv, … |
| dec.8x8_in0, 8x8_in1, then _block0 …, 16x16_up, 16x16_block0, … | middle.0, middle.1, then decoder.0, decoder.1, … |
| dec.32x32_aux_norm and _aux_conv, or out_norm and out_conv | output.norm, output.conv |
| norm0, conv0, affine, norm1, conv1, skip, norm2, qkv, proj | norm_in, first, noise, norm_mid, second, skip, attention.… |

Three things are laid out otherwise. The rows of qkv go (head, channel, which of the three) there and (which, head,
channel) here. NCSN++ has its Fourier features as (sin, cos) there and (cos, sin) here. And ADM leaves attention out where
a block has fewer channels than a head, where ours gets one that adds zero.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

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


def module_names(network: Mapping[str, Any]) -> dict[str, str]:
    """The modules of our network, each with the name it has in an EDM file."""
    blocks = range(network["blocks"])
    sides = [
        f"{network['shape'][1] >> level}x{network['shape'][1] >> level}" for level in range(len(network["multipliers"]))
    ]
    encoder = [f"{side}_block{index}" for side in sides[:1] for index in blocks]
    for side in sides[1:]:
        encoder += [f"{side}_down", *(f"{side}_block{index}" for index in blocks)]
    decoder = [f"{sides[-1]}_block{index}" for index in (*blocks, len(blocks))]
    for side in reversed(sides[:-1]):
        decoder += [f"{side}_up", *(f"{side}_block{index}" for index in (*blocks, len(blocks)))]
    names = {f"embedding.{ours}": theirs for ours, theirs in _EMBEDDING.items()}
    names["stem"] = f"enc.{sides[0]}_conv"
    names |= {f"encoder.{index}": f"enc.{name}" for index, name in enumerate(encoder)}
    names |= {f"image.{index}.conv": f"enc.{side}_aux_residual" for index, side in enumerate(sides[1:])}
    names |= {f"middle.{index}": f"dec.{sides[-1]}_in{index}" for index in range(2)}
    names |= {f"decoder.{index}": f"dec.{name}" for index, name in enumerate(decoder)}
    last = "out_" if network["name"] == "adm" else f"dec.{sides[0]}_aux_"
    return names | {"output.norm": f"{last}norm", "output.conv": f"{last}conv"}


def translate_weights(
    theirs: Mapping[str, Tensor], wanted: Mapping[str, Tensor], network: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of our network, in float32."""
    modules, unused, weights = module_names(network), set(theirs), {}
    for ours, like in wanted.items():
        name = _their_name(ours, modules)
        if (
            name not in theirs
            and network["name"] == "adm"
            and ".attention." in ours
            and _channels(wanted, ours) < _HEAD
        ):
            weights[ours] = torch.zeros(like.shape)
            continue
        if name not in theirs:
            raise ValueError(f"it has no weights {name}")
        if theirs[name].shape != like.shape or not theirs[name].is_floating_point():
            raise ValueError(
                f"it has {name} of shape {tuple(theirs[name].shape)} and {theirs[name].dtype}, where a network of its "
                f"arguments has floating {tuple(like.shape)}"
            )
        if not theirs[name].isfinite().all():
            raise ValueError(f"the weights {name} have values that are not finite")
        unused.remove(name)
        weights[ours] = _layout(ours, network, like)(theirs[name].float()).contiguous()
    unused = {name for name in unused if not name.endswith(".resample_filter")}
    if unused:
        raise ValueError(f"it has {len(unused)} tensors too many, such as {min(unused)[:80]!r}")
    return weights


def _their_name(ours: str, modules: Mapping[str, str]) -> str:
    module, _, rest = ours.partition(".")
    index, _, inside = rest.partition(".")
    if module in ("encoder", "middle", "decoder"):
        layer, _, kind = inside.rpartition(".")
        return f"{modules[f'{module}.{index}']}.{_BLOCK[layer]}.{kind}"
    if ours in modules:
        return modules[ours]
    layer, _, kind = ours.rpartition(".")
    return f"{modules[layer]}.{kind}"


def _channels(wanted: Mapping[str, Tensor], ours: str) -> int:
    """Channels of the attention that a tensor belongs to."""
    return len(wanted[ours[: ours.index(".attention.")] + ".attention.norm.weight"])


def _layout(ours: str, network: Mapping[str, Any], like: Tensor) -> Callable[[Tensor], Tensor]:
    """What has to be done to a tensor of theirs."""
    if ".attention.qkv." in ours:
        heads = max(len(like) // 3 // _HEAD, 1) if network["name"] == "adm" else 1
        return lambda rows: rows.unflatten(0, (heads, -1, 3)).movedim(2, 0).flatten(0, 2)
    if network["name"] == "ncsnpp" and ours == "embedding.first.weight":
        return lambda columns: columns.roll(columns.shape[1] // 2, 1)
    if network["name"] == "ncsnpp" and ours.startswith(("embedding.label.", "embedding.augment.")):
        return lambda rows: rows.roll(len(rows) // 2, 0)
    return lambda unchanged: unchanged
