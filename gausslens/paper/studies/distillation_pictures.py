"""Pictures of the study of distillation: correlation maps, spectra, singular vectors, and outputs of models of all sizes."""

import numpy as np

from ...noise import karras_sigmas
from ...report import Axis, CurveFigure, Figure, ImageGrid, Series
from ..figures import about
from ..pictures import correlation_maps
from ..study import Findings

SHOWN_SIGMA = karras_sigmas(10)[4].item()
"""The level, near σ = 4, at which outputs are shown."""

_SPECTRA = (42.4, 9.72, 4.07, 0.47)  # noise levels, or those nearest to them
_LEAST_GAIN = 1e-5  # of the largest; what is below is not drawn
_ROW = 5  # singular vectors side by side


def outputs_key(n: int, inputs: str) -> str:
    """What the study calls the outputs of the model on n images."""
    return f"outputs of {n} on {inputs}"


def draw_pictures(findings: Findings) -> list[Figure | None]:
    """All of them, None for what is not finished."""
    key = f"distilled {findings.plan.sizes[-1]}, seed {findings.plan.shown}"
    return [_maps(findings, key), _spectra(findings, key), _vectors(findings, key), _outputs(findings)]


def _maps(findings: Findings, key: str) -> Figure | None:
    values = findings.array(key, "correlation")
    if values is None:
        return None
    return correlation_maps(
        findings,
        key,
        title="Singular vectors of the linear map against principal components",
        caption=f"|U_WᵀU| of the first {values.shape[1]} left singular vectors of the unshrunk linear map of the "
        "network on the most images, distilled on held-out images, and the principal components of the training "
        "images. A diagonal means the same directions; blocks on it, the same subspaces of near-equal eigenvalues.",
        **about(4, "C9"),
    )


def _spectra(findings: Findings, key: str) -> CurveFigure | None:
    found, gains = findings.array(key, "singular_values"), findings.array(key, "gains")
    if found is None:
        return None
    sigmas, series = findings.array(key, "sigmas"), []
    nearest = (int(np.abs(np.log(sigmas / sigma)).argmin()) for sigma in _SPECTRA)
    for level in dict.fromkeys(nearest):
        index = np.arange(1, found.shape[1] + 1)
        name = f"σ = {sigmas[level]:.3g}"
        series.append(Series(f"linear, {name}", index, found[level], markers=False))
        seen = np.where(gains[level] > _LEAST_GAIN * gains[level].max(), gains[level], np.nan)
        series.append(Series(f"Gaussian, {name}", index, seen, dashed=True, markers=False))
    return CurveFigure(
        title="Singular values of the linear map and of the Gaussian",
        caption="Of the same map, and the gains λ/(λ+σ²) of the Wiener filter (dashed), as long as they are more than "
        "1e-5 of the largest. One training, held-out images.",
        **about(14, "C9"),
        x=Axis("index", log=True),
        y=Axis("singular value", log=True),
        series=tuple(series),
    )


def _vectors(findings: Findings, key: str) -> ImageGrid | None:
    vectors, components = findings.array(key, "vectors"), findings.array(key, "components")
    if vectors is None:
        return None
    rows, pictures = [], []
    width = min(_ROW, len(vectors))
    for start in range(0, len(vectors) - width + 1, width):
        for name, images in (("linear", vectors), ("Gaussian", components)):
            rows.append(f"{name}, {start + 1} to {start + width}")
            pictures.append(images[start : start + width])
    return ImageGrid(
        title="Singular vectors of the linear map and of the Gaussian, as images",
        caption=f"The first {len(rows) // 2 * width} at σ = {SHOWN_SIGMA:.3g}: left singular vectors of the linear map "
        "of the network on the most images, and below them the principal components of its training images. Zero is "
        "grey. Vectors of near-equal singular values are determined only up to rotation among themselves.",
        **about(14, "C9"),
        rows=tuple(rows),
        columns=tuple(f"place {place + 1}" for place in range(width)),
        images=np.stack(pictures),
        training=False,
    )


def _outputs(findings: Findings) -> ImageGrid | None:
    sizes = list(reversed(findings.plan.sizes))
    kinds = {"noise": "noise alone", "images": "noisy image"}
    there = [n for n in sizes if all(findings.array(outputs_key(n, kind), "network") is not None for kind in kinds)]
    if not there:
        return None
    rows, pictures = [], []
    for kind, words in kinds.items():
        first = outputs_key(there[0], kind)
        columns = [findings.array(first, "inputs")[0], findings.array(first, "gaussian")[0]]
        columns += [findings.array(outputs_key(n, kind), "network")[0] for n in there]
        for index in range(len(columns[0])):
            rows.append(f"{words}, {index + 1}")
            pictures.append(np.stack([images[index] for images in columns]))
    return ImageGrid(
        title=f"Outputs at σ = {SHOWN_SIGMA:.3g}, by number of training images",
        caption="What the Gaussian of the most images and networks on more or fewer images make of noise alone, σ·eps, "
        "and of noisy held-out images, x + σ·eps. A network that memorises answers with something like a training "
        "image also where there is no image. Inputs are shown with less contrast.",
        **about(5, "C10"),
        rows=tuple(rows),
        columns=("input", f"Gaussian, N = {there[0]:,}", *(f"network, N = {n:,}" for n in there)),
        images=np.stack(pictures),
    )
