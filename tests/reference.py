"""Dense, slow and obviously right: what the package must agree with, written out in float64 and without it.

Images are rows (n, d) here. uint8 pixels are p/127.5 − 1, rounded to the dtype that is asked for.
"""

import numpy as np
import torch
from scipy.integrate import solve_ivp


def as_rows(images, dtype=torch.float64):
    """Images of any dtype as float64 rows; uint8 ones by way of `dtype`."""
    if images.dtype == torch.uint8:
        images = images.to(dtype) / 127.5 - 1
    return images.flatten(1).double()


def mean_and_covariance(rows):
    """μ and Σ = (1/N) Σ_i (x_i − μ)(x_i − μ)ᵀ, image by image."""
    mean = rows.sum(0) / len(rows)
    covariance = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    for row in rows:
        covariance += torch.outer(row - mean, row - mean)
    return mean, covariance / len(rows)


def truncated_covariance(covariance, rank):
    """The leading `rank` components of Σ, and the mean of its other eigenvalues in all other directions."""
    eigvals, eigvecs = torch.linalg.eigh(covariance)
    kept = eigvecs[:, -rank:]
    floor = (covariance.trace() - eigvals[-rank:].sum()) / (len(covariance) - rank)
    return (kept * eigvals[-rank:]) @ kept.T + floor * (torch.eye(len(covariance)).double() - kept @ kept.T)


def wiener(x, sigma, mean, covariance):
    """μ + Σ (Σ + σ²I)⁻¹ (x − μ) for rows x, by a solve."""
    noisy = covariance + sigma**2 * torch.eye(len(mean), dtype=torch.float64)
    return mean + (covariance @ torch.linalg.solve(noisy, (x - mean).T)).T


def integrate_flow(denoise, x, sigma_from, sigma_to):
    """dx/dσ = (x − D(x; σ))/σ from one noise level to another for rows x, by an adaptive method of order 8."""

    def slope(sigma, state):
        rows = torch.from_numpy(state).reshape(x.shape)
        return ((rows - denoise(rows, float(sigma))) / sigma).flatten().numpy()

    solution = solve_ivp(slope, (sigma_from, sigma_to), x.flatten().numpy(), "DOP853", rtol=1e-12, atol=1e-12)
    assert solution.success
    return torch.from_numpy(solution.y[:, -1]).reshape(x.shape)


def multi_delta(x, rows, sigma):
    """Posterior means and weights over `rows` for queries x, one after the other.

    A logit ‖x − y‖²/2σ² reaches 1e9 at σ = 1e-3, where float64 has 7 decimal places left: distances are added up in
    extended precision where the machine has it.
    """
    means, weights = [], []
    images = rows.numpy().astype(np.longdouble)
    for query in x.double().numpy().astype(np.longdouble):
        logits = -((query - images) ** 2).sum(1) / (2 * np.longdouble(sigma) ** 2)
        weight = np.exp(logits - logits.max())
        weight /= weight.sum()
        weights.append(weight.astype(np.float64))
        means.append((weight[:, None] * images).sum(0).astype(np.float64))
    return torch.from_numpy(np.stack(means)), torch.from_numpy(np.stack(weights))
