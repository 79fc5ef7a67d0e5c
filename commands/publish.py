"""Publish a study: its records under results/, its curves as SVG, and the tables of docs/reproduce.md.

    python commands/publish.py runs/study-cifar10-1a2b3c4d [--only size,time] [--commit HASH] [--verdicts-only]

RUN is the folder of a study beside its cells, of which `cells.jsonl` says how long each took. Every number in the tables is
computed here from records; the paper's numbers beside them are of arXiv:2410.24060 and its published notebooks. Other text
of docs/reproduce.md stays as it is. Of a study that anybody can repeat within the hour, `--verdicts-only` keeps the verdicts
with their numbers, and neither records nor curves.
"""

import argparse
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from gausslens.report.drawings import drawing
from gausslens.report.figures import CurveFigure
from gausslens.report.rendering import anchor
from gausslens.runs import Record, Run
from gausslens.studies.catalogue import find_study
from gausslens.studies.cells import Cell
from gausslens.studies.claims import judge
from gausslens.studies.claims.evidence import Evidence
from gausslens.studies.claims.findings import Control, Statistic
from gausslens.studies.claims.verdicts import Verdict
from gausslens.studies.config import STUDIES
from gausslens.studies.drawing import line
from gausslens.studies.plans import Plan
from gausslens.studies.running import findings_of
from gausslens.studies.study import Findings
from gausslens.studies.turning_points import closest, images_needed, memorizing_from

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "reproduce.md"
BEGIN, END = "<!-- tables of {}: begin -->", "<!-- tables of {}: end -->"
DIGITS = 6
# σ, and the variance of public CIFAR-10 models that the Gaussian and the multi-delta denoiser explain there.
PUBLISHED_EV = (
    (0.5, 0.952, 0.929), (1.0, 0.923, 0.838), (2.0, 0.913, 0.603), (5.0, 0.942, 0.535), (10.0, 0.965, 0.969),
)  # fmt: skip
PAPER = {
    "C1": "least LS .973 at N = 70,000, .862 at 1,094, .771 at 68 (faces)",
    "C2": "same order with NMSE, other data and architectures",
    "C3": "LS is least at α² = .5",
    "C4": "LS of the baseline .65 at σ = 80, of EDM .98",
    "C5": "below .05",
    "C6": "below .05 at all ten levels",
    "C7": "peaks: Gaussian .13, multi-delta .36",
    "C8": "below .2 but at σ = .002 and 80",
    "C9": "aligned for σ ≥ .116",
    "C10": "L–G .1 to .17 when memorising, below .05 else",
    "C11": "falls with N, rises with width, least after 841 epochs of 1,094 images",
    "C12": "narrow networks are farther at high noise",
    "C13": ".39 at N = 68, .15 at 1,094, .01 at 70,000, at every width",
    "C14": "GL crosses .6 as N grows",
    "C15": "25,000 + 25,000 agree, 782 + 782 do not, early or narrow they do",
    "C16": "nearly the same samples",
    "C17": "linear below .04; others nearer than EDM at σ ≥ 42",
    "C18": "the same images",
    "C19": "the identity at low noise",
    "C20": "principal components at σ ≥ 10",
    "C21": "exact",
}


def main() -> None:
    """Read the command line and obey it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--only", default=",".join(STUDIES), help="studies to publish, comma-separated; by default all")
    parser.add_argument("--commit", help="the version of the code, for sessions that do not know theirs")
    parser.add_argument(
        "--verdicts-only", action="store_true", help="publish the claims, and neither records nor curves"
    )
    args = parser.parse_args()
    run = Run.open(args.run)
    plan = Plan.from_json(run.settings)
    only = args.only.split(",")
    folder = RESULTS / plan.name
    records = [record for record in run.records() if record["study"] in only]
    judged = judge(records)
    save(run, plan, judged, folder, args.commit)
    if args.verdicts_only:
        fill(plan.name, claims(plan, judged))
    else:
        save_records(records, folder)
        found = [findings for findings in findings_of(run) if findings.study in only]
        save_seconds(args.run.parent / "cells", found, folder / "cells.jsonl")
        drawn = draw(found, folder / "figures")
        evidence = Evidence(records)
        fill(
            plan.name,
            [*claims(plan, judged), *located(plan, evidence), *explained(plan, evidence), *figures(plan, found, drawn)],
        )
    fill("verdicts", verdicts())


def fill(name: str, lines: Iterable[str]) -> None:
    """Put lines between the page's marks of this name."""
    text, begin, end = PAGE.read_text(), BEGIN.format(name), END.format(name)
    head, tail = text[: text.index(begin) + len(begin)], text[text.index(end) :]
    PAGE.write_text("\n".join([head, "", *lines, tail]))


def save(run: Run, plan: Plan, judged: list[Verdict], folder: Path, commit: str | None) -> None:
    """The study's config and provenance, without paths, and its verdicts."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((run.path / "config.json").read_text())
    config["config"]["data"] = Path(plan.data).name
    known = [
        session | ({"commit": commit} if commit and not session.get("commit") else {})
        for session in run.provenance["sessions"]
    ]
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "provenance.json").write_text(json.dumps({"sessions": known}, indent=1) + "\n")
    lines = (json.dumps(_told(verdict), ensure_ascii=False) for verdict in judged)
    (folder / "verdicts.jsonl").write_text("".join(f"{line}\n" for line in lines))


def save_records(records: list[Record], folder: Path) -> None:
    """All records, with six digits."""
    lines = (json.dumps({name: _shorter(value) for name, value in record.items()}) for record in records)
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines))


def save_seconds(folder: Path, found: list[Findings], target: Path) -> None:
    """How long every finished cell took, and of which model it is."""
    lines: dict[str, str] = {}

    def add(cell: Cell) -> None:
        done = folder / cell.name / "done.json"
        for need in cell.needs:
            add(need)
        if cell.name not in lines and done.exists():
            config = next((c.options["config"] for c in (cell, *cell.needs) if "config" in c.options), {})
            of = {name: config[name] for name in ("network", "width", "split", "seed", "kimg") if name in config}
            seconds = json.loads(done.read_text())["seconds"]
            lines[cell.name] = json.dumps({"cell": cell.name, **of, "seconds": round(seconds, 1)})

    for findings in found:
        for part in findings.parts:
            add(part.cell)
    target.write_text("".join(f"{line}\n" for line in lines.values()))


def draw(found: list[Findings], folder: Path) -> dict[int, list[tuple[str, str]]]:
    """Write the curves; returns the study and title of every figure drawn, by the paper's figure that it redraws."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    drawn: dict[int, list[tuple[str, str]]] = {}
    for findings in found:
        for figure in find_study(findings.study).draw(findings):
            for number in figure.redraws:
                drawn.setdefault(number, []).append((findings.study, figure.title))
            if isinstance(figure, CurveFigure) and figure.redraws:
                picture = drawing(figure)
                if picture is not None:
                    (folder / f"{findings.study}-{anchor(figure.title)}.svg").write_text(picture)
    return drawn


def claims(plan: Plan, judged: list[Verdict]) -> Iterator[str]:
    """The claims, as Markdown.

    Yields:
        Lines.
    """
    yield f"### Claims on {plan.name}\n"
    yield f"`{plan.command.replace(plan.data, Path(plan.data).name)}`, with `--only` the study named.\n"
    yield (
        "Under each claim are the numbers that it is judged by, with their thresholds, and controls that are not judged; "
        "n is of images, samples or, of fits, calls.\n"
    )
    yield "| claim, number | study, units | ours [95 %] | threshold | the paper's | verdict |"
    yield "|---|---|---|---|---|---|"
    for verdict in judged:
        studies = ", ".join(name for name in STUDIES if verdict.claim in find_study(name).claims)
        yield f"| **{verdict.claim}** {verdict.text} | {studies} | | | {PAPER[verdict.claim]} | **{verdict.verdict}** |"
        for part in verdict.statistics:
            yield f"| {part.name} | {_units(part)} | {_number(part)} | {part.threshold} | | |"
        for beside in verdict.controls:
            yield f"| *control: {beside.name}* | | {_number(beside)} | | | |"
    yield ""


def figures(plan: Plan, found: list[Findings], drawn: dict[int, list[tuple[str, str]]]) -> Iterator[str]:
    """The paper's figures and ours, as Markdown.

    Yields:
        Lines.
    """
    yield f"### Figures on {plan.name}\n"
    parts = {findings.study: f" ({findings.done} of {len(findings.parts)} parts)" for findings in found}
    yield "| the paper's | drawn as | by |"
    yield "|---|---|---|"
    for number in range(1, 31):
        redrawn = drawn.get(number, [])
        titles = "; ".join(_linked(plan, study, title) for study, title in redrawn) or "not yet"
        by = list(dict.fromkeys(study for study, _ in redrawn)) or [
            name for name in STUDIES if number in find_study(name).figures
        ]
        yield f"| {number} | {titles} | {', '.join(name + parts.get(name, '') for name in by)} |"
    yield ""


def verdicts() -> Iterator[str]:
    """All claims on all data that are published, with how many of their numbers lie where the paper says.

    Yields:
        Lines.
    """
    published = sorted(RESULTS.glob("*/verdicts.jsonl"))
    judged = [[json.loads(line) for line in path.read_text().splitlines()] for path in published]
    yield f"| claim | {' | '.join(path.parent.name for path in published)} |"
    yield f"|---|{'---|' * len(published)}"
    for of_data in zip(*judged, strict=True):
        yield f"| **{of_data[0]['claim']}** {of_data[0]['text']} | {' | '.join(map(_at_a_glance, of_data))} |"
    yield ""


def _told(verdict: Verdict) -> Record:
    """A verdict with its numbers as JSON can hold it; `as_claimed` says on which side of its threshold a number lies."""
    numbers = ("name", "value", "low", "high")
    return {
        **{name: getattr(verdict, name) for name in ("claim", "text", "verdict")},
        "statistics": [
            {name: _shorter(getattr(part, name)) for name in (*numbers, "images", "seeds", "missing")}
            | {"threshold": str(part.threshold), "as_claimed": _as_claimed(part)}
            for part in verdict.statistics
        ],
        "controls": [{name: _shorter(getattr(beside, name)) for name in numbers} for beside in verdict.controls],
    }


def _as_claimed(part: Statistic) -> bool | None:
    above, below = part.threshold.above, part.threshold.below
    if part.value is None:
        return None
    return (above is None or part.value > above) and (below is None or part.value < below)


def _at_a_glance(told: Record) -> str:
    sides = [part["as_claimed"] for part in told["statistics"]]
    known = [side for side in sides if side is not None]
    if not known:
        return "not measured"
    missing = f", {len(sides) - len(known)} not measured" if len(known) < len(sides) else ""
    return f"{told['verdict']}; {sum(known)} of {len(known)} as claimed{missing}"


def located(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """The transition: from which number of images on, and after which training.

    Yields:
        Lines.
    """
    needed = images_needed(evidence.where(study="size"))
    time = evidence.where(study="time")
    turning, onset = closest(time, plan.few), memorizing_from(time, plan.few)
    if needed is None and turning is None:
        return
    yield f"### The transition on {plan.name}\n"
    yield "| what | our number [95 %] | trainings |"
    yield "|---|---|---|"
    if needed is not None and needed.value is not None:
        seeds = len(evidence.where(study="size", quantity="memorised_fraction", denoiser="network").seeds())
        ends = ", ".join("beyond those tried" if end is None else f"{end:,.0f}" for end in (needed.low, needed.high))
        what = (
            f"N*: images from which on fewer than 5 % of samples are copies after training for {plan.kimg:g} thousand"
        )
        yield f"| {what} | {needed.value:,.0f} [{ends}] | {seeds} |"
    if turning is not None:
        what = f"τ*: thousand images after which N = {plan.few:,} is closest to its Gaussian"
        yield f"| {what} | {_timed(turning.value, turning.low, turning.high)} | {len(turning.at)} |"
    if onset is not None and onset.starts is not None:
        what = "thousand images after which 5 % of its samples are copies"
        yield f"| {what} | {_timed(onset.starts, onset.low, onset.high)} | {onset.memorizing} of {onset.seeds} |"
    yield ""


def _timed(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.3g}" + ("" if low is None else f" [{low:.3g}, {high:.3g}]")


def explained(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """How much of the network's variance its Gaussian and the multi-delta denoiser explain, beside published models.

    Yields:
        Lines.
    """
    known = evidence.where(study="references", quantity="gap_ev", denoiser="network", n=plan.sizes[-1], kimg=plan.kimg)
    if plan.name != "cifar10" or not len(known):
        return
    yield f"### Explained variance on {plan.name}\n"
    yield "The published models are at the level named, ours at the nearest of ten; G is the Gaussian, M multi-delta.\n"
    sets = ("published", "training images", "held-out images")
    yield f"| published | ours | {' | '.join(f'{whose}, {images}' for whose in 'GM' for images in sets)} |"
    yield "|---|---|---|---|---|---|---|---|"
    curves = {
        (reference, on): line(reference, known.where(reference=reference, on=on))
        for reference in ("gaussian", "multidelta")
        for on in ("train", "held_out")
    }
    levels = [float(level) for level in curves["gaussian", "train"].x]
    for sigma, *published in PUBLISHED_EV:
        at = min(range(len(levels)), key=lambda i, sigma=sigma: abs(math.log(levels[i] / sigma)))  # type: ignore[misc]
        ours = [f"{curve.y[at]:.3f} [{curve.low[at]:.3f}, {curve.high[at]:.3f}]" for curve in curves.values()]
        gaussian, memory = (f"{value:.3f}" for value in published)
        yield f"| σ = {sigma:g} | σ = {levels[at]:.3g} | {' | '.join([gaussian, *ours[:2], memory, *ours[2:]])} |"
    yield ""


def _linked(plan: Plan, study: str, title: str) -> str:
    path = RESULTS / plan.name / "figures" / f"{study}-{anchor(title)}.svg"
    return (
        f"[{title}](../results/{plan.name}/figures/{path.name})"
        if path.exists()
        else f"{title} (pictures, on the page)"
    )


def _units(part: Statistic) -> str:
    if part.value is None:
        return ""
    seeds = [f"{part.seeds} {'seed' if part.seeds == 1 else 'seeds'}"] if part.seeds else []
    return ", ".join(seeds + ([f"n = {part.images:,}"] if part.images else []))


def _number(part: Statistic | Control) -> str:
    if isinstance(part, Statistic) and part.value is None:
        missing = part.missing or ""
        return "not measured" + ("" if missing.startswith("no record") else f": {missing}")
    return f"{part.value:.4g}" + ("" if part.low is None else f" [{part.low:.4g}, {part.high:.4g}]")


def _shorter(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
