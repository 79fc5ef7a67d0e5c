"""Verdicts on claims: how they follow from the numbers, and how they are shown.

A claim holds if its p-value is at most 2.5 % (the end of the 95 % interval lies beyond the threshold) and Holm's procedure
over all claims of the report, at 5 %, also rejects. It does not hold if the same is true of the opposite. Otherwise, or if
records or seeds are missing, there is not enough evidence.
"""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ...store.records import Record
from ..registry import all_claims
from .claim import Claim, Control, Finding, Statistic
from .evidence import Evidence, is_finite
from .inference import Key, holm

SCHEMA = 1
"""Version of the layout that `as_json` writes; raised whenever a key is removed or changes its meaning."""

HOLDS, FAILS, UNCERTAIN = "holds", "does not hold", "not enough evidence"

_ONE_SIDED = 0.025
_WIDTH = 100  # of the table


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim for one data set."""

    claim: str  # "C1" … "C21"
    data: str | None  # the data set; None if there is no record at all
    text: str  # the claim in a sentence
    verdict: str  # "holds", "does not hold" or "not enough evidence"
    statistic: Statistic  # the one to show: the first if the claim holds, else one that refutes it or leaves it open
    statistics: tuple[Statistic, ...]  # all that the claim was judged by
    reason: str | None  # why there is not enough evidence
    caveat: str | None  # what to keep in mind when the claim holds or may hold
    note: str | None  # what else the numbers say
    controls: tuple[Control, ...]  # numbers that are shown and not judged

    @property
    def is_measured(self) -> bool:
        """Whether any of its statistics has a value."""
        return any(part.value is not None for part in self.statistics)


def judge(records: Iterable[Record]) -> list[Verdict]:
    """The verdict on every claim, for every data set; all are judged together.

    >>> [verdict.verdict for verdict in judge([])] == ["not enough evidence"] * 21
    True
    """
    given = [_tidy(record) for record in records if is_finite(record.get("value"))]
    studies = sorted({(r["data"], r.get("plan") or "") for r in given if r.get("data") is not None})
    findings: dict[tuple[Claim, str | None], Finding] = {}
    for data, plan in studies or [(None, "")]:
        own = [r for r in given if r.get("data") is None or (r["data"], r.get("plan") or "") == (data, plan)]
        name = f"{data} ({plan})" if plan else data
        findings |= {(claim, name): claim.find(Evidence(own)) for claim in all_claims().values()}
    holds, fails = ({key: p_of(finding) for key, finding in findings.items()} for p_of in (_p_holds, _p_fails))
    certain, refuted = _rejected(holds), _rejected(fails)
    verdicts = []
    for key, finding in findings.items():
        reason, caveat = None, finding.caveat
        if key in certain:
            verdict, shown = HOLDS, finding.statistics[0]
        elif key in refuted:
            verdict, caveat = FAILS, None
            shown = min(finding.statistics, key=lambda part: 1.0 if part.p_fails is None else part.p_fails)
        else:
            verdict, shown = UNCERTAIN, max(finding.statistics, key=_doubt)
            claims = sum(p is not None for p in holds.values())
            reason = shown.lacks or _undecided(shown, holds[key], fails[key], claims)
        beside = (finding.statistics, reason, caveat, finding.note, finding.controls)
        verdicts.append(Verdict(key[0].name, key[1], key[0].text, verdict, shown, *beside))
    return verdicts


def _tidy(record: Record) -> Record:
    """With σ to five digits, so that levels that were once rounded to single precision still match."""
    sigma = record.get("sigma")
    return {**record, "sigma": float(f"{sigma:.5g}")} if is_finite(sigma) else record


def _p_holds(finding: Finding) -> float | None:
    """None if the claim cannot hold whatever the values: Holm's procedure does not count such claims."""
    if any(part.lacks for part in finding.statistics):
        return None
    return max(part.p_holds for part in finding.statistics if part.p_holds is not None)


def _p_fails(finding: Finding) -> float | None:
    p_values = [part.p_fails for part in finding.statistics if part.p_fails is not None]
    return min(1.0, len(p_values) * min(p_values)) if p_values else None


def _rejected(p_values: Mapping[Key, float | None]) -> set[Key]:
    """The hypotheses that are rejected both by themselves and by Holm's procedure over all of them."""
    known = {key: p for key, p in p_values.items() if p is not None}
    return {key for key in holm(known) if known[key] <= _ONE_SIDED}


def _doubt(part: Statistic) -> tuple[bool, float]:
    """A sort key: statistics that lack something come last, and before them those that are furthest from holding."""
    return part.lacks is not None, 1.0 if part.p_holds is None else part.p_holds


def _undecided(shown: Statistic, p_holds: float | None, p_fails: float | None, claims: int) -> str:
    for p, says in ((p_holds, "for"), (p_fails, "against")):
        if p is not None and p <= _ONE_SIDED:
            return f"{says} the claim by itself, but not when {claims} claims are judged together (Holm)"
    return f"the interval of the {shown.name} reaches the threshold"


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as JSON, in a layout that is numbered (docs/claims.md describes it)."""
    rows = [asdict(verdict) for verdict in verdicts]
    for row in rows:
        for part in (row["statistic"], *row["statistics"]):
            del part["seeded"], part["threshold"]["possible"]
    return json.dumps(
        {"schema": SCHEMA, "interval": 0.95, "family_level": 0.05, "claims": rows}, indent=1, allow_nan=False
    )


def as_table(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as a plain text table, with a line on the claims that were not measured."""
    measured = [verdict for verdict in verdicts if verdict.is_measured]
    several = len({verdict.data for verdict in measured}) > 1
    lines = [f"{'':4} {'verdict':20} {'statistic [95 % interval]':34} {'threshold':18} {'images':>7} {'seeds':>5}"]
    for verdict in measured:
        shown = verdict.statistic
        images, seeds = "" if shown.images is None else str(shown.images), str(shown.seeds or "")
        columns = f"{_interval(shown):34} {shown.threshold!s:18} {images:>7} {seeds:>5}"
        lines.append(f"{verdict.claim:4} {verdict.verdict:20} {columns}".rstrip())
        words = [f"{verdict.data}: {verdict.text}" if several else verdict.text]
        name = f"shown: {shown.name}" if len(verdict.statistics) > 1 else shown.name
        for also in (name, verdict.reason, verdict.note, verdict.caveat):
            words += [f"{also[0].upper()}{also[1:]}."] if also else []
        lines += textwrap.wrap(" ".join(words), _WIDTH, initial_indent=" " * 5, subsequent_indent=" " * 5)
    lines += textwrap.wrap(
        "Intervals are over images, and over training seeds if there are several, and of one claim at a time. Verdicts are "
        "corrected for the number of claims (Holm).",
        _WIDTH,
    )
    known = {verdict.claim for verdict in measured}
    silent = dict.fromkeys(verdict.claim for verdict in verdicts if verdict.claim not in known)
    if silent:
        lines += textwrap.wrap(f"Not measured: {', '.join(silent)}.", _WIDTH)
    return "\n".join(lines) + "\n"


def _interval(shown: Statistic) -> str:
    if shown.value is None:
        return "-"
    if shown.low is None or shown.high is None:
        return f"{shown.value:.4g}"
    return f"{shown.value:.4g} [{shown.low:.4g}, {shown.high:.4g}]"
