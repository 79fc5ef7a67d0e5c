"""Audit of a network of your own: any PyTorch module, trained in your own loop, here for seconds on 40 digits.

`Preconditioned` makes a denoiser of a network F(x, noise), as `from_eps` does of one that predicts noise. `audit` judges it
by its training images, held-out images and its samples, and prints the verdict. See its losses: below σ = 1 they are far
lower on training images than on new ones, and more so than those of the Wiener filter of the same digits.
"""

import sys
from itertools import product
from pathlib import Path

import torch
from torch import nn

import gausslens as gl
from gausslens.data import Splits, load_images
from gausslens.report import Axis, CurveFigure, Series, save_svg

PICTURE = Path(__file__).parent / "pictures" / "audit_your_network.svg"


class YourNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(65, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 64))

    def forward(self, x, noise):
        return self.layers(torch.cat([x.flatten(1), noise[:, None]], 1)).reshape(x.shape)


def main(picture: str | Path = PICTURE, steps: int = 2500, samples: int = 300) -> object:
    torch.manual_seed(0)
    digits = torch.tensor(load_images("digits").images) / 127.5 - 1
    splits = Splits(len(digits))
    train, held_out = digits[splits.subset(40).copy()], digits[splits.held_out.copy()]
    denoiser = gl.Preconditioned(YourNetwork())
    adam = torch.optim.Adam(denoiser.parameters(), lr=2e-3)
    for _ in range(steps):
        clean, sigma = train[torch.randint(len(train), (128,))], (torch.randn(128) * 1.2 - 0.5).exp()
        noisy = clean + sigma.reshape(-1, 1, 1, 1) * torch.randn(clean.shape)
        errors = (denoiser(noisy, sigma) - clean).square().mean((1, 2, 3))
        adam.zero_grad()
        (denoiser.loss_weight(sigma) * errors).mean().backward()
        adam.step()
    found = gl.audit(denoiser, train, held_out, sigmas=gl.karras_sigmas(10, 0.1, 8.0), samples=samples)
    print(found)
    lines = []
    for model, images in product(("network", "gaussian"), ("train", "held_out")):
        losses = found.find("loss", denoiser=model, on=images)
        columns = ([loss[column] for loss in losses] for column in ("sigma", "value", "low", "high"))
        name = f"{'network' if model == 'network' else 'Wiener filter'}, {'training' if images == 'train' else 'new'} images"
        lines.append(Series(name, *columns, dashed=model == "gaussian"))
    title, caption = f"Losses of a network of 40 digits: {found.verdict.verdict}", "With 95 % intervals."
    x, y = Axis("noise level σ", log=True), Axis("squared error of a pixel", log=True)
    save_svg(picture, CurveFigure(title=title, caption=caption, x=x, y=y, series=tuple(lines)))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
