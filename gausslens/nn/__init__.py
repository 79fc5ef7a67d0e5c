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

from ..errors import ConfigError
from .dense import DenseNetwork
from .dit import DiT
from .linear import LinearNetwork
from .published import ADM, DDPMPP, NCSNPP
from .skipnet import SkipNet
from .small import SmallUNet
from .unet import UNet

__all__ = ["build_network", "default_options"]


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
    """A network with `forward(x, noise, labels=None, augment=None)`, by name.

    Args:
        name: one of the names above.
        shape: of one image, (c, h, w).
        width: channels in units of which multipliers are given; even.
        multipliers: channels at each resolution; each but the first halves the image.
        blocks: residual blocks at each resolution of the encoder.
        attention: resolutions (of the longer side) with self-attention; others never occur and do no harm.
        dropout: probability in every block.
        classes: number of classes; 0 takes no labels.
        augment_inputs: number of augmentation inputs; 0 takes none.

    Returns:
        The network with initial weights.

    Raises:
        ConfigError: if an option is unknown, out of its range, or does not fit the images.
    """
    if name not in _NETWORKS:
        raise ConfigError(f"network must be one of {', '.join(_NETWORKS)}; got {name!r}.")
    if len(shape) != 3 or any(int(side) != side or side < 1 for side in shape):
        raise ConfigError(f"shape must be that of one image, (channels, height, width); got {tuple(shape)}.")
    channels, height, columns = (int(side) for side in shape)
    image = (channels, height, columns)
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
        if value is not None and option not in options:
            known = ", ".join(options) or "none"
            raise ConfigError(f"the network {name!r} has no option {option}; got {value}. Its options: {known}.")
    options |= {option: value for option, value in given.items() if value is not None}
    _check_options(name, options)
    return _NETWORKS[name](image, **options)


def default_options(name: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """The options a network has, at their published values for images of this size."""
    side = max(shape[1:])
    options: dict[str, Any]
    if name in ("ncsnpp", "ddpmpp"):
        multipliers = (1, 2, 2, 2) if side > 32 else (2, 2, 2)
        options = {"width": 128, "multipliers": multipliers, "blocks": 4, "attention": (16,)}
    elif name == "adm":
        options = {"width": 192, "multipliers": (1, 2, 3, 4), "blocks": 3, "attention": (32, 16, 8)}
    elif name == "unet" and side <= 8:
        options = {"width": 96, "multipliers": (), "blocks": 16}
    elif name == "unet":
        options = {"width": 24, "multipliers": (1, *(2 for size in (16, 32) if side > size)), "blocks": 1}
    elif name == "dit":
        options = {"width": 384, "blocks": 12}
    elif name == "skipnet":
        halvings = min(shape[1:]).bit_length() - 1
        return {"width": 128, "multipliers": (1,) * min(max(halvings - 1, 1), 5)}
    else:
        return {}
    return {**options, "dropout": 0.0, "classes": 0, "augment_inputs": 0}


def _check_options(name: str, options: dict[str, Any]) -> None:
    for option, least in (("width", 1), ("blocks", 1), ("classes", 0), ("augment_inputs", 0)):
        if options.get(option, least) < least:
            raise ConfigError(f"{option} must be at least {least}; got {options[option]}.")
    multipliers = options.get("multipliers", (1,))
    if min(multipliers, default=1) < 1 or (not multipliers and name != "unet"):
        raise ConfigError(f"multipliers must be at least one number, each at least 1; got {multipliers}.")
    if not 0 <= options.get("dropout", 0) < 1:
        raise ConfigError(f"dropout must be in [0, 1); got {options['dropout']}.")
