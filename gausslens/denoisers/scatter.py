"""The scatter matrix S = Σ_i (x_i − m)(x_i − m)ᵀ of a stream of images around its mean m, in the cheapest exact form.

Images wait as they arrived, unconverted, and are folded into a dense d×d matrix, once there are more images than dimensions,
or a factor F of k rows with FᵀF = S, made through the k×k Gram matrix FFᵀ. With `rank`, this is the only form above
d = 4096: rows that outgrow a fixed budget are folded and only their leading directions kept, which is a sketch.
Moving the centre from m to m' adds n δδᵀ with δ = m − m', which is all it takes to merge sets with different means. Sums
are in float64 and rows are centred before they are squared, so a large common offset costs no digits.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from .._typing import Float
from ..errors import DataError, require
from ..images import dequantize

# With `rank`, Gram matrices have at most this many rows (128 MiB) and those of one more step. Where the scatter matrix
# itself is no larger it is used instead, and nothing is lost.
_GRAM_ROWS = 4096
_ROWS_AT_ONCE = 1024
# With `rank`, copied images and the factor together take this many bytes before they are folded into a sketch.
_HELD_BYTES = 2 << 30
# A sketch keeps 4 times the rank, or what fits here but at least twice: faint directions may become important later.
_SKETCH_BYTES = 1 << 30
# A converted tile has at most this many float64 numbers (128 MiB).
_TILE_NUMBERS = 1 << 24
# The dense matrix is updated in panels below the diagonal: half the work of the full product.
_PANEL = 256


class Scatter:
    """Accumulates count, mean and scatter of images of one shape.

    `rank` is how many leading directions are wanted, None for all; with `copy`, waiting images are copied, for sources that
    may reuse their buffers.
    """

    def __init__(
        self, shape: tuple[int, ...], *, rank: int | None = None, device: torch.device | str = "cpu", copy: bool = False
    ) -> None:
        self.shape, self.dim = shape, int(torch.Size(shape).numel())
        self.rank, self.device, self.copy = rank, torch.device(device), copy
        self.count = 0
        self.mean = torch.zeros(self.dim, dtype=torch.float64, device=self.device)
        self.factor = torch.zeros(0, self.dim, dtype=torch.float64, device=self.device)
        self.dense: Tensor | None = None  # valid on and below the diagonal
        self.dropped = 0.0  # the part of tr S in directions that were not kept
        self.sketched = False  # whether directions were dropped before all images had been seen
        self._waiting: list[Tensor] = []
        self._copied_bytes = 0
        self._sketch_rows = 0 if rank is None else max(2 * rank, min(4 * rank, _SKETCH_BYTES // (8 * self.dim)))
        self._most_rows = max(_GRAM_ROWS, 2 * self._sketch_rows)
        self._may_be_dense = rank is None or self.dim <= self._most_rows

    def update(self, batch: Tensor) -> None:
        """Add a batch (b, *shape), uint8 or float."""
        rows = batch.reshape(len(batch), -1)
        is_view = rows.untyped_storage().data_ptr() == batch.untyped_storage().data_ptr()
        for part in rows.split(_ROWS_AT_ONCE):
            self._waiting.append(part.clone() if is_view and self.copy else part)
            self._copied_bytes += part.nbytes if self.copy or not is_view else 0
            n_rows = len(self.factor) + self._n_waiting
            is_full = n_rows > 2 * self._sketch_rows and self._copied_bytes + self.factor.nbytes > _HELD_BYTES
            if self._may_be_dense:
                if n_rows > max(self.dim, _ROWS_AT_ONCE):
                    self.to_dense()
            elif n_rows > self._most_rows or is_full:
                self.to_factor(keep=self._sketch_rows)
                self.sketched = self.dropped > 0

    def merge(self, other: "Scatter") -> None:
        """Add what another accumulator has seen, of other images of the same shape; neither may be a sketch."""
        dense = self._may_be_dense and self.n_seen + other.n_seen > self.dim
        for part in (self, other):
            part.to_dense() if dense else part.to_factor()
        total = self.count + other.count
        mean = self.mean + (other.mean - self.mean) * (other.count / total)
        for part in (self, other):
            part._recentre(mean)
        self.count = total
        if self.dense is not None and other.dense is not None:
            self.dense += other.dense
        self.factor = torch.cat([self.factor, other.factor])

    def spectrum(self) -> tuple[Float[Tensor, "k"], Float[Tensor, "d k"], float]:
        """Eigenvalues of S/N, descending, their eigenvectors, and tr S/N; the accumulator is used up.

        In factor form these are only directions that carry variance, at most `rank` of them, or all of a sketch.
        """
        if self._may_be_dense and self.n_seen > self.dim:
            eigvals, eigvecs = _eigh(self.to_dense() / self.count)
            eigvals = eigvals.flip(0).clamp_min(0)
            return eigvals, eigvecs.flip(1), float(eigvals.sum())
        rows = self.to_factor(keep=self._sketch_rows if self.sketched else self.rank)
        norms = torch.linalg.vector_norm(rows, dim=1)
        eigvals = norms.square().cummin(0).values / self.count  # rounding must not disturb the order
        trace = float(eigvals.sum()) + self.dropped / self.count
        return eigvals, _orthonormalize(rows.div_(norms[:, None])).T, trace

    @property
    def n_seen(self) -> int:
        """How many images have been added."""
        return self.count + self._n_waiting

    def centre(self, batch: Tensor) -> Float[Tensor, "b d"]:
        """A batch (b, *shape) as float64 rows minus the mean."""
        return self._to_float64(batch.reshape(len(batch), -1)) - self.mean

    def to_dense(self) -> Float[Tensor, "d d"]:
        """Fold everything into the dense matrix, which is returned (valid on and below the diagonal)."""
        self._take_in_waiting()
        if self.dense is None:
            self.dense = torch.zeros(self.dim, self.dim, dtype=torch.float64, device=self.device)
            _add_gram(self.dense, self.factor)
            self.factor = self.factor[:0]
        for rows in self._waiting_tiles(self.mean):
            _add_gram(self.dense, rows)
        self._waiting, self._copied_bytes = [], 0
        return self.dense

    def to_factor(self, keep: int | None = None) -> Float[Tensor, "k d"]:
        """Fold everything into a factor with orthogonal rows, at most `keep`, longest first, which is returned.

        With V the eigenvectors of the Gram matrix FFᵀ, the rows of VᵀF are orthogonal and their squared norms are the
        eigenvalues of S. Columns are visited in tiles, so neither F in float64 nor anything d×d is ever held.
        """
        self._take_in_waiting()
        n_rows = len(self.factor) + self._n_waiting

        def rows_of(tile: slice) -> Float[Tensor, "k t"]:
            waiting = [self._to_float64(rows[:, tile]) - self.mean[tile] for rows in self._waiting]
            return torch.cat([self.factor[:, tile], *waiting])

        tiles = _column_tiles(n_rows, self.dim)
        gram = self.mean.new_zeros(n_rows, n_rows)
        for tile in tiles:
            rows = rows_of(tile)
            gram.addmm_(rows, rows.T)
        squares, vectors = _eigh(gram)
        squares, vectors = squares.flip(0), vectors.flip(1)
        # Below the rounding of the Gram matrix is zero; centring alone makes one such direction.
        squares = squares[squares > torch.finfo(torch.float64).eps * n_rows * squares[:1]]
        n_kept = len(squares) if keep is None else min(keep, len(squares))
        self.dropped += float(squares[n_kept:].sum())
        factor = self.mean.new_empty(n_kept, self.dim)
        for tile in tiles:
            factor[:, tile] = vectors[:, :n_kept].T @ rows_of(tile)
        self.factor = factor
        self._waiting, self._copied_bytes = [], 0
        return factor

    @property
    def _n_waiting(self) -> int:
        return sum(len(rows) for rows in self._waiting)

    def _take_in_waiting(self) -> None:
        """Count the waiting images and move the centre to the joint mean."""
        n_waiting = self._n_waiting
        if not n_waiting:
            return
        # Summed relative to a first guess, so that a large common offset costs no digits.
        guess = self.mean if self.count else self._to_float64(self._waiting[0][:1])[0]
        offset = torch.zeros_like(self.mean)
        for rows in self._waiting_tiles(guess):
            offset += rows.sum(0)
        total = self.count + n_waiting
        self._recentre(guess + offset / total)
        self.count = total

    def _recentre(self, mean: Float[Tensor, "d"]) -> None:
        """Move the centre of what has been folded: S gains n δδᵀ."""
        delta = self.mean - mean
        if self.dense is not None:
            self.dense.addr_(delta, delta, alpha=self.count)
        elif self.count:
            self.factor = torch.cat([self.factor, self.count**0.5 * delta[None]])
        self.mean = mean

    def _waiting_tiles(self, centre: Float[Tensor, "d"]) -> Iterator[Float[Tensor, "k d"]]:
        """The waiting images as centred rows, some at a time."""
        for rows in self._waiting:
            for tile in rows.split(max(1, _TILE_NUMBERS // self.dim)):
                yield self._to_float64(tile) - centre

    def _to_float64(self, rows: Tensor) -> Float[Tensor, "k t"]:
        return dequantize(rows.to(self.device), torch.float64)


def _eigh(symmetric: Float[Tensor, "k k"]) -> tuple[Float[Tensor, "k"], Float[Tensor, "k k"]]:
    """Ascending eigenvalues, and eigenvectors, of a matrix of which the lower triangle is read.

    On a CPU NumPy's LAPACK needs three quarters of the time that torch's does.
    """
    if symmetric.device.type != "cpu":
        values, vectors = torch.linalg.eigh(symmetric)
        return values, vectors
    values, vectors = map(torch.from_numpy, np.linalg.eigh(symmetric.numpy()))
    return values, vectors


def _column_tiles(n_rows: int, dim: int) -> list[slice]:
    width = max(1, _TILE_NUMBERS // max(n_rows, 1))
    return [slice(start, start + width) for start in range(0, dim, width)]


def _add_gram(matrix: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
    """matrix += rowsᵀ rows on and below the diagonal (and in the panels' corners above it)."""
    for start in range(0, len(matrix), _PANEL):
        stop = start + _PANEL
        matrix[start:, start:stop].addmm_(rows[:, start:].T, rows[:, start:stop])


def _orthonormalize(rows: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    """Gram–Schmidt in order and in place, by one Cholesky factor: faint rows, bent by rounding, give way to strong ones."""
    lower = torch.linalg.cholesky(rows @ rows.T)
    for tile in _column_tiles(*rows.shape):
        rows[:, tile] = torch.linalg.solve_triangular(lower, rows[:, tile], upper=False)
    return rows


def world_size() -> int:
    """The number of ranks of an initialised torch.distributed, else 1."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, in place."""
    if world_size() > 1:
        dist.all_reduce(tensor)
    return tensor


def share_between_ranks(scatter: Scatter | None, failure: DataError | None, *, across_ranks: bool = True) -> Scatter:
    """The scatter of the images of all ranks, on every rank; with one rank, what was passed in."""
    own = (str(failure) if failure else None, scatter.shape if scatter else None, scatter.n_seen if scatter else 0)
    reports = [own] * (world_size() if across_ranks else 1)
    if len(reports) > 1:
        dist.all_gather_object(reports, own)
    failures = [f"rank {rank}: {message}" for rank, (message, _, _) in enumerate(reports) if message]
    if failures or scatter is None:
        raise failure if len(reports) == 1 and failure else DataError("; ".join(failures))
    if len(reports) == 1:
        return scatter
    require(
        len({shape for _, shape, _ in reports}) == 1,
        f"all ranks must hold images of one shape; got {[shape for _, shape, _ in reports]}.",
        DataError,
    )
    total = sum(count for _, _, count in reports)
    if scatter._may_be_dense and total > scatter.dim:
        scatter.to_dense()
    else:
        rows_fit = scatter.rank is None or 8 * scatter.dim * total <= _HELD_BYTES
        scatter.to_factor(keep=None if rows_fit else scatter._sketch_rows)
    scatter._recentre(sum_over_ranks(scatter.mean * (scatter.count / total)))
    scatter.count = total
    if scatter.dense is not None:
        sum_over_ranks(scatter.dense)
    else:
        parts: list[Any] = [None] * len(reports)
        dist.all_gather_object(parts, (scatter.factor.cpu(), scatter.dropped))
        scatter.factor = torch.cat([factor for factor, _ in parts]).to(scatter.device)
        scatter.dropped = sum(dropped for _, dropped in parts)
        scatter.sketched = scatter.dropped > 0
    return scatter
