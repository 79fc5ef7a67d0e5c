"""What a copy may look like: the whole original, mirrored or shifted, or a part of it.

A *family* is a set of transformations and a window of the image. In each the rule for copies is the same (see
`measures.originals`); distances are those of the window alone. Families are tested side by side, so the level of the whole
audit is shared out among them: most of it to whole, unchanged copies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..errors import ConfigError
from ..measures.transformations import MIRRORED, Transformation, shifts_by

PLAIN = "plain"
_SMALLEST_SIDE = 4  # a quarter of a smaller picture has too few pixels to be anybody's


@dataclass(frozen=True)
class Family:
    """One way in which a sample may copy an original."""

    name: str
    transformations: tuple[Transformation, ...] = (Transformation(),)  # what may have been done to the original
    rows: tuple[int, int] | None = None  # first and last row of the window, or None for the whole image
    columns: tuple[int, int] | None = None

    @property
    def is_part(self) -> bool:
        """Whether it is about a part of the image."""
        return self.rows is not None

    def crop(self, images: Tensor) -> Tensor:
        """The window of images, (n, c, h, w); a view."""
        if self.rows is None or self.columns is None:
            return images
        return images[..., slice(*self.rows), slice(*self.columns)]


def families_of(
    shape: Sequence[int],
    *,
    mirrored: bool = True,
    shifts: Sequence[int] = (1, 2),
    parts: bool = True,
    flip: bool = False,
) -> list[Family]:
    """The families that are looked for in images of a shape; pictures (c, h, w) alone have any but the plain one.

    >>> [family.name for family in families_of((1, 8, 8), shifts=())][:4]
    ['plain', 'mirrored', 'top half', 'bottom half']
    """
    if len(shape) != 3:
        return [Family(PLAIN)]
    height, width = shape[1:]
    if len(shifts) and max(shifts) >= min(height, width):
        raise ConfigError(f"shifts must be smaller than the images, {height} × {width}; got {max(shifts)}.")
    either = (Transformation(), MIRRORED) if flip else (Transformation(),)
    families = [Family(PLAIN, either)]
    if mirrored and not flip:
        families.append(Family("mirrored", (MIRRORED,)))
    if len(shifts):
        moves = [move for turn in either for move in shifts_by(shifts, mirrored=turn.mirrored)]
        families.append(Family("shifted", tuple(moves)))
    if parts and min(height, width) >= _SMALLEST_SIDE:
        families += [Family(name, rows=rows, columns=columns) for name, rows, columns in _windows(height, width)]
    return families


def _windows(height: int, width: int) -> list[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Halves, quarters and the central quarter of a picture, with rows and columns."""
    top, bottom, left, right = (0, height // 2), (height // 2, height), (0, width // 2), (width // 2, width)
    high, wide = (height // 4, height // 4 + height // 2), (width // 4, width // 4 + width // 2)
    rows, columns = (0, height), (0, width)
    return [
        ("top half", top, columns),
        ("bottom half", bottom, columns),
        ("left half", rows, left),
        ("right half", rows, right),
        ("top left quarter", top, left),
        ("top right quarter", top, right),
        ("bottom left quarter", bottom, left),
        ("bottom right quarter", bottom, right),
        ("centre", high, wide),
    ]
