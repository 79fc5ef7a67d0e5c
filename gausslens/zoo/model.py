"""A model from anywhere, as the rest of the package sees it: a denoiser D(x, σ) and what it is a denoiser of."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..images import as_bytes


@dataclass(frozen=True, eq=False)
class Model:
    """A denoiser with what is needed to use it.

    Attributes:
        denoiser: D(x, sigma), or D(x, sigma, labels) if there are classes, in eval mode, on its device.
        shape: of one image x, (c, h, w); None if the source does not say.
        classes: number of classes, with labels 0 … classes − 1; 0 for an unconditional model.
        bounds: the range that clean images x0 lie in, (-1.0, 1.0) for pixels; None for latents and other units.
        encode: for latent models, maps uint8 images (n, 3, h, w) to the latents x0 (n, *shape) that D denoises, float32
            on the CPU; None where images are their pixels.
        decode: the way back, to uint8 images on the CPU; None where there is none, or nothing to decode.
        source: where it came from, for messages and reports.
        identity: hexadecimal digits that are the same for the same weights, settings and code, and differ otherwise;
            empty if models cannot be distinguished, such as functions typed at a prompt.
        sigma_range: the smallest and largest noise level that the model was made for.
    """

    denoiser: nn.Module
    shape: tuple[int, int, int] | None
    classes: int = 0
    bounds: tuple[float, float] | None = (-1.0, 1.0)
    encode: Callable[[Tensor], Tensor] | None = None
    decode: Callable[[Tensor], Tensor] | None = None
    source: str = ""
    identity: str = ""
    sigma_range: tuple[float, float] = (0.0, math.inf)


def declared_shape(network: Any) -> tuple[tuple[int, int, int] | None, int]:
    """The shape of its images and the number of its classes, as far as a network has them as attributes."""
    shape, classes = getattr(network, "shape", None), getattr(network, "classes", 0)
    known = isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(size, int) for size in shape)
    return (shape if known else None), (classes if isinstance(classes, int) else 0)


def fingerprint(tensors: Mapping[str, Any], **settings: Any) -> str:
    """SHA-256 of tensors (names, shapes, dtypes, values) and settings, for `Model.identity`."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    for name in sorted(tensors):
        if not isinstance(tensors[name], Tensor):
            digest.update(f"{name} {tensors[name]!r}".encode())
            continue
        tensor = tensors[name].to_dense()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(as_bytes(tensor).numpy().data)
    return digest.hexdigest()
