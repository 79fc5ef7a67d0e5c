"""How far three ODE solvers end from the exact samples of a Gaussian model, by the number of denoiser calls.

The probability flow of the Wiener filter is known in closed form, so the error of a sampler can be measured instead of
guessed. The data are digits. See the slopes: with twice the calls, Euler's error is half as large (order 1), those of Heun
and of DPM-Solver++ a quarter as large (order 2).
"""

import sys
from pathlib import Path

import torch

import gausslens as gl
from gausslens.data import load_images
from gausslens.report import Axis, CurveFigure, Series, save_svg

PICTURE = Path(__file__).parent / "pictures" / "solver_order.svg"
CALLS_PER_LEVEL = {"euler": 1, "heun": 2, "dpmpp_2m": 1}
NAMES = {"euler": "Euler", "heun": "Heun", "dpmpp_2m": "DPM-Solver++ (2M)"}


def main(picture: str | Path = PICTURE, levels: tuple[int, ...] = (10, 20, 40, 80, 160)) -> dict[str, list[float]]:
    denoiser = gl.GaussianDenoiser(gl.Moments.fit(load_images("digits").images))
    latents = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    series, errors = [], {}
    for solver, calls_per_level in CALLS_PER_LEVEL.items():
        errors[solver] = []
        for n in levels:
            sigmas = gl.karras_sigmas(n)
            exact = denoiser.flow(sigmas[0] * latents, float(sigmas[0]), 0.0)
            samples = gl.sample(denoiser, latents, sigmas=sigmas, solver=solver)
            errors[solver].append(float((samples - exact).norm() / exact.norm()))
        calls = [calls_per_level * (n - 1) + 1 for n in levels]
        series.append(Series(NAMES[solver], calls, errors[solver]))
    figure = CurveFigure(
        title="Error of a sampler against the exact flow",
        caption="Relative distance of 64 samples from the exact solution, by calls of the denoiser for each sample.",
        x=Axis("calls of the denoiser", log=True),
        y=Axis("relative error", log=True),
        series=tuple(series),
    )
    save_svg(picture, figure)
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:])
