"""How linear exact denoisers are, by noise level: the Gaussian denoiser, and memories of 10, 100 and 1,000 digits.

The score compares D(αx + βy) with αD(x) + βD(y) on held-out digits, after an offset; an affine map scores 1. The Gaussian
denoiser is affine. A memory is close to affine only at high noise, where it answers with the mean of its images; below
σ = 2 it jumps from image to image, however many it remembers.
"""

import sys
from pathlib import Path

import gausslens as gl
from gausslens.data import Splits, load_images
from gausslens.report import Axis, CurveFigure, Series, save_svg

PICTURE = Path(__file__).parent / "pictures" / "linearity_of_exact_denoisers.svg"


def main(picture: str | Path = PICTURE, levels: int = 20) -> dict[str, gl.Curve]:
    digits = load_images("digits").images
    splits, sigmas = Splits(len(digits)), gl.karras_sigmas(levels, 0.02, 20.0)
    denoisers = {"Gaussian": gl.GaussianDenoiser(gl.Moments.fit(digits[splits.subset(1000)]))}
    for n in (1000, 100, 10):
        denoisers[f"multi-delta of {n:,} digits"] = gl.MultiDeltaDenoiser(digits[splits.subset(n)])
    curves = {
        name: gl.linearity(denoiser, digits[splits.held_out], sigmas, affine=True, count=100)
        for name, denoiser in denoisers.items()
    }
    figure = CurveFigure(
        title="Linearity of denoisers that are known exactly",
        caption="Mean over 100 pairs of held-out digits, with 95 % intervals.",
        x=Axis("noise level σ", log=True),
        y=Axis("linearity score"),
        series=tuple(
            Series(name, c.sigmas.numpy(), c.values.numpy(), c.low.numpy(), c.high.numpy())
            for name, c in curves.items()
        ),
    )
    save_svg(picture, figure)
    return curves


if __name__ == "__main__":
    main(*sys.argv[1:])
