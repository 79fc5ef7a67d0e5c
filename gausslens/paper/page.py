"""The page of a study: what was found, the claims with their verdicts, then one section for each study."""

from collections.abc import Mapping, Sequence
from typing import Any

import gausslens

from ..report import ClaimRow, Page, Section, Table
from .claims import Verdict
from .claims.claim import Control
from .claims.evidence import Evidence
from .claims.verdict import FAILS, HOLDS
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
        caption="What each claim says, the number it is judged by with its 95 % interval over images (and over training "
        "seeds where there are several), and the verdict. Holm's procedure guards against passing by chance.",
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
        made_by=f"gausslens {gausslens.__version__}. {_machines(provenance)}",
    )


def claim_row(verdict: Verdict) -> ClaimRow:
    """A verdict as a row of the page's table."""
    statistic = verdict.statistic
    reason = verdict.reason if verdict.is_measured else "not measured"
    return ClaimRow(
        claim=verdict.claim,
        statement=verdict.text,
        statistic=statistic.name,
        value=statistic.value,
        low=statistic.low,
        high=statistic.high,
        threshold=str(statistic.threshold),
        source=statistic.threshold.source,
        verdict=verdict.verdict,
        note="; ".join(note for note in (reason, verdict.caveat, verdict.note) if note),
        controls=tuple(map(_with_interval, verdict.controls)),
    )


def _with_interval(control: Control) -> str:
    ends = "" if control.low is None else f" [{control.low:.3g}, {control.high:.3g}]"
    return f"{control.name}: {control.value:.3g}{ends}"


def _summary(plan: Plan, found: Sequence[Findings], verdicts: Sequence[Verdict]) -> str:
    held = [verdict.claim for verdict in verdicts if verdict.verdict == HOLDS]
    refuted = [verdict.claim for verdict in verdicts if verdict.verdict == FAILS]
    unknown = [verdict.claim for verdict in verdicts if not verdict.is_measured]
    sides = "×".join(str(side) for side in plan.shape[1:])
    sizes = ", ".join(f"{n:,}" for n in plan.sizes)
    measured = [record for each in found for record in each.evidence.where(denoiser="network").records]
    often = f"with {trainings(Evidence(measured))} each" if measured else "and none of them is measured yet"
    parts = [
        f"{plan.name}: {plan.available:,} images of {sides} pixels to train on, and others held out. Networks "
        f"({plan.training['network']}, {plan.width} channels) are trained on {sizes} of them, for {plan.kimg:,g} thousand "
        f"images, {often}.",
        f"Of the paper's 21 claims, here hold {len(held)}{_among(held)}, do not hold {len(refuted)}{_among(refuted)}, "
        f"{len(unknown)} were not measured{_among(unknown)}, and for the others there is not enough evidence.",
    ]
    unfinished = [findings.study for findings in found if not findings.finished]
    if unfinished:
        parts.append(f"Not finished yet: {', '.join(unfinished)}.")
    return "\n\n".join(parts)


def _among(claims: Sequence[str]) -> str:
    return f" ({', '.join(claims)})" if claims else ""


def _machines(provenance: Mapping[str, Any]) -> str:
    sessions = provenance.get("sessions", [])
    if not sessions:
        return ""
    last = sessions[-1] | {"device": "; ".join(dict.fromkeys(session["device"] for session in sessions))}
    return ", ".join(f"{key} {value}" for key, value in last.items() if isinstance(value, str | int | float))
