"""Close-ups: what several models make of the same inputs at a high and at an intermediate noise level (Figs. 17 and 18).

In a study's file:

    close_ups(plan, model, "wide")                                      # in its parts
    close_up_grid(findings, [("wide", "wide", "network")], MIDDLE, …)   # in its drawing
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...experiments.task import Task
from ...report import ImageGrid
from ..plan import Plan
from ..study import Findings, Part
from ..tasks.denoised_outputs import denoised_outputs_task

HIGH, MIDDLE = 60.0, 4.0
"""The paper's two noise levels: at the first little but the mean image can be told, at the second memorising shows."""

_LEVELS = (HIGH, MIDDLE)
_CLOSED_FORM = ("gaussian", "multidelta")
_PICTURES = 5


def close_ups(plan: Plan, model: Task, key: str, *, kimg: float | None = None, controls: bool = False) -> list[Part]:
    """The parts that denoise held-out images at both levels, and pure noise."""
    denoisers = ("network", *(_CLOSED_FORM if controls else ()))
    how: dict[str, Any] = {"denoisers": denoisers, "sigmas": _LEVELS, "pictures": _PICTURES, "kimg": kimg}
    return [
        Part(f"{inputs} denoised by {key}", denoised_outputs_task(plan, model, inputs=inputs, **how))
        for inputs in ("images", "noise")
    ]


def close_up_grid(
    findings: Findings, rows: Sequence[tuple[str, str, str]], sigma: float, *, noise: bool = False, **words: Any
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
        command=findings.command,
        **words,
    )


def _outputs(findings: Findings, kinds: dict[str, str], key: str, name: str, sigma: float) -> NDArray[Any] | None:
    parts = [findings.array(f"{inputs} denoised by {key}", name) for inputs in kinds]
    if any(part is None for part in parts):
        return None
    return np.concatenate([part[_LEVELS.index(sigma)] for part in parts])
