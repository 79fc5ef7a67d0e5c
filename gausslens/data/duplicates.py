"""Exact and near copies of training images among held-out ones.

With r the root mean square difference of two images in grey levels (0 … 255), and s the standard deviation of the held-out
image's values, they are exact copies if r = 0, and near copies if 0 < r ≤ min(10, s/4). Re-encoding as JPEG of quality 75
changes CIFAR-10's images by at most 12 levels in 19 of 20 cases; the nearest different images of its test and training set
differ by 13. Without the second condition, any two nearly flat images would count as copies. Shifted, mirrored, cropped or
recoloured copies are not found.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._typing import Float, Images
from ..images import dequantize, gather
from ..measures.neighbors import duplicates, nearest

_LEVELS = 10.0
_CONTRAST = 0.25
_GREY_LEVELS_PER_UNIT = 127.5


@dataclass(frozen=True, eq=False)
class DuplicateReport:
    """Which held-out images repeat a training image.

    Attributes:
        exact: pairs (training index, held-out index) of equal images, (p, 2), by held-out index.
        near: pairs of near copies, (q, 2), by held-out index; the training image is the nearest one.
        near_levels: root mean square difference of the near pairs in grey levels, (q,).
        n_train: how many training images were compared.
        n_held_out: how many held-out images were compared.
    """

    exact: NDArray[np.int64]
    near: NDArray[np.int64]
    near_levels: NDArray[np.float64]
    n_train: int
    n_held_out: int

    @property
    def count(self) -> int:
        """How many held-out images repeat a training image, exactly or nearly."""
        return len(self.exact) + len(self.near)

    def __str__(self) -> str:
        if not self.count:
            return f"none of {self.n_held_out} held-out images repeats one of {self.n_train} training images"
        return (
            f"{self.count} of {self.n_held_out} held-out images repeat one of {self.n_train} training images: "
            f"{len(self.exact)} exactly, {len(self.near)} nearly"
        )


def find_duplicates(
    train: Images, held_out: Images, *, device: torch.device | str | None = None, progress: bool = False
) -> DuplicateReport:
    """Find the held-out images that are exact or near copies of a training image (the rule is in the module)."""
    train, held_out = gather(train, name="train"), gather(held_out, name="held_out")
    scale = _GREY_LEVELS_PER_UNIT / math.sqrt(train[0].numel())
    # Compared along one direction only, which rules out most pairs; the few that are left are compared with all images.
    close = duplicates(train, held_out, tolerance=_LEVELS / scale, device=device, progress=progress)[:, 1]
    if not len(close):
        no_pairs = np.empty((0, 2), np.int64)
        return DuplicateReport(no_pairs, no_pairs, np.empty(0), len(train), len(held_out))
    distances, indices = nearest(held_out[close], train, device=device, progress=progress)
    levels = distances[:, 0] * scale
    pairs = torch.stack([indices[:, 0], close], 1)
    exact = levels == 0
    near = ~exact & (levels <= _LEVELS) & (levels <= _CONTRAST * _contrast(held_out[close]))
    return DuplicateReport(pairs[exact].numpy(), pairs[near].numpy(), levels[near].numpy(), len(train), len(held_out))


def _contrast(images: Tensor) -> Float[Tensor, "n"]:
    """The standard deviation of each image's values, in grey levels."""
    parts = [dequantize(part).flatten(1).double().std(1, correction=0) for part in images.split(1024)]
    return torch.cat(parts).cpu() * _GREY_LEVELS_PER_UNIT
