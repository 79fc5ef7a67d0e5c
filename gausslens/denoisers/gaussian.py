"""The Gaussian denoiser: the posterior mean for x0 ~ N(μ, Σ), the Wiener filter, and its exact probability flow.

With Σ = U diag(λ) Uᵀ + λ̄ (I − U Uᵀ), U of r orthonormal columns and λ̄ the floor, each principal coordinate moves on its own:

    D(x; σ) = μ + U diag(λ/(λ+σ²)) Uᵀ(x−μ) + λ̄/(λ̄+σ²) (I − U Uᵀ)(x−μ)                       Eq. (6) of arXiv:2410.24060
    x(σ') = μ + U diag(√((λ+σ'²)/(λ+σ²))) Uᵀ(x−μ) + √((λ̄+σ'²)/(λ̄+σ²)) (I − U Uᵀ)(x−μ)       Eq. (7)

Nothing is inverted and nothing d×d is formed: both cost O(d r) an image.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Float, Images, Sigma
from ..errors import ConfigError
from ..precision import float32_products
from .composite import PerClassDenoiser
from .moments import Moments
from .protocol import check_input, expand_sigma


class GaussianDenoiser(nn.Module):
    """The Wiener filter of given moments, the best linear fit of *any* exact posterior mean on its own noisy data.

    Claims about a network therefore need held-out inputs, see docs/theory.md. Arithmetic is in the dtype of the buffers,
    float64 unless moved with `.to()` or `.float()`; the result has x's dtype.

    Args:
        moments: mean and spectrum, from `Moments.fit`.

    >>> import torch
    >>> images = torch.rand(50, 1, 4, 4).double() * 2 - 1
    >>> denoiser = GaussianDenoiser(Moments.fit(images))
    >>> x = torch.randn(2, 1, 4, 4).double() * 80
    >>> there_and_back = denoiser.flow(denoiser.flow(x, 80.0, 0.5), 0.5, 80.0)
    >>> torch.allclose(there_and_back, x)
    True
    """

    mean: Tensor
    eigvals: Tensor
    eigvecs: Tensor
    floor: Tensor

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self.shape = moments.shape
        for name in ("mean", "eigvals", "eigvecs"):
            self.register_buffer(name, getattr(moments, name).clone())
        self.register_buffer("floor", moments.mean.new_tensor(moments.floor))

    @classmethod
    def per_class(cls, images: Images, labels: Any, **options: Any) -> PerClassDenoiser:
        """One Gaussian denoiser per class, called as D(x, σ, labels).

        Args:
            images: any source of images.
            labels: one integer per image, (n,).
            **options: passed to `Moments.fit`.
        """
        return PerClassDenoiser({label: cls(m) for label, m in Moments.per_class(images, labels, **options).items()})

    def forward(self, x: Tensor, sigma: Sigma) -> Tensor:
        """The posterior mean, Eq. (6), of noisy images (b, *shape), in x's dtype; see `Denoiser`."""
        check_input(x, self.shape)
        variance = expand_sigma(sigma, x).to(self.mean.dtype)[:, None] ** 2
        return self._scale_modes(x, lambda lam: lam / (lam + variance))

    def flow(self, x: Tensor, sigma_from: Sigma, sigma_to: Sigma) -> Tensor:
        """The exact solution of the probability-flow ODE of this Gaussian, Eq. (7), up or down in noise.

        Args:
            x: noisy images at `sigma_from`, (b, *shape).
            sigma_from: the noise level of x, above 0.
            sigma_to: the noise level wanted, 0 or above.

        Returns:
            The images at `sigma_to`, (b, *shape), in x's dtype.

        Raises:
            ConfigError: if a noise level is out of its range.
        """
        check_input(x, self.shape)
        start = expand_sigma(sigma_from, x).to(self.mean.dtype)[:, None] ** 2
        end = torch.as_tensor(sigma_to, dtype=self.mean.dtype, device=x.device)
        if not bool(((end >= 0) & end.isfinite()).all()) or end.shape not in ((), (1,), (len(x),)):
            raise ConfigError(
                f"sigma_to must be 0 or above and finite, one number or one per image ({len(x)}); got {sigma_to!r}."
            )
        end = end.reshape(-1, 1) ** 2
        return self._scale_modes(x, lambda lam: ((lam + end) / (lam + start)).sqrt())

    @property
    def basis(self) -> Float[Tensor, "d d"]:
        """Eigenvectors of W at every σ, by descending gain: U, and any directions outside its span after them."""
        if self.eigvecs.shape[1] == len(self.eigvecs):
            return self.eigvecs
        outside = torch.linalg.qr(self.eigvecs, mode="complete").Q[:, self.eigvecs.shape[1] :]
        return torch.cat([self.eigvecs, outside], 1)

    def weight(self, sigma: float) -> Float[Tensor, "d d"]:
        """The matrix W of D(x; σ) = Wx + b."""
        gains, floor_gain = self.gains(sigma)
        weight = (self.eigvecs * (gains - floor_gain)) @ self.eigvecs.T
        weight.diagonal().add_(floor_gain)
        return weight

    def bias(self, sigma: float) -> Float[Tensor, "d"]:
        """The vector b = (I − W)μ of D(x; σ) = Wx + b."""
        gains, floor_gain = self.gains(sigma)
        coordinates = self.eigvecs.T @ self.mean
        return (1 - floor_gain) * self.mean - self.eigvecs @ ((gains - floor_gain) * coordinates)

    def gains(self, sigma: float) -> tuple[Float[Tensor, "r"], Float[Tensor, ""]]:
        """The factors λ/(λ+σ²) on the principal components, and λ̄/(λ̄+σ²) on everything else."""
        variance = expand_sigma(sigma, self.mean[None])[0] ** 2
        return self.eigvals / (self.eigvals + variance), self.floor / (self.floor + variance)

    def _scale_modes(self, x: Tensor, factor: Callable[[Tensor], Tensor]) -> Tensor:
        """μ + U diag(f(λ)) Uᵀ(x−μ) + f(λ̄) (I − U Uᵀ)(x−μ) for a factor f."""
        inside, outside = factor(self.eigvals), factor(self.floor)
        centred = x.flatten(1).to(self.mean.dtype) - self.mean
        with float32_products(x.device):
            coordinates = centred @ self.eigvecs
            if coordinates.shape == centred.shape:  # there is no outside, and a large factor on it would cost digits
                moved = (inside * coordinates) @ self.eigvecs.T
            else:
                moved = outside * centred + ((inside - outside) * coordinates) @ self.eigvecs.T
        return (self.mean + moved).to(x.dtype).reshape(x.shape)
