"""The stationary Gaussian denoiser: the Wiener filter of images' mean colour and power spectrum, and of nothing else.

Model: x0 ~ N(μ, Σ) with one mean a channel, and a covariance of two pixels that depends only on their channels and on the
vector between them, as if opposite edges touched. The unitary Fourier transform F over pixels reduces Σ to one Hermitian
c×c matrix for each frequency k:

    S(k) = mean over images of f f*,  f = (F(x0 − μ))(k)            D(x; σ) = μ + F* S (S + σ²)⁻¹ F(x − μ)
"""

import torch
from torch import Tensor, nn

from .._typing import Float, Images, Sigma
from ..images import dequantize, gather
from .protocol import check_input, expand_sigma

_IMAGES_AT_A_TIME = 1024


class StationaryDenoiser(nn.Module):
    """The Wiener filter of a set of images' mean colour and power spectrum.

    It is the same at every place, so it ignores, for example, that faces are in the middle. A few images determine it,
    since each has many pairs of pixels at every distance. Arithmetic is in the dtype of the buffers, float64 unless moved
    with `.to()`; the result has x's dtype.

    >>> import torch
    >>> images = torch.rand(50, 1, 4, 4).double() * 2 - 1
    >>> denoiser = StationaryDenoiser(images)
    >>> x = torch.randn(2, 1, 4, 4).double()
    >>> moved = denoiser(x.roll((1, 2), (2, 3)), 0.5)
    >>> torch.allclose(moved, denoiser(x, 0.5).roll((1, 2), (2, 3)))
    True
    """

    mean: Tensor
    eigvals: Tensor
    eigvecs: Tensor

    def __init__(self, images: Images) -> None:
        super().__init__()
        pixels = gather(images)
        self.shape = tuple(pixels.shape[1:])
        parts = pixels.split(_IMAGES_AT_A_TIME)
        count, places = len(pixels), pixels[0, 0].numel()
        mean = sum((dequantize(part, torch.float64).sum((0, 2, 3)) for part in parts), torch.zeros(())) / count / places
        spectrum = torch.zeros(())
        for part in parts:
            waves = _to_waves(dequantize(part, torch.float64) - mean[:, None, None])
            spectrum = spectrum + torch.einsum("nchw,ndhw->hwcd", waves, waves.conj()) / count
        eigvals, eigvecs = torch.linalg.eigh(spectrum)
        self.register_buffer("mean", mean)
        self.register_buffer("eigvals", eigvals.clamp_min(0))
        self.register_buffer("eigvecs", torch.view_as_real(eigvecs))  # `.to(dtype)` would drop imaginary parts

    def forward(self, x: Float[Tensor, "b c h w"], sigma: Sigma) -> Float[Tensor, "b c h w"]:
        """The posterior mean of noisy images (b, *shape), in x's dtype; see `Denoiser`."""
        check_input(x, self.shape)
        variance = expand_sigma(sigma, x).to(self.mean.dtype)[:, None, None, None] ** 2
        mean, eigvecs = self.mean[:, None, None], torch.view_as_complex(self.eigvecs)
        modes = torch.einsum("hwcm,bchw->bhwm", eigvecs.conj(), _to_waves(x.to(self.mean.dtype) - mean))
        waves = torch.einsum("hwcm,bhwm->bchw", eigvecs, modes * (self.eigvals / (self.eigvals + variance)))
        denoised: Tensor = torch.fft.irfft2(waves, s=self.shape[1:], norm="ortho") + mean
        return denoised.to(x.dtype)


def _to_waves(x: Tensor) -> Tensor:
    waves: Tensor = torch.fft.rfft2(x, norm="ortho")
    return waves
