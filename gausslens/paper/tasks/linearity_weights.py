"""Linearity with unequal weights of the two noisy inputs, and on pure noise."""

import math
from collections.abc import Iterator

from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import TaskContext, task
from ...measures.linearity import linearity
from ...store.records import Record, of_curve

_SQUARES = (0.5, 0.6225, 0.745, 0.8675, 0.99)  # α² as in the paper; the others are compared with the first


@task("vary_weights", version=1, of_0_1="studies.superposing")
def vary_weights(context: TaskContext) -> Iterator[Record]:
    """Linearity with other weights α and β = √(1 − α²), on noisy held-out images and on pure noise.

    Options are those of `evaluation_of`.

    Yields:
        `linearity_cosine` and `linearity_nmse` with `alpha`, and `linearity_difference`: the cosine at α² = ½ minus that at
        `alpha`, pair by pair. `on` is held_out, or noise for inputs σ·eps.
    """
    evaluation = evaluation_of(context)
    asked = [
        *(("network", inputs, False, ("cosine", "nmse")) for inputs in ("images", "noise")),
        ("network", "images", True, ("cosine",)),
        *((name, "images", False, ("cosine",)) for name in evaluation.references),
    ]
    alphas = [math.sqrt(square) for square in _SQUARES]
    for name, inputs, affine, metrics in context.each(asked):
        said = {"denoiser": name, "on": "held_out" if inputs == "images" else inputs, "affine": affine}
        # Both measures of one weight follow each other, while the answers that they share are remembered.
        curves = {
            (metric, alpha): evaluation.curve(
                *(linearity, evaluation.inputs["held_out"], evaluation.cached_denoisers[name]),
                metric=metric,
                affine=affine,
                alpha=alpha,
                inputs=inputs,
            )
            for alpha in alphas
            for metric in metrics
        }
        for (metric, alpha), curve in curves.items():
            yield from of_curve(f"linearity_{metric}", curve, alpha=alpha, **said)
            if metric == "cosine" and not affine and alpha != alphas[0]:
                difference = curves[metric, alphas[0]] - curve
                yield from of_curve("linearity_difference", difference, alpha=alpha, **said)
