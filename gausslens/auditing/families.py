"""What a copy may look like: the whole original, mirrored or shifted, or a part of it.

A *family* is a set of transformations and a window of the image. The rule for copies is the same in each (see
`measures.originals`), and distances are those of the window alone. Families are tested in parallel, so they share the level
of the whole audit. Whole, unchanged copies get most of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..measures.transformations import MIRRORED, Transformation, shifts_by

PLAIN = "plain"
_SHIFTS = (1, 2)  # pixels
_SMALLEST_SIDE = 4  # quarters of smaller pictures have too few pixels to identify an original


@dataclass(frozen=True)
class Family:
    """One way in which a sample may copy an original."""

    name: str
    transformations: tuple[Transformation, ...] = (Transformation(),)  # what may have been done to the original
    window: tuple[slice, slice] | None = None  # rows and columns of a part; None for the whole image

    @property
    def is_part(self) -> bool:
        """Whether it is about a part of the image."""
        return self.window is not None

    def crop(self, images: Tensor) -> Tensor:
        """The window of images, (n, c, h, w); a view."""
        return images if self.window is None else images[(..., *self.window)]


def families_of(shape: Sequence[int], *, pictures: bool = True, flip: bool = False) -> list[Family]:
    """The families to search; only pictures (c, h, w) have more than the plain one.

    With `flip`, a model was trained on mirror images, and a mirrored copy is a plain copy.

    >>> [family.name for family in families_of((1, 8, 8))][:4]
    ['plain', 'mirrored', 'shifted', 'top half']
    """
    if len(shape) != 3:
        return [Family(PLAIN)]
    either = (Transformation(), MIRRORED) if flip else (Transformation(),)
    families = [Family(PLAIN, either)]
    if not pictures:
        return families
    if not flip:
        families.append(Family("mirrored", (MIRRORED,)))
    height, width = shape[1:]
    shifts = [shift for shift in _SHIFTS if shift < min(height, width)]
    if shifts:
        moves = [move for turn in either for move in shifts_by(shifts, mirrored=turn.mirrored)]
        families.append(Family("shifted", tuple(moves)))
    if min(height, width) >= _SMALLEST_SIDE:
        families += _parts(height, width)
    return families


def _parts(height: int, width: int) -> list[Family]:
    """Halves, quarters and the central quarter of a picture."""
    everything, high, wide = slice(None), height // 2, width // 2
    rows = {"top": slice(0, high), "bottom": slice(high, height)}
    columns = {"left": slice(0, wide), "right": slice(wide, width)}
    windows = {f"{name} half": (part, everything) for name, part in rows.items()}
    windows |= {f"{name} half": (everything, part) for name, part in columns.items()}
    windows |= {f"{row} {column} quarter": (rows[row], columns[column]) for row in rows for column in columns}
    windows["centre"] = slice(height // 4, height // 4 + high), slice(width // 4, width // 4 + wide)
    return [Family(name, window=window) for name, window in windows.items()]
