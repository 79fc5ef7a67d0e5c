"""How often the 95 % intervals of `gap` and `linearity` contain the true value.

    python validation/coverage.py [--trials 1000] [--images 100] [--laws gaussian contrast_0.3 ...]

Every trial draws a fresh set of images of a law, measures it with a fresh seed through the public functions, and asks
whether the interval contains the value measured once on 400,000 images. Images are 4×4 with a decaying spectrum around a
mean image, times a random contrast of each image: constant; lognormal with log-deviation 0.3 (skewness 0.9) or 0.6 (2.3,
and 10 for its square, which is what explained variance averages); or 1 for nine images in ten and 3 for the tenth. The
denoiser is the Wiener filter of each image's own estimated contrast, so not linear; its reference that of contrast 1.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from gausslens import gap, linearity
from gausslens.measures.intervals import proportion_estimate

SIGMAS = (3.0, 2.0, 0.5)
SHAPE = (1, 4, 4)
REFERENCE_IMAGES = 400_000

_scales = (torch.arange(16, dtype=torch.float64) + 1) ** -0.5
_basis = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
_mean = 0.3 * _basis.sum(1)


def _lognormal(deviation: float) -> Callable[[int, torch.Generator], torch.Tensor]:
    return lambda n, generator: (deviation * torch.randn(n, dtype=torch.float64, generator=generator)).exp()


LAWS: dict[str, Callable[[int, torch.Generator], torch.Tensor]] = {
    "gaussian": lambda n, generator: torch.ones(n, dtype=torch.float64),
    "contrast_0.3": _lognormal(0.3),
    "contrast_0.6": _lognormal(0.6),
    "two_contrasts": lambda n, generator: torch.where(torch.rand(n, generator=generator) < 0.1, 3.0, 1.0).double(),
}


def draw(law: str, n: int, seed: int) -> torch.Tensor:
    """n images of a law."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(n, 16, dtype=torch.float64, generator=generator)
    return (_mean + LAWS[law](n, generator)[:, None] * (normal * _scales) @ _basis.T).reshape(n, *SHAPE)


def wiener(x: torch.Tensor, sigma: torch.Tensor, contrast: torch.Tensor | float = 1.0) -> torch.Tensor:
    """The Wiener filter of images of one contrast."""
    power = (_scales * contrast) ** 2
    gains = power / (power + sigma[:, None] ** 2)
    centred = x.flatten(1) - _mean
    return (_mean + (centred @ _basis * gains) @ _basis.T).reshape(x.shape)


def adaptive(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    """The Wiener filter of each image's own contrast, which it estimates from the image's energy."""
    energy = (x.flatten(1) - _mean).square().sum(1)
    excess = torch.nn.functional.softplus(energy / sigma**2 - 16) * sigma**2
    return wiener(x, sigma, (excess / _scales.square().sum()).sqrt()[:, None])


def measure(images: torch.Tensor, seed: int, count: int | None = None) -> dict[str, tuple[float, float, float]]:
    """Value and ends of the interval of every measure whose coverage is asked for."""
    pairs = None if count is None else count // 2
    options: dict[str, Any] = {"seed": seed, "bounds": None}
    rmse, nmse, ev = (
        gap(adaptive, wiener, images, SIGMAS, metric=name, count=count, **options) for name in ("rmse", "nmse", "ev")
    )
    other = gap(adaptive, partial(wiener, contrast=1.2), images, SIGMAS, count=count, **options)
    raw, affine = (
        linearity(adaptive, images, SIGMAS, affine=affine, count=pairs, **options) for affine in (False, True)
    )
    curves = {"rmse": rmse, "nmse": nmse, "ev": ev, "LS": raw, "affine LS": affine, "rmse difference": rmse - other}
    found = {}
    for name, curve in curves.items():
        for i, sigma in enumerate(SIGMAS):
            found[f"{name} at {sigma:g}"] = (float(curve.values[i]), float(curve.low[i]), float(curve.high[i]))
    least = raw.minimum()
    found["LS minimum"] = (least.value, least.low, least.high)
    return found


def coverage(law: str, trials: int, n: int) -> dict[str, tuple[float, float, int]]:
    """For each measure: its true value, the mean length of its intervals, and how many contain it."""
    truth = {
        name: value for name, (value, _, _) in measure(draw(law, REFERENCE_IMAGES, 0), 0, REFERENCE_IMAGES).items()
    }
    hits, length = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0.0)
    for trial in range(1, trials + 1):
        for name, (_, low, high) in measure(draw(law, n, trial), trial).items():
            hits[name] += low <= truth[name] <= high
            length[name] += (high - low) / trials
    return {name: (truth[name], length[name], hits[name]) for name in truth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=list(LAWS))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the work is tiny; threads only wait for each other
    print(f"{options.trials} trials of {options.images} images, nominal 95 %")
    print(f"{'law':<14} {'measure':<21} {'truth':>8} {'length':>8} {'coverage %':>11}  95 % interval")
    for law in options.laws:
        for name, (value, length, hits) in coverage(law, options.trials, options.images).items():
            share = proportion_estimate(hits, options.trials)
            print(
                f"{law:<14} {name:<21} {value:>8.4f} {length:>8.4f} {100 * share.value:>11.1f}  "
                f"[{100 * share.low:.1f}, {100 * share.high:.1f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
