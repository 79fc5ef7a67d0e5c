"""What samples are held up against: training and held-out images without repeats, under families of transformations.

The families are "plain" (as they are; either orientation, for a model trained on both), "mirrored" and "shifted". In each
the distance between a sample and an image is the smallest one under its transformations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import ConfigError, DataError
from ..measures.twoset import NEIGHBORS, Neighborhood, pool_neighborhood
from .transformations import MIRRORED, Transformation, shifts_by, transformed_neighbors


@dataclass(frozen=True, eq=False)
class Pool:
    """Training and held-out images without repeats, and how samples are held up against them.

    Attributes:
        train: (n, *shape), where neighbours are looked for.
        kept: their indices in the training set as given, (n,).
        held_out: (n', *shape), or None.
        families: transformations by the name of their family.
        device: where to look for neighbours; None is where the images are.
    """

    train: Tensor = field(repr=False)
    kept: Tensor = field(repr=False)
    held_out: Tensor | None = field(repr=False)
    families: dict[str, list[Transformation]]
    device: torch.device | str | None

    def in_train(self, samples: Tensor, family: str, k: int = NEIGHBORS) -> tuple[Tensor, Tensor, Tensor]:
        """Distances, indices and transformations of the k nearest training images; see `transformed_neighbors`."""
        return self._nearest(samples, self.train, family, k)

    def neighborhood(self, samples: Tensor, family: str, in_train: tuple[Tensor, Tensor, Tensor]) -> Neighborhood:
        """The nearest pool images of samples whose nearest training images are known."""
        if self.held_out is None:
            raise DataError("the copy test needs held-out images; there are none.")
        # Of the pool's 16 nearest images none lies beyond the 16th of the training images.
        within = in_train[0][:, -1] if in_train[0].shape[1] == NEIGHBORS else None
        in_held_out = self._nearest(samples, self.held_out, family, NEIGHBORS, within)
        return pool_neighborhood(in_train[:2], in_held_out[:2], len(self.train), len(self.held_out))

    def _nearest(
        self, samples: Tensor, images: Tensor, family: str, k: int, within: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        k = min(k, len(images))
        return transformed_neighbors(samples, images, k, self.families[family], within=within, device=self.device)


def families_of(
    pictures: bool, *, mirrored: bool, shifts: Sequence[int], augment: str | None
) -> dict[str, list[Transformation]]:
    """Transformations by family.

    Args:
        pictures: whether images are (n, c, h, w); all else is compared as it is.
        mirrored: whether to look for mirrored copies.
        shifts: pixels by which copies may be shifted.
        augment: "flip" if either orientation is plain, or None.

    Returns:
        The families.

    Raises:
        ConfigError: if `augment` is neither.
    """
    if augment not in (None, "flip"):
        raise ConfigError(f'augment must be "flip" or None; got {augment!r}.')
    either = [Transformation(), MIRRORED] if augment and pictures else [Transformation()]
    families = {"plain": either}
    if mirrored and not augment and pictures:
        families["mirrored"] = [MIRRORED]
    if len(shifts) and pictures:
        families["shifted"] = [shift for turn in either for shift in shifts_by(shifts, mirrored=turn.mirrored)]
    return families


def without_repeats(images: Tensor, repeats: Tensor) -> tuple[Tensor, Tensor]:
    """The images that repeat none before them, and their indices."""
    kept = torch.ones(len(images), dtype=torch.bool)
    kept[repeats[:, 1]] = False
    indices = kept.nonzero()[:, 0]
    return (images if len(repeats) == 0 else images[indices.to(images.device)]), indices
