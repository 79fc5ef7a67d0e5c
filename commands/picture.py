"""Draw docs/picture.png from a finished study of digits: distances to the Gaussian, and samples, by number of images.

    gausslens study digits --only size
    python commands/picture.py runs/study-digits-*

Needs matplotlib, which is not a dependency of the package.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gausslens import Run
from gausslens.paper.figures import images_label, line
from gausslens.paper.run import findings_of

COLUMNS = 10
SHOWN = (10, 48, 1438)

findings = next(found for found in findings_of(Run.open(sys.argv[1])) if found.study == "size")
gaps = findings.evidence.where(quantity="rmse", on="held_out", reference="gaussian")
series = [
    *(line(images_label(n), of_size) for n, of_size in gaps.where(denoiser="network").by("n").items()),
    line("control: multi-delta, most images", gaps.where(denoiser="multidelta", n=max(SHOWN)), dashed=True),
]
rows = []
for n in SHOWN:
    key = f"samples of {n}, seed 0"
    rows += [(f"N = {n:,}: samples", findings.array(key, "network"))]
    rows += [("nearest training image", findings.array(key, "nearest"))]
rows.append(("Gaussian: samples", findings.array(f"samples of {max(SHOWN)}, seed 0", "gaussian")))

figure = plt.figure(figsize=(14, 4.4))
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.05))
axes = left.subplots()
for one in series:
    (drawn,) = axes.semilogx(one.x, one.y, marker="o", markersize=4, label=one.name, ls="--" if one.dashed else "-")
    axes.fill_between(one.x, one.low, one.high, color=drawn.get_color(), alpha=0.2, lw=0)
axes.set(xlabel="noise level σ", ylabel="RMSE to the Gaussian denoiser, held-out images")
axes.grid(color="0.9")
axes.legend(fontsize=8)
for (label, images), panel in zip(rows, right.subplots(len(rows), 1), strict=True):
    strip = np.concatenate([np.pad(image[0], 1, constant_values=255) for image in images[:COLUMNS]], axis=1)
    panel.imshow(strip, cmap="gray", vmin=0, vmax=255)
    panel.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
right.subplots_adjust(left=0.3, right=0.99, top=0.97, bottom=0.03, hspace=0.08)
figure.savefig(Path(__file__).parents[1] / "docs" / "picture.png", dpi=100)
