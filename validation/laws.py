"""Laws of images whose posterior mean is known exactly, and their denoisers.

A law p gives, at x = x0 + σ·eps, the density p_σ of noisy images and the posterior mean D(x; σ) = E[x0 | x]. Both are known
for a mixture of Gaussians and for a discrete law, and follow for what is made of such laws:

    mixture of laws   p = Σ_j c_j p_j           p_σ = Σ_j c_j p_{j,σ},   D = Σ_j r_j D_j,  r_j = c_j p_{j,σ} / p_σ
    product of laws   p(x0) = Π_w p_w(x0[w])    log p_σ = Σ_w log p_{w,σ},   D[w] = D_w

where the windows w part the pixels. A model that copies now and then has the first law (`PartialMemory`), one that puts
images together from parts the second (`Product`). Mixtures of *outputs*, wM + (1 − w)P, are the denoisers of no law.

All arithmetic is in float64, densities in logs and without the factor (2π)^(−d/2), which all have.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, unfold

from gausslens.images import dequantize
from gausslens.noise import generator

_KMEANS_ROUNDS = 25
_SHRINKAGE = 0.2  # of a part's covariance toward that of all parts
_IMAGES_AT_A_TIME = 64
_SHARP = 0.2  # noise level below which rounding of float32 would show in the local machine's weights


class Law(nn.Module, ABC):
    """A law of images of one shape; called as D(x, sigma), it is its posterior mean."""

    shape: tuple[int, ...]

    @abstractmethod
    def posterior(self, rows: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """log p_σ, (b,), and the posterior mean, (b, d), at noisy rows (b, d) with variances σ², (b,), all float64."""

    @abstractmethod
    def draw_rows(self, n: int, random: torch.Generator) -> Tensor:
        """Independent draws, (n, d) float64."""

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.posterior(*_as_rows(x, sigma))[1].to(x.dtype).reshape(x.shape)

    def log_density(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_σ(x), (b,), but for the constant."""
        return self.posterior(*_as_rows(x, sigma))[0]

    def draw(self, n: int, seed: int) -> Tensor:
        """n independent images of the law, float64."""
        return self.draw_rows(n, generator(seed, "law", n)).reshape(n, *self.shape)


class Gaussians(Law):
    """Σ_k c_k N(μ_k, U_k diag(λ_k) U_kᵀ); of one part, a Gaussian.

    Args:
        shares: c_k, (k,).
        means: μ_k, (k, d).
        covariances: (k, d, d).
        shape: of an image.
    """

    def __init__(self, shares: Tensor, means: Tensor, covariances: Tensor, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        eigvals, eigvecs = torch.linalg.eigh(covariances.double())
        self.register_buffer("shares", shares.double() / shares.sum())
        self.register_buffer("means", means.double())
        self.register_buffer("eigvals", eigvals.clamp_min(0))
        self.register_buffer("eigvecs", eigvecs)
        centres = torch.einsum("kd,kde->ke", self.means, eigvecs)
        self.register_buffer("centres", centres, persistent=False)
        # One product with all bases side by side: (d, k·d).
        self.register_buffer("bases", eigvecs.permute(1, 0, 2).flatten(1).contiguous(), persistent=False)

    @classmethod
    def fit(cls, images: Tensor, parts: int = 1, *, ridge: float = 1e-5, seed: int = 0) -> "Gaussians":
        """Moments of images, or of the parts that k-means finds; a part's covariance is shrunk toward that of all.

        Args:
            images: (n, *shape).
            parts: number of Gaussians.
            ridge: variance added to every pixel, so that no image is impossible.
            seed: of the first centres.

        Returns:
            The law.
        """
        rows = dequantize(images, torch.float64).flatten(1)
        assigned = _k_means(rows, parts, seed)
        own = [rows[assigned == part] for part in range(parts)]
        own = [part for part in own if len(part)]
        shares = torch.tensor([len(part) / len(rows) for part in own], dtype=torch.float64)
        covariances = torch.stack([_covariance(part) for part in own])
        within = torch.einsum("k,kde->de", shares, covariances)
        if len(own) > 1:
            covariances = (1 - _SHRINKAGE) * covariances + _SHRINKAGE * within
        covariances.diagonal(dim1=1, dim2=2).add_(ridge)
        return cls(shares, torch.stack([part.mean(0) for part in own]), covariances, images.shape[1:])

    def posterior(self, rows: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        n_parts, dim = self.means.shape
        coordinates = (rows @ self.bases).reshape(len(rows), n_parts, dim) - self.centres
        total = self.eigvals + variance[:, None, None]
        log_parts = self.shares.log() - 0.5 * (coordinates.square() / total + total.log()).sum(2)
        log_density = log_parts.logsumexp(1)
        share = (log_parts - log_density[:, None]).exp()
        moved = (share[..., None] * (self.eigvals / total) * coordinates).flatten(1) @ self.bases.T
        return log_density, share @ self.means + moved

    def draw_rows(self, n: int, random: torch.Generator) -> Tensor:
        return self.draw_parts(n, random)[0]

    def draw_parts(self, n: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws (n, d), and of which part each is, (n,)."""
        part = torch.multinomial(self.shares, n, replacement=True, generator=random)
        z = torch.randn(n, self.means.shape[1], generator=random, dtype=torch.float64)
        rows = torch.empty_like(z)
        for k in part.unique().tolist():
            here = part == k
            rows[here] = self.means[k] + (z[here] * self.eigvals[k].sqrt()) @ self.eigvecs[k].T
        return rows, part

    def restricted(self, pixels: Tensor) -> "Gaussians":
        """The law of some pixels of such an image, by their places in a row."""
        covariances = torch.einsum("kde,ke,kfe->kdf", self.eigvecs, self.eigvals, self.eigvecs)
        return Gaussians(self.shares, self.means[:, pixels], covariances[:, pixels][:, :, pixels], (len(pixels),))


class Deltas(Law):
    """Some images, drawn with repeats: D = Σ w_i x_i with w = softmax(log c_i − ‖x − x_i‖²/2σ²).

    Args:
        images: (n, *shape), uint8 or float.
        shares: c_i, (n,); None if all are equal.
    """

    def __init__(self, images: Tensor, shares: Tensor | None = None) -> None:
        super().__init__()
        self.shape = tuple(images.shape[1:])
        rows = dequantize(images, torch.float64).flatten(1)
        shares = torch.ones(len(rows)) if shares is None else shares
        self.register_buffer("rows", rows)
        self.register_buffer("shares", shares.double() / shares.sum())
        self.register_buffer("half_squares", rows.square().sum(1) / 2, persistent=False)

    def posterior(self, rows: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        squares = rows.square().sum(1, keepdim=True) / 2
        half_distances = (torch.addmm(self.half_squares, rows, self.rows.T, alpha=-1) + squares).clamp_min(0)
        log_weights = self.shares.log() - half_distances / variance[:, None]
        log_sum = log_weights.logsumexp(1)
        mean = (log_weights - log_sum[:, None]).exp() @ self.rows
        return log_sum - rows.shape[1] / 2 * variance.log(), mean

    def draw_rows(self, n: int, random: torch.Generator) -> Tensor:
        return self.rows[torch.multinomial(self.shares, n, replacement=True, generator=random)]


class PartialMemory(Law):
    """(1 − share)·P + (share/m) Σ δ(x_i): of all images that come out, this share are copies.

    D(x; σ) = r D_P(x; σ) + (1 − r) Σ w_i x_i with r = (1 − share) p_{P,σ} / p_σ.

    Args:
        general: P.
        images: those memorised, (m, *shape); one that stands twice is drawn twice as often.
        share: of copies, from 0 to 1.
    """

    def __init__(self, general: Law, images: Tensor, share: float) -> None:
        super().__init__()
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1; got {share}.")
        self.shape = general.shape
        self.general, self.memory, self.share = general, Deltas(images), share

    def posterior(self, rows: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        if self.share in (0, 1):
            return (self.memory if self.share else self.general).posterior(rows, variance)
        general, new = self.general.posterior(rows, variance)
        memory, old = self.memory.posterior(rows, variance)
        general, memory = general + math.log1p(-self.share), memory + math.log(self.share)
        remembered = torch.sigmoid(memory - general)[:, None]
        return torch.logaddexp(general, memory), new.lerp(old, remembered)

    def draw_rows(self, n: int, random: torch.Generator) -> Tensor:
        copied = torch.rand(n, generator=random, dtype=torch.float64) < self.share
        rows = self.general.draw_rows(n, random)
        rows[copied] = self.memory.draw_rows(int(copied.sum()), random) if bool(copied.any()) else rows[copied]
        return rows


class Product(Law):
    """Windows of an image, each drawn by itself.

    Args:
        shape: of an image.
        windows: the places of each window's pixels in a row; together, every pixel once.
        laws: of each window, of shape (pixels,).
    """

    def __init__(self, shape: Sequence[int], windows: Sequence[Tensor], laws: Sequence[Law]) -> None:
        super().__init__()
        places = torch.cat(list(windows))
        if not torch.equal(places.sort().values, torch.arange(math.prod(shape))):
            raise ValueError("windows must hold every pixel once.")
        self.shape, self.laws = tuple(shape), nn.ModuleList(laws)
        self.register_buffer("back", places.argsort(), persistent=False)
        self.sizes = [len(window) for window in windows]
        self.register_buffer("places", places, persistent=False)

    def posterior(self, rows: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        parts = rows[:, self.places].split(self.sizes, 1)
        found = [law.posterior(part, variance) for law, part in zip(self.laws, parts, strict=True)]
        return sum(log for log, _ in found), torch.cat([mean for _, mean in found], 1)[:, self.back]

    def draw_rows(self, n: int, random: torch.Generator) -> Tensor:
        return torch.cat([law.draw_rows(n, random) for law in self.laws], 1)[:, self.back]


class LocalMachine(nn.Module):
    """Each pixel's posterior mean given its own window alone: over the training images' windows at the same place.

    D(x; σ)[p] = Σ_i w_i(p) x_i[p] with w(p) = softmax_i(−‖x[N(p)] − x_i[N(p)]‖²/2σ²), N(p) the window around p, cut at the
    border. It puts training patches together into new images: no law of images has this denoiser.

    Args:
        images: the training images, (n, c, h, w).
        window: pixels on a side, odd.
    """

    def __init__(self, images: Tensor, window: int) -> None:
        super().__init__()
        if window % 2 == 0:
            raise ValueError(f"window must be odd; got {window}.")
        self.shape, self.window = tuple(images.shape[1:]), window
        pixels = dequantize(images, torch.float64)
        patches = self._patches(pixels)  # (p, n, c·k²)
        self.register_buffer("patches", patches)
        self.register_buffer("half_squares", patches.square().sum(2)[:, None] / 2, persistent=False)
        self.register_buffer("values", pixels.flatten(2).permute(2, 0, 1).float().contiguous())  # (p, n, c)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        levels = torch.as_tensor(sigma, dtype=torch.float64).expand(len(x))
        few = zip(x.split(_IMAGES_AT_A_TIME), levels.split(_IMAGES_AT_A_TIME), strict=True)
        return torch.cat([self._answer(*some) for some in few])

    def _answer(self, x: Tensor, sigma: Tensor) -> Tensor:
        # Squares that all training images share fall out of the softmax.
        dtype = torch.float64 if float(sigma.min()) < _SHARP else torch.float32
        own = self._patches(x.to(dtype))
        logits = torch.baddbmm(-self.half_squares.to(dtype), own, self.patches.to(dtype).transpose(1, 2))
        logits -= logits.amax(2, keepdim=True)
        logits /= sigma[:, None].to(dtype) ** 2
        weights = torch.softmax(logits.float(), 2)
        return (weights @ self.values).permute(1, 2, 0).reshape(x.shape).to(x.dtype)

    def _patches(self, x: Tensor) -> Tensor:
        """Windows around all pixels, zero beyond the border on either side, (p, b, c·k²)."""
        around = self.window // 2
        return unfold(pad(x, (around,) * 4), self.window).permute(2, 0, 1).contiguous()


def _as_rows(x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    return x.flatten(1).double(), torch.as_tensor(sigma, dtype=torch.float64, device=x.device).expand(len(x)) ** 2


def _covariance(rows: Tensor) -> Tensor:
    centred = rows - rows.mean(0)
    return centred.T @ centred / len(rows)


def _k_means(rows: Tensor, parts: int, seed: int) -> Tensor:
    """Of which part each row is, (n,)."""
    if parts == 1:
        return torch.zeros(len(rows), dtype=torch.long)
    centres = rows[torch.randperm(len(rows), generator=generator(seed, "law parts"))[:parts]]
    for _ in range(_KMEANS_ROUNDS):
        assigned = torch.cdist(rows, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, assigned, rows)
        counts = assigned.bincount(minlength=parts)[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return assigned
