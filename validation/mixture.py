"""An analytic denoiser that is neither Gaussian nor a look-up table: a mixture of low-rank Gaussians fitted to images.

Model: x0 ~ Σ_k π_k N(μ_k, U_k diag(λ_k) U_kᵀ + λ̄_k (I − U_k U_kᵀ)). With u_k = U_kᵀ(x − μ_k) and v = σ²,

    log N(x; k) = −½ [ (‖x−μ_k‖² − ‖u_k‖²)/(λ̄_k+v) + Σ u_k²/(λ_k+v) + Σ log(λ_k+v) + (d−r) log(λ̄_k+v) ]
    D(x; σ) = Σ_k r_k [ μ_k + λ̄_k/(λ̄_k+v) (x−μ_k) + U_k (λ_k/(λ_k+v) − λ̄_k/(λ̄_k+v)) u_k ],  r = softmax(log π + log N)

Two matrix products a call. Fitted by bisection along principal components and a probabilistic PCA of each part.
"""

import torch
from torch import Tensor, nn


class MixtureDenoiser(nn.Module):
    """The exact posterior mean of a mixture of low-rank Gaussians."""

    def __init__(self, images: Tensor, n_components: int = 64, rank: int = 32) -> None:
        super().__init__()
        self.rank = rank
        rows = images.flatten(1).float()
        assignment = _bisect(rows, n_components)
        means, bases, eigvals, floors, shares = [], [], [], [], []
        for k in range(n_components):
            own = rows[assignment == k].double()
            mean = own.mean(0)
            _, s, v = torch.linalg.svd(own - mean, full_matrices=False)
            variances = s.square() / len(own)
            means.append(mean)
            bases.append(v[:rank].T)
            eigvals.append(variances[:rank])
            floors.append((variances.sum() - variances[:rank].sum()) / (rows.shape[1] - rank))
            shares.append(len(own) / len(rows))
        self.register_buffer("means", torch.stack(means).float())  # (k, d)
        self.register_buffer("basis", torch.cat(bases, 1).float())  # (d, k·r)
        self.register_buffer("eigvals", torch.stack(eigvals).float())  # (k, r)
        self.register_buffer("floors", torch.stack(floors).float())  # (k,)
        self.register_buffer("log_shares", torch.tensor(shares, device=rows.device).log().float())
        projected = (self.means.double() @ self.basis.double()).reshape(n_components, n_components, rank)
        own_mean = projected[torch.arange(n_components), torch.arange(n_components)]
        self.register_buffer("projected_means", own_mean.float())  # U_kᵀ μ_k, (k, r)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        rows = x.flatten(1)
        v = sigma.reshape(-1, 1) ** 2
        inside = self.eigvals + v[..., None]  # (b, k, r)
        outside = self.floors + v  # (b, k)
        coordinates = (rows @ self.basis).reshape(len(rows), *self.eigvals.shape) - self.projected_means
        distances = rows.square().sum(1, keepdim=True) - 2 * rows @ self.means.T + self.means.square().sum(1)
        squares = coordinates.square()
        log_density = -0.5 * (
            (distances - squares.sum(2)) / outside
            + (squares / inside).sum(2)
            + inside.log().sum(2)
            + (rows.shape[1] - self.rank) * outside.log()
        )
        share = torch.softmax(self.log_shares + log_density, 1)
        floor_gain = self.floors / outside
        extra = share[..., None] * (self.eigvals / inside - floor_gain[..., None]) * coordinates
        denoised = (
            (share * floor_gain).sum(1, keepdim=True) * rows
            + (share * (1 - floor_gain)) @ self.means
            + extra.flatten(1) @ self.basis.T
        )
        return denoised.reshape(x.shape)


def _bisect(rows: Tensor, n_parts: int) -> Tensor:
    """Split in two at the median along the first principal component, again and again: parts of equal size."""
    assignment = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    for level in range(n_parts.bit_length() - 1):
        for part in range(2**level):
            own = (assignment == part).nonzero()[:, 0]
            centred = rows[own] - rows[own].mean(0)
            direction = centred[0]
            for _ in range(20):
                direction = centred.T @ (centred @ direction)
                direction = direction / direction.norm()
            position = centred @ direction
            assignment[own[position > position.median()]] += 2**level
    return assignment
