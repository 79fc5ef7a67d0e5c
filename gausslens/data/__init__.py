"""Images from a source, the splits made of them, and the record of what was used.

    images = load_images("digits")
    splits = Splits(len(images), seed=0)
    train, held_out = images.images[splits.subset(1000)], images.images[splits.held_out]

Names are imported on first use, as those of the package are.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "load_images": "loading",
    "ImageSet": "loading",
    "image_names": "sources",
    "load_groups": "groups",
    "Splits": "splits",
    "find_duplicates": "duplicates",
    "DuplicateReport": "duplicates",
    "manifest": "splits",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gausslens.data' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
