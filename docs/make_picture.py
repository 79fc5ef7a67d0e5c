"""Draw docs/picture.png: two denoisers held up against the Gaussian, at every noise level.

    python docs/make_picture.py

Needs matplotlib, which is not a dependency of the package; takes less than a minute. The law is a set of smooth
12×12 patterns made here: a soft disc of random place, size and brightness on a tilted ground. Both denoisers are exact
posterior means, over 40 images of the law (it can only recall them) and over 20,000 (which come close to the law itself),
and both are measured on 400 images, or pairs of them, that neither has seen. The Gaussian has the moments of the 20,000.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

import gausslens as gl

SIDE = 12


def patterns(n: int, seed: int) -> torch.Tensor:
    """Images (n, 1, 12, 12) in [−1, 1]."""
    random = torch.Generator().manual_seed(seed)
    x, y, size, light, slope_x, slope_y = torch.rand(6, n, 1, 1, 1, generator=random)
    line = torch.linspace(0, 1, SIDE)
    across, down = line, line[:, None]
    distance = torch.hypot(across - 0.2 - 0.6 * x, down - 0.2 - 0.6 * y)
    disc = torch.sigmoid(10 * (0.15 + 0.25 * size - distance))
    ground = 0.5 * (slope_x - 0.5) * (across - 0.5) + 0.5 * (slope_y - 0.5) * (down - 0.5)
    return -0.6 + ground + (0.4 + 0.9 * light) * disc


few, many, held_out = patterns(40, seed=0), patterns(20_000, seed=1), patterns(800, seed=2)
gaussian = gl.GaussianDenoiser(gl.Moments.fit(many))
models = {
    "memorises: recalls 40 images": (gl.MultiDeltaDenoiser(few), "#c8452d", "o"),
    "generalises: knows 20,000 of the same law": (gl.MultiDeltaDenoiser(many), "#2166ac", "s"),
}
sigmas = gl.karras_sigmas(22, sigma_min=0.02, sigma_max=40.0)

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for name, (model, colour, marker) in models.items():
    for axes, curve in (
        (left, gl.gap(gaussian, model, held_out, sigmas, count=400)),
        (right, gl.linearity(model, held_out, sigmas, affine=True, count=400)),
    ):
        print(f"{name}\n{curve}")
        axes.fill_between(curve.sigmas, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(curve.sigmas, curve.values, marker, linestyle="-", color=colour, label=name, markersize=3.5)
left.set(title="Distance to the Gaussian denoiser", ylabel="RMSE (pixels in [−1, 1])", ylim=(0, None))
right.set(title="Affine linearity", ylabel="cosine (1 = affine map)", ylim=(None, 1.01))
right.axhline(1, color="grey", linewidth=0.8, linestyle=":")
for axes in (left, right):
    axes.set(xlabel="noise level σ (pixel units)", xscale="log")
    axes.grid(alpha=0.25)
right.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.03))
left.text(
    0.98,
    0.97,
    "means over 400 unseen images (right: pairs)\nbands: 95 % intervals",
    ha="right",
    va="top",
    transform=left.transAxes,
)
figure.savefig(Path(__file__).with_name("picture.png"), dpi=100)
