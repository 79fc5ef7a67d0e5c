"""Where trained networks stand between the two references, by noise level: one trained on 10 digits, one on 1,400.

Each network is compared with the Gaussian and the multi-delta denoiser of its own training images, on held-out digits. See
the middle of the axis, where samples are decided: the network of 10 digits is nearer to its memory, that of 1,400 digits
nearer to its Gaussian.
"""

import sys
import tempfile
from pathlib import Path

import gausslens as gl
from gausslens.data import Splits, load_images
from gausslens.report import Axis, CurveFigure, Series, save_svg

PICTURE = Path(__file__).parent / "pictures" / "network_between_references.svg"


def main(picture: str | Path = PICTURE, kimg: float = 150.0) -> dict[str, gl.Curve]:
    digits = load_images("digits").images
    splits, sigmas = Splits(len(digits)), gl.karras_sigmas(12, 0.1, 4.0)
    held_out, curves = digits[splits.held_out], {}
    for n in (10, 1400):
        train = digits[splits.subset(n)]
        with tempfile.TemporaryDirectory() as runs:
            config = gl.TrainConfig("digits", split=str(n), width=64, blocks=6, kimg=kimg, out=runs, cpu=True)
            network = gl.load_denoiser(gl.train(config))
        gaussian, memory = gl.GaussianDenoiser(gl.Moments.fit(train)), gl.MultiDeltaDenoiser(train)
        curves[f"{n:,} digits, to their Gaussian"] = gl.gap(gaussian, network, held_out, sigmas)
        curves[f"{n:,} digits, to their multi-delta"] = gl.gap(memory, network, held_out, sigmas)
    figure = CurveFigure(
        title="Distance of networks from the two references",
        caption="Root-mean-square distance on 100 held-out digits, with 95 % intervals.",
        x=Axis("noise level σ", log=True),
        y=Axis("RMSE of pixels"),
        series=tuple(
            Series(
                name, c.sigmas.numpy(), c.values.numpy(), c.low.numpy(), c.high.numpy(), dashed="multi-delta" in name
            )
            for name, c in curves.items()
        ),
    )
    save_svg(picture, figure)
    return curves


if __name__ == "__main__":
    main(*sys.argv[1:])
