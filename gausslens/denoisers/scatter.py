"""The scatter matrix S = Σ_i (x_i − m)(x_i − m)ᵀ of a stream of images around its mean m, in the cheapest exact form.

An accumulator with `update`, `merge` and `spectrum`. Images wait as they arrived, unconverted, and are folded into

- a dense d×d matrix, once there are more images than dimensions; or
- a factor F of k rows with FᵀF = S, made through the k×k Gram matrix FFᵀ. With `rank` there is only this form: rows are
  folded whenever they outgrow a fixed budget, and keeping only the leading directions then makes it a sketch.

Moving the centre from m to m' adds n δδᵀ with δ = m − m', which is all it takes to merge sets with different means. Sums
are in float64 and rows are centred before they are squared, so a large common offset costs no digits.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from .._typing import Float
from ..errors import DataError
from ..images import dequantize

# With `rank`, images wait up to this many bytes before they are folded into a sketch.
_PENDING_BYTES = 2 << 30
# A sketch keeps at least this many times the rank asked for: directions that look unimportant now may become important.
_OVERSAMPLING = 4
# A converted tile has at most this many float64 numbers (128 MiB).
_TILE_NUMBERS = 1 << 24
# The dense matrix is updated in panels below the diagonal: half the work of the full product.
_PANEL = 1024


class Scatter:
    """Accumulates count, mean and scatter of images of one shape.

    Args:
        shape: the shape of one image.
        rank: how many leading directions are wanted; None for all.
        device: where to compute.
        copy: whether waiting images must be copied (for sources that may reuse their buffers).
    """

    def __init__(
        self, shape: tuple[int, ...], *, rank: int | None = None, device: torch.device | str = "cpu", copy: bool = False
    ) -> None:
        self.shape = shape
        self.dim = int(torch.Size(shape).numel())
        self.rank = rank
        self.device = torch.device(device)
        self.copy = copy
        self.count = 0
        self.mean = torch.zeros(self.dim, dtype=torch.float64, device=self.device)
        self.factor = torch.zeros(0, self.dim, dtype=torch.float64, device=self.device)
        self.dense: Tensor | None = None  # valid on and below the diagonal
        self.sketched = False  # whether folding has dropped directions
        self._total = 0.0  # tr S of the factor form, dropped directions included
        self._waiting: list[Tensor] = []

    def update(self, batch: Tensor) -> None:
        """Add a batch (b, *shape), uint8 or float."""
        rows = batch.reshape(len(batch), -1)
        self._waiting.append(rows.clone() if self.copy else rows)
        n_waiting = self._n_waiting
        if self.rank is None:
            if n_waiting > max(self.dim, 1024):
                self.to_dense()
        elif n_waiting * self.dim * batch.element_size() > _PENDING_BYTES and n_waiting > 2 * _OVERSAMPLING * self.rank:
            self.to_factor(keep=max(_OVERSAMPLING * self.rank, n_waiting // 2))

    def merge(self, other: "Scatter") -> None:
        """Add what another accumulator, of other images of the same shape, has seen; the other one is used up."""
        dense = self.rank is None and self.n_seen + other.n_seen > self.dim
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
        self._total += other._total
        self.sketched = self.sketched or other.sketched

    def spectrum(self) -> tuple[Float[Tensor, "k"], Float[Tensor, "d k"]]:
        """Eigenvalues of S/N, descending, and eigenvectors; in factor form, only directions that carry variance."""
        if self.rank is None and self.n_seen > self.dim:
            eigvals, eigvecs = torch.linalg.eigh(self.to_dense() / self.count)  # reads the lower triangle
            return eigvals.flip(0).clamp_min(0), eigvecs.flip(1)
        squares = self.to_factor().square().sum(1)
        return squares / self.count, _orthonormalize((self.factor / squares.sqrt()[:, None]).T)

    @property
    def n_seen(self) -> int:
        """How many images have been added."""
        return self.count + self._n_waiting

    @property
    def trace(self) -> float:
        """tr S / N of the folded images, directions that a sketch has dropped included."""
        total = self._total if self.dense is None else float(self.dense.diagonal().sum())
        return total / self.count

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
        for rows in self._waiting_tiles():
            _add_gram(self.dense, self._to_float64(rows) - self.mean)
        self._waiting = []
        return self.dense

    def to_factor(self, keep: int | None = None) -> Float[Tensor, "k d"]:
        """Fold everything into a factor with orthogonal rows, at most `keep`, longest first, which is returned.

        With V the eigenvectors of the Gram matrix FFᵀ, the rows of VᵀF are orthogonal and their squared norms are the
        eigenvalues of S. Columns are visited in tiles, so neither F in float64 nor anything d×d is ever held.
        """
        n_waiting = self._n_waiting
        self._take_in_waiting()
        n_rows = len(self.factor) + n_waiting
        width = max(1, _TILE_NUMBERS // max(n_rows, 1))
        tiles = [slice(start, start + width) for start in range(0, self.dim, width)]

        def rows_of(tile: slice) -> Float[Tensor, "k t"]:
            waiting = [self._to_float64(rows[:, tile]) - self.mean[tile] for rows in self._waiting]
            return torch.cat([self.factor[:, tile], *waiting])

        gram = torch.zeros(n_rows, n_rows, dtype=torch.float64, device=self.device)
        for tile in tiles:
            rows = rows_of(tile)
            gram += rows @ rows.T
        self._total += float(gram.diagonal()[len(self.factor) :].sum())
        squares, vectors = torch.linalg.eigh(gram)
        squares, vectors = squares.flip(0), vectors.flip(1)
        # Below the rounding of the Gram matrix is zero; centring alone makes one such direction.
        n_kept = int((squares > torch.finfo(torch.float64).eps * n_rows * squares[:1]).sum())
        if keep is not None and keep < n_kept:
            n_kept, self.sketched = keep, True
        factor = torch.empty(n_kept, self.dim, dtype=torch.float64, device=self.device)
        for tile in tiles:
            factor[:, tile] = vectors[:, :n_kept].T @ rows_of(tile)
        self.factor, self._waiting = factor, []
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
        for rows in self._waiting_tiles():
            offset += (self._to_float64(rows) - guess).sum(0)
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
        self._total += self.count * float(delta @ delta)
        self.mean = mean

    def _waiting_tiles(self) -> list[Tensor]:
        rows_per_tile = max(1, _TILE_NUMBERS // self.dim)
        return [tile for rows in self._waiting for tile in rows.split(rows_per_tile)]

    def _to_float64(self, rows: Tensor) -> Float[Tensor, "k t"]:
        return dequantize(rows.to(self.device), torch.float64)


def _add_gram(matrix: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
    """matrix += rowsᵀ rows on and below the diagonal (and in the panels' corners above it)."""
    for start in range(0, len(matrix), _PANEL):
        stop = start + _PANEL
        matrix[start:, start:stop].addmm_(rows[:, start:].T, rows[:, start:stop])


def _orthonormalize(vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
    """Gram–Schmidt in order, by one Cholesky factor: faint directions, which rounding has bent, give way to strong ones."""
    lower = torch.linalg.cholesky(vectors.T @ vectors)
    return torch.linalg.solve_triangular(lower.T, vectors, upper=True, left=False)


def world_size() -> int:
    """The number of ranks of an initialised torch.distributed, else 1."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, in place."""
    if world_size() > 1:
        dist.all_reduce(tensor)
    return tensor


def share_between_ranks(scatter: Scatter | None, failure: DataError | None) -> Scatter:
    """The scatter of the images of all ranks, on every rank; with one rank, what was passed in.

    Args:
        scatter: this rank's scatter, or None if its images could not be read.
        failure: why they could not be read.

    Returns:
        The joint scatter.

    Raises:
        DataError: on every rank if any rank failed, so that none waits for another.
    """
    own = (str(failure) if failure else None, scatter.shape if scatter else None, scatter.n_seen if scatter else 0)
    reports = [own] * world_size()
    if len(reports) > 1:
        dist.all_gather_object(reports, own)
    failures = [f"rank {rank}: {message}" for rank, (message, _, _) in enumerate(reports) if message]
    if failures or scatter is None:
        raise failure if len(reports) == 1 and failure else DataError("; ".join(failures))
    if len(reports) == 1:
        return scatter
    if len({shape for _, shape, _ in reports}) > 1:
        raise DataError(f"all ranks must hold images of one shape; got {[shape for _, shape, _ in reports]}.")

    total = sum(count for _, _, count in reports)
    dense = scatter.rank is None and total > scatter.dim
    scatter.to_dense() if dense else scatter.to_factor()
    scatter._recentre(sum_over_ranks(scatter.mean * (scatter.count / total)))
    scatter.count = total
    if scatter.dense is not None:
        sum_over_ranks(scatter.dense)
    else:
        scatter.factor = torch.cat(_gather_rows(scatter.factor))
        scalars = torch.tensor([scatter._total, scatter.sketched], dtype=torch.float64, device=scatter.device)
        scatter._total, sketched = sum_over_ranks(scalars).tolist()
        scatter.sketched = sketched > 0
    return scatter


def _gather_rows(rows: Float[Tensor, "k d"]) -> list[Tensor]:
    """Every rank's rows, of which there may be different numbers, in rank order."""
    counts = [0] * world_size()
    dist.all_gather_object(counts, len(rows))
    padded = rows.new_zeros(max(counts), rows.shape[1])
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(gathered, padded)
    return [part[:count] for part, count in zip(gathered, counts, strict=True)]
