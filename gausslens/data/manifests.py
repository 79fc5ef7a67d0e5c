"""What was used: a plain record of a set of images and of the parts taken from it, with content hashes.

Two runs used the same images if and only if the hashes agree, whatever the files were called.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..images import as_tensor, content_hash
from .groups import count_groups
from .loading import ImageSet, hash_integers
from .splits import Splits


def manifest(images: ImageSet, splits: Splits, names: Iterable[str] = ()) -> dict[str, Any]:
    """The record of a set of images and of the named splits; the held-out part, if there is one, is always among them."""
    if splits.count != len(images):
        raise DataError(
            f"expected splits of the {len(images)} images given; these are of {splits.count}. Make them again."
        )
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
