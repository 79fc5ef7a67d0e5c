"""Named parts of a set of images, fixed by a seed, which gives one order of all images; and the record of what was used.

`subset(n)` is the first n, `pair(n)` the first n at even places and the first n at odd places, and `held_out` the last
ones. So parts are nested for n < m, the sets of a pair are disjoint, and a subset does not depend on how many are held out.

A study repeats a training run on other images. These are other draws of the same size, numbered from 0: draw k of a set of n
images is images k·n … (k+1)·n − 1 of the order that the first draw is taken from, so draws share no image. Where there are
not enough images for that, draw k is the first n images of an order of its own. The held-out images are always the same.

With groups (see `groups`), no group is both held out and trained on, or in both sets of a pair. The last groups of a second
order are held out, as few as make up the number asked for, and the others dealt to the sets of a pair, the largest first,
each to the smaller set. Parts are nested as before; but a pair is no longer a subset, and subsets depend on the held-out.

Two runs used the same images if and only if the hashes in their manifests agree, whatever the files were called.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, require
from ..images import as_tensor, content_hash
from ..noise import draw_order
from .arrays import expect
from .groups import as_groups, count_groups
from .loading import ImageSet, hash_integers

_HELD_OUT = 2  # the sets of a pair are 0 and 1
_NAME = re.compile(r"(?:s([12]):)?([0-9]+)(?:@([0-9]+))?")


class Splits:
    """Deterministic parts of a set of images.

    Args:
        count: number of images, at least 1.
        held_out: how many to hold out, 0 … count − 1; None is a fifth of them. With a test set of its own, pass 0.
            With groups, at least so many, as whole groups.
        seed: fixes the order.
        groups: which images belong together, (count,), any integers; None if every image is its own group.

    Attributes:
        count: number of images.
        available: how many are not held out.
        held_out: indices of those that are, (m,).
        groups: numbers from 0 on by first appearance, (count,), or None.

    Raises:
        ConfigError: if a number is out of its range, or whole groups leave nothing to train on.

    >>> splits = Splits(10, seed=0)
    >>> len(splits.held_out), splits.available, set(splits.subset(3)) < set(splits.subset(5))
    (2, 8, True)
    """

    def __init__(self, count: int, *, held_out: int | None = None, seed: int = 0, groups: Any = None) -> None:
        require(count >= 1, f"splits need at least 1 image; got {count}.")
        reserved = count // 5 if held_out is None else held_out
        fits = 0 <= reserved < count
        require(fits, f"held_out must leave something to train on: 0 … {count - 1} of {count} images; got {reserved}.")
        self.count, self.seed = count, seed
        self.groups = None if groups is None else as_groups(groups, count)
        order: NDArray[np.int64] = draw_order(seed, count, stream="splits").numpy()
        sides = _deal(np.arange(count) if self.groups is None else self.groups, reserved, seed)[order]
        self._order: NDArray[np.int64] = order[sides != _HELD_OUT]
        self._pair = order[sides == 0], order[sides == 1]
        self.held_out: NDArray[np.int64] = order[sides == _HELD_OUT]
        self.available = len(self._order)
        for part in (self._order, self.held_out, *self._pair):
            part.setflags(write=False)

    def subset(self, n: int, draw: int = 0) -> NDArray[np.int64]:
        """Indices of n images, (n,), in draw 0 the first n of any larger subset."""
        self._check(n, self.available, "a subset")
        block = self._order[draw * n : (draw + 1) * n]
        return block if len(block) == n else self._shuffled(draw)[0][:n]

    def pair(self, n: int, draw: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of two disjoint sets of n images each, (n,) and (n,), in draw 0 the first n of any larger pair's."""
        most = min(map(len, self._pair))
        self._check(n, most, "each set of a disjoint pair")
        if (draw + 1) * n > most:
            _, one, other = self._shuffled(draw)
            return one[:n], other[:n]
        one, other = (half[draw * n : (draw + 1) * n] for half in self._pair)
        return one, other

    def _shuffled(self, draw: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """All images that may be trained on in the order of a draw, and how they make a pair; groups keep their side."""
        order: NDArray[np.int64] = self._order[draw_order(self.seed, self.available, stream=f"draw {draw}").numpy()]
        one = order[0::2] if self.groups is None else order[np.isin(order, self._pair[0])]
        other = order[1::2] if self.groups is None else order[np.isin(order, self._pair[1])]
        return order, one, other

    def named(self, text: str) -> NDArray[np.int64]:
        """Indices of the part with this name."""
        if text in ("all", "held-out"):
            return self._order if text == "all" else self.held_out
        match = _NAME.fullmatch(text)
        if match is None:
            known = "a size such as 1400, s1:700 or s2:700 (a disjoint pair), all, and held-out"
            raise ConfigError(f"no such split: {text!r}; names are {known}. 1400@2 is another 1400 images, draw 2.")
        size, draw = int(match[2]), int(match[3] or 0)
        return self.pair(size, draw)[int(match[1]) - 1] if match[1] else self.subset(size, draw)

    def _check(self, n: int, most: int, what: str) -> None:
        whole = "" if self.groups is None else f" in {count_groups(self.groups)} groups"
        available = f"{self.count} in all{whole}, {len(self.held_out)} held out"
        require(1 <= n <= most, f"{what} can have 1 … {most} images here ({available}); got {n}.")


def _deal(groups: NDArray[np.int64], reserved: int, seed: int) -> NDArray[np.int64]:
    """The part of each image, the same for all of a group: one set of a pair, the other, or the held-out."""
    sizes = np.bincount(groups)
    order = draw_order(seed, len(sizes), stream="splits").numpy()
    from_the_end = np.cumsum(sizes[order[::-1]])
    n_held_out = int(np.searchsorted(from_the_end, reserved)) + 1 if reserved else 0
    held = f"{reserved} of {len(groups)} images take all {len(sizes)} groups (of up to {sizes.max()} images)"
    advice = "Hold out fewer or none (0), or use another seed."
    fits = n_held_out < len(sizes)
    require(fits, f"held_out must leave something to train on: groups are held out whole, and {held}. {advice}")
    parts = np.full(len(sizes), _HELD_OUT)
    known = order[: len(sizes) - n_held_out]
    so_far = [0, 0]
    for group in known[np.argsort(-sizes[known], kind="stable")]:
        parts[group] = part = int(so_far[1] < so_far[0])
        so_far[part] += int(sizes[group])
    return parts[groups]


def manifest(images: ImageSet, splits: Splits, names: Iterable[str] = ()) -> dict[str, Any]:
    """The record of a set of images and of the named splits; the held-out part, if there is one, is always among them."""
    fits = splits.count == len(images)
    expect(fits, f"expected splits of the {len(images)} images given; these are of {splits.count}. Make them again.")
    used = dict.fromkeys([*names, *(["held-out"] if len(splits.held_out) else [])])
    return {
        "kind": "gausslens manifest",
        "version": 1,
        "source": Path(images.source).name if Path(images.source).is_absolute() else images.source,
        "name": images.name,
        "options": {key: list(value) if isinstance(value, tuple) else value for key, value in images.options.items()},
        "count": len(images),
        "shape": list(images.shape),
        "labelled": images.labels is not None,
        "labels_hash": images.labels_hash,
        "groups_hash": images.groups_hash,
        "content_hash": images.content_hash,
        "skipped": list(images.skipped),
        "seed": splits.seed,
        "splits": {name: _part(images, splits.named(name)) for name in used},
    }


def _part(images: ImageSet, indices: NDArray[np.int64]) -> dict[str, Any]:
    part = {
        "count": len(indices),
        "indices_hash": hash_integers(indices),
        "content_hash": content_hash(as_tensor(images.images[indices])),
    }
    return part if images.groups is None else part | {"groups": count_groups(images.groups[indices])}
