"""Every denoiser the package ships, as the contract suite sees it: how it is made, and what it promises beyond a shape."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from reference import as_rows, mean_and_covariance, truncated_covariance
from torch import Tensor, nn

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, Preconditioned, distill
from gausslens.nn import build_network
from gausslens.zoo.parametrizations import from_eps, from_flow, from_v, from_x0

SHAPE = (2, 3, 4)
DIM = 24
COUNT = 60
LEVELS = (3.0, 0.7, 0.2)
CLASSES = 3


@dataclass(frozen=True)
class Case:
    """One denoiser.

    Attributes:
        name: what to call it.
        build: makes it, the same every time.
        conditional: whether it takes labels.
        identity: whether it becomes the identity as σ → 0.
        any_level: whether σ may be any positive number, or only one of LEVELS.
        fitted: whether it becomes the images' mean as σ → ∞.
        log_density: log p_σ(x) of the noisy law it is the posterior mean of, for rows x and up to a constant; None if
            it is no posterior mean.
    """

    name: str
    build: Callable[[], nn.Module]
    conditional: bool = False
    identity: bool = False
    any_level: bool = True
    fitted: bool = True
    log_density: Callable[[Tensor, float], Tensor] | None = None

    def __str__(self) -> str:
        return self.name


def images(n: int = COUNT, seed: int = 0) -> Tensor:
    """Correlated uint8 images that differ between the classes."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(DIM, DIM, generator=generator) / DIM**0.5
    rows = torch.randn(n, DIM, generator=generator) @ mixing + 0.3 * labels(n)[:, None]
    return ((0.25 * rows + 1) * 127.5).clamp(0, 255).to(torch.uint8).reshape(n, *SHAPE)


def labels(n: int) -> Tensor:
    return torch.arange(n) % CLASSES


def floats(dtype: torch.dtype, n: int = COUNT) -> Tensor:
    return images(n).to(dtype) / 127.5 - 1


def gaussian(n: int = COUNT, rank: int | None = None) -> GaussianDenoiser:
    return GaussianDenoiser(Moments.fit(images(n), rank=rank))


def gaussian_law(n: int = COUNT, rank: int | None = None) -> Callable[[Tensor, float], Tensor]:
    mean, covariance = mean_and_covariance(as_rows(images(n)))
    if rank is not None:
        covariance = truncated_covariance(covariance, rank)

    def log_density(x: Tensor, sigma: float) -> Tensor:
        noisy = covariance + sigma**2 * torch.eye(DIM, dtype=torch.float64)
        return -0.5 * ((x - mean) * torch.linalg.solve(noisy, (x - mean).T).T).sum(1)

    return log_density


def empirical_law(rows: Tensor) -> Callable[[Tensor, float], Tensor]:
    return lambda x, sigma: torch.logsumexp(-(x[:, None] - rows).square().sum(2) / (2 * sigma**2), 1)


def network(kind: str, classes: int = 0) -> Preconditioned:
    """A small network with fixed random weights and outputs of the order of 0.1."""
    weights = torch.Generator().manual_seed(4)
    module = build_network("unet", SHAPE, width=8, multipliers=(1, 2), blocks=1, classes=classes).double()
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=0.02 if name.startswith("output") else 0.1, generator=weights)
    return Preconditioned(module, kind).eval()


CASES = [
    Case("Gaussian", gaussian, identity=True, log_density=gaussian_law()),
    Case("Gaussian of few images", lambda: gaussian(9), log_density=gaussian_law(9)),
    Case("Gaussian with floor", lambda: gaussian(rank=5), identity=True, log_density=gaussian_law(rank=5)),
    Case("Gaussian in float32", lambda: gaussian().float(), identity=True),
    Case(
        "multi-delta of uint8",
        lambda: MultiDeltaDenoiser(images()),
        log_density=empirical_law(as_rows(images())),
    ),
    Case(
        "multi-delta of float32, tiled",
        lambda: MultiDeltaDenoiser(floats(torch.float32), tile_size=7),
        log_density=empirical_law(floats(torch.float32).flatten(1).double()),
    ),
    Case(
        "multi-delta of float64",
        lambda: MultiDeltaDenoiser(floats(torch.float64)),
        log_density=empirical_law(floats(torch.float64).flatten(1)),
    ),
    Case("Gaussian per class", lambda: GaussianDenoiser.per_class(images(), labels(COUNT)), conditional=True),
    Case("multi-delta per class", lambda: MultiDeltaDenoiser.per_class(images(), labels(COUNT)), conditional=True),
    Case(
        "linear",
        lambda: distill(MultiDeltaDenoiser(floats(torch.float64)), floats(torch.float64), LEVELS, calls=300),
        any_level=False,
    ),
    Case(
        "linear per class",
        lambda: distill(
            MultiDeltaDenoiser.per_class(floats(torch.float64), labels(COUNT)),
            floats(torch.float64),
            LEVELS,
            labels=labels(COUNT),
            calls=300,
        ),
        conditional=True,
        any_level=False,
    ),
    Case("network, edm", lambda: network("edm"), identity=True, fitted=False),
    Case("network, vp", lambda: network("vp"), identity=True, fitted=False),
    Case("network, ve", lambda: network("ve"), identity=True, fitted=False),
    Case("network, none", lambda: network("none"), fitted=False),
    Case("network, edm, with classes", lambda: network("edm", CLASSES), conditional=True, identity=True, fitted=False),
    Case("network of the noise", lambda: from_eps(network("ve").network, "ve"), identity=True, fitted=False),
    Case("network of the image", lambda: from_x0(network("ve").network, "flow"), fitted=False),
    Case("network of v", lambda: from_v(network("ve").network, "flow"), identity=True, fitted=False),
    Case(
        "network of the flow, with classes",
        lambda: from_flow(network("ve", CLASSES).network),
        conditional=True,
        fitted=False,  # and the identity as σ → 0, but only as fast as σ
    ),
]
