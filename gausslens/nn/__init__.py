"""Networks F(x, noise, labels, augment), written from the published architectures.

| name | what it is | default width, multipliers, blocks, attention |
|---|---|---|
| ncsnpp | NCSN++, the network of EDM-VE | 128, (1, 2, 2, 2) above 32 pixels or else (2, 2, 2), 4, (16,) |
| ddpmpp | DDPM++, the network of EDM-VP | as ncsnpp |
| adm | the U-Net of Dhariwal and Nichol | 192, (1, 2, 3, 4), 3, (32, 16, 8) |
| unet | a small U-Net for a CPU | 24, (1,) up to 16 pixels, then (1, 2), above 32 (1, 2, 2), 1 |
| | up to 8 pixels, a dense network | 96, () without convolutions, 16 |
| linear | an affine map | |
| skipnet | a convolutional autoencoder with thin skips | 128, as many 1s as the image can be halved, at most 5 |
| dit | a diffusion transformer | 384, no multipliers, 12 |

The last three, and ncsnpp, are the autoencoders of App. G.2 of arXiv:2410.24060.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn

from ..errors import check_choice, require
from .dense import DenseNetwork, LinearNetwork
from .dit import DiT
from .skipnet import SkipNet
from .small import SmallUNet
from .unet import ADM, DDPMPP, NCSNPP, UNet

__all__ = ["LAYOUT", "build_network", "default_options"]

LAYOUT = ("width", "multipliers", "blocks", "attention")
"""The options that say how a network is built."""


def _small_network(shape: tuple[int, int, int], *, multipliers: tuple[int, ...], **options: Any) -> nn.Module:
    return SmallUNet(shape, multipliers=multipliers, **options) if multipliers else DenseNetwork(shape, **options)


_NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "ncsnpp": partial(UNet, style=NCSNPP),
    "ddpmpp": partial(UNet, style=DDPMPP),
    "adm": partial(UNet, style=ADM),
    "unet": _small_network,
    "linear": LinearNetwork,
    "skipnet": SkipNet,
    "dit": DiT,
}


# Options that every network accepts at these values, and most networks at others.
_OPTIONAL = {"dropout": 0.0, "classes": 0, "augment_inputs": 0}


def build_network(name: str, shape: Sequence[int], **options: Any) -> nn.Module:
    """A network with `forward(x, noise, labels=None, augment=None)`, by name.

    Args:
        name: one of the names above.
        shape: of one image, (c, h, w).
        **options: values to replace those of `default_options`; None keeps a default. `width`: the number of channels, even,
            that multipliers multiply; `multipliers`: one for each resolution, each but the first halving the image;
            `blocks`: the residual blocks at each resolution of the encoder; `attention`: the resolutions (of the longer
            side) with self-attention, of which those that do not occur are ignored; `dropout`: its probability in every
            block; `classes` and `augment_inputs`: the numbers of classes and of augmentation inputs, 0 for none.

    Returns:
        The network with initial weights.

    Raises:
        ConfigError: if an option is unknown, out of its range, or does not fit the images.
    """
    check_choice("network", name, _NETWORKS)
    is_shape = len(shape) == 3 and all(int(side) == side >= 1 for side in shape)
    require(is_shape, f"shape must be that of one image, (channels, height, width); got {tuple(shape)}.")
    channels, height, width = map(int, shape)
    chosen = default_options(name, (channels, height, width))
    known = ", ".join(chosen) or "none"
    for option, value in options.items():
        if value is None or (option not in chosen and option in _OPTIONAL and value == 0):
            continue
        require(option in chosen, f"the network {name!r} has no option {option}; got {value}. Its options: {known}.")
        chosen[option] = value if isinstance(value, int | float) else tuple(value)
    _check_options(name, chosen)
    return _NETWORKS[name]((channels, height, width), **chosen)


def default_options(name: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """The options of a network, with the published values for images of this size."""
    side, halvings = max(shape[1:]), min(shape[1:]).bit_length() - 1
    song = {"width": 128, "multipliers": (1, 2, 2, 2) if side > 32 else (2, 2, 2), "blocks": 4, "attention": (16,)}
    dense = {"width": 96, "multipliers": (), "blocks": 16}
    small = {"width": 24, "multipliers": (1, *(2 for size in (16, 32) if side > size)), "blocks": 1}
    options: dict[str, dict[str, Any]] = {
        "ncsnpp": song,
        "ddpmpp": song,
        "adm": {"width": 192, "multipliers": (1, 2, 3, 4), "blocks": 3, "attention": (32, 16, 8)},
        "unet": dense if side <= 8 else small,
        "linear": {},
        "skipnet": {"width": 128, "multipliers": (1,) * min(max(halvings - 1, 1), 5)},
        "dit": {"width": 384, "blocks": 12},
    }
    is_plain = name in ("linear", "skipnet")
    return options[name] | ({} if is_plain else _OPTIONAL)


def _check_options(name: str, options: dict[str, Any]) -> None:
    for option, least in (("width", 1), ("blocks", 1), ("classes", 0), ("augment_inputs", 0)):
        value = options.get(option, least)
        require(value >= least, f"{option} must be at least {least}; got {value}.")
    multipliers, dropout = options.get("multipliers", (1,)), options.get("dropout", 0)
    are_fine = min(multipliers, default=1) >= 1 and (multipliers or name == "unet")
    require(are_fine, f"multipliers must be at least one number, each at least 1; got {multipliers}.")
    require(0 <= dropout < 1, f"dropout must be in [0, 1); got {dropout}.")
