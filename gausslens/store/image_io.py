"""Sets of images written to files that people and other programs can read, each whole or not at all."""

import io
import json
import math
import os
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..atomic_files import atomic_replace

_SHOWN = 256
_TILE = 32  # pixels an image should at least be wide to be looked at
_GAP = 2
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same images make the same file


def save_grid(path: str | os.PathLike[str], images: Tensor) -> None:
    """Write the first 256 images, or fewer, as one PNG: as square a grid as can be, row by row; small images enlarged."""
    shown = _channels_last(images[:_SHOWN])
    factor = max(1, math.ceil(_TILE / shown.shape[2]))
    tiles = shown.repeat(factor, axis=1).repeat(factor, axis=2)
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = math.ceil(len(tiles) / columns)
    # White tiles fill the last row, and white gaps lie above and left of each tile, then below and right of the page.
    tiles = np.pad(tiles, ((0, rows * columns - len(tiles)), (_GAP, 0), (_GAP, 0), (0, 0)), constant_values=255)
    height, width = tiles.shape[1:3]
    page = tiles.reshape(rows, columns, height, width, -1).swapaxes(1, 2).reshape(rows * height, columns * width, -1)
    page = np.pad(page, ((0, _GAP), (0, _GAP), (0, 0)), constant_values=255)
    with atomic_replace(Path(path)) as temporary:
        temporary.write_bytes(_png(page))


def save_npz(path: str | os.PathLike[str], images: Tensor, labels: Tensor | None = None) -> None:
    """Write the arrays `images`, uint8 (n, h, w, c), and, if there are any, `labels`, int64 (n,)."""
    arrays = {"images": _channels_last(images)} | ({} if labels is None else {"labels": labels.numpy()})
    with atomic_replace(Path(path)) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def save_zip(path: str | os.PathLike[str], images: Tensor, labels: Tensor | None = None) -> None:
    """Write one PNG per image in folders of a thousand, with `dataset.json`: the format of EDM's data sets."""
    names = [f"{index // 1000:05d}/img{index:08d}.png" for index in range(len(images))]
    listed = None if labels is None else [[name, int(label)] for name, label in zip(names, labels, strict=True)]
    with atomic_replace(Path(path)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, image in zip(names, _channels_last(images), strict=True):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), _png(image))
        archive.writestr(zipfile.ZipInfo("dataset.json", _EPOCH), json.dumps({"labels": listed}))


def _channels_last(images: Tensor) -> NDArray[np.uint8]:
    array: NDArray[np.uint8] = images.permute(0, 2, 3, 1).contiguous().numpy()
    return array


def _png(image: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(buffer, "png")
    return buffer.getvalue()
