"""Groups of images that belong together: the slices of a patient, the frames of a video, the pages of a book.

A spec, one text, says which images form a group: `FILE.csv:COLUMN` or `FILE.csv:COLUMN:FILECOLUMN` (see `tables`), or a
regular expression that is searched in each image's file name. The group is then what its parentheses capture, all of them
together, or the whole match. Groups are numbered from 0 by their first image, so their names do not matter.
"""

import os
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, require, reraise_as
from .arrays import expect
from .loading import ImageSet, load_images
from .sources import find_source, image_names
from .tables import list_some, parse_column, read_column


def load_groups(source: str | os.PathLike[str], spec: str, **options: Any) -> NDArray[np.int64]:
    """The group of every image that `load_images` gives for the same source and options, in the same order."""
    groups = with_groups(load_images(source, **options), spec).groups
    assert groups is not None
    return groups


def with_groups(images: ImageSet, spec: str | None) -> ImageSet:
    """The images with their groups; unchanged if the spec is None."""
    return with_shared_groups([images], spec)[0]


def with_shared_groups(sets: Sequence[ImageSet], spec: str | None) -> list[ImageSet]:
    """Several sets of images with their groups, numbered over all of them; unchanged if the spec is None."""
    if spec is None:
        return list(sets)
    keys = [_keys(images, spec) for images in sets]
    numbers = _number([key for of_one_set in keys for key in of_one_set])
    ends = np.cumsum([len(of_one_set) for of_one_set in keys])[:-1]
    return [replace(images, groups=own) for images, own in zip(sets, np.split(numbers, ends), strict=True)]


def as_groups(groups: Any, count: int) -> NDArray[np.int64]:
    """Any integers, one for each image, as numbers from 0 on by first appearance.

    >>> as_groups([7, 7, 3, 7], 4).tolist()
    [0, 0, 1, 0]
    """
    array = np.asarray(groups)
    is_vector = array.shape == (count,) and array.dtype.kind in "ui"
    got = f"shape {array.shape}, dtype {array.dtype}"
    require(is_vector, f"groups must be {count} integers, one for each image; got {got}.")
    return _number(array.tolist())


def count_groups(groups: Any) -> int:
    """How many groups there are.

    >>> count_groups([0, 0, 1, 0])
    2
    """
    return len(np.unique(np.asarray(groups)))


def _number(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _keys(images: ImageSet, spec: str) -> Sequence[Any]:
    """What names the group of each image."""
    every = image_names(images.source)
    count, places = _kept(images, every)
    names = None if every is None else [every[place] for place in places]
    column = parse_column(spec)
    if column is not None:
        keys: Sequence[Any] = read_column(column, names, places, count, images.source)
        lacking = f"have nothing in column {column.name!r} of {column.path.name}"
    else:
        keys = _search(spec, names, images.source)
        lacking = f"have no match of the regular expression {spec!r} in their file names"
    without = [f"number {places[i]}" if names is None else names[i] for i, key in enumerate(keys) if not key]
    such = f"{len(without)} of {len(images)} images {lacking}, such as {list_some(without)}"
    expect(not without, f"{such}. Give every image a group.")
    return keys


def _kept(images: ImageSet, names: Sequence[str] | None) -> tuple[int, Sequence[int]]:
    """How many images the source has, and the positions of those that were not left out."""
    if names is None and images.skipped:  # rows of the hub can be broken, too
        names = find_source(images.source).open().names
    if names is None:
        return len(images), range(len(images))
    left_out = set(images.skipped)
    kept = [index for index, name in enumerate(names) if name not in left_out]
    held = f"{images.source} holds {len(kept)} images now, and {len(images)} were read"
    expect(len(kept) == len(images), f"{held}; it has changed in between. Run the command again.")
    return len(names), kept


def _search(pattern: str, names: Sequence[str] | None, source: str) -> list[tuple[str | None, ...]]:
    """What a regular expression finds in each name; nothing where it finds only empty texts."""
    expected = "groups must be FILE.csv:COLUMN or a regular expression"
    with reraise_as(ConfigError, f"{expected}; got {pattern!r}, which is neither"):
        expression = re.compile(pattern)
    if names is None:
        what = f"its images have no file names to search with the regular expression {pattern!r}"
        advice = "Give a CSV with a header and one row for each image, in their order."
        raise ConfigError(f"groups must be FILE.csv:COLUMN for {source}: {what}. {advice}")
    matches = [expression.search(name) for name in names]
    found = [() if match is None else match.groups() or (match[0],) for match in matches]
    return [texts if any(texts) else () for texts in found]
