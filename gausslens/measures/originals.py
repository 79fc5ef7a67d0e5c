"""The copy rule. An image is a copy of its nearest original if d₁ < d₂/3, with d₂ its distance to the next original.

Images within 2/255 RMSE of one another are one original, and so are images of one group (the slices of a patient, the
frames of a video). Both distances may be taken under transformations of the originals (see `transformations`). Real new
images sometimes satisfy the rule, and images with few degrees of freedom often do: compare any share of copies with that of
real images by the same rule.

Reference for the ratio: Gu, Du, Pang, Li, Lin, Wang (2023), arXiv:2310.02664, without near-duplicates and groups.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._typing import Bool, Float, Int
from .neighbors import duplicates
from .transformations import Transformation, transformed_neighbors

COPY_RATIO = 1 / 3
"""The ratio d₁/d₂ below which an image is a copy."""

DUPLICATE_RMSE = 2 / 255
"""Root mean square difference up to which two images are the same: one grey level of 8 bits."""

_NO_ORIGINAL = -1


@dataclass(frozen=True, eq=False, repr=False)
class Match:
    """The nearest original of each of m images; tensors are on the CPU."""

    image: Int[Tensor, "m"]  # index of the nearest image, in the set as it was given
    original: Int[Tensor, "m"]  # its original
    first: Float[Tensor, "m"]  # d₁, the distance to the nearest image
    second: Float[Tensor, "m"]  # d₂, the distance to the next original; NaN where there is none
    transformation: Int[Tensor, "m"]  # index of the transformation under which it is nearest

    @property
    def ratio(self) -> Float[Tensor, "m"]:
        """d₁/d₂; 1 where both are 0, NaN where there is no second original."""
        ratio = self.first / self.second
        return torch.where((self.first == 0) & (self.second == 0), 1.0, ratio)

    @property
    def copied(self) -> Bool[Tensor, "m"]:
        """Which are copies by the rule."""
        return self.ratio < COPY_RATIO

    def __getitem__(self, rows: Tensor) -> "Match":
        return Match(**{name: values[rows] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False, repr=False)
class Originals:
    """A set of images as originals, each with the images that repeat it."""

    images: Tensor  # the images that repeat no earlier one, (n, *shape)
    kept: Int[Tensor, "n"]  # their indices in the set as it was given, ascending
    of_image: Int[Tensor, "N"]  # the original of each image of the set as it was given
    standing: Int[Tensor, "o"]  # how often each original is in the set: near-duplicates count, but a group counts once
    device: torch.device | str | None  # where to search for neighbours; None is where the images are

    @classmethod
    def of(
        cls,
        images: Tensor,
        groups: Int[Tensor, "N"] | None = None,
        *,
        repeats: Int[Tensor, "p 2"] | None = None,
        rmse: float = DUPLICATE_RMSE,
        device: torch.device | str | None = None,
    ) -> "Originals":
        """The originals of a set of images.

        >>> images = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.001], [3.0, 3.0]])
        >>> Originals.of(images).standing.tolist()
        [2, 1, 1]
        """
        if repeats is None:
            repeats = near_duplicates(images, rmse=rmse, device=device)
        count = len(images)
        units = torch.arange(count) if groups is None else torch.unique(groups.cpu(), return_inverse=True)[1]
        of_unit = _components(units[repeats], int(units.max()) + 1)
        of_image = of_unit[units]
        standing = torch.bincount(of_unit)
        first = torch.ones(count, dtype=torch.bool)
        first[repeats[:, 1]] = False
        kept = first.nonzero()[:, 0]
        distinct = images if len(kept) == count else images[kept.to(images.device)]
        return cls(distinct, kept, of_image, standing, device)

    @property
    def count(self) -> int:
        """The number of originals."""
        return len(self.standing)

    @property
    def unique(self) -> Bool[Tensor, "o"]:
        """Which originals are in the set once."""
        return self.standing == 1

    def nearest(
        self,
        queries: Tensor,
        *,
        own: Int[Tensor, "m"] | None = None,
        transformations: Sequence[Transformation] = (Transformation(),),
        progress: bool = False,
    ) -> Match:
        """The nearest original of each query, apart from its `own`, and the distance to the next one."""
        m, n = len(queries), len(self.kept)
        left_out = torch.full((m,), _NO_ORIGINAL) if own is None else own.cpu()
        groups = self.of_image[self.kept]
        none, unknown = torch.full((m,), _NO_ORIGINAL), torch.full((m,), math.nan, dtype=torch.float64)
        found = Match(none, none.clone(), unknown, unknown.clone(), torch.zeros_like(none))
        rows, k = torch.arange(m), min(n, 2 if own is None else 3)
        while len(rows):
            asked = queries if len(rows) == m else queries[rows.to(queries.device)]
            distances, indices, which = transformed_neighbors(
                asked, self.images, k, transformations, device=self.device, progress=progress
            )
            originals = groups[indices]
            others = originals != left_out[rows, None]
            column = others.byte().argmax(1, keepdim=True)
            here = originals.gather(1, column)
            beyond = others & (originals != here)
            known, settled = others.any(1), beyond.any(1)
            next_column = beyond.byte().argmax(1, keepdim=True)
            done = rows[known]
            found.image[done] = self.kept[indices.gather(1, column)[known, 0]]
            found.original[done] = here[known, 0]
            found.first[done] = distances.gather(1, column)[known, 0]
            found.transformation[done] = which.gather(1, column)[known, 0]
            found.second[rows[settled]] = distances.gather(1, next_column)[settled, 0]
            if k == n:
                break
            rows, k = rows[~settled], min(8 * k, n)  # the nearest were all of one group
        return found

    def without_themselves(
        self, chosen: Int[Tensor, "m"], *, transformations: Sequence[Transformation] = (Transformation(),)
    ) -> Match:
        """The nearest other original of some of `images`."""
        own = self.of_image[self.kept[chosen]]
        return self.nearest(self.images[chosen.to(self.images.device)], own=own, transformations=transformations)


def near_duplicates(
    images: Tensor, others: Tensor | None = None, *, rmse: float = DUPLICATE_RMSE, **how: Any
) -> Int[Tensor, "p 2"]:
    """Pairs of images within a root mean square difference of one another; see `duplicates`."""
    return duplicates(images, others, tolerance=rmse * math.sqrt(images[0].numel()), **how)


def _components(pairs: Int[Tensor, "p 2"], count: int) -> Int[Tensor, "count"]:
    """The connected component of each of `count` units, joined by pairs; components are numbered by their first unit."""
    lowest = torch.arange(count)
    while True:
        before = lowest
        lowest = lowest.scatter_reduce(0, pairs.flatten(), lowest[pairs.flip(1)].flatten(), "amin")
        lowest = lowest[lowest]  # two steps at once: long chains take few rounds
        if torch.equal(lowest, before):
            numbers: Tensor = torch.unique(lowest, return_inverse=True)[1]
            return numbers
