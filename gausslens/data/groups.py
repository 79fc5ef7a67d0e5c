"""Groups of images that belong together: the slices of a patient, the frames of a video, the pages of a book.

Images of one group are not independent: a network trained on one of them has seen something of the others. Splits therefore
keep a group on one side (see `splits`). A spec, one text, says which images form a group:

    FILE.csv:COLUMN              a column of a CSV; `tables` describes how rows are matched to images
    FILE.csv:COLUMN:FILECOLUMN   the same, with the column that holds the file names
    anything else                a regular expression, searched in each image's file name (relative to its source)

The group of an expression is what its parentheses capture (all of them together), or the whole match if there are none.
Groups are numbered from 0 by their first image, so the numbers depend on which images belong together and not on any names.
"""

import os
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, DataError
from .loading import ImageSet, load_images
from .pictures import Pictures
from .sources import find_source, image_names
from .tables import parse_column, read_column, some


def load_groups(
    source: str | os.PathLike[str],
    spec: str,
    *,
    size: int | None = None,
    value_range: Sequence[int | float] | None = None,
    skip_broken: bool = False,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> NDArray[np.int64]:
    """The group of every image that `load_images` gives for the same source and options, in the same order.

    A single group for all images, or one for each image, is allowed; `count_groups` counts them.
    """
    images = load_images(
        source,
        size=size,
        value_range=value_range,
        skip_broken=skip_broken,
        cache=cache,
        workers=workers,
        progress=progress,
    )
    groups = with_groups(images, spec).groups
    assert groups is not None
    return groups


def with_groups(images: ImageSet, spec: str | None) -> ImageSet:
    """The images with their groups; unchanged if the spec is None."""
    return with_shared_groups([images], spec)[0]


def with_shared_groups(sets: Sequence[ImageSet], spec: str | None) -> list[ImageSet]:
    """Several sets of images with their groups, numbered over all of them; unchanged if the spec is None."""
    if spec is None:
        return list(sets)
    values = [_values(images, spec) for images in sets]
    numbers = _numbered([value for some_values in values for value in some_values])
    ends = np.cumsum([len(some_values) for some_values in values])[:-1]
    return [replace(images, groups=own) for images, own in zip(sets, np.split(numbers, ends), strict=True)]


def _values(images: ImageSet, spec: str) -> Sequence[Any]:
    """What names the group of each image."""
    every = image_names(images.source)
    count, places = _kept(images, every)
    names = None if every is None else [every[place] for place in places]
    column = parse_column(spec)
    if column is not None:
        values: Sequence[Any] = read_column(column, names, places, count, images.source)
        lacking = f"have nothing in column {column.name!r} of {column.path.name}"
    else:
        values = _searched(spec, names, images.source)
        lacking = f"have no match of the regular expression {spec!r} in their file names"
    without = [index for index, value in enumerate(values) if not value]
    if without:
        named = [f"number {places[index]}" if names is None else names[index] for index in without]
        raise DataError(
            f"{len(without)} of {len(images)} images {lacking}, such as {some(named)}. Give every image a group."
        )
    return values


def as_groups(groups: Any, count: int) -> NDArray[np.int64]:
    """Any integers, one for each image, as numbers from 0 on by first appearance.

    >>> as_groups([7, 7, 3, 7], 4).tolist()
    [0, 0, 1, 0]
    """
    array = np.asarray(groups)
    if array.shape != (count,) or array.dtype.kind not in "ui":
        raise ConfigError(
            f"groups must be {count} integers, one for each image; got shape {array.shape}, dtype {array.dtype}."
        )
    return _numbered(array.tolist())


def count_groups(groups: Any) -> int:
    """How many groups there are.

    >>> count_groups([0, 0, 1, 0])
    2
    """
    return len(np.unique(np.asarray(groups)))


def _numbered(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _kept(images: ImageSet, names: Sequence[str] | None) -> tuple[int, Sequence[int]]:
    """How many images the source has, and the positions of those that were not left out."""
    listed = names
    if listed is None and images.skipped:  # rows of the hub can be broken, too
        content = find_source(images.source).open()
        assert isinstance(content, Pictures)
        listed = content.names
    if listed is None:
        return len(images), range(len(images))
    left_out = set(images.skipped)
    kept = [index for index, name in enumerate(listed) if name not in left_out]
    if len(kept) != len(images):
        raise DataError(
            f"{images.source} holds {len(kept)} images now, and {len(images)} were read; it has changed in between. Run the "
            "command again."
        )
    return len(listed), kept


def _searched(pattern: str, names: Sequence[str] | None, source: str) -> list[tuple[str | None, ...] | None]:
    """What a regular expression finds in each name; None where it finds nothing, or nothing but empty texts."""
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"groups must be FILE.csv:COLUMN or a regular expression; got {pattern!r}, which is neither: {error}."
        ) from None
    if names is None:
        raise ConfigError(
            f"groups must be FILE.csv:COLUMN for {source}: its images have no file names to search with the regular "
            f"expression {pattern!r}. A CSV with a header and one row for each image, in their order, works."
        )
    found = []
    for name in names:
        match = expression.search(name)
        texts = () if match is None else match.groups() or (match[0],)
        found.append(texts if any(texts) else None)
    return found
