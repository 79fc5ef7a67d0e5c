"""Image data sets of the Hugging Face hub: `hf:NAME`, `hf:NAME:SPLIT`, or `hf:FOLDER` as saved by `save_to_disk`.

Images are the first column of images; labels the column `label` or `labels`, else the first column of class labels.
The split is `train` unless named.
"""

from pathlib import Path
from typing import Any

from ..errors import DataError, import_extra, reraise_as
from .arrays import as_labels, expect
from .image_files import ImageFiles


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder: one data set, or one for each split."""
    return any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def load_hub(text: str) -> Any:
    """The data set that the part after `hf:` names."""
    datasets = import_extra("datasets", "hf: sources need the package datasets", "'gausslens[hf]'")
    name, _, split = text.partition(":")
    # The hub's own errors are of many kinds: no network, no such name, no such split, a script refused.
    with reraise_as(DataError, f"could not load hf:{text}", "Expected hf:NAME, hf:NAME:SPLIT or hf:FOLDER."):
        if is_saved(Path(name)):
            found = datasets.load_from_disk(name)
            return found[split or "train"] if hasattr(found, "keys") else found
        return datasets.load_dataset(name, split=split or "train")


def open_hub(dataset: Any, text: str) -> ImageFiles:
    """The images and labels of a loaded data set."""
    kinds = {name: type(feature).__name__ for name, feature in dict(dataset.features).items()}
    column = next((name for name, kind in kinds.items() if kind == "Image"), None)
    expect(column, f"hf:{text}: expected a column of images; its columns are {kinds}.")
    named = [name for name in ("label", "labels") if name in kinds]
    classes = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    chosen = next(iter(named + classes), None)
    labels = None if chosen is None else list(dataset[chosen])
    return ImageFiles(
        names=[f"{column}[{index}]" for index in range(len(dataset))],
        labels=as_labels(labels, len(dataset), f"hf:{text}, column {chosen}"),
        open=lambda index: dataset[index][column],
    )
