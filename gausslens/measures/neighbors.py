"""Exact nearest neighbours and duplicates in pixel Euclidean distance.

‖x − y‖² = ‖x − c‖² + ‖y − c‖² − 2(x − c)·(y − c), so one float32 matrix product screens all pairs of a tile. Its error is
at most (γ/2 + 8u)·(‖x − c‖ + ‖y − c‖)², with u = 2⁻²⁴ and γ = du/(1 − du). Every pair that this bound cannot rule out is
computed again in float64. So ranks and distances are those of float64 arithmetic, whatever the tile, and images at equal
distance come in the order of their index. Images keep the dtype they are stored in, memory-mapped or not, and become float
(uint8 by `dequantize`, in float32) one tile at a time. A matrix of all pairs is never formed.
"""

import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .._typing import Float, Int
from ..denoisers.protocol import in_batches
from ..errors import require
from ..images import as_bytes, check_same_shape, dequantize
from ..precision import float32_products
from ..progress import track

T = TypeVar("T")

_FLOAT32_ROUNDING = 2.0**-24
_TILE_NUMBERS = 1 << 23
_TILE_ROWS = 4096
_BLOCK_ROWS = 1024
_AMPLE = 4
_GPU_FACTOR = 8  # a GPU is idle between small products
_CENTER_ROWS = 256


class _Rows(NamedTuple):
    """Images as vectors, and for screening the centred vectors in float32 with their norms."""

    exact: Float[Tensor, "n d"]
    centred: Float[Tensor, "n d"]
    norms: Float[Tensor, "n"]


def nearest(
    queries: Tensor,
    images: Tensor,
    k: int = 1,
    *,
    within: Float[Tensor, "m"] | None = None,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """The distances and indices of the k images nearest to each query; those beyond `within` may be missing.

    >>> images = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [1.0, 0.0]])
    >>> distances, indices = nearest(torch.zeros(1, 2), images, k=4)
    >>> distances.tolist(), indices.tolist()
    ([[0.0, 1.0, 5.0, 5.0]], [[0, 3, 1, 2]])
    """
    require(
        1 <= k <= len(images), f"k must lie between 1 and the number of images, {len(images)}; got {k}. Ask for fewer."
    )
    place = torch.device(device) if device is not None else images.device
    center = _center(images, place)
    tile_rows = _rows_that_fit(images, _TILE_ROWS, place)

    def search(start: int, stop: int) -> tuple[Tensor, Tensor]:
        block = _load(queries[start:stop], center)
        squares = torch.full((len(block.exact), k), math.inf, dtype=torch.float64, device=place)
        indices = torch.full((len(block.exact), k), len(images), device=place)
        reach = squares[:, -1] if within is None else within[start:stop].square().to(place)
        for first in range(0, len(images), tile_rows):
            tile = _load(images[first : first + tile_rows], center)
            screened, slack = _screen(block, tile)
            limit = reach.minimum(squares[:, -1]) - block.norms**2 + slack
            admitted = _not_above(screened, limit)
            if k <= len(tile.exact) and int(admitted.sum()) > _AMPLE * k * len(admitted):
                # The tile's own k-th value is a limit, too.
                own = screened.topk(k, largest=False).values[:, -1].double() + 2 * slack
                admitted = _not_above(screened, limit.minimum(own))
            rows, columns = admitted.nonzero(as_tuple=True)
            found = _squares(block, tile, rows, columns)
            squares, indices = _merge(squares, indices, rows, found, columns + first)
        return squares.sqrt().cpu(), indices.cpu()

    distances, indices = zip(*_in_blocks(search, queries, center, "nearest neighbours", progress), strict=True)
    return torch.cat(distances), torch.cat(indices)


def duplicates(
    images: Tensor,
    others: Tensor | None = None,
    *,
    tolerance: float = 0.0,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Tensor:
    """Exact and near duplicates: pairs (i, j) with ‖images_i − others_j‖ ≤ tolerance, the first i of each j.

    Without `others`, pairs i < j inside one set, with i the first image that j repeats. With tolerance 0, dropping all j
    leaves each image once.

    |u·x − u·y| ≤ ‖x − y‖ for a unit vector u, so images are sorted along one direction of large spread and compared only
    within `tolerance` of one another along it: far fewer than all pairs. Inside one set, equal images are found by their
    bytes, and only the first of them is compared.

    >>> duplicates(torch.tensor([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [1.0, 2.001]]), tolerance=0.01).tolist()
    [[0, 2], [0, 3]]
    """
    later = images if others is None else others
    check_same_shape(later, images, "images", "those that they are compared with")
    place = torch.device(device) if device is not None else images.device
    center = _center(images, place)
    direction = _widest_direction(images, center)
    along = _projections(images, center, direction)
    along_later = along if others is None else _projections(later, center, direction)
    equal = torch.arange(len(images)) if others is not None else first_equal(images)
    distinct = equal.unique()
    order = distinct[along[distinct].argsort()]
    order_later = order if others is None else along_later.argsort()
    reach = tolerance + 1e-9 * (1 + float(along.abs().max()) + float(along_later.abs().max()))
    ascending, tile_rows = along[order], _rows_that_fit(images, _TILE_ROWS, place)

    def search(start: int, stop: int) -> Tensor:
        own = order_later[start:stop]
        ends = along_later[own[[0, -1]]] + torch.tensor([-reach, reach], dtype=torch.float64)
        window = order[slice(*torch.searchsorted(ascending, ends).tolist())].sort().values
        block = _load(later[own], center)
        first = torch.full((len(own),), -1)
        for candidates in window.split(tile_rows) if len(window) else ():  # an empty window would be one empty tile
            undecided = (first < 0).nonzero()[:, 0]
            part = _Rows(*(field[undecided.to(place)] for field in block))
            earlier = None if others is not None else candidates[None, :] < own[undecided, None]
            column = _first_within(part, _load(images[candidates], center), tolerance, earlier)
            first[undecided] = torch.where(column < 0, -1, candidates[column.clamp_min(0)])
        return torch.stack([first, own], 1)

    pairs = torch.cat(_in_blocks(search, later[: len(order_later)], center, "duplicates", progress))
    pairs = pairs[pairs[:, 0] >= 0]
    if others is not None:
        return pairs[pairs[:, 1].argsort()]
    first = torch.arange(len(images))
    first[pairs[:, 1]] = pairs[:, 0]
    first = first[equal]  # an image that equals a repeating one repeats the same image
    repeats = (first != torch.arange(len(images))).nonzero()[:, 0]
    return torch.stack([first[repeats], repeats], 1)


def first_equal(images: Tensor) -> Int[Tensor, "n"]:
    """The index of the first image that has the same bytes as each image."""
    first: dict[bytes, int] = {}
    rows = (row for part in images.split(_TILE_ROWS) for row in as_bytes(part).reshape(len(part), -1).numpy())
    digests = (hashlib.blake2b(row.data, digest_size=16).digest() for row in rows)
    return torch.tensor([first.setdefault(digest, index) for index, digest in enumerate(digests)])


def norms(images: Tensor) -> Float[Tensor, "n"]:
    """‖x‖ of each image (n, *shape), in float64 on the CPU."""
    parts = images.split(_rows_that_fit(images, _TILE_ROWS, images.device))
    return torch.cat([torch.linalg.vector_norm(_vectors(x, x.device).double(), dim=1).cpu() for x in parts])


def resident(images: Tensor, device: torch.device | str | None) -> Tensor:
    """Images moved to a GPU if they take at most a quarter of its free memory; else unchanged.

    Do this before several searches in one set: otherwise each search moves the images again, for every block of queries.
    """
    place = torch.device(device) if device is not None else images.device
    if place.type != "cuda" or images.device.type == "cuda":
        return images
    free, _ = torch.cuda.mem_get_info(place)
    return images.to(place) if images.numel() * images.element_size() <= free // 4 else images


def _in_blocks(
    search: Callable[[int, int], T], queries: Tensor, center: Float[Tensor, "d"], label: str, progress: bool
) -> list[T]:
    """`search(start, stop)` over blocks of queries as large as fit beside a tile of images."""
    block_rows = _rows_that_fit(queries, _BLOCK_ROWS, center.device)
    blocks = in_batches(search, len(queries), block_rows)
    with torch.no_grad(), float32_products(center.device):
        return list(track(blocks, total=math.ceil(len(queries) / block_rows), label=label, enabled=progress))


def _rows_that_fit(images: Tensor, most: int, place: torch.device) -> int:
    factor = _GPU_FACTOR if place.type == "cuda" else 1
    return max(1, min(factor * most, factor * _TILE_NUMBERS // images[0].numel()))


def _vectors(images: Tensor, place: torch.device) -> Float[Tensor, "n d"]:
    """Images as vectors, in float64 if they are stored so, else in float32, which holds them exactly."""
    vectors = images.to(place).flatten(1)
    return vectors if vectors.dtype == torch.float64 else dequantize(vectors)


def _center(images: Tensor, place: torch.device) -> Float[Tensor, "d"]:
    """A point near the images: any point is valid, but a near one keeps the error of screening small."""
    return _vectors(images[:_CENTER_ROWS], place).double().mean(0).float()


def _load(images: Tensor, center: Float[Tensor, "d"]) -> _Rows:
    exact = _vectors(images, center.device)
    centred = (exact - center).float()
    return _Rows(exact, centred, torch.linalg.vector_norm(centred, dim=1, dtype=torch.float64))


def _screen(block: _Rows, tile: _Rows) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b"]]:
    """‖x − y‖² − ‖x − c‖² in float32, and a bound on its error for each x."""
    screened = torch.addmm(tile.norms.square().float(), block.centred, tile.centred.T, alpha=-2)
    dim = block.centred.shape[1]
    gamma = dim * _FLOAT32_ROUNDING / (1 - dim * _FLOAT32_ROUNDING)
    return screened, (gamma / 2 + 8 * _FLOAT32_ROUNDING) * (block.norms + tile.norms.max()).square()


def _not_above(screened: Float[Tensor, "b t"], limit: Float[Tensor, "b"]) -> Tensor:
    """Where a screened value is at most the limit, or is NaN after an overflow."""
    rounded_up = torch.nextafter(limit.float(), torch.full_like(limit, math.inf, dtype=torch.float32))
    return ~(screened > rounded_up[:, None])


def _squares(block: _Rows, tile: _Rows, rows: Int[Tensor, "p"], columns: Int[Tensor, "p"]) -> Float[Tensor, "p"]:
    """‖x − y‖² of the given pairs in float64."""
    factor = _GPU_FACTOR if rows.device.type == "cuda" else 1
    size = max(1, factor * _TILE_NUMBERS // (4 * block.exact.shape[1]))
    found = [
        (block.exact[r].double() - tile.exact[c].double()).square_().sum(1)
        for r, c in zip(rows.split(size), columns.split(size), strict=True)
    ]
    return torch.cat(found)


def _merge(
    squares: Float[Tensor, "b k"],
    indices: Int[Tensor, "b k"],
    rows: Int[Tensor, "p"],
    new_squares: Float[Tensor, "p"],
    new_indices: Int[Tensor, "p"],
) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """The k best of the old and the new of each row, by distance and then by index."""
    n, k = squares.shape
    row = torch.cat([torch.arange(n, device=rows.device).repeat_interleave(k), rows])
    square = torch.cat([squares.flatten(), new_squares])
    index = torch.cat([indices.flatten(), new_indices])
    order = torch.arange(len(row), device=rows.device)
    for key in (index, square, row):  # each keeps the order before among equals
        order = order[key[order].argsort(stable=True)]
    starts = torch.searchsorted(row[order], torch.arange(n, device=rows.device))
    best = order[starts[:, None] + torch.arange(k, device=rows.device)]
    return square[best], index[best]


def _first_within(block: _Rows, tile: _Rows, tolerance: float, admissible: Tensor | None) -> Int[Tensor, "b"]:
    """The first column of the tile within `tolerance` of each row of the block, or −1, on the CPU."""
    screened, slack = _screen(block, tile)
    left = _not_above(screened, tolerance**2 + slack - block.norms**2)
    if admissible is not None:
        left &= admissible.to(left.device)
    first = torch.full((len(left),), -1, device=left.device)
    # One candidate of each row at a time: in a large group of copies the first one suffices.
    while bool(left.any()):
        rows = left.any(1).nonzero()[:, 0]
        columns = left[rows].byte().argmax(1)
        left[rows, columns] = False
        within = _squares(block, tile, rows, columns) <= tolerance**2
        first[rows[within]] = columns[within]
        left[rows[within]] = False
    return first.cpu()


def _widest_direction(images: Tensor, center: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
    """A unit vector along which the images are spread widely: the leading principal component of a few of them."""
    some = _load(images[:: max(1, len(images) // 256)][:256], center).centred.double()
    leading: Tensor = torch.linalg.eigh(some @ some.T).eigenvectors[:, -1] @ some
    # Equal images have no spread, and the zero vector serves.
    return leading.div(torch.linalg.vector_norm(leading).clamp_min(1e-300))


def _projections(images: Tensor, center: Float[Tensor, "d"], direction: Float[Tensor, "d"]) -> Float[Tensor, "n"]:
    rows = _rows_that_fit(images, _TILE_ROWS, center.device)
    return torch.cat(
        [((_vectors(part, center.device).double() - center) @ direction).cpu() for part in images.split(rows)]
    )
