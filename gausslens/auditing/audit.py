"""Auditing: measure step by step, then judge.

The command works in a folder, and the same command continues from it:

    <out>/audit-<data>-<identity>/
        config.json  provenance.json
        records.jsonl           of every step; the last record of a step is the time it took
        answers.safetensors     outputs for a few noisy images, by which a changed model is recognised
        samples-<first>.safetensors    generated images, about a thousand in a file
        report.html

The identity is that of the model, the images and the options that change a number. Another model, other images or other
options are another audit. An interrupted step leaves no records. A finished one is not repeated.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from .._kernels.fused import uncompiled
from ..atomic_files import load_tensors, save_tensors
from ..errors import ConfigError, require
from ..evaluation.references import RunImages
from ..generation import BATCH
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
from .evidence import Evidence
from .exchangeability import NOT_EXCHANGEABLE
from .features import compare_features
from .inputs import check_levels, training_run, validate_inputs
from .steps import STAGES, generate_samples, take_copies
from .verdict import Verdict, judge

VERSION = 5
"""Counts changes of the stages after which the same config gives other numbers."""

REPORT = "report.html"
_MEASURING = ("sigmas", "count", "noises", "samples", "steps", "augment", "features", "seed")
_RUNTIME_OPTIONS = (
    *("model", "kimg", "train", "held_out", "fail_on", "json", "no_images", "blur", "out", "cpu", "skip_broken"),
)
_CHANGED = 0.02  # of the answers' norm, which other devices and precisions do not reach
_SAMPLES_A_FILE = 4 * BATCH


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        verdict: "memorizing", "partly memorizing", "generalizing" or "cannot tell", with the reasons.
        records: every number, with its interval; each names its `stage`.
        model: the audited model.
        data: the name of the images.
        n_train: training images.
        n_held_out: held-out images.
        samples: the generated images; None if there are none.
        is_run: whether `gausslens train` made the model.
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
        ConfigError: on invalid options.
        DataError: if the images do not fit the model.
        CheckpointError: if there is no such model, or it fails on the images.

    >>> import gausslens
    >>> images = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> copier = gausslens.MultiDeltaDenoiser(images[:30])
    >>> gausslens.audit(copier, images[:30], images[30:], samples=50, noises=4).verdict.verdict
    'memorizing'
    """
    unknown = options.keys() - set(_MEASURING)
    require(not unknown, f"expected options among {', '.join(_MEASURING)}; got {', '.join(sorted(unknown))}.")
    if "sigmas" in options:
        options["sigmas"] = tuple(as_sigmas(options["sigmas"]).tolist())
    loaded = load_model(model, device=device)
    check_levels(model)
    known = gather(train, bounds=loaded.bounds, name="train")
    unseen = known[:0] if held_out is None else gather(held_out, bounds=loaded.bounds, name="held_out")
    tags: dict[str, Tensor | None] = {}
    for name, own, other in (("labels", labels, held_out_labels), ("groups", groups, held_out_groups)):
        both = (own is None) == (other is None) or held_out is None
        require(both, f"{name} are given for training and held-out images, or for neither; got one of the two.")
        tags[f"train_{name}"] = None if own is None else check_labels(own, len(known), name)
        tags[f"held_out_{name}"] = None if other is None else check_labels(other, len(unseen), f"held_out_{name}")
    images = RunImages(train=known, available=known, held_out=unseen, name="images", **tags)
    context = validate_inputs(loaded, images, AuditConfig(model=str(loaded.source or "model"), **options))
    with uncompiled(), limit_threads(context.device, context.config.count * context.dim):
        return _measure(context, Steps("stage"), None, progress=progress)


def audit_in_folder(context: AuditContext, *, progress: bool = False) -> tuple[Run, Audit]:
    """Audit a model, continue its audit, or find it audited: the run that holds everything, and the audit."""
    config, device = context.config, context.device
    run = Run.create(config.out, "audit", context.images.name, identity(context), asdict(config))
    with run.locked(), uncompiled(), limit_threads(device, config.count * context.dim):
        run.begin_session(device)
        _check_unchanged(context, run)
        found = _measure(context, Steps("stage", run), run, progress=progress)
    return run, found


def _check_unchanged(context: AuditContext, run: Run) -> None:
    """See that the model's outputs are those of the first session: what a module imports or reads is not in its identity."""
    answers = context.first_answers.float().cpu()
    before = _kept(run, "answers", "answers", lambda: answers)
    if float((answers - before).norm()) > _CHANGED * float(before.norm()):
        raise ConfigError(
            f"{run.path} was begun with a model of the same weights and code that gave other outputs. Something that the "
            "model imports or reads has changed. Remove that folder, or choose another with --out."
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
            sets = context.features, samples, context.pool.train, context.pool.compared.held_out
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
    count, parts = context.sample_count, []
    for first in range(0, count, _SAMPLES_A_FILE):
        last = min(first + _SAMPLES_A_FILE, count)
        make = partial(generate_samples, context, first, last, progress=progress)
        parts.append(_kept(artifact, "samples", f"samples-{first:06d}", make))
    return torch.cat(parts)


def _kept(artifact: Artifact | None, name: str, file: str, make: Callable[[], Tensor]) -> Tensor:
    """A tensor that is made once in a folder, and then read from a file there."""
    path, kind = None if artifact is None else artifact.path / f"{file}.safetensors", f"gausslens {name}"
    if path is not None and path.exists():
        return load_tensors(path, kind=kind)[0][name]
    made = make()
    if path is not None:
        save_tensors(path, {name: made}, kind=kind)
    return made
