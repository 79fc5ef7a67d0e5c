"""The page of a study: a summary, the claims with their verdicts, and one section for each study."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..report import ClaimRow, Page, Section, Table
from ..store.provenance import made_by
from .claims import Verdict
from .claims.claim import Control
from .claims.evidence import Evidence
from .claims.verdict import FAILS, HOLDS, UNCERTAIN
from .figures import trainings
from .plan import Plan
from .registry import find_study
from .study import Findings


def make_page(
    plan: Plan, found: Sequence[Findings], verdicts: Sequence[Verdict], provenance: Mapping[str, Any]
) -> Page:
    """The page, from whatever is finished."""
    studies = [(find_study(findings.study), findings) for findings in found]
    studied = {claim for study, _ in studies for claim in study.claims}
    table = Table(
        title="The claims of the paper",
        caption="Each claim with the number that it is judged by, the 95 % interval over images (and over training "
        "seeds where there are several), and the verdict. Holm's procedure guards against some of many claims passing "
        "by chance.",
        command=plan.command,
        rows=tuple(claim_row(verdict) for verdict in verdicts if verdict.claim in studied),
    )
    return Page(
        title=f"Does it generalise? {plan.name}",
        summary=_summary(plan, found, verdicts),
        claims=table,
        sections=tuple(
            Section(study.title, study.question, tuple(study.draw(findings)), findings.finished)
            for study, findings in studies
        ),
        made_by=made_by(provenance.get("sessions", [])),
    )


def claim_row(verdict: Verdict) -> ClaimRow:
    """A verdict as a row of the page's table."""
    shown = verdict.statistic
    reason = verdict.reason if verdict.is_measured else "not measured"
    return ClaimRow(
        claim=verdict.claim,
        statement=verdict.text,
        statistic=shown.name,
        value=shown.value,
        low=shown.low,
        high=shown.high,
        threshold=str(shown.threshold),
        source=shown.threshold.source,
        verdict=verdict.verdict,
        note="; ".join(note for note in (reason, verdict.caveat, verdict.note) if note),
        controls=tuple(map(_with_interval, verdict.controls)),
    )


def _with_interval(control: Control) -> str:
    ends = "" if control.low is None else f" [{control.low:.3g}, {control.high:.3g}]"
    return f"{control.name}: {control.value:.3g}{ends}"


def _summary(plan: Plan, found: Sequence[Findings], verdicts: Sequence[Verdict]) -> str:
    measured = [verdict for verdict in verdicts if verdict.is_measured]
    hold, fail, undecided = (
        _counted([verdict for verdict in measured if verdict.verdict == word]) for word in (HOLDS, FAILS, UNCERTAIN)
    )
    unknown = _counted([verdict for verdict in verdicts if not verdict.is_measured])
    records = [record for each in found for record in each.evidence.where(denoiser="network").records]
    often = f"with {trainings(Evidence(records))} each" if records else "and none of them has been measured yet"
    parts = [
        f"{plan.name}: {plan.available:,} images of {'×'.join(map(str, plan.shape[1:]))} pixels to train on, and "
        f"others held out. Networks ({plan.training['network']}, {plan.width} channels) are trained on "
        f"{', '.join(f'{n:,}' for n in plan.sizes)} of them until they have seen {plan.kimg:,g} thousand images, "
        f"counting repeats, {often}.",
        f"Of the paper's 21 claims, {hold} hold, {fail} fail, {undecided} are undecided, and {unknown} were not measured.",
    ]
    if unfinished := [findings.study for findings in found if not findings.finished]:
        titles = (f"{find_study(name).title} (--only {name})" for name in unfinished)
        parts.append(f"Not finished yet: {'; '.join(titles)}.")
    return "\n\n".join(parts)


def _counted(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts, with the names of their claims."""
    names = ", ".join(verdict.claim for verdict in verdicts)
    return f"{len(verdicts)} ({names})" if names else "0"
