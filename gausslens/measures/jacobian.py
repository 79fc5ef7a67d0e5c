"""The leading singular triplets of a denoiser's Jacobian at given noisy images, Appendix H of arXiv:2410.24060.

At one noisy image x the denoiser is locally affine, D(x + δ; σ) = D(x; σ) + J δ + O(‖δ‖²). The singular values of
J = ∇D(x; σ) = U S Vᵀ say which changes of the image it keeps (near 1) and which it removes (near 0). J is d × d and is
formed on request only: products J V come from forward-mode and Jᵀ U from backward-mode differentiation, with one copy of
x per column, since a denoiser treats the items of a batch independently. Products are computed in the denoiser's dtype, all
other algebra in float64.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from .._typing import Float, Images
from ..denoisers.protocol import Denoiser, call, check_input, eval_mode, expand_sigma, in_batches, placement
from ..errors import ConfigError, require, reraise_as
from ..images import check_labels, gather, require_finite
from ..noise import draw_noise
from ..progress import track

_OVERSAMPLING = 10  # extra columns beyond k: the k-th triplet converges as fast as its gap to the (k + 10)-th allows
_BASIS_BLOCKS = 12  # the Krylov basis is compressed to its best block beyond this many blocks, to bound memory

Triplets: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""U (d, k), s (k,), V (d, k) and the relative residuals (k,)."""


@dataclass(frozen=True, eq=False)
class JacobianSpectrum:
    """Leading singular triplets J v = s u of the Jacobian at each input, in float64.

    The sign of a pair (u, v) is arbitrary; here the largest entry of u is positive.

    Attributes:
        singular_values: (b, k), descending.
        left: left singular vectors u, orthonormal columns, (b, d, k) with d = c·h·w.
        right: right singular vectors v, orthonormal columns, (b, d, k).
        residual: ‖J v − s u‖ / s₁, (b, k); Jᵀ u = s v holds by construction. A singular value is within
            residual · s₁ of a true one. The error of its vectors is about residual · s₁ / (gap to the others).
    """

    singular_values: Tensor
    left: Tensor
    right: Tensor
    residual: Tensor


def jacobian_spectrum(
    denoiser: Denoiser,
    x: Images,
    sigma: float | Tensor,
    k: int = 10,
    *,
    full: bool = False,
    iterations: int = 40,
    tolerance: float | None = None,
    seed: int = 0,
    labels: Images | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> JacobianSpectrum:
    """The k largest singular values of ∇D(x; σ) and their vectors, for each noisy image x separately.

    A block Krylov method: starting from random probes, each iteration enlarges an orthonormal basis by the residuals
    J v − s u, at k + 10 forward and as many backward products. Slowly falling spectra (low noise) take more iterations; the
    residual shows the error that is left. For the posterior mean, J = Cov(x0 | x)/σ² is symmetric and positive: left and
    right vectors agree. Nearly equal singular values determine a subspace, not vectors: compare subspaces.

    Args:
        denoiser: D(x, sigma), differentiable in x; D(x, sigma, labels) if `labels` are given.
        x: noisy images x0 + σ·eps, (b, c, h, w), of any finite values.
        sigma: the noise level of each image, a number or (b,).
        k: number of singular triplets, 1 … d.
        full: form the d × d Jacobian instead, by d backward products per image; for small d.
        iterations: at most this many iterations per image, at least 1; not used with `full`.
        tolerance: stop when all k residuals ‖J v − s u‖ / s₁ are at most this; None is eps^(2/3) of the dtype the
            denoiser is called in (2e-5 in float32, 4e-11 in float64).
        seed: of the random probes, the same for every image.
        labels: integers (b,), passed to the denoiser third.
        device: where to compute; by default where the denoiser is.
        dtype: in which dtype to call the denoiser; by default its own.
        batch_size: products per call of the denoiser; None is automatic.
        progress: show a progress bar over the images.

    Returns:
        A `JacobianSpectrum` on the denoiser's device.

    Raises:
        ConfigError: if `k`, `iterations` or `tolerance` is out of its range, or D cannot be differentiated.
        DataError: on x or derivatives that are not finite, or labels that do not match.

    Reference: Musco, Musco (2015), arXiv:1504.05477, for randomised block Krylov iteration.

    An elementwise gain has the gains for singular values:

    >>> gain = torch.tensor([0.5, 0.1, 0.9, 0.7]).reshape(1, 1, 2, 2)
    >>> spectrum = jacobian_spectrum(lambda x, sigma: gain * x + 3, torch.randn(1, 1, 2, 2), 2.0, k=3)
    >>> [round(value, 5) for value in spectrum.singular_values[0].tolist()]
    [0.9, 0.7, 0.5]
    """
    images = gather(x, bounds=None, name="x")
    check_input(images, tuple(images.shape[1:]))
    classes = None if labels is None else check_labels(labels, len(images))
    device, dtype = placement(denoiser, images, device, dtype)
    images = images.to(device, dtype)
    levels = expand_sigma(sigma, images)
    dim = images[0].numel()
    require(1 <= k <= dim, f"k must lie in 1 … d = {dim}, the number of pixels of an image; got {k}.")
    require(iterations >= 1, f"iterations must be at least 1; got {iterations}.")
    require(
        tolerance is None or tolerance > 0, f"tolerance must be above 0, or None for the dtype's own; got {tolerance}."
    )
    enough = torch.finfo(dtype).eps ** (2 / 3) if tolerance is None else tolerance
    columns = torch.arange(min(k + _OVERSAMPLING, dim))
    probes = draw_noise(seed, columns, (dim,), stream="probes").T.to(device, torch.float64)

    triplets = []
    with eval_mode(denoiser, gradients=True), sdpa_kernel(SDPBackend.MATH):  # fused attention has no forward mode
        for i in track(range(len(images)), label="Jacobians", enabled=progress):
            jacobian = _Jacobian(denoiser, images[i], levels[i], None if classes is None else classes[i], batch_size)
            found = _dense(jacobian, dim, device) if full else _krylov(jacobian, k, probes, iterations, enough)
            triplets.append(_orient(found, k))
    left, values, right, residual = (torch.stack(parts) for parts in zip(*triplets, strict=True))
    return JacobianSpectrum(singular_values=values, left=left, right=right, residual=residual)


@dataclass
class _Jacobian:
    """J = ∇D(x; σ) at one image as a linear map of flattened images."""

    denoiser: Denoiser
    x: Tensor
    sigma: Tensor
    label: Tensor | None
    batch_size: int | None
    forward_mode: bool = True  # False after an operation of the denoiser turned out to lack it

    def times(self, tangents: Float[Tensor, "d m"]) -> Float[Tensor, "d m"]:
        """J V, by forward mode if possible, else by two backward passes."""
        if self.forward_mode:
            try:
                return self._columnwise(self._push_forward, tangents)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # an error of the denoiser itself is raised again below
                self.forward_mode = False
        return self._columnwise(self._push_by_double_backward, tangents)

    def transposed_times(self, cotangents: Float[Tensor, "d m"]) -> Float[Tensor, "d m"]:
        """Jᵀ U."""
        return self._columnwise(self._pull_back, cotangents)

    def _columnwise(self, product: Callable[[Tensor, Tensor], Tensor], vectors: Tensor) -> Tensor:
        """A product of J with vectors, in batches, each vector with its own copy of x."""
        rows = vectors.T.to(self.x.dtype).reshape(-1, *self.x.shape)
        copies = self.x.expand_as(rows)
        blocks = in_batches(
            lambda start, stop: product(copies[start:stop].clone(), rows[start:stop]), len(rows), self.batch_size
        )
        products = torch.cat(list(blocks)).detach().flatten(1).T.to(torch.float64)
        require_finite(
            products,
            f"the denoiser's derivative at sigma = {float(self.sigma):g}",
            "Check D(x, sigma) at that image, or call it in a wider dtype.",
        )
        return products

    def _denoise(self, copies: Tensor) -> Tensor:
        labels = None if self.label is None else self.label.expand(len(copies))
        return call(self.denoiser, copies, self.sigma, labels)

    def _push_forward(self, x: Tensor, tangents: Tensor) -> Tensor:
        with forward_ad.dual_level():
            with warnings.catch_warnings():
                # On first use torch loads its forward rules through its own deprecated torch.jit.script.
                warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)
                dual = forward_ad.make_dual(x, tangents)
            pushed = forward_ad.unpack_dual(self._denoise(dual)).tangent
            return torch.zeros_like(x) if pushed is None else pushed

    def _pull_back(self, x: Tensor, cotangents: Tensor, *, again: bool = False) -> Tensor:
        denoised = self._denoise(x.requires_grad_())
        require(
            denoised.requires_grad,
            "the denoiser's output carries no gradient, so it has no Jacobian to measure; "
            "remove torch.no_grad, .detach() or the conversion to NumPy from it.",
        )
        (pulled,) = torch.autograd.grad(denoised, x, cotangents, create_graph=again, materialize_grads=True)
        return pulled

    def _push_by_double_backward(self, x: Tensor, tangents: Tensor) -> Tensor:
        """J t = ∂/∂w ⟨Jᵀ w, t⟩, since Jᵀ w is linear in w."""
        weights = torch.zeros_like(x, requires_grad=True)
        pulled = self._pull_back(x, weights, again=True)
        what = "the denoiser uses an operation with neither a forward-mode nor a second derivative, which J v needs"
        advice = "Pass full=True, which needs first derivatives only, or replace that operation."
        with reraise_as(ConfigError, what, advice, RuntimeError, spared=(torch.OutOfMemoryError,)):
            (pushed,) = torch.autograd.grad(pulled, weights, tangents)
        return pushed


def _krylov(jacobian: _Jacobian, k: int, probes: Float[Tensor, "d p"], iterations: int, tolerance: float) -> Triplets:
    """The best triplets with u in an orthonormal basis, which grows until k of them have converged."""
    width = probes.shape[1]
    basis, _ = torch.linalg.qr(jacobian.times(probes))
    pulled = jacobian.transposed_times(basis)
    for iteration in range(1, iterations + 1):
        right, values, mixing = torch.linalg.svd(pulled, full_matrices=False)  # Jᵀ U = V S Wᵀ, hence Jᵀ (U W) = V S
        left, values, right = (basis @ mixing.T)[:, :width], values[:width], right[:, :width]
        missing = jacobian.times(right) - left * values
        residual = _relative(missing, values)
        if iteration == iterations or bool((residual[:k] <= tolerance).all()):
            break
        if basis.shape[1] >= _BASIS_BLOCKS * width:
            basis, pulled = left, right * values
        fresh = _new_directions(missing, basis)
        if fresh.shape[1] == 0:
            break
        basis = torch.cat([basis, fresh], dim=1)
        pulled = torch.cat([pulled, jacobian.transposed_times(fresh)], dim=1)
    return left, values, right, residual


def _dense(jacobian: _Jacobian, dim: int, device: torch.device) -> Triplets:
    """All triplets of the explicit matrix."""
    J = jacobian.transposed_times(torch.eye(dim, dtype=torch.float64, device=device)).T
    left, values, right_t = torch.linalg.svd(J)
    return left, values, right_t.T, _relative(J @ right_t.T - left * values, values)


def _relative(missing: Float[Tensor, "d p"], values: Float[Tensor, "p"]) -> Float[Tensor, "p"]:
    """Column norms over s₁; 0 where the Jacobian is 0."""
    sizes: Tensor = torch.linalg.vector_norm(missing, dim=0)
    return sizes / values[0].clamp_min(torch.finfo(values.dtype).tiny)


def _new_directions(block: Float[Tensor, "d p"], basis: Float[Tensor, "d m"]) -> Float[Tensor, "d q"]:
    """An orthonormal basis of the part of `block` outside `basis`, without rounding errors."""
    outside, sizes, _ = torch.linalg.svd(block - basis @ (basis.T @ block), full_matrices=False)
    outside = outside[:, sizes > 1e-10 * block.norm()]
    fresh: Tensor = torch.linalg.qr(outside - basis @ (basis.T @ outside)).Q  # twice is enough
    return fresh


def _orient(triplets: Triplets, k: int) -> Triplets:
    """The first k triplets, each with its sign chosen so that the largest entry of u is positive."""
    left, values, right, residual = (part[..., :k] for part in triplets)
    signs = left.gather(0, left.abs().argmax(dim=0, keepdim=True)).sign()
    return left * signs, values, right * signs, residual
