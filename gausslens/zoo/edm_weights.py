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

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .model import expect

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


def translate_weights(
    theirs: Mapping[str, Tensor], wanted: Mapping[str, Tensor], network: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of our network, in float32."""
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
        expect(
            tensor.shape == like.shape and tensor.is_floating_point(),
            f"it has {name} of shape {tuple(tensor.shape)} and {tensor.dtype}, where a network of its "
            f"arguments has floating {tuple(like.shape)}",
        )
        expect(tensor.isfinite().all(), f"the weights {name} have values that are not finite")
        unused.remove(name)
        weights[ours] = _our_layout(tensor.float(), ours, network["name"]).contiguous()
    unused = {name for name in unused if not name.endswith(".resample_filter")}
    expect(not unused, f"it has {len(unused)} tensors too many, such as {min(unused, default='')[:80]!r}")
    return weights


def _layer_names(network: Mapping[str, Any]) -> dict[str, str]:
    """The layers of our network, each with the name it has in an EDM file."""
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
    """A tensor of theirs, laid out as the one of this name is here."""
    if ".attention.qkv." in ours:
        heads = max(len(tensor) // 3 // _HEAD, 1) if network == "adm" else 1
        rows: Tensor = tensor.unflatten(0, (heads, -1, 3))
        return rows.movedim(2, 0).flatten(0, 2)
    if network == "ncsnpp" and ours == "embedding.first.weight":
        return tensor.roll(tensor.shape[1] // 2, 1)
    if network == "ncsnpp" and ours.startswith(("embedding.label.", "embedding.augment.")):
        return tensor.roll(len(tensor) // 2, 0)
    return tensor
