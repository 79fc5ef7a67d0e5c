"""The images that a network is probed with while it is trained on them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._typing import Images
from ..errors import DataError
from ..images import Bounds, check_labels, gather, keep_known_classes

_SPEED = {"cpu": 1e10, "cuda": 1e12}  # arithmetic per second, to guess what preparing takes


@dataclass(frozen=True)
class ProbeImages:
    """The images that a network is probed with."""

    train: Tensor  # what it is trained on, (n, *shape)
    held_out: Tensor | None  # what it never sees, (m, *shape)
    labels: Tensor | None  # of the training images, (n,), for a conditional denoiser
    held_out_labels: Tensor | None  # of the held-out images, (m,)
    bounds: Bounds  # admissible values of float images
    groups: Tensor | None = None  # which training images belong together, (n,); copies of a group are of one original

    @classmethod
    def of(
        cls, train: Images, held_out: Images | None, labels: Any, held_out_labels: Any, groups: Any, bounds: Bounds
    ) -> "ProbeImages":
        """Images and labels of any source, checked to fit; held-out images of unknown classes are left out."""
        known = gather(train, bounds=bounds, name="train")
        unseen = None if held_out is None else gather(held_out, bounds=bounds, name="held_out")
        if unseen is not None and unseen.shape[1:] != known.shape[1:]:
            raise DataError(
                f"held_out must have the shape of the training images, {tuple(known.shape[1:])}; "
                f"got {tuple(unseen.shape[1:])}."
            )
        if labels is not None and unseen is not None and held_out_labels is None:
            raise DataError(
                "held_out_labels must be given with labels: the denoiser needs those of held-out images too."
            )
        of_known = None if labels is None else check_labels(labels, len(known))
        of_unseen = None
        if of_known is not None and unseen is not None:
            of_unseen = check_labels(held_out_labels, len(unseen), "held_out_labels")
            unseen, of_unseen = keep_known_classes(unseen, of_unseen, of_known)
            if not len(unseen):
                unseen, of_unseen = None, None
        together = None if groups is None else check_labels(groups, len(known), "groups")
        return cls(known, unseen, of_known, of_unseen, bounds, together)

    def seconds_to_prepare(self, inputs: int) -> float:
        """Seconds that the references may take, guessed from the arithmetic of moments and distances on so many inputs."""
        n, dim = len(self.train), self.train[0].numel()
        arithmetic = 2 * n * dim * (min(n, dim) + 6 * inputs) + 10 * min(n, dim) ** 3
        return 0.05 + float(arithmetic) / _SPEED["cuda" if torch.cuda.is_available() else "cpu"]
