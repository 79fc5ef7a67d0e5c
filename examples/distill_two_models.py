"""Distillation tells a model that memorises from one that generalises, if it is done on new images.

Affine maps are fitted to two exact denoisers: a memory of 100 images, and the posterior mean of the law that they come from.
The weights of a map are compared with the Wiener filter of the images it was fitted on. On its own training images the
memory looks like that filter, as closely as the number of calls allows; on new images it stays far away.
"""

import sys
from pathlib import Path

import torch

import gausslens as gl
from gausslens.report import Axis, CurveFigure, Series, save_svg

PICTURE = Path(__file__).parent / "pictures" / "distill_two_models.svg"
SIGMA = 0.1


def main(picture: str | Path = PICTURE, calls: tuple[int, ...] = (320, 640, 1280, 2560, 5120, 10240)) -> dict:
    torch.manual_seed(0)
    fields = torch.randn(19, 8, 8, dtype=torch.float64).cumsum(1).cumsum(2).flatten(1) / 130
    centres, factor = fields[:3] * 1.5, fields[3:]  # the law: three Gaussians that share one covariance
    covariance = factor.T @ factor + 1e-4 * torch.eye(64)

    def draw(n):
        spread = torch.randn(n, 64, dtype=torch.float64) @ torch.linalg.cholesky(covariance).T
        return (centres[torch.randint(3, (n,))] + spread).reshape(n, 1, 8, 8)

    def law(x, sigma):
        centred = x.flatten(1)[:, None] - centres
        whitened = torch.linalg.solve(covariance + sigma[0] ** 2 * torch.eye(64), centred, left=False)
        share = (-(whitened * centred).sum(2) / 2).softmax(1)
        return (share[..., None] * (centres + whitened @ covariance)).sum(1).reshape(x.shape)

    train, held_out = draw(100), draw(4000)
    memory = gl.MultiDeltaDenoiser(train)
    cases = {
        "memory, new images": (memory, held_out),
        "memory, its training images": (memory, train),
        "law, new images": (law, held_out),
    }
    fits = {name: [gl.distill(*case, SIGMA, calls=n) for n in calls] for name, case in cases.items()}
    lines = [
        Series(name, calls, [fit.weight_error["distillation"].item() for fit in few]) for name, few in fits.items()
    ]
    floor = [fit.weight_error_floor.item() for fit in fits["memory, its training images"]]
    figure = CurveFigure(
        title="Distance of the distilled map from the Wiener filter",
        caption="Relative distance of the weights. The floor is what the number of calls allows for the memory.",
        x=Axis("calls of the denoiser", log=True),
        y=Axis("‖W − W_G‖ / ‖W_G‖", log=True),
        series=(*lines, Series("floor of the memory, its training images", calls, floor, dashed=True, markers=False)),
    )
    save_svg(picture, figure)
    return fits


if __name__ == "__main__":
    main(*sys.argv[1:])
