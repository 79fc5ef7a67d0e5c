"""Training and held-out images: which of them repeat one another, and where the two sets overlap."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from .._typing import Bool, Int
from ..images import select
from ..measures.originals import DUPLICATE_RMSE, Originals, near_duplicates

FEWEST_HELD_OUT = 2


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """The images of both sets, with their labels and groups. What follows from them is computed once."""

    train: Tensor
    held_out: Tensor | None = None
    labels: Int[Tensor, "n"] | None = None
    held_out_labels: Int[Tensor, "m"] | None = None
    groups: Int[Tensor, "n"] | None = None
    held_out_groups: Int[Tensor, "m"] | None = None
    rmse: float = DUPLICATE_RMSE  # root mean square difference up to which two images are the same
    device: torch.device | str | None = None  # where to search; None is where the images are

    @property
    def sets(self) -> list[tuple[str, Tensor, Tensor | None, Tensor | None]]:
        """The sets that there are: "train", then "held_out", each with its images, labels and groups."""
        sets = [("train", self.train, self.labels, self.groups)]
        if self.held_out is not None:
            sets.append(("held_out", self.held_out, self.held_out_labels, self.held_out_groups))
        return sets

    @cached_property
    def images(self) -> Tensor:
        """The training images, then the held-out ones, on the CPU."""
        return self.train if self.held_out is None else torch.cat([self.train.cpu(), self.held_out.cpu()])

    @cached_property
    def repeats(self) -> Int[Tensor, "p 2"]:
        """Pairs (i, j) of `images` of which j repeats i, the first image that it repeats."""
        return near_duplicates(self.images, rmse=self.rmse, device=self.device)

    @property
    def train_repeats(self) -> Int[Tensor, "q 2"]:
        """The pairs of two training images."""
        return self.repeats[self.repeats[:, 1] < len(self.train)]

    @cached_property
    def overlap(self) -> Bool[Tensor, "m"]:
        """Which held-out images repeat a training image, or are of a group with training images."""
        first, later = self.repeats.T
        overlap = torch.zeros(len(self.images) - len(self.train), dtype=torch.bool)
        overlap[later[(first < len(self.train)) & (later >= len(self.train))] - len(self.train)] = True
        if self.groups is not None and self.held_out_groups is not None:
            overlap |= torch.isin(self.held_out_groups.cpu(), self.groups.cpu())
        return overlap

    @cached_property
    def compared(self) -> "Pool":
        """The pool without held-out images that the model has seen; without any if fewer than two are left."""
        new = (~self.overlap).nonzero()[:, 0]
        if len(new) == len(self.overlap):
            return self
        tags = (self.held_out, self.held_out_labels, self.held_out_groups)
        held_out, labels, groups = select(new, *tags) if len(new) >= FEWEST_HELD_OUT else (None, None, None)
        return replace(self, held_out=held_out, held_out_labels=labels, held_out_groups=groups)

    @property
    def originals(self) -> Originals:
        """The originals of both sets together."""
        groups = None
        if self.groups is not None and self.held_out_groups is not None:
            groups = torch.cat([self.groups.cpu(), self.held_out_groups.cpu()])
        return Originals.of(self.images, groups, repeats=self.repeats, device=self.device)
