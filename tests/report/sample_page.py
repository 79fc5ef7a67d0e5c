"""A page with a figure of every kind, for the tests of the report."""

import numpy as np

from gausslens.report import (
    Axis,
    ClaimRow,
    CurveFigure,
    HeatMap,
    ImageGrid,
    NoiseSlider,
    Page,
    Section,
    Series,
    Table,
    Threshold,
)

SIGMAS = [80.0, 42.4, 21.1, 9.72, 4.07, 1.5, 0.47, 0.117, 0.0204, 0.002]
COMMAND = "gausslens study digits --only linearity"


def digit(index):
    """A ring or a bar on 8 x 8, uint8."""
    y, x = np.mgrid[:8, :8]
    radius = np.hypot(x - 3.5, y - 3.5)
    shapes = (abs(radius - 2.5) < 1, abs(x - 3.5 - 0.1 * index) < 1, abs(x - y) < 1.5)
    return (shapes[index % 3] * (200 + 5 * index % 50)).astype(np.uint8)[None]


def curves():
    x = np.array(SIGMAS)
    lines = []
    for index, n in enumerate((16, 64, 256, 1400)):
        y = 1 - (0.25 - 0.05 * index) * np.exp(-(np.log10(x / 3) ** 2))
        lines.append(Series(f"N = {n:,}", x, y, y - 0.01, y + 0.01, dashed=n < 100))
    return CurveFigure(
        title="Linearity over noise levels",
        caption="How close each model is to an affine map; bands are 95 % intervals over 100 held-out pairs.",
        redraws=(1, 13),
        claims=("C1", "C14"),
        command=COMMAND,
        x=Axis("noise level σ", log=True),
        y=Axis("linearity", "cosine"),
        series=tuple(lines),
        thresholds=(Threshold(0.96, "generalising in the paper: .96"),),
    )


def heat():
    rows = np.arange(20)
    near = np.exp(-abs(rows[:, None] - rows) / 2.0)
    return HeatMap(
        title="Singular vectors against principal components",
        caption="Absolute correlation of the first 20 of each.",
        redraws=(4,),
        claims=("C9",),
        command=COMMAND,
        panels=("σ = 4.07", "σ = 0.47", "σ = 0.0204"),
        values=np.stack([near, near**2, near[::-1]]),
        x_label="component",
        y_label="vector",
        value_label="|correlation|",
    )


def grid():
    images = np.stack([[digit(row * 5 + column) for column in range(5)] for row in range(3)])
    return ImageGrid(
        title="Samples and their nearest neighbours",
        caption="From the same noise.",
        redraws=(6, 12),
        claims=("C11",),
        command=COMMAND,
        rows=("samples", "nearest in training", "Gaussian samples"),
        columns=tuple(f"{index}" for index in range(1, 6)),
        images=images,
    )


def slider():
    noise = np.random.default_rng(0).normal(size=(2, 5, 1, 8, 8))
    clean = np.stack([[digit(row)] * 5 for row in range(2)]).astype(float)
    strength = np.array([1, 0.2, 0.4, 0.3, 0.1])[None, :, None, None, None] * 60
    images = np.stack([np.clip(clean + strength * noise * min(sigma, 2), 0, 255) for sigma in SIGMAS[3:]])
    return NoiseSlider(
        title="What each denoiser makes of one image",
        caption="Move the slider to change the noise level.",
        redraws=(2, 5, 18),
        command=COMMAND,
        sigmas=SIGMAS[3:],
        rows=("image 1", "image 2"),
        columns=("input", "network", "linear", "Gaussian", "multi-delta"),
        images=images.astype(np.uint8),
    )


def claims():
    return Table(
        title="Claims",
        caption="Intervals are over images and three training seeds, with Holm's correction.",
        command="gausslens report runs",
        rows=(
            ClaimRow("C1", "Linearity rises with the number of training images.", "slope of least affine linearity on log N",
                     0.0213, 0.018, 0.0246, "> 0", "the paper", "holds"),
            ClaimRow("C6", "The linear fit is the Gaussian denoiser.", "largest RMSE of the two, held-out",
                     0.081, 0.074, 0.09, "< 0.05", "the paper", "does not hold", "almost automatic on training inputs",
                     ("of multi-delta: 0.27 [0.25, 0.29]", "on surrogates: 0.02")),
            ClaimRow("C11", "The network nears the Gaussian as N grows.", "slope of RMSE in log N",
                     None, None, None, "< 0", "our choice", "not enough evidence"),
        ),
    )  # fmt: skip


def page(**changes):
    told = {
        "title": "digits: generalisation or memory",
        "summary": "With 1,400 images the network generalises.\n\nWith 16 it copies.",
        "claims": claims(),
        "sections": (
            Section("Linearity", "How linear is a denoiser?", (curves(), heat())),
            Section("Training-set size", "", (grid(), slider())),
            Section("Capacity", "The width sweep.", finished=False),
        ),
        "made_by": "gausslens 0.2.0",
    }
    return Page(**(told | changes))
