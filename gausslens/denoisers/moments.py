"""The mean and spectrum of a set of images, Σ = U diag(λ) Uᵀ with divisor 1/N, which define a Gaussian denoiser.

Everything is accumulated in float64 (see `scatter`). Keeping only r components loses no variance: what is discarded is
spread evenly over the other d − r directions as `floor` = (tr Σ − Σ_{k≤r} λ_k)/(d − r), which makes the model a
probabilistic PCA. When nothing is discarded the floor is exactly zero.
"""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._typing import Float, Images
from ..atomic_files import load_tensors, save_tensors
from ..errors import CheckpointError, DataError, require, reraise_as
from ..images import Bounds, by_class, iterate
from .scatter import Scatter, share_between_ranks, sum_over_ranks

_KIND = "gausslens.moments"
# Passes over the data that sharpen a sketch; each divides the error of component k by about (λ_k/λ_dropped)².
_REFINEMENTS = 2


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and spectrum of a set of images, in float64.

    Make one with `Moments.fit`.

    Attributes:
        mean: the mean image μ as a vector, (d,).
        eigvals: eigenvalues of Σ, descending, (r,).
        eigvecs: the matching orthonormal principal components, (d, r).
        floor: the variance of each direction outside `eigvecs`; 0 when nothing was discarded.
        count: the number of images N.
        shape: the shape of one image, for example (3, 32, 32).
        truncated: whether `rank` discarded components that carry variance.
    """

    mean: Float[Tensor, "d"]
    eigvals: Float[Tensor, "r"]
    eigvecs: Float[Tensor, "d r"]
    floor: float
    count: int
    shape: tuple[int, ...]
    truncated: bool = False

    @property
    def dim(self) -> int:
        """The dimension d of one image."""
        return self.mean.numel()

    @property
    def trace(self) -> float:
        """The total variance tr Σ."""
        return float(self.eigvals.sum()) + self.floor * (self.dim - len(self.eigvals))

    def __repr__(self) -> str:
        return (
            f"Moments(count={self.count}, shape={self.shape}, rank={len(self.eigvals)} of {self.dim}, "
            f"trace={self.trace:.4g}, floor={self.floor:.3g})"
        )

    @classmethod
    def fit(
        cls,
        images: Images,
        *,
        rank: int | None = None,
        device: torch.device | str | None = None,
        bounds: Bounds = (-1.0, 1.0),
        across_ranks: bool = True,
    ) -> "Moments":
        """Mean and spectrum of images in one pass.

        Fewer images than dimensions go through the N×N Gram matrix. With `rank` and d above 4096, nothing of size d×d is
        formed: up to about 4096 images are exact, as long as those of a stream fit in 2 GiB; more are compressed to a
        sketch, which further passes over the data sharpen if the source can be read again. A one-shot iterator is read once.

        Under an initialised `torch.distributed`, every rank calls this with its own shard, and all get the moments of the
        union, unless `across_ranks` is False.

        Args:
            images: a tensor, an array, a dataset or an iterable of batches.
            rank: number of principal components to keep, at most min(N, d), of which only those that carry variance are
                kept; None keeps all of these.
            device: where to accumulate; None is where the images are.
            bounds: admissible float values; None for other units.
            across_ranks: whether all ranks take part; if not, only the caller's images count, without waiting for others.

        Returns:
            The moments, on `device`.

        Raises:
            DataError: if the images are unusable, on any rank.
            ConfigError: if `rank` is below 1 or above min(N, d).

        >>> import torch
        >>> a, b = torch.rand(2, 30, 1, 4, 4).mul(2).sub(1).double()
        >>> together = Moments.fit(torch.cat([a, b]))
        >>> merged = Moments.fit(a).merge(Moments.fit(b))
        >>> torch.allclose(together.eigvals, merged.eigvals)
        True
        """
        require(rank is None or rank >= 1, f"rank must be at least 1; got {rank}. Pass None to keep every component.")
        copy = not isinstance(images, Tensor | np.ndarray)  # a loader may hand out one buffer again and again
        scatter, failure = None, None
        try:
            for batch in iterate(images, bounds=bounds):
                if scatter is None:
                    scatter = Scatter(tuple(batch.shape[1:]), rank=rank, device=device or batch.device, copy=copy)
                scatter.update(batch)
        except DataError as error:
            failure = error
        scatter = share_between_ranks(scatter, failure, across_ranks=across_ranks)
        require(
            rank is None or rank <= min(scatter.n_seen, scatter.dim),
            f"rank must be at most min(N, d) = min({scatter.n_seen}, {scatter.dim}); got {rank}. Lower it, or pass None.",
        )
        eigvals, eigvecs, trace = scatter.spectrum()
        is_one_shot = hasattr(images, "__next__")
        if scatter.sketched and not is_one_shot:
            eigvals, eigvecs = _refine(images, bounds, scatter, eigvecs, across_ranks=across_ranks)
        return cls._from_spectrum(scatter, eigvals, eigvecs, trace, rank)

    @classmethod
    def per_class(cls, images: Images, labels: Any, **options: Any) -> dict[int, "Moments"]:
        """The moments of each class by its label, in ascending order.

        Args:
            images: any source of images.
            labels: one integer per image, (n,).
            **options: passed to `fit`; a `rank` is lowered for classes of fewer images.
        """
        rank = options.pop("rank", None)
        return {
            label: cls.fit(own, rank=None if rank is None else min(rank, len(own)), **options)
            for label, own in by_class(images, labels, options.get("bounds", (-1.0, 1.0)))
        }

    def merge(self, other: "Moments") -> "Moments":
        """The moments of the union of two disjoint sets, by Chan's formula.

        N Σ = N_a Σ_a + N_b Σ_b + (N_a N_b / N) δδᵀ with δ = μ_b − μ_a.

        Raises:
            ConfigError: if one of them is rank-truncated, or the shapes differ.
        """
        require(
            self.shape == other.shape,
            f"only moments of one image shape can be merged; got {self.shape} and {other.shape}.",
        )
        require(
            not (self.truncated or other.truncated),
            "rank-truncated moments cannot be merged: the discarded directions are lost. "
            "Fit with rank=None, merge, or fit the union with rank=r.",
        )
        scatter = self._scatter()
        scatter.merge(other._scatter())
        return self._from_spectrum(scatter, *scatter.spectrum())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a safetensors file, atomically."""
        tensors = {"mean": self.mean, "eigvals": self.eigvals, "eigvecs": self.eigvecs}
        save_tensors(
            path, tensors, kind=_KIND, floor=self.floor, count=self.count, shape=self.shape, truncated=self.truncated
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Moments":
        """Read what `save` wrote, on the CPU.

        Raises:
            CheckpointError: if the file is missing, truncated or of another kind.
        """
        tensors, metadata = load_tensors(path, kind=_KIND)
        what, errors = f"{path} does not hold moments this version can read", (KeyError, TypeError)
        with reraise_as(CheckpointError, what, "Fit and save again.", errors):
            fields: dict[str, Any] = {**tensors, **metadata, "shape": tuple(metadata["shape"])}
            return cls(**fields)

    def _scatter(self) -> Scatter:
        """These moments as an accumulator: N Σ = FᵀF with F = √N diag(√λ) Uᵀ."""
        scatter = Scatter(self.shape, device=self.mean.device)
        scatter.count, scatter.mean = self.count, self.mean
        scatter.factor = (self.eigvecs * (self.count * self.eigvals).sqrt()).T
        return scatter

    @classmethod
    def _from_spectrum(
        cls,
        scatter: Scatter,
        eigvals: Float[Tensor, "k"],
        eigvecs: Float[Tensor, "d k"],
        trace: float,
        rank: int | None = None,
    ) -> "Moments":
        kept = len(eigvals) if rank is None else min(rank, len(eigvals))
        if kept < len(eigvals):
            eigvals, eigvecs = eigvals[:kept].clone(), eigvecs[:, :kept].clone()  # copies, so that the rest is freed
        discarded = trace - float(eigvals.sum())
        # Rounding leaves a remainder of about 1e-16 of the trace where nothing was discarded: that is no floor.
        truncated = kept < scatter.dim and rank is not None and discarded > 1e-12 * trace
        return cls(
            mean=scatter.mean,
            eigvals=eigvals,
            eigvecs=eigvecs,
            floor=discarded / (scatter.dim - kept) if truncated else 0.0,
            count=scatter.count,
            shape=scatter.shape,
            truncated=truncated,
        )


def _refine(
    images: Images, bounds: Bounds, scatter: Scatter, basis: Float[Tensor, "d k"], *, across_ranks: bool
) -> tuple[Float[Tensor, "k"], Float[Tensor, "d k"]]:
    """Subspace iteration from a sketched basis Q ← qr(ΣQ), then the spectrum of QᵀΣQ; a pass over the data each."""
    for remaining in reversed(range(_REFINEMENTS + 1)):
        product, n_seen = torch.zeros_like(basis), torch.zeros((), dtype=torch.long, device=basis.device)
        for batch in iterate(images, bounds=bounds, batch_size=256):
            rows = scatter.centre(batch)
            product.addmm_(rows.T, rows @ basis)
            n_seen += len(batch)
        if across_ranks:
            n_seen, product = sum_over_ranks(n_seen), sum_over_ranks(product)
        require(
            int(n_seen) == scatter.count,
            f"images gave {scatter.count} images when first read and {int(n_seen)} when read again to sharpen the "
            "spectrum. Pass iter(images) to have them read only once.",
            DataError,
        )
        product /= scatter.count
        if remaining:
            basis, _ = torch.linalg.qr(product)
    projected = basis.T @ product
    eigvals, rotation = torch.linalg.eigh((projected + projected.T) / 2)
    return eigvals.flip(0).clamp_min(0), basis @ rotation.flip(1)
