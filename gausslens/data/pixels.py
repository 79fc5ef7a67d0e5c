"""Arrays of images: where their axes are, and how their values become 0 … 255.

Images are brought to (n, c, h, w), c = 1 or 3, uint8. Bytes are taken as they are. Everything else (floats, 16-bit and
wider integers) says nothing about its own scale, so the range is asked for and never guessed: with a range [low, high],
a value v becomes the nearest integer to 255·(v − low)/(high − low), and a value outside the range is an error.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, DataError

Range: TypeAlias = tuple[float, float] | None

# What is suggested where the values lie within; else their own ends.
_USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0))
_CHUNK = 1024


@dataclass(frozen=True)
class Pixels:
    """An array of images in any layout and depth, with their labels if there are any."""

    images: NDArray[Any]
    labels: NDArray[np.int64] | None = None


def check_range(value_range: Any) -> Range:
    """The range as two floats, low < high, both finite, or None."""
    if value_range is None:
        return None
    try:
        low, high = (float(value) for value in value_range)
    except (TypeError, ValueError):
        raise ConfigError(f"value_range must be two numbers, LOW and HIGH; got {value_range!r}.") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise ConfigError(f"value_range needs two finite numbers, LOW < HIGH; got {low:.9g} and {high:.9g}.")
    return low, high


def channels_first(images: NDArray[Any], name: str) -> NDArray[Any]:
    """Images in any layout as a view (n, c, h, w)."""
    shape = images.shape
    expected = f"{name}: expected images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3"
    if 0 in shape:
        raise DataError(f"{expected}; got {shape}, which holds no pixels.")
    if images.ndim == 3:
        if shape[2] in (1, 3, 4):
            raise DataError(
                f"{expected}; got {shape}, which looks like one image. Store it with one more axis in front."
            )
        return images[:, None]
    if images.ndim != 4:
        raise DataError(f"{expected}; got {shape}. Reshape the array before saving it.")
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first and last:
        raise DataError(
            f"{expected}; got {shape}, where the channels could come first or last. "
            "Store images more than 3 pixels wide and high, or grey ones as (n, h, w)."
        )
    if not first and not last:
        raise DataError(
            f"{expected}; got {shape}. Keep one grey or three colour channels (drop alpha: images[..., :3])."
        )
    return images if first else images.transpose(0, 3, 1, 2)


def check_depth(images: NDArray[Any], value_range: Range, name: str) -> None:
    """Raise unless the values can become 0 … 255: bytes, or finite numbers within an explicit range."""
    kind = images.dtype
    if kind.kind not in "uif":
        raise DataError(f"{name}: expected numbers as pixels; got dtype {kind}. Convert to uint8.")
    if kind == np.uint8 and value_range is None:
        return
    low, high, outside = np.inf, -np.inf, 0
    ends = np.array(value_range or (0, 0), np.float64)
    if kind.kind == "f":  # an end is rounded as the values were
        with np.errstate(over="ignore"):
            ends = ends.astype(kind)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK]
        if kind.kind == "f" and not np.isfinite(chunk).all():
            broken = sum(int((~np.isfinite(images[i : i + _CHUNK])).sum()) for i in range(0, len(images), _CHUNK))
            raise DataError(
                f"{name}: pixels must be finite; {broken} of {images.size} values are NaN or infinite. "
                "Remove or repair those images."
            )
        low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
        if value_range is not None:
            outside += int(((chunk < ends[0]) | (chunk > ends[1])).sum())
    if value_range is None:
        likely = next(((a, b) for a, b in _USUAL_RANGES if a <= low and high <= b), (low, high))
        suggested = ", ".join(_exact(end) for end in likely)
        raise DataError(
            f"{name}: {kind} images need the range that becomes 0 … 255; the values here go from {_exact(low)} to "
            f"{_exact(high)}. "
            f"Give it explicitly, for example --range {suggested.replace(',', '')} (value_range=({suggested}))."
        )
    if outside:
        raise DataError(
            f"{name}: {outside} of {images.size} values lie outside the range {_exact(value_range[0])} … "
            f"{_exact(value_range[1])}; they go from {_exact(low)} to {_exact(high)}. Widen --range, or clip the images "
            "first."
        )


def _exact(value: float) -> str:
    """A number as short as it can be read back from."""
    short = f"{value:.9g}"
    return short if float(short) == value else repr(value)


def quantize(values: NDArray[Any], value_range: Range) -> NDArray[np.uint8]:
    """Checked values as bytes: the nearest integer to 255·(v − low)/(high − low)."""
    if value_range is None:
        return values
    low, high = (end / 2 for end in value_range)  # halves, whose difference cannot overflow
    return np.rint((values.astype(np.float64) / 2 - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
