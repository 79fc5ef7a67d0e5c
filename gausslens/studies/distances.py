"""Distances of a network to the closed-form denoisers of its images, for networks that are too many or too slow to distil.

They are those of the measure `gap`, on the same noisy inputs, without the linear denoiser, which takes ten calls of the
network for every pixel to fit.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .cells import Cell, Record, Task, versioned
from .models import subject_of
from .plans import Plan

if TYPE_CHECKING:
    from ..measuring.subject import Subject

_METRICS = ("rmse", "nmse")


def measured_distances(plan: Plan, model: Cell, **options: Any) -> Cell:
    """The cell that measures the distances of a model, at ten levels; `options` are those that `subject_of` reads."""
    return plan.on_model("measure_distances", model, module=__name__, calls=30 * plan.count, **options)


@versioned(1)
def measure_distances(task: Task) -> Iterator[Record]:
    """Measure the model of the first input. Options are those that `subject_of` reads.

    Yields:
        The records of `distances`.
    """
    subject, tags = subject_of(task)
    for record in distances(subject):
        yield {**tags, **record}


def distances(subject: "Subject") -> Iterator[Record]:
    """How far the network is from each closed form, and, as a control, the multi-delta denoiser from the Gaussian.

    Args:
        subject: the network with its images and references.

    Yields:
        `gap_rmse` and `gap_nmse` with the `denoiser` network and the `reference` gaussian, multidelta and, where it is
        another, gaussian_full, and with the denoiser multidelta and the reference gaussian; at each `sigma`, on held-out
        and training images and on surrogates.
    """
    from ..measures.gaps import gap
    from ..measuring.measurements import of_curve

    network, gaussian, memory = subject.remembering.values()
    pairs: list[tuple[str, Any, str, Any]] = [
        ("network", network, "gaussian", gaussian),
        ("network", network, "multidelta", memory),
        ("multidelta", memory, "gaussian", gaussian),
    ]
    if subject.full_gaussian is not None:
        pairs.append(("network", network, "gaussian_full", subject.full_gaussian))
    how: dict[str, Any] = {"count": subject.config.count, "seed": subject.config.seed, "device": subject.device}
    for inputs in subject.inputs:
        for name, denoiser, against, reference in pairs:
            for metric in _METRICS:
                curve = gap(denoiser, reference, inputs.images, subject.sigmas, metric=metric, **how, **inputs.options)
                yield from of_curve(f"gap_{metric}", curve, on=inputs.name, denoiser=name, reference=against)
