"""Ways in which a copy may differ from its original: mirrored, or shifted by a few pixels.

A sample x is the copy of an image y that was mirrored, M, and shifted by s pixels if x[p] = (My)[p − s] wherever both
are defined. So the distance under a transformation is taken over the pixels that remain in the picture after the shift,
and scaled to the whole picture: √(d/d′)·‖x′ − y′‖ with d′ of d values left. The filling of the border does not matter.
The images are never moved or copied: the samples are mirrored, and both are cropped.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigError, require
from .neighbors import nearest

_ROUNDED_UP = 1 + 1e-12


class Transformation(NamedTuple):
    """What was done to an image: mirrored left to right, then shifted by pixels."""

    mirrored: bool = False
    down: int = 0  # negative is up
    right: int = 0  # negative is left

    def __str__(self) -> str:
        moves = [
            f"{abs(pixels)} {there if pixels > 0 else back}"
            for pixels, there, back in ((self.down, "down", "up"), (self.right, "right", "left"))
            if pixels
        ]
        parts = ["mirrored"] * self.mirrored + [f"shifted {' and '.join(moves)}"] * bool(moves)
        return ", ".join(parts) or "unchanged"

    def apply(self, images: Tensor) -> Tensor:
        """Transformed images (n, c, h, w), the border filled with the nearest pixel."""
        height, width = images.shape[-2:]
        moved = images.flip(-1) if self.mirrored else images
        rows = (torch.arange(height) - self.down).clamp(0, height - 1)
        columns = (torch.arange(width) - self.right).clamp(0, width - 1)
        return moved[..., rows.to(images.device), :][..., columns.to(images.device)]

    def align(self, samples: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """The parts of samples and images that are equal if the samples are transformed copies of the images."""
        if self == Transformation():
            return samples, images
        height, width = images.shape[-2:]
        here, there = _overlap(self.down, height)
        left, origin = _overlap(-self.right if self.mirrored else self.right, width)
        unmirrored = samples.flip(-1) if self.mirrored else samples
        return unmirrored[..., here, left], images[..., there, origin]


MIRRORED = Transformation(mirrored=True)


def shifts_by(pixels: Iterable[int], *, mirrored: bool = False) -> list[Transformation]:
    """All shifts, up or down, left or right or both, by the given numbers of pixels, the nearest first.

    >>> [str(shift) for shift in shifts_by([1])][:3]
    ['shifted 1 up', 'shifted 1 left', 'shifted 1 right']
    """
    distances = sorted(set(pixels))
    if distances and distances[0] < 1:
        raise ConfigError(f"shifts must be at least 1 pixel; got {distances[0]}.")
    steps = sorted({0, *distances, *(-pixels for pixels in distances)})
    moves = [(down, right) for down in steps for right in steps if down or right]
    return [Transformation(mirrored, *move) for move in sorted(moves, key=lambda move: math.hypot(*move))]


def transformed_neighbors(
    samples: Tensor,
    images: Tensor,
    k: int,
    transformations: Sequence[Transformation],
    *,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The k images nearest to each sample under any of the transformations: distances, indices, and which transformation."""
    best: tuple[Tensor, Tensor, Tensor] | None = None
    for number, transformation in enumerate(transformations):
        queries, part = transformation.align(samples, images)
        scale = math.sqrt(images[0].numel() / part[0].numel())
        within = None if best is None else best[0][:, -1] / scale * _ROUNDED_UP
        distances, indices = nearest(queries, part, k, within=within, device=device, progress=progress)
        found = distances * scale, indices, torch.full_like(indices, number)
        best = found if best is None else _merge(best, found, len(images))
    if best is None:
        raise ConfigError("expected at least one transformation; Transformation() leaves images as they are.")
    return best


def _merge(
    best: tuple[Tensor, Tensor, Tensor], found: tuple[Tensor, Tensor, Tensor], missing: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest of both, each image once; with distance inf and index `missing` where there are fewer."""
    k = best[0].shape[1]
    distances, indices, which = (torch.cat(pair, 1) for pair in zip(best, found, strict=True))
    # An image in both keeps the smaller distance; neither has an image twice.
    same = best[1][:, :, None] == found[1][:, None, :]
    nearer = best[0][:, :, None] <= found[0][:, None, :]
    repeated = torch.cat([(same & ~nearer).any(2), (same & nearer).any(1)], 1)
    distances, indices = distances.masked_fill(repeated, math.inf), indices.masked_fill(repeated, missing)
    order = distances.argsort(dim=1, stable=True)[:, :k]
    return distances.gather(1, order), indices.gather(1, order), which.gather(1, order)


def _overlap(shift: int, length: int) -> tuple[slice, slice]:
    """The part of a moved picture that still shows the original, and where that part was."""
    require(
        abs(shift) < length, f"shifts must leave something of images of {length} pixels; got a shift by {abs(shift)}."
    )
    return slice(max(shift, 0), length + min(shift, 0)), slice(max(-shift, 0), length - max(shift, 0))
