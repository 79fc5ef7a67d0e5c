"""Two networks that share no training image draw the same digits from the same noise, if they have images enough.

Networks are trained on two disjoint sets of 10 and of 700 digits; the samples of a pair start from the same noise. With 10
digits each network draws its own images. With 700 the two agree, though all that they share is the law of the images. The
correlation of their pixels stands beside that of samples paired at random, which resemble each other as digits do.
"""

import sys
import tempfile
from pathlib import Path

import torch

import gausslens as gl
from gausslens.report import ImageGrid, save_svg

PICTURE = Path(__file__).parent / "pictures" / "two_halves_agree.svg"
SHOWN = 8


def main(picture: str | Path = PICTURE, kimg: float = 80.0) -> dict:
    latents = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found, figures = {}, []
    for n in (10, 700):
        pair = []
        for half in ("s1", "s2"):
            with tempfile.TemporaryDirectory() as runs:
                config = gl.TrainConfig(
                    "digits", split=f"{half}:{n}", width=64, blocks=6, kimg=kimg, out=runs, cpu=True
                )
                pair.append(gl.sample(gl.load_denoiser(gl.train(config)), latents))
        found[n] = gl.agreement(*pair)
        alike, control = found[n].same_noise.correlation.value, found[n].shuffled.correlation.value
        pixels = (torch.stack(pair)[:, :SHOWN].clamp(-1, 1) * 127.5 + 127.5).round().byte()
        figures.append(
            ImageGrid(
                title=f"{n} + {n} digits: correlation {alike:.2f}, paired at random {control:.2f}",
                caption="Samples of two networks from the same noise, one column a noise.",
                rows=("trained on one set", "trained on the other"),
                columns=("",) * SHOWN,
                images=pixels.numpy(),
            )
        )
    save_svg(picture, *figures)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
