"""Named parts of a set of images, fixed by a seed.

The seed gives one order of all images. From it,

    subset(n)  the first n
    pair(n)    the first n at even places, and the first n at odd places; together they are subset(2n)
    held_out   the last ones, which nothing above can reach

So parts are nested, subset(n) ⊂ subset(m) and pair(n) ⊂ pair(m) part by part for n < m; both sets of a pair are disjoint;
and a subset does not depend on how many images are held out.
"""

import re

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..noise import draw_order

_NAME = re.compile(r"(?:s([12]):)?([0-9]+)")
_NAMES = "names are a size such as 1400, s1:700 or s2:700 (a disjoint pair), all, and held-out"


class Splits:
    """Deterministic parts of a set of images.

    Args:
        count: number of images, at least 1.
        held_out: how many to hold out, 0 … count − 1; None is a fifth of them. With a test set of its own, pass 0.
        seed: fixes the order.

    Raises:
        ConfigError: if a number is out of its range.

    >>> splits = Splits(10, seed=0)
    >>> len(splits.held_out), splits.available
    (2, 8)
    >>> set(splits.subset(3)) < set(splits.subset(5))
    True
    """

    def __init__(self, count: int, *, held_out: int | None = None, seed: int = 0) -> None:
        if count < 1:
            raise ConfigError(f"splits need at least 1 image; got {count}.")
        reserved = count // 5 if held_out is None else held_out
        if not 0 <= reserved < count:
            raise ConfigError(
                f"held_out must leave something to train on: 0 … {count - 1} of {count} images; got {reserved}."
            )
        self.count = count
        self.seed = seed
        self.available = count - reserved
        order: NDArray[np.int64] = draw_order(seed, count, stream="splits").numpy()
        order.setflags(write=False)
        self._order = order[: self.available]
        self.held_out: NDArray[np.int64] = order[self.available :]

    def subset(self, n: int) -> NDArray[np.int64]:
        """Indices of n images, (n,), the first n of any larger subset."""
        self._check(n, self.available, "a subset")
        return self._order[:n]

    def pair(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of two disjoint sets of n images each, (n,) and (n,), the first n of any larger pair's."""
        self._check(n, self.available // 2, "each set of a disjoint pair")
        return self._order[: 2 * n : 2], self._order[1 : 2 * n : 2]

    def named(self, text: str) -> NDArray[np.int64]:
        """Indices of the part with this name.

        Args:
            text: `1400` (the subset of that size), `s1:700` or `s2:700` (the sets of the pair of that size), `all` (all but
                those held out) or `held-out`.

        Returns:
            The indices, (n,).

        Raises:
            ConfigError: if there is no such name, or too few images.
        """
        if text == "all":
            return self._order
        if text == "held-out":
            return self.held_out
        match = _NAME.fullmatch(text)
        if match is None:
            raise ConfigError(f"no such split: {text!r}; {_NAMES}.")
        which, size = match[1], int(match[2])
        return self.subset(size) if which is None else self.pair(size)[int(which) - 1]

    def _check(self, n: int, most: int, what: str) -> None:
        if not 1 <= n <= most:
            raise ConfigError(
                f"{what} can have 1 … {most} images here ({self.count} in all, {len(self.held_out)} held out); got {n}."
            )
