"""Arrays of images: where their axes are, and how their values become 0 … 255.

Images are brought to (n, c, h, w), c = 1 or 3, uint8. Bytes are taken as they are. The range of anything else is asked for
and never guessed: a value v in [low, high] becomes the nearest integer to 255·(v − low)/(high − low), and others are an
error.
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
    first, last = (images.ndim == 4 and shape[axis] in (1, 3) for axis in (1, 3))
    if 0 in shape:
        trouble = "It holds no pixels."
    elif images.ndim not in (3, 4):
        trouble = "Reshape the array before saving it."
    elif images.ndim == 3:
        if shape[2] not in (1, 3, 4):
            return images[:, None]
        trouble = "It looks like one image: store it with one more axis in front."
    elif first and last:
        trouble = (
            "The channels could come first or last: store images more than 3 pixels wide and high, or grey ones as "
            "(n, h, w)."
        )
    elif first or last:
        return images if first else images.transpose(0, 3, 1, 2)
    else:
        trouble = "Keep one grey or three colour channels (drop alpha: images[..., :3])."
    raise DataError(
        f"{name}: expected images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3; got {shape}. {trouble}"
    )


def check_depth(images: NDArray[Any], value_range: Range, name: str) -> None:
    """Raise unless the values can become 0 … 255: bytes, or finite numbers within an explicit range."""
    kind = images.dtype
    if kind.kind not in "uif":
        raise DataError(f"{name}: expected numbers as pixels; got dtype {kind}. Convert to uint8.")
    if kind == np.uint8 and value_range is None:
        return
    ends = np.array(value_range or (0, 0), np.float64)
    if kind.kind == "f":  # an end is rounded as the values were
        with np.errstate(over="ignore"):
            ends = ends.astype(kind)
    chunks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
    low, high, outside = np.inf, -np.inf, 0
    for chunk in chunks:
        if kind.kind == "f" and not np.isfinite(chunk).all():
            broken = sum(int((~np.isfinite(part)).sum()) for part in chunks)
            raise DataError(
                f"{name}: pixels must be finite; {broken} of {images.size} values are NaN or infinite. "
                "Remove or repair those images."
            )
        low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
        outside += int(((chunk < ends[0]) | (chunk > ends[1])).sum())
    found = f"go from {_exact(low)} to {_exact(high)}"
    if value_range is None:
        likely = next(((a, b) for a, b in _USUAL_RANGES if a <= low and high <= b), (low, high))
        a, b = map(_exact, likely)
        raise DataError(
            f"{name}: {kind} images need the range that becomes 0 … 255; the values here {found}. "
            f"Give it explicitly, for example --range {a} {b} (value_range=({a}, {b}))."
        )
    if outside:
        a, b = map(_exact, value_range)
        raise DataError(
            f"{name}: {outside} of {images.size} values lie outside the range {a} … {b}; they {found}. Widen --range, or "
            "clip the images first."
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
