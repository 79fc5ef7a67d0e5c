"""Copies among samples: twenty are planted among a thousand new images, and found.

The samples are those of a Gaussian model of the digits, which copies nothing; twenty training images with a little noise
take the place of some. `memorization` says how much nearer a sample is to its nearest training image than to the next one,
d₁/d₂; below 1/3 it counts as a copy. See how far the copies are below 1/3, and all other samples above.
"""

import sys
from pathlib import Path

import torch

import gausslens as gl
from gausslens.data import Splits, load_images
from gausslens.report import ImageGrid, save_svg

PICTURE = Path(__file__).parent / "pictures" / "planted_copies.svg"
PLANTED, SHOWN = 20, 4


def main(picture: str | Path = PICTURE, count: int = 1000) -> tuple[gl.Estimate, gl.Estimate]:
    digits = torch.tensor(load_images("digits").images)
    splits = Splits(len(digits), held_out=len(digits) // 2)
    train, held_out = digits[splits.subset(splits.available).copy()], digits[splits.held_out.copy()]
    model = gl.GaussianDenoiser(gl.Moments.fit(train))
    random = torch.Generator().manual_seed(0)
    samples = gl.sample(model, torch.randn(count, 1, 8, 8, generator=random)).clamp(-1, 1)
    clean = gl.memorization(samples, train, held_out)
    samples[:PLANTED] = train[:PLANTED] / 127.5 - 1 + 0.05 * torch.randn(PLANTED, 1, 8, 8, generator=random)
    found = gl.memorization(samples, train, held_out)
    for name, result in (("without copies", clean), ("with 20 copies", found)):
        print(f"{name}: {result}\n")

    ratio = found.distances / found.second_distances
    order = ratio.argsort()
    shown = torch.cat([order[:SHOWN], order[PLANTED : PLANTED + SHOWN]])
    pixels = ((samples[shown].clamp(-1, 1) + 1) * 127.5).round().byte()
    figure = ImageGrid(
        title="Four planted copies, and the four other samples nearest to one training image",
        caption="Samples, and the training image nearest to each.",
        rows=("sample", "nearest training image"),
        columns=tuple(f"d₁/d₂ = {value:.2f}" for value in ratio[shown].tolist()),
        images=torch.stack([pixels, train[found.nearest[shown]]]).numpy(),
    )
    save_svg(picture, figure)
    return clean.ratio_fraction, found.ratio_fraction


if __name__ == "__main__":
    main(*sys.argv[1:])
