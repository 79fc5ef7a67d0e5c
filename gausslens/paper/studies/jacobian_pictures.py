"""Pictures of Jacobians along a trajectory: singular vectors against principal components, as maps and as images.

They are drawn from the arrays that `sensitivity` and `levels` keep under the same names.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...report import HeatMap, ImageGrid
from ..study import Findings


def correlation_maps(findings: Findings, key: str, levels: Sequence[int], **words: Any) -> HeatMap | None:
    """|UᵀU_data| of left singular vectors and principal components at points of one trajectory."""
    values, sigmas = findings.array(key, "correlation"), findings.array(key, "sigmas")
    if values is None:
        return None
    return HeatMap(
        caption=f"|UᵀU_data| of the first {values.shape[1]} left singular vectors at five points of one trajectory. "
        "A diagonal means the same directions, a bright block on it the same subspace.",
        command=findings.command,
        panels=tuple(f"σ = {sigmas[level]:.3g}" for level in levels),
        values=values[list(levels)],
        x_label="principal component",
        y_label="singular vector",
        value_label="|correlation|",
        **words,
    )


def vector_grid(findings: Findings, key: str, **words: Any) -> ImageGrid | None:
    """A trajectory and, below, the first left singular vectors of the Jacobian at each of its points."""
    path, vectors = findings.array(key, "path"), findings.array(key, "vectors")
    if path is None:
        return None
    sigmas, components = findings.array(key, "sigmas"), findings.array(key, "components")
    rows = [np.concatenate([findings.array(key, "mean"), path])]
    rows += [np.concatenate([components[place : place + 1], vectors[:, place]]) for place in range(len(components))]
    return ImageGrid(
        caption="First column: mean and first principal components of the training images. Then, at lower and lower "
        "noise, the output D(x_t) and the first left singular vectors of the Jacobian there, grey where they are zero, "
        "signed as the components are. Look where they stop to resemble the components and take the shape of the image. "
        "Vectors of near-equal singular values are determined up to rotation only.",
        command=findings.command,
        rows=("output", *(f"direction {place + 1}" for place in range(len(components)))),
        columns=("images", *(f"σ = {sigma:.3g}" for sigma in sigmas)),
        images=np.stack(rows),
        **words,
    )
