"""Pictures as data URIs, blurred beyond recovery, and as the colours of a matrix."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .figures import Real

_MOST_BLOCKS = 4
_LEAST_BLOCK = 4  # pixels a side
_SEQUENTIAL = ("#00204D", "#414D6B", "#7C7B78", "#BCAF6F", "#FFEA46")  # cividis, which all readers can distinguish
_DIVERGING = ("#0072B2", "#F7F7F7", "#D55E00")


def image_uri(image: NDArray[Any], quality: int | None = None) -> str:
    """A uint8 image (c, h, w) with c = 1 or 3 as a data URI: lossless as PNG, or as JPEG of the given quality."""
    from PIL import Image

    buffer, kind = io.BytesIO(), "png" if quality is None else "jpeg"
    pixels = image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))
    options: dict[str, Any] = {"optimize": True} if quality is None else {"quality": quality}
    Image.fromarray(pixels).save(buffer, kind, **options)
    return data_uri(buffer.getvalue(), f"image/{kind}")


def data_uri(content: bytes, kind: str) -> str:
    """A URI that holds these bytes."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def blur(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images whose pixels are replaced by the means of at most 4 x 4 blocks.

    Every block has at least 4 x 4 pixels if the image has as many. So at most 16 numbers per channel are left of an image,
    whatever its size.
    """
    for axis in (-2, -1):
        size = images.shape[axis]
        blocks = max(1, min(_MOST_BLOCKS, size // _LEAST_BLOCK))
        of_block = np.arange(size) * blocks // size
        starts = np.searchsorted(of_block, np.arange(blocks))
        means = np.add.reduceat(images.astype(np.float64), starts, axis=axis)
        shape = [1] * images.ndim
        shape[axis] = blocks
        images = (means / np.bincount(of_block).reshape(shape)).take(of_block, axis=axis)
    blocky: NDArray[np.uint8] = np.rint(images).astype(np.uint8)
    return blocky


def colorize(values: NDArray[Any], low: Real, high: Real) -> NDArray[np.uint8]:
    """A matrix as an image (3, h, w), with colours from `low` to `high`, nearly white at the middle if they go through zero.

    NaN is white.
    """
    colours = _DIVERGING if low < 0 < high else _SEQUENTIAL
    anchors = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], np.float64)
    place = np.clip((values - low) / (high - low), 0.0, 1.0) * (len(colours) - 1)
    channels = [np.interp(place, np.arange(len(colours)), channel) for channel in anchors.T]
    image = np.where(np.isnan(values), 255.0, np.stack(channels))
    return np.rint(image).astype(np.uint8)
