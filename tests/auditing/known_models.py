"""Models of which it is known how far they copy."""

import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser


class GaussianLaw:
    """Images of a known Gaussian law, and its exact posterior mean."""

    def __init__(self, dim=36, seed=0):
        random = torch.Generator().manual_seed(seed)
        self.basis = torch.linalg.qr(torch.randn(dim, dim, generator=random, dtype=torch.float64))[0]
        self.eigvals = 0.4 * (torch.arange(dim, dtype=torch.float64) + 1) ** -1.2
        self.mean = 0.2 * torch.randn(dim, generator=random, dtype=torch.float64)

    def draw(self, n, seed):
        z = torch.randn(n, len(self.mean), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (self.mean + (z * self.eigvals.sqrt()) @ self.basis.T).reshape(n, 1, 6, 6)

    def __call__(self, x, sigma):
        gains = self.eigvals / (self.eigvals + sigma.double()[:, None] ** 2)
        moved = ((x.flatten(1).double() - self.mean) @ self.basis * gains) @ self.basis.T
        return (self.mean + moved).reshape(x.shape).to(x.dtype)


def references(train):
    return {
        "gaussian": GaussianDenoiser(Moments.fit(train, bounds=None)),
        "multidelta": MultiDeltaDenoiser(train, bounds=None),
    }


def mixed(first, second, weight):
    return lambda x, sigma: weight * first(x, sigma) + (1 - weight) * second(x, sigma)


def smooth_images(n, seed):
    """Smooth 6×6 images: five patterns with random weights, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 6), indexing="ij")
    patterns = torch.stack([x, y, x * y, x**2, y**2])
    weights = torch.randn(n, 5, generator=generator) * torch.tensor([0.4, 0.4, 0.3, 0.2, 0.2])
    rough = 0.05 * torch.randn(n, 1, 6, 6, generator=generator)
    return (torch.einsum("nk,kij->nij", weights, patterns)[:, None] + rough).clamp(-1, 1)
