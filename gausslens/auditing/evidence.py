"""The numbers behind a verdict, all optional, and which noise levels they can be read at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..measures.intervals import Estimate
from .foreignness import Foreignness
from .losses import BASELINE, GAUSSIAN, MULTIDELTA, LossGap
from .thresholds import THRESHOLDS


@dataclass(frozen=True)
class Evidence:
    """The numbers behind a verdict; None is not measured. Sequences have one entry for each noise level.

    Attributes:
        sigmas: the noise levels.
        window: the levels at which a memoriser would be seen.
        intermediate: the levels at which denoising is neither trivial nor hopeless.
        rho: position of the loss gap between the Gaussian (0) and the multi-delta denoiser (1), where resolved.
        position: position of the loss gap between the baseline and the multi-delta denoiser, where resolved.
        retrieval: κ, the share of the multi-delta denoiser's answers to held-out images, where resolved.
        train_loss: loss on training images, in units of the baseline's.
        held_out_loss: loss on held-out images, in units of the baseline's.
        auc: of the loss, training against held-out images.
        p_values: of the AUC.
        distance_gaussian: distance to the Gaussian denoiser on held-out images, or on training images without them.
        distance_multidelta: distance to the multi-delta denoiser on the same.
        foreignness: whether the images look foreign to the model.
        memorized_fraction: share of samples three times nearer to one training image than to any other.
        copied_fraction: share of samples named as copies by the copy test.
        copy_p: p-value of the copy test.
        relative_gl: GL score of the samples in units of that of held-out images.
    """

    sigmas: tuple[float, ...] | None = None
    window: tuple[bool, ...] | None = None
    intermediate: tuple[bool, ...] | None = None
    rho: Sequence[Estimate | None] | None = None
    position: Sequence[Estimate | None] | None = None
    retrieval: Sequence[Estimate | None] | None = None
    train_loss: Sequence[Estimate | None] | None = None
    held_out_loss: Sequence[Estimate | None] | None = None
    auc: Sequence[Estimate] | None = None
    p_values: tuple[float, ...] | None = None
    distance_gaussian: Sequence[Estimate] | None = None
    distance_multidelta: Sequence[Estimate] | None = None
    foreignness: Foreignness | None = None
    memorized_fraction: Estimate | None = None
    copied_fraction: Estimate | None = None
    copy_p: float | None = None
    relative_gl: Estimate | None = None

    @classmethod
    def of_losses(cls, losses: LossGap, name: str = "network", **others: Any) -> "Evidence":
        """What the losses of a denoiser say, beside other evidence.

        Args:
            losses: from `measure_losses`.
            name: of the denoiser.
            **others: further fields.

        Returns:
            The evidence.
        """
        known = {
            "sigmas": tuple(losses.sigmas.tolist()),
            "intermediate": intermediate_levels(losses),
            "train_loss": losses.relative(name, BASELINE, "train"),
        }
        if losses.calibrated:
            known |= {
                "window": informative_levels(losses),
                "rho": losses.position(name),
                "position": losses.position(name, BASELINE),
                "retrieval": losses.retrieval(name),
                "held_out_loss": losses.relative(name, BASELINE),
                "auc": losses.auc(name),
                "p_values": tuple(losses.p_values(name).tolist()),
            }
        return cls(**{**known, **others})


def informative_levels(losses: LossGap) -> tuple[bool, ...]:
    """Levels at which the multi-delta denoiser's gap is visible and the Gaussian's well below it."""
    gaps = {
        name: losses.held_out[name].mean(1) - losses.train[name].mean(1) for name in (GAUSSIAN, MULTIDELTA, BASELINE)
    }
    reach = gaps[MULTIDELTA] - gaps[BASELINE]
    visible = reach >= THRESHOLDS["visible"].value * losses.held_out[BASELINE].mean(1)
    apart = gaps[GAUSSIAN] - gaps[BASELINE] <= THRESHOLDS["gaussian"].value * reach
    return tuple((visible & apart).tolist())


def intermediate_levels(losses: LossGap) -> tuple[bool, ...]:
    """Levels at which the baseline is better than the noisy image, and than the mean image: its loss at the top level."""
    plain = (losses.held_out if losses.calibrated else losses.train)[BASELINE].mean(1)
    share = THRESHOLDS["noisy"].value
    return tuple(((plain <= share * losses.sigmas.square()) & (plain <= share * plain.max())).tolist())
