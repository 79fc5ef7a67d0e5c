"""One noisy picture, and what three denoisers make of it at six noise levels.

The Gaussian denoiser knows mean and covariance of the training images, of all of them or of one class, and smooths. The
multi-delta denoiser knows the training images and nothing else, and retrieves. The boot is held out: up to σ = 2 the
multi-delta denoiser answers with another boot, perfectly sharp.
"""

import sys
from pathlib import Path

import torch

import gausslens as gl
from gausslens.data import Splits, load_images
from gausslens.report import ImageGrid, save_svg

PICTURE = Path(__file__).parent / "pictures" / "retrieve_or_smooth.svg"
SIGMAS = torch.tensor([0.2, 0.5, 1.0, 2.0, 4.0, 8.0])


def main(picture: str | Path = PICTURE) -> None:
    fashion = load_images("fashion")
    splits = Splits(len(fashion))
    train, boot = splits.subset(splits.available), splits.held_out[10]
    images, classes = fashion.images[train], fashion.labels[train]
    of_class = {k: gl.Moments.fit(images[classes == k]) for k in range(10)}
    gaussian = gl.GaussianDenoiser(gl.Moments.fit(images))
    of_its_class = gl.PerClassDenoiser({k: gl.GaussianDenoiser(moments) for k, moments in of_class.items()})
    multidelta = gl.MultiDeltaDenoiser(images)

    clean = torch.tensor(fashion.images[boot]) / 127.5 - 1
    noise = torch.randn(len(SIGMAS), *clean.shape, generator=torch.Generator().manual_seed(0))
    noisy = clean + SIGMAS.reshape(-1, 1, 1, 1) * noise
    rows = {
        "noisy boot": noisy,
        "Gaussian": gaussian(noisy, SIGMAS),
        "Gaussian of boots": of_its_class(noisy, SIGMAS, torch.full(SIGMAS.shape, int(fashion.labels[boot]))),
        "multi-delta": multidelta(noisy, SIGMAS),
    }
    pixels = (torch.stack([*rows.values()]).clamp(-1, 1) * 127.5 + 127.5).round().byte()
    figure = ImageGrid(
        title="One new picture, denoised in three ways",
        caption="Rows are denoisers, columns noise levels. The first row is what they are given.",
        rows=tuple(rows),
        columns=tuple(f"σ = {sigma:g}" for sigma in SIGMAS.tolist()),
        images=pixels.numpy(),
    )
    save_svg(picture, figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
