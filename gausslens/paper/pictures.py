"""Pictures that several studies show: samples, outputs at one noise level, and Jacobians along a trajectory.

Rows of a grid are (label, name of the part, name of its array); those that are not finished are left out. In a study's file:

    close_ups(plan, model, "wide")                                      # in its parts
    close_up_grid(findings, [("wide", "wide", "network")], MIDDLE, …)   # in its figures
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..experiments.task import Task
from ..report import HeatMap, ImageGrid
from .figures import sigma_label
from .plan import Plan
from .study import Findings, Part
from .tasks.denoised_outputs import denoised_outputs_task

Row: TypeAlias = tuple[str, str, str]

HIGH, MIDDLE = 60.0, 4.0
"""The paper's two noise levels: at the first little but the mean image can be told, at the second memorising shows."""

_LEVELS = (HIGH, MIDDLE)
_CLOSED_FORM = ("gaussian", "multidelta")
_PICTURES = 5


def sample_grid(
    findings: Findings,
    rows: Sequence[Row],
    *,
    columns: int = 10,
    pick: Callable[[NDArray[Any]], NDArray[Any]] = lambda images: images,
    **words: Any,
) -> ImageGrid | None:
    """Samples of several models from the same noise, a row for each; `pick` takes them out of an array."""
    found = [(label, findings.array(key, name)) for label, key, name in rows]
    there = [(label, pick(images)[:columns]) for label, images in found if images is not None]
    if not there:
        return None
    width = min(len(images) for _, images in there)
    return ImageGrid(
        rows=tuple(label for label, _ in there),
        columns=tuple(f"noise {index + 1}" for index in range(width)),
        images=np.stack([images[:width] for _, images in there]),
        **words,
    )


def close_ups(plan: Plan, model: Task, key: str, *, kimg: float | None = None, controls: bool = False) -> list[Part]:
    """The parts that denoise held-out images at both levels, and pure noise."""
    denoisers = ("network", *(_CLOSED_FORM if controls else ()))
    how: dict[str, Any] = {"denoisers": denoisers, "sigmas": _LEVELS, "pictures": _PICTURES, "kimg": kimg}
    return [
        Part(f"{inputs} denoised by {key}", denoised_outputs_task(plan, model, inputs=inputs, **how))
        for inputs in ("images", "noise")
    ]


def close_up_grid(
    findings: Findings, rows: Sequence[Row], sigma: float, *, noise: bool = False, **words: Any
) -> ImageGrid | None:
    """Outputs at one noise level, a row for each denoiser, below a row of their inputs."""
    kinds = {"noise": "ε", "images": "y"} if noise else {"images": "y"}
    found = [(label, _outputs(findings, kinds, key, name, sigma)) for label, key, name in rows]
    there = [(label, images) for label, images in found if images is not None]
    inputs = [_outputs(findings, kinds, key, "inputs", sigma) for _, key, _ in rows]
    if not there:
        return None
    first = next(images for images in inputs if images is not None)
    each = len(first) // len(kinds)
    return ImageGrid(
        rows=("input", *(label for label, _ in there)),
        columns=tuple(f"{letter} {index + 1}" for letter in kinds.values() for index in range(each)),
        images=np.stack([first, *(images for _, images in there)]),
        **words,
    )


def _outputs(findings: Findings, kinds: dict[str, str], key: str, name: str, sigma: float) -> NDArray[Any] | None:
    parts = [findings.array(f"{inputs} denoised by {key}", name) for inputs in kinds]
    if any(part is None for part in parts):
        return None
    return np.concatenate([part[_LEVELS.index(sigma)] for part in parts])


def correlation_maps(findings: Findings, key: str, levels: Sequence[int] | None = None, **words: Any) -> HeatMap | None:
    """|UᵀU_data| of left singular vectors and principal components at each noise level, or at some."""
    values, sigmas = findings.array(key, "correlation"), findings.array(key, "sigmas")
    if values is None:
        return None
    shown = range(len(values)) if levels is None else levels
    return HeatMap(
        panels=tuple(sigma_label(sigmas[level]) for level in shown),
        values=values[list(shown)],
        x_label="principal component",
        y_label="singular vector",
        value_label="|correlation|",
        **words,
    )


def jacobian_maps(findings: Findings, key: str, levels: Sequence[int], **words: Any) -> HeatMap | None:
    """The same of Jacobians at points of one trajectory."""
    values = findings.array(key, "correlation")
    if values is None:
        return None
    caption = (
        f"|UᵀU_data| of the first {values.shape[1]} left singular vectors at five points of one trajectory. A diagonal "
        "means the same directions, a bright block on it the same subspace."
    )
    return correlation_maps(findings, key, levels, caption=caption, **words)


def jacobian_vectors(findings: Findings, key: str, **words: Any) -> ImageGrid | None:
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
        "signed as the components are. Look where they stop to resemble the components and take the shape of the "
        "image. Vectors of near-equal singular values are determined up to rotation only.",
        rows=("output", *(f"direction {place + 1}" for place in range(len(components)))),
        columns=("images", *map(sigma_label, sigmas)),
        images=np.stack(rows),
        **words,
    )
