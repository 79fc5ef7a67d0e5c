"""The numbers behind a verdict, all optional, and which noise levels they can be read at.

They are made of the losses themselves, or read back from an audit's records: quantities that are named as a field here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..measures.intervals import Estimate
from ..store.records import Record
from .families import PLAIN
from .losses import BASELINE, GAUSSIAN, MULTIDELTA, LossGap
from .membership import Membership, lower_limit, measure_membership
from .preprocessing_check import Foreignness
from .thresholds import THRESHOLDS

BY_LEVEL = ("rho", "position", "retrieval", "train_loss", "held_out_loss", "auc", "memory_share")
FLAGS = ("window", "intermediate", "near_gaussian")
DISTANCES = {
    "distance_gaussian": {"denoiser": "network", "reference": "gaussian"},
    "distance_multidelta": {"denoiser": "network", "reference": "multidelta"},
    "distance_references": {"denoiser": "multidelta", "reference": "gaussian"},
}
"""Which two denoisers a distance is between."""

FEWEST_ORIGINALS = 3
"""With fewer, no copy can be told from a likeness."""


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
        near_gaussian: whether on held-out images it is nearer to the Gaussian denoiser than half the distance between both
            references.
        train_loss: loss on training images, in units of the baseline's.
        held_out_loss: loss on held-out images, in units of the baseline's.
        auc: of the loss, training against held-out images.
        distance_gaussian: distance to the Gaussian denoiser on held-out images, or on training images without them.
        distance_multidelta: distance to the multi-delta denoiser on the same.
        foreignness: whether the images look foreign to the model.
        distance_references: distance between these two denoisers on the same.
        refused: why training and held-out images are no draws of one law; None if nothing speaks against it.
        auc_low: lower limits of the AUC that hold at all levels together.
        tpr: true-positive rates at 1 % false positives, with limits that hold at all levels together.
        memory_share: μ, how much lower the loss is on training images.
        filter_auc: AUC of the Gaussian denoiser at the level of the model's greatest AUC.
        copies_exist: whether copies exist among the samples.
        copied_share: share of samples that are copies by the rule.
        real_share: share of real images that are copies by the rule.
        copy_p: the least p-value of the comparisons of whole, unchanged copies with their controls.
        copied_originals: how many training images are copied.
        copied_classes: classes that most copies are of, for a conditional model that copies few classes.
        parts: names of the parts of training images that samples copy.
        too_few_originals: whether there are fewer than three originals, so that no copy can be told from a likeness.
        overlap_decides: whether copies exist only if held-out images that repeat training images are left out.
        undecided_copies: why copies of images that stand repeatedly in the training set cannot be judged, if so.
        two_set_p: p-value of the two-set copy test.
    """

    sigmas: tuple[float, ...] | None = None
    window: tuple[bool, ...] | None = None
    intermediate: tuple[bool, ...] | None = None
    rho: Sequence[Estimate | None] | None = None
    position: Sequence[Estimate | None] | None = None
    retrieval: Sequence[Estimate | None] | None = None
    near_gaussian: tuple[bool, ...] | None = None
    train_loss: Sequence[Estimate | None] | None = None
    held_out_loss: Sequence[Estimate | None] | None = None
    auc: Sequence[Estimate] | None = None
    distance_gaussian: Sequence[Estimate] | None = None
    distance_multidelta: Sequence[Estimate] | None = None
    foreignness: Foreignness | None = None
    distance_references: Sequence[Estimate] | None = None
    refused: str | None = None
    auc_low: tuple[float, ...] | None = None
    tpr: Sequence[Estimate] | None = None
    memory_share: Sequence[Estimate] | None = None
    filter_auc: Estimate | None = None
    copies_exist: bool | None = None
    copied_share: Estimate | None = None
    real_share: Estimate | None = None
    copy_p: float | None = None
    copied_originals: int | None = None
    copied_classes: tuple[int, ...] = ()
    parts: tuple[str, ...] = ()
    too_few_originals: bool = False
    overlap_decides: bool = False
    undecided_copies: str | None = None
    two_set_p: float | None = None

    @classmethod
    def of_losses(cls, losses: LossGap, name: str = "network", **others: Any) -> "Evidence":
        """What the losses of a denoiser say, beside other evidence."""
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
                "near_gaussian": losses.near_gaussian(name),
                "held_out_loss": losses.relative(name, BASELINE),
                **_of_membership(measure_membership(losses, name)),
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


def _of_membership(found: Membership) -> dict[str, Any]:
    return {
        "auc": found.auc,
        "auc_low": tuple(found.auc_low),
        "tpr": found.tpr.get(0.01),
        "memory_share": found.memory_share,
        "filter_auc": found.filter_auc,
    }


def evidence_of(records: Sequence[Record]) -> Evidence:
    """What the rules judge by, from the records of all stages."""
    by: dict[str, list[Record]] = {}
    for record in records:
        by.setdefault(record["quantity"], []).append(record)
    for name, which in DISTANCES.items():
        if of_pair := [one for one in by.get("rmse", ()) if which.items() <= one.items()]:
            by[name] = of_pair
    levels = tuple(record["sigma"] for record in by.get("intermediate", ()))
    known: dict[str, Any] = {"sigmas": levels or None}
    for quantity in (*BY_LEVEL, *DISTANCES):
        if quantity in by:
            at = {record["sigma"]: _estimate(record) for record in by[quantity] if record["value"] is not None}
            known[quantity] = tuple(at.get(sigma) for sigma in levels)
    for quantity in (*FLAGS, "auc_low"):
        if quantity in by:
            known[quantity] = tuple(record["value"] for record in by[quantity])
    for quantity in ("copied_share", "real_share", "filter_auc"):
        if quantity in by:
            known[quantity] = _estimate(by[quantity][0])
    for quantity in ("copies_exist", "overlap_decides", "two_set_p"):
        if quantity in by:
            known[quantity] = by[quantity][0]["value"]
    plain = [record["value"] for record in by.get("copy_p", ()) if record.get("family") == PLAIN]
    known["copy_p"] = min(plain, default=None)
    if "auc_low" not in by and "auc" in known:  # records of version 0.1
        known["auc_low"] = tuple(lower_limit(one, one.count // 2, len(levels)) for one in known["auc"])
    known["tpr"] = [_estimate(one) for one in by.get("tpr", ()) if one["false_positive_rate"] == 0.01] or None
    if "refused" in by:
        known["refused"] = by["refused"][0]["reason"]
    for found in by.get("undecided_copies", ()):
        known["undecided_copies"] = (
            f"{found['value']:,} of {found['count']:,} samples match images that stand repeatedly in the training set, and "
            f"{found['real_count']:,} held-out images are too few to say whether these were memorised or are commonplace."
        )
    if "copied_original" in by:
        known["copied_originals"] = len(by["copied_original"])
    if "originals" in by:
        known["too_few_originals"] = by["originals"][0]["value"] < FEWEST_ORIGINALS
    known["copied_classes"] = tuple(record["label"] for record in by.get("copied_class", ()))
    known["parts"] = tuple(record["window"] for record in by.get("copied_part", ()))
    if "foreignness" in by:
        (found,) = by["foreignness"]
        gain = None if found["value"] is None else _estimate(found)
        known["foreignness"] = Foreignness(found["expected"], gain, found["sigma"])
    assert set(known) <= {field.name for field in fields(Evidence)}
    return Evidence(**known)


def _estimate(record: Record) -> Estimate:
    def end(name: str) -> float:
        return float("nan") if record.get(name) is None else float(record[name])

    return Estimate(float(record["value"]), end("low"), end("high"), record["count"])
