"""Auditing: measure stage by stage, judge, and tell; from the command into a `Run` from which the same call goes on.

    <out>/audit-<data>-<identity>/
        config.json  provenance.json
        records.jsonl           of every stage, the time it took last
        answers.safetensors     to a few noisy images, by which a model that has changed is known
        samples-<first>.safetensors    generated images, a thousand a file or so
        report.html

The identity is that of the model, the images and the options that change a number, so another model, other images or other
options are another audit. A stage that was interrupted leaves nothing that counts; one that is finished is not done again.
"""

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from .._kernels.fused import uncompiled
from ..atomic_files import load_tensors, save_tensors
from ..errors import ConfigError
from ..evaluation.references import RunImages
from ..generation import BATCH, best_device
from ..identity import identity_of, semantic_fields
from ..images import check_labels, gather
from ..nn.acceleration import limit_threads
from ..noise import as_sigmas
from ..store.artifact import Artifact
from ..store.records import Record
from ..store.run import Run
from ..store.steps import Steps
from ..zoo.loading import load_model
from .config import AuditConfig
from .context import AuditContext
from .copies_step import generate_samples, take_copies
from .evidence import Evidence
from .features import compare_features
from .inputs import check_levels, load_context, training_run, validate_inputs
from .steps import NOT_EXCHANGEABLE, STAGES
from .verdict import Verdict, judge

VERSION = 5
"""Counts changes of the stages after which the same config gives other numbers."""

REPORT = "report.html"
_MEASURING = ("sigmas", "count", "noises", "samples", "steps", "augment", "features", "seed")
_RUNTIME_OPTIONS = (
    *("model", "kimg", "train", "held_out", "fail_on", "json", "no_images", "blur", "out", "cpu", "skip_broken"),
)
_SAMPLES, _ANSWERS = "gausslens samples", "gausslens answers"
_CHANGED = 0.02  # of the answers' norm, which other devices and precisions do not reach
_SAMPLES_A_FILE = 4 * BATCH


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        verdict: "memorizing", "generalizing" or "cannot tell", with the reasons.
        records: every number, with its interval; each names its `stage`.
        model: what was audited.
        data: the name of the images.
        n_train: training images.
        n_held_out: held-out images.
        samples: the generated images; None if there are none.
        is_run: whether the model is one that `gausslens train` made.
    """

    verdict: Verdict
    records: list[Record] = field(repr=False)
    model: str
    data: str
    n_train: int
    n_held_out: int
    samples: Tensor | None = field(default=None, repr=False)
    is_run: bool = False

    @cached_property
    def evidence(self) -> Evidence:
        """The records, found by quantity."""
        return Evidence(self.records)

    def find(self, quantity: str, **tags: Any) -> list[Record]:
        """The records of a quantity, and of these tags."""
        return self.evidence.find(quantity, **tags)

    def first(self, quantity: str) -> Record | None:
        """The first record of a quantity, or None."""
        return self.evidence.first(quantity)

    def __str__(self) -> str:
        from .summary import format_text

        return format_text(self)


def audit(
    model: Any,
    train: Any,
    held_out: Any = None,
    *,
    labels: Any = None,
    held_out_labels: Any = None,
    groups: Any = None,
    held_out_groups: Any = None,
    device: torch.device | str | None = None,
    progress: bool = False,
    **options: Any,
) -> Audit:
    """Whether a model memorises its training images, from Python and in memory.

    Args:
        model: a denoiser D(x, sigma[, labels]), or any source that `load_denoiser` takes.
        train: the images it was trained on, (n, c, h, w), uint8 or float in [-1, 1].
        held_out: images of the same source that it has not seen; without them most numbers cannot be calibrated.
        labels: integers (n,) for a conditional model.
        held_out_labels: the same for the held-out images.
        groups: integers (n,) that say which training images belong together, such as those of one patient.
        held_out_groups: the same for the held-out images; one number is one group in both sets.
        device: where to work; None is where the model is.
        progress: show progress bars.
        **options: fields of an `AuditConfig` that say how to measure: sigmas (a number, a tensor or several numbers), count,
            noises, samples, steps, augment, features, seed.

    Returns:
        The audit; `print` shows its table.

    Raises:
        ConfigError: on options that cannot be meant.
        DataError: if the images do not fit the model.
        CheckpointError: if there is no such model, or it fails on the images.

    >>> import gausslens
    >>> images = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> copier = gausslens.MultiDeltaDenoiser(images[:30])
    >>> gausslens.audit(copier, images[:30], images[30:], samples=50, noises=4).verdict.verdict
    'memorizing'
    """
    if unknown := options.keys() - set(_MEASURING):
        raise ConfigError(f"expected options among {', '.join(_MEASURING)}; got {', '.join(sorted(unknown))}.")
    if "sigmas" in options:
        options["sigmas"] = tuple(as_sigmas(options["sigmas"]).tolist())
    loaded = load_model(model, device=device)
    check_levels(model)
    known = gather(train, bounds=loaded.bounds, name="train")
    unseen = known[:0] if held_out is None else gather(held_out, bounds=loaded.bounds, name="held_out")
    if (groups is None) != (held_out_groups is None) and held_out is not None:
        raise ConfigError("groups are given for training and held-out images, or for neither; got one of the two.")

    def tags(name: str, values: Any, images: Tensor) -> Tensor | None:
        return None if values is None else check_labels(values, len(images), name)

    images = RunImages(
        train=known,
        available=known,
        held_out=unseen,
        train_labels=tags("labels", labels, known),
        held_out_labels=tags("held_out_labels", held_out_labels, unseen),
        name="images",
        train_groups=tags("groups", groups, known),
        held_out_groups=tags("held_out_groups", held_out_groups, unseen),
    )
    context = validate_inputs(loaded, images, AuditConfig(model=str(loaded.source or "model"), **options))
    with uncompiled(), limit_threads(context.device, context.config.count * context.dim):
        return _measure(context, Steps("stage"), None, progress=progress)


def audit_model(config: AuditConfig, *, progress: bool = False) -> tuple[Run, Audit, AuditContext]:
    """Audit a model, or go on with it, or find it audited."""
    context = load_context(config, device=best_device(cpu=config.cpu), progress=progress)
    return *audit_in_folder(context, progress=progress), context


def audit_in_folder(context: AuditContext, *, progress: bool = False) -> tuple[Run, Audit]:
    """The same of a context that is loaded: the run that holds everything, and the audit."""
    config, device = context.config, context.device
    run = Run.create(config.out, "audit", context.images.name, identity(context), asdict(config))
    with run.locked(), uncompiled(), limit_threads(device, config.count * context.dim):
        run.begin_session(device)
        _check_unchanged(context, run)
        found = _measure(context, Steps("stage", run), run, progress=progress)
    return run, found


def _check_unchanged(context: AuditContext, run: Run) -> None:
    """See that the model answers as when the audit was begun: what a module imports or reads is no part of its identity."""
    path, answers = run.path / "answers.safetensors", context.first_answers.float().cpu()
    if not path.exists():
        save_tensors(path, {"answers": answers}, kind=_ANSWERS)
        return
    before = load_tensors(path, kind=_ANSWERS)[0]["answers"]
    if float((answers - before).norm()) > _CHANGED * float(before.norm()):
        raise ConfigError(
            f"{run.path} was begun with a model that answers otherwise, of the same weights and code: what it imports or "
            "reads has changed. Remove that folder, or name another with --out."
        )


def identity(context: AuditContext) -> str:
    """Eight hexadecimal digits that name an audit."""
    config = replace(context.config, samples=context.sample_count)
    return identity_of(VERSION, context.identity, semantic_fields(config, _RUNTIME_OPTIONS))


def _measure(context: AuditContext, steps: Steps, artifact: Artifact | None, *, progress: bool) -> Audit:
    """All stages that are not finished, and the verdict."""
    for name, take in STAGES.items():
        steps.run(name, partial(take, context, progress=progress))
    samples = _samples(context, artifact, progress=progress) if context.sample_count else None
    if samples is not None:
        exchangeable = not Evidence(steps.records).find("refused", value=NOT_EXCHANGEABLE)
        steps.run("copies", partial(take_copies, context, samples, exchangeable=exchangeable, progress=progress))
        if context.features is not None:
            sets = context.features, samples, context.images.train, context.held_out
            steps.run("features", partial(compare_features, *sets, seed=context.config.seed, progress=progress))
    return Audit(
        verdict=judge(Evidence(steps.records)),
        records=steps.records,
        model=context.config.model,
        data=context.images.name,
        n_train=len(context.images.train),
        n_held_out=len(context.images.held_out),
        samples=samples,
        is_run=training_run(context.config.model) is not None,
    )


def _samples(context: AuditContext, artifact: Artifact | None, *, progress: bool) -> Tensor:
    """The generated images; in a folder, those that are there are not generated again."""
    parts = []
    for first in range(0, context.sample_count, _SAMPLES_A_FILE):
        path = None if artifact is None else artifact.path / f"samples-{first:06d}.safetensors"
        if path is not None and path.exists():
            parts.append(load_tensors(path, kind=_SAMPLES)[0]["samples"])
            continue
        last = min(first + _SAMPLES_A_FILE, context.sample_count)
        parts.append(generate_samples(context, first, last, progress=progress))
        if path is not None:
            save_tensors(path, {"samples": parts[-1]}, kind=_SAMPLES)
    return torch.cat(parts)
