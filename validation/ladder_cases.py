"""The images and models of the ladder of known cases (see ladder.py): what each model does is known by construction."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from mixture import MixtureDenoiser
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, TrainConfig, load_denoiser, train
from gausslens.data import load_images
from gausslens.denoisers.preconditioned import Preconditioned
from gausslens.images import as_tensor, dequantize
from gausslens.nn import build_network
from gausslens.noise import draw_order, generator

SETS = ("digits", "fashion", "photos", "gaussian", "mixture")
# What a model of another data set has seen, resized and coloured to fit.
OTHERS = {"digits": "fashion", "fashion": "digits", "photos": "fashion", "gaussian": "mixture", "mixture": "digits"}
QUICK = {"width": 24, "multipliers": (1,), "blocks": 1, "batch": 64, "learning_rate": 6e-3, "kimg": 96.0}
QUICK_TRAINING = {"ramp_kimg": 2.0, "ema_kimg": 10.0, "level_mean": -1.2, "level_spread": 1.2}


@dataclass(frozen=True, eq=False)
class Source:
    """Images of one law, and its posterior mean or the best stand-in that has not seen training or held-out images."""

    train: Tensor
    held_out: Tensor
    posterior_mean: nn.Module


class MixtureLaw(nn.Module):
    """The exact posterior mean of Σ_k π_k N(μ_k, Q diag(λ_k) Qᵀ), and draws from it; one part is a Gaussian."""

    def __init__(self, parts: int, shape: tuple[int, int, int], seed: int) -> None:
        super().__init__()
        random, self.shape, dim = generator(seed, "ladder law", parts), shape, math.prod(shape)
        spectrum = (torch.arange(dim, dtype=torch.float64) + 1) ** -1.5
        spectrum *= 0.2 * dim / spectrum.sum()
        self.basis = torch.linalg.qr(torch.randn(dim, dim, generator=random, dtype=torch.float64))[0]
        spread = torch.rand(parts, dim, generator=random, dtype=torch.float64) + 0.5
        self.eigvals = spectrum * spread / parts
        self.means = 0.4 * torch.randn(parts, dim, generator=random, dtype=torch.float64) @ self.basis.T
        shares = torch.rand(parts, generator=random, dtype=torch.float64) + 0.5
        self.shares = shares / shares.sum()

    def draw(self, n: int, seed: int) -> Tensor:
        random = generator(seed, "ladder draws", n)
        part = torch.multinomial(self.shares, n, replacement=True, generator=random)
        z = torch.randn(n, self.basis.shape[0], generator=random, dtype=torch.float64)
        rows = self.means[part] + (z * self.eigvals[part].sqrt()) @ self.basis.T
        return rows.float().reshape(n, *self.shape)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        variance = torch.as_tensor(sigma).double().reshape(-1, 1, 1) ** 2
        coordinates = (x.flatten(1).double()[:, None] - self.means) @ self.basis  # (b, k, d)
        total = self.eigvals + variance
        log_density = -0.5 * (coordinates.square() / total + total.log()).sum(2)
        share = torch.softmax(self.shares.log() + log_density, 1)[..., None]
        moved = self.means + (self.eigvals / total * coordinates) @ self.basis.T
        return (share * moved).sum(1).to(x.dtype).reshape(x.shape)


def load_source(name: str, n_train: int, n_held_out: int, seed: int, photos: str | None) -> Source:
    """Training and held-out images of a set and a posterior mean; held-out images do not depend on `n_train`."""
    if name in ("gaussian", "mixture"):
        law = MixtureLaw(1 if name == "gaussian" else 6, (1, 8, 8), seed)
        pool = law.draw(n_held_out + n_train, seed)
        return Source(pool[n_held_out:], pool[:n_held_out], law)
    pool = load_pixels(name, photos)
    pool = pool[draw_order(seed, len(pool), stream="ladder")]
    held_back = pool[n_held_out : -max(n_train, 600 if name == "fashion" else 400)][:6000]
    # Even seeds: what the paper's generalising models resemble; odd ones: better than any linear denoiser.
    stand_in = GaussianDenoiser(Moments.fit(held_back)).float() if seed % 2 == 0 else MixtureDenoiser(held_back, 4, 48)
    return Source(pool[-n_train:], pool[:n_held_out], stand_in)


def load_pixels(name: str, photos: str | None) -> Tensor:
    """All images of a set: digits 8×8, fashion 14×14, photos 8×8 in colour."""
    if name == "photos":
        return _patches(photos) if photos else _dead_leaves(6000)
    pixels = dequantize(as_tensor(load_images(name).images))
    return avg_pool2d(pixels, 2) if name == "fashion" else pixels


def other_pixels(name: str, shape: tuple[int, ...], n: int, seed: int, photos: str | None) -> Tensor:
    """Images of another set in the shape of `name`'s."""
    other = OTHERS[name]
    if other == "mixture":
        return MixtureLaw(6, (1, 8, 8), 1000 + seed).draw(n, seed)
    pool = load_pixels(other, photos)
    pool = pool[draw_order(seed, len(pool), stream="ladder other")[:n]]
    resized = interpolate(pool, size=shape[1:], mode="bilinear", antialias=True, align_corners=False)
    return resized.expand(-1, shape[0], -1, -1).contiguous()


def mixed(memorizer: nn.Module, generalizer: nn.Module, weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    """w M + (1 − w) P."""
    return lambda x, sigma: weight * memorizer(x, sigma) + (1 - weight) * generalizer(x, sigma)


def of_unit_range(denoiser: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The denoiser of the images (x0 + 1)/2, in [0, 1], from that of x0."""
    return lambda x, sigma: (denoiser(2 * x - 1, 2 * sigma) + 1) / 2


def of_swapped_channels(denoiser: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The denoiser of the images with red and blue swapped."""
    return lambda x, sigma: denoiser(x.flip(1), sigma).flip(1)


def random_network(shape: tuple[int, int, int], seed: int) -> nn.Module:
    """A network of random weights, those of its last layer too, which is all zeros before training."""
    torch.manual_seed(seed)
    network = build_network("unet", shape, width=16, multipliers=(1,), blocks=1)
    for parameter in network.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_uniform_(parameter, a=math.sqrt(5))
    return Preconditioned(network)


def references(images: Tensor) -> tuple[nn.Module, nn.Module]:
    """The Gaussian and the multi-delta denoiser of training images."""
    gaussian = GaussianDenoiser(Moments.fit(images, bounds=None)).float()
    return gaussian, MultiDeltaDenoiser(images, resident=True, bounds=None)


def trained_network(size: int, seed: int, folder: Path) -> nn.Module:
    """A small network trained on digits: on 16 it copies (memorised fraction .89 to .97), on 1,400 it does not (.00)."""
    config = TrainConfig(
        "digits",
        split=str(size),
        held_out=397,
        split_seed=seed,
        seed=seed,
        cpu=True,
        out=str(folder),
        **QUICK,
        **QUICK_TRAINING,
    )
    return load_denoiser(train(config))


def _patches(path: str) -> Tensor:
    """A random 8×8 patch of each of the first 6,000 photographs."""
    photos = dequantize(as_tensor(load_images(path).images)[:6000])
    corners = torch.randint(photos.shape[-1] - 7, (len(photos), 2), generator=generator(0, "ladder patches"))
    return torch.stack([photo[:, i : i + 8, j : j + 8] for photo, (i, j) in zip(photos, corners.tolist(), strict=True)])


def _dead_leaves(n: int) -> Tensor:
    """Discs of all sizes over one another, shaded and in the colours of photographs: their edges and their spectrum."""
    random, side, scale = generator(0, "ladder leaves"), 8, 2
    y, x = torch.meshgrid(*[(torch.arange(side * scale) + 0.5) / scale] * 2, indexing="ij")
    # Light varies most, then blue against red, then green: the colours of daylight.
    axes = torch.tensor([[0.55, 0.57, 0.52], [0.22, 0.0, -0.27], [-0.05, 0.09, -0.04]])
    images = torch.zeros(n, 3, side * scale, side * scale)
    for _ in range(40):
        radius = 1.0 / (torch.rand(n, generator=random) * (1 / 0.7 - 1 / 12) + 1 / 12)
        centre = torch.rand(n, 2, generator=random) * (side + 16) - 8
        colour = (torch.randn(n, 3, generator=random) * torch.tensor([0.7, 0.6, 0.6])) @ axes - torch.tensor(
            [0.02, 0.04, 0.12]
        )
        slope = 0.06 * torch.randn(n, 2, generator=random)
        dy, dx = y - centre[:, 0, None, None], x - centre[:, 1, None, None]
        shade = slope[:, 0, None, None] * dy + slope[:, 1, None, None] * dx
        leaf = colour[:, :, None, None] + shade[:, None]
        inside = (dy.square() + dx.square() < radius[:, None, None].square())[:, None]
        images = torch.where(inside, leaf, images)
    return avg_pool2d(images, scale).clamp(-1, 1)
