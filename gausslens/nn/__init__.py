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

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from ..errors import ConfigError
from .dense import DenseNetwork
from .dit import DiT
from .linear import LinearNetwork
from .published import ADM, DDPMPP, NCSNPP
from .skipnet import SkipNet
from .small import SmallUNet
from .unet import UNet

__all__ = ["build_network", "default_options"]


def _small_network(
    shape: tuple[int, int, int], *, multipliers: tuple[int, ...], **options: Any
) -> SmallUNet | DenseNetwork:
    """The U-Net with these multipliers, or without any the dense network; `options` are theirs."""
    return SmallUNet(shape, multipliers=multipliers, **options) if multipliers else DenseNetwork(shape, **options)


_CLASSES: dict[str, Any] = {
    "ncsnpp": partial(UNet, architecture=NCSNPP),
    "ddpmpp": partial(UNet, architecture=DDPMPP),
    "adm": partial(UNet, architecture=ADM),
    "unet": _small_network,
    "linear": LinearNetwork,
    "skipnet": SkipNet,
    "dit": DiT,
}


def build_network(
    name: str,
    shape: Sequence[int],
    *,
    width: int | None = None,
    multipliers: Sequence[int] | None = None,
    blocks: int | None = None,
    attention: Sequence[int] | None = None,
    dropout: float = 0.0,
    classes: int = 0,
    augment_inputs: int = 0,
) -> nn.Module:
    """A network with `forward(x, noise, labels=None, augment=None)`, by name."""
    if name not in _CLASSES:
        raise ConfigError(f"network must be one of {', '.join(_CLASSES)}; got {name!r}.")
    image = _checked_shape(shape)
    options = default_options(name, image)
    given = {
        "width": width,
        "multipliers": None if multipliers is None else tuple(multipliers),
        "blocks": blocks,
        "attention": None if attention is None else tuple(attention),
        "dropout": dropout or None,
        "classes": classes or None,
        "augment_inputs": augment_inputs or None,
    }
    for option, value in given.items():
        if value is None:
            continue
        if option not in options:
            known = ", ".join(options) or "none"
            raise ConfigError(f"the network {name!r} has no option {option}; got {value}. Its options: {known}.")
        options[option] = value
    _check_options(name, options)
    network: nn.Module = _CLASSES[name](image, **options)
    return network


def default_options(name: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """The options a network has, at their published values for images of this size."""
    conditions = {"dropout": 0.0, "classes": 0, "augment_inputs": 0}
    side = max(shape[1:])
    multipliers: tuple[int, ...]
    if name in ("ncsnpp", "ddpmpp"):
        multipliers = (1, 2, 2, 2) if side > 32 else (2, 2, 2)
        return {"width": 128, "multipliers": multipliers, "blocks": 4, "attention": (16,), **conditions}
    if name == "adm":
        return {"width": 192, "multipliers": (1, 2, 3, 4), "blocks": 3, "attention": (32, 16, 8), **conditions}
    if name == "unet" and side <= 8:
        return {"width": 96, "multipliers": (), "blocks": 16, **conditions}
    if name == "unet":
        multipliers = (1, 2, 2) if side > 32 else (1, 2) if side > 16 else (1,)
        return {"width": 24, "multipliers": multipliers, "blocks": 1, **conditions}
    if name == "dit":
        return {"width": 384, "blocks": 12, **conditions}
    if name == "skipnet":
        halvings = min(shape[1:]).bit_length() - 1
        return {"width": 128, "multipliers": (1,) * min(max(halvings - 1, 1), 5)}
    return {}


def _checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) != 3 or any(int(side) != side or side < 1 for side in shape):
        raise ConfigError(f"shape must be that of one image, (channels, height, width); got {tuple(shape)}.")
    channels, height, width = (int(side) for side in shape)
    return channels, height, width


def _check_options(name: str, options: dict[str, Any]) -> None:
    for option in ("width", "blocks"):
        if options.get(option, 1) < 1:
            raise ConfigError(f"{option} must be at least 1; got {options[option]}.")
    multipliers = options.get("multipliers", (1,))
    if min(multipliers, default=1) < 1 or (not multipliers and name != "unet"):
        raise ConfigError(f"multipliers must be at least one number, each at least 1; got {multipliers}.")
    if not 0 <= options.get("dropout", 0) < 1:
        raise ConfigError(f"dropout must be in [0, 1); got {options['dropout']}.")
    for option in ("classes", "augment_inputs"):
        if options.get(option, 0) < 0:
            raise ConfigError(f"{option} must be at least 0; got {options[option]}.")
