"""How often the 95 % intervals of `gap` and `linearity` contain the true value.

    python benchmarks/coverage.py [--trials 1000] [--images 100] [--laws gaussian contrast_0.3 ...]

Every trial draws a fresh set of images of a law, measures it with a fresh seed through the public functions, and asks
whether the interval contains the value measured once on 400,000 images. Images are 4×4 with a decaying spectrum around a
mean image, times a random contrast of each image: constant, or lognormal with log-deviation 0.3 (skewness 0.9, about that
of natural images) or 0.6 (2.3, and 11 for its square, which is what explained variance averages), or one of two values.
The denoiser shrinks each image by its own estimated contrast, so it is not linear; its reference is the Wiener filter.
"""

import argparse
import math
from collections.abc import Callable

import torch

from gausslens import gap, linearity
from gausslens.measures.curves import Curve
from gausslens.measures.intervals import proportion_estimate

SIGMAS = (2.0, 0.5)
SHAPE = (1, 4, 4)
REFERENCE_IMAGES = 400_000

_scales = (torch.arange(16, dtype=torch.float64) + 1) ** -0.5
_basis = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
_mean = 0.3 * _basis.sum(1)


def _images(contrast: Callable[[int, torch.Generator], torch.Tensor], n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(n, 16, dtype=torch.float64, generator=generator)
    return (_mean + contrast(n, generator)[:, None] * (normal * _scales) @ _basis.T).reshape(n, *SHAPE)


def _lognormal(deviation: float) -> Callable[[int, torch.Generator], torch.Tensor]:
    return lambda n, generator: (deviation * torch.randn(n, dtype=torch.float64, generator=generator)).exp()


LAWS: dict[str, Callable[[int, torch.Generator], torch.Tensor]] = {
    "gaussian": lambda n, generator: torch.ones(n, dtype=torch.float64),
    "contrast_0.3": _lognormal(0.3),
    "contrast_0.6": _lognormal(0.6),
    "two_contrasts": lambda n, generator: torch.where(torch.rand(n, generator=generator) < 0.1, 3.0, 1.0).double(),
}


def adaptive(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    """Shrinks each image by the share of its energy that is not noise."""
    energy = (x - _mean.reshape(SHAPE)).square().mean((1, 2, 3), keepdim=True)
    gain = energy / (energy + sigma.reshape(-1, 1, 1, 1) ** 2)
    return _mean.reshape(SHAPE) + gain * (x - _mean.reshape(SHAPE))


def wiener(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    """The Wiener filter for contrast 1."""
    gains = _scales**2 / (_scales**2 + sigma[:, None] ** 2)
    centred = x.flatten(1) - _mean
    return (_mean + (centred @ _basis * gains) @ _basis.T).reshape(x.shape)


def measure(images: torch.Tensor, seed: int, count: int | None = None) -> dict[str, Curve]:
    """Every measure whose coverage is asked for."""
    pairs = None if count is None else count // 2
    curves = {
        name: gap(adaptive, wiener, images, SIGMAS, metric=name, count=count, seed=seed, bounds=None)
        for name in ("rmse", "nmse", "ev")
    }
    curves["LS"] = linearity(adaptive, images, SIGMAS, count=pairs, seed=seed, bounds=None)
    curves["LS affine"] = linearity(adaptive, images, SIGMAS, affine=True, count=pairs, seed=seed, bounds=None)
    return curves


def coverage(law: str, trials: int, n: int) -> dict[tuple[str, float], tuple[float, float, int]]:
    """For each measure and noise level: true value, median length of the intervals, and how many contain it."""
    truth = measure(_images(LAWS[law], REFERENCE_IMAGES, seed=0), seed=0, count=REFERENCE_IMAGES)
    hits = {name: torch.zeros(len(SIGMAS), dtype=torch.long) for name in truth}
    lengths: dict[str, list[torch.Tensor]] = {name: [] for name in truth}
    for trial in range(1, trials + 1):
        for name, curve in measure(_images(LAWS[law], n, seed=trial), seed=trial).items():
            hits[name] += (curve.low <= truth[name].values) & (truth[name].values <= curve.high)
            lengths[name].append(curve.high - curve.low)
    return {
        (name, sigma): (
            float(truth[name].values[i]),
            float(torch.stack(lengths[name])[:, i].median()),
            int(hits[name][i]),
        )
        for name in truth
        for i, sigma in enumerate(SIGMAS)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=list(LAWS))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the work is tiny; threads only wait for each other
    print(f"{options.trials} trials, {options.images} images, nominal 95 %")
    print(f"{'law':<14} {'measure':<10} {'sigma':>6} {'truth':>8} {'length':>8} {'coverage %':>11}  95 % interval")
    for law in options.laws:
        for (name, sigma), (value, length, hit) in coverage(law, options.trials, options.images).items():
            share = proportion_estimate(hit, options.trials)
            print(
                f"{law:<14} {name:<10} {sigma:>6g} {value:>8.4f} {length:>8.4f} {100 * share.value:>11.1f}  "
                f"[{100 * share.low:.1f}, {100 * share.high:.1f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
