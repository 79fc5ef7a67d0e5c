"""Pictures that several studies show: samples, outputs at one noise level, and singular vectors.

Rows of a grid are (label, name of the part, name of its array). Rows whose part is not finished are left out. In a study:

    close_ups(plan, model, "wide")                                      # in its parts
    close_up_grid(findings, [("wide", "wide", "network")], MIDDLE, …)   # in its figures
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..experiments.task import Task
from ..report import HeatMap, ImageGrid
from .figures import Drawing, about, sigma_label
from .plan import Plan
from .study import Findings, Part
from .tasks.denoised_outputs import denoised_outputs_task

Row: TypeAlias = tuple[str, str, str]

HIGH, MIDDLE = 60.0, 4.0
"""The paper's two noise levels: outputs at the first are close to the mean image, at the second memorising shows."""

_LEVELS = (HIGH, MIDDLE)
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


def trajectory_grid(
    findings: Findings, rows: Sequence[Row], *, noises: Sequence[int] = (0,), **words: Any
) -> ImageGrid | None:
    """Trajectories as rows of images, a column for each noise level."""
    found = [(label, key, findings.array(key, name)) for label, key, name in rows]
    there = [(label, key, paths) for label, key, paths in found if paths is not None]
    if not there:
        return None
    sigmas = findings.array(there[0][1], "sigmas")
    several = len(noises) > 1
    return ImageGrid(
        rows=tuple(f"noise {noise + 1}, {label}" if several else label for noise in noises for label, _, _ in there),
        columns=tuple(map(sigma_label, sigmas)),
        images=np.stack([paths[noise] for noise in noises for _, _, paths in there]),
        **words,
    )


def samples_of_few(
    findings: Findings,
    models: Mapping[str, str],
    closed_forms: str,
    of_many: Row,
    *,
    n: tuple[int, int],
    claim: str,
    **words: Any,
) -> ImageGrid | None:
    """Samples of networks on few images, by labels and names of parts, with controls; None without such a network.

    `n` are the numbers of images, few and many.
    """
    if not any(findings.result(key) for key in models.values()):
        return None
    rows: list[Row] = [("Gaussian", closed_forms, "gaussian")]
    for label, key in models.items():
        rows += [(label, key, "network"), ("nearest training image", key, "nearest")]
    return sample_grid(
        findings,
        [*rows, ("multi-delta", closed_forms, "multidelta"), of_many],
        caption=f"Samples of networks on {n[0]:,} images and their nearest training images, all from the same initial "
        "noise. Controls: samples of the Gaussian (first row) and of the multi-delta denoiser (last row but one) of "
        f"these images, and of a network on {n[1]:,} images (last row). The claim is that {claim}.",
        **words,
    )


def close_ups(
    plan: Plan, model: Task, key: str, *, inputs: Sequence[str] = ("images", "noise"), **options: Any
) -> Iterator[Part]:
    """The parts that denoise held-out images, and pure noise, at a few levels; options as in `denoised_outputs_task`."""
    how: dict[str, Any] = {"denoisers": ("network",), "sigmas": _LEVELS, "pictures": _PICTURES, **options}
    for kind in inputs:
        yield Part(f"{kind} denoised by {key}", denoised_outputs_task(plan, model, inputs=kind, **how))


def close_up_grid(
    findings: Findings,
    rows: Sequence[Row],
    sigma: float,
    *,
    noise: bool = False,
    sigmas: Sequence[float] = _LEVELS,
    **words: Any,
) -> ImageGrid | None:
    """Outputs at one of these noise levels, a row for each denoiser, below a row of their inputs."""
    kinds = {"noise": "ε", "images": "y"} if noise else {"images": "y"}

    def outputs(key: str, name: str) -> NDArray[Any] | None:
        found = [findings.array(f"{kind} denoised by {key}", name) for kind in kinds]
        there = all(levels is not None for levels in found)
        return np.concatenate([levels[sigmas.index(sigma)] for levels in found]) if there else None

    images: dict[str, Any] = {}
    for label, key, name in rows:
        if (of_row := outputs(key, name)) is not None:
            images |= {label: of_row} if images else {"input": outputs(key, "inputs"), label: of_row}
    if not images:
        return None
    each = len(images["input"]) // len(kinds)
    return ImageGrid(
        rows=tuple(images),
        columns=tuple(f"{letter} {index + 1}" for letter in kinds.values() for index in range(each)),
        images=np.stack([*images.values()]),
        **words,
    )


def close_ups_of_few(
    findings: Findings,
    networks: Sequence[Row],
    closed_forms: str,
    by: str,
    *,
    high: str,
    claim: str,
    claims: Sequence[str],
) -> Iterator[Drawing]:
    """Outputs of networks on few images and of the closed-form denoisers of these images, at both noise levels."""
    gaussian, memory = ("Gaussian", closed_forms, "gaussian"), ("multi-delta", closed_forms, "multidelta")
    outputs = f"Outputs of networks trained on {findings.plan.few:,} images for noisy held-out images y"
    yield close_up_grid(
        findings,
        [gaussian, memory, *networks],
        HIGH,
        **about(f"Outputs at σ = {HIGH:g}{by}", 17, *claims),
        caption=f"{outputs}, which are shown scaled down. {high} Controls: the closed-form denoisers of these images.",
    )
    yield close_up_grid(
        findings,
        [gaussian, *networks, memory],
        MIDDLE,
        noise=True,
        **about(f"Outputs at σ = {MIDDLE:g}{by}", 18, "C11"),
        caption=f"{outputs} and for pure noise ε. The claim is that {claim}. Controls: the closed-form denoisers.",
    )


def correlation_maps(
    findings: Findings, key: str, caption: str, *, levels: Sequence[int] | None = None, **words: Any
) -> HeatMap | None:
    """|UᵀU_data| of left singular vectors and principal components at each noise level, or at some."""
    values, sigmas = findings.array(key, "correlation"), findings.array(key, "sigmas")
    if values is None:
        return None
    shown = range(len(values)) if levels is None else levels
    return HeatMap(
        caption=f"|UᵀU_data|, the absolute inner products of the first {values.shape[1]} left singular vectors (the "
        f"columns of U) {caption} A diagonal means the same directions; a bright block on it means the same subspace.",
        panels=tuple(sigma_label(float(sigmas[level])) for level in shown),
        values=values[list(shown)],
        x_label="principal component",
        y_label="singular vector",
        value_label="|correlation|",
        **words,
    )


def jacobian_pictures(
    findings: Findings, key: str, levels: Sequence[int], whose: str, *what: int | str
) -> Iterator[Drawing]:
    """The Jacobians at points of one trajectory: their correlation maps, and their first singular vectors as images."""
    yield correlation_maps(
        *(findings, key, "and of as many principal components (columns of U_data), at five points of one trajectory."),
        levels=levels,
        **about(f"Singular vectors of the Jacobian{whose} against principal components", *what),
    )
    path, vectors = findings.array(key, "path"), findings.array(key, "vectors")
    if path is None:
        return
    sigmas, components = findings.array(key, "sigmas"), findings.array(key, "components")
    rows = {"output": np.concatenate([findings.array(key, "mean"), path])}
    for place, component in enumerate(components):
        rows[f"direction {place + 1}"] = np.concatenate([component[None], vectors[:, place]])
    yield ImageGrid(
        **about(f"A trajectory{whose}, and the first singular vectors of the Jacobian along it", *what),
        caption="Output D(x_t) and first left singular vectors of the Jacobian at lower and lower noise; the first "
        "column has the mean and the first principal components of the training images. At high noise the vectors "
        "should resemble the components, and at low noise the image. Zero is grey, each vector's sign is chosen to "
        "match its component's, and vectors with near-equal singular values are determined only up to rotation.",
        rows=tuple(rows),
        columns=("images", *map(sigma_label, sigmas.tolist())),
        images=np.stack([*rows.values()]),
    )
