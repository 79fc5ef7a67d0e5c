"""How much of a network its references explain, at the noise levels at which others have published it.

Explained variance, 1 − Σ‖D − R‖²/Σ‖D − D̄‖² over noisy images, is what public models of CIFAR-10 were compared by: at five
levels that are not among the ten of the other measures. In a study's file:

    Part("explained", explained(plan, model))
"""

from collections.abc import Iterator
from typing import Any

from .cells import Cell, Record, Task, versioned
from .models import subject_of
from .plans import Plan

QUANTITY = "explained_variance"
_LEVELS = (10.0, 5.0, 2.0, 1.0, 0.5)
_REFERENCES = ("gaussian", "multidelta")


def explained(plan: Plan, model: Cell) -> Cell:
    """The cell that compares a model with its references; equal for equal arguments."""
    calls = 2 * len(_LEVELS) * plan.count
    return plan.on_model("explain_variance", model, module=__name__, calls=calls, sigmas=_LEVELS)


@versioned(1)
def explain_variance(task: Task) -> Iterator[Record]:
    """Explained variance of the network by the Gaussian and the multi-delta denoiser of its training images.

    Yields:
        The records, on training and on held-out images.
    """
    from ..measures.gaps import gap
    from ..measuring.records import of_curve

    subject, tags = subject_of(task)
    how: dict[str, Any] = {"count": subject.config.count, "seed": subject.config.seed, "device": subject.device}
    for inputs in subject.inputs:
        if inputs.name == "surrogate":
            continue
        for reference in _REFERENCES:
            network, other = subject.remembering["network"], subject.remembering[reference]
            curve = gap(network, other, inputs.images, subject.sigmas, metric="ev", **how, **inputs.options)
            for record in of_curve(QUANTITY, curve, on=inputs.name, denoiser="network", reference=reference):
                yield {**tags, **record}
