"""Noise levels and reproducible draws.

The model is variance exploding, x = x0 + σ·eps with eps ~ N(0, I). Draw i of a stream is a function of (seed, stream,
i) alone, made on the CPU in float32: it does not depend on batch size, device, dtype or number of processes, so two
denoisers measured with one seed see the same noise, image by image.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ._typing import Float, Int, Sigmas
from .errors import ConfigError, require

# Draws are made a block at a time, since seeding a generator costs as much as a few thousand normal numbers.
_BLOCK_NUMBERS = 1 << 15


def karras_sigmas(n: int, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0) -> Float[Tensor, "n"]:
    """The descending grid of noise levels of Karras et al., without the final 0.

    σ_i = (σ_max^(1/ρ) + i/(n−1) · (σ_min^(1/ρ) − σ_max^(1/ρ)))^ρ,  i = 0 … n−1.

    Args:
        n: number of levels, at least 1 (one level is σ_max).
        sigma_min: the smallest level, above 0.
        sigma_max: the largest level, at least `sigma_min`.
        rho: larger values put more levels near `sigma_min`.

    Returns:
        The levels in float64, from `sigma_max` down to `sigma_min`.

    Raises:
        ConfigError: if an argument is out of its range.

    Reference: Karras, Aittala, Aila, Laine (2022), arXiv:2206.00364, Eq. (5).

    >>> [round(sigma, 4) for sigma in karras_sigmas(10).tolist()[:3]]
    [80.0, 42.4152, 21.1087]
    """
    require(n >= 1, f"n, the number of noise levels, must be at least 1; got {n}.")
    require(
        0 < sigma_min <= sigma_max < math.inf and 0 < rho < math.inf,
        "expected 0 < sigma_min <= sigma_max and rho > 0, all finite; "
        f"got sigma_min={sigma_min}, sigma_max={sigma_max}, rho={rho}.",
    )
    high, low = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
    ramp = torch.linspace(0, 1, n, dtype=torch.float64, device="cpu")
    sigmas: Tensor = (high + ramp * (low - high)) ** rho
    sigmas[0] = sigma_max  # the powers above round; the ends are exact by definition
    if n > 1:
        sigmas[-1] = sigma_min
    return sigmas


def as_sigmas(sigmas: Sigmas) -> Float[Tensor, "s"]:
    """One or several noise levels as a float64 vector on the CPU, each checked to be positive and finite."""
    given = sigmas.flatten().tolist() if isinstance(sigmas, Tensor) else sigmas
    try:
        values = [float(value) for value in (given if isinstance(given, Iterable) else [given])]
    except (TypeError, ValueError):
        raise ConfigError(
            f"sigmas must be a number, a tensor or an iterable of numbers; got {sigmas!r}. Try karras_sigmas(10)."
        ) from None
    levels = torch.tensor(values, dtype=torch.float64, device="cpu")
    require(levels.numel(), "sigmas is empty; pass at least one noise level, for example karras_sigmas(10).")
    wrong = levels[~((levels > 0) & levels.isfinite())]
    if wrong.numel():
        raise ConfigError(
            f"noise levels must be positive and finite; got {wrong[0].item()} among {levels.numel()}. "
            "A denoiser at sigma = 0 is the identity; use a small level such as 0.002."
        )
    return levels


def draw_noise(
    seed: int, indices: Int[Tensor, "b"], shape: tuple[int, ...], *, stream: str = "noise"
) -> Float[Tensor, "b *shape"]:
    """Draws `indices`, each at least 0, of a stream of standard normal images of `shape`, in float32 on the CPU.

    The streams of a seed ("noise", "latents", …) are independent.
    """
    size = math.prod(shape)
    rows = max(1, _BLOCK_NUMBERS // max(size, 1))
    block_of = indices // rows
    plain: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}  # whatever a user's defaults are
    noise = torch.empty(len(indices), size, **plain)
    first = int(indices[0]) if len(indices) else 0
    consecutive = torch.equal(indices, torch.arange(first, first + len(indices), device="cpu"))
    for block in block_of.unique().tolist():
        source, start = generator(seed, stream, block), block * rows - first
        if consecutive and 0 <= start <= len(indices) - rows:  # a whole block, drawn where it belongs
            torch.randn(rows, size, generator=source, out=noise[start : start + rows], **plain)
            continue
        here = block_of == block
        noise[here] = torch.randn(rows, size, generator=source, **plain)[indices[here] % rows]
    return noise.reshape(len(indices), *shape)


def draw_order(seed: int, n: int, *, stream: str = "order") -> Int[Tensor, "n"]:
    """A permutation of 0 … n−1 fixed by the seed."""
    return torch.randperm(n, generator=generator(seed, stream, n), device="cpu")


def generator(seed: int, stream: str, index: int = 0) -> torch.Generator:
    """The CPU generator of (seed, stream, index)."""
    digest = hashlib.sha256(f"{seed}/{stream}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
