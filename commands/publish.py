"""Publish a study: its records under results/, its figures as SVG, and the tables of docs/reproduce.md.

    python commands/publish.py runs/study-cifar10-00b65abe [--verdicts-only]

RUN is the folder of a study beside its tasks. It adds to what results/ has already, so the tasks of earlier sessions need
not be at hand: results/cifar10 is itself a folder of runs, without weights and with the few images that figures show;
`gausslens report` makes a page of it. Every number in the tables is computed here from records; the paper's numbers beside
them are of arXiv:2410.24060 and its published notebooks. Other text of docs/reproduce.md stays as it is. Of a study that
anybody can repeat within the hour, `--verdicts-only` keeps the verdicts with their numbers alone.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from explained_variance import explained, led_to
from sizes import by_size

from gausslens.paper.claims import judge
from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.claims.findings import Control, Statistic
from gausslens.paper.claims.verdict import Verdict
from gausslens.paper.config import STUDIES
from gausslens.paper.copy_finished import SHOWN, copy_arrays, copy_finished, is_copy, shorter
from gausslens.paper.plan import Plan
from gausslens.paper.registry import find_study
from gausslens.paper.run import collect, findings_of, tasks_of
from gausslens.paper.studies.critical_points import closest, format_time, images_needed, memorizing_from
from gausslens.paper.study import Findings
from gausslens.report.drawings import draw_svg
from gausslens.report.figures import NoiseSlider
from gausslens.report.rendering import anchor
from gausslens.store.run import Record, Run

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "reproduce.md"
BEGIN, END = "<!-- tables of {}: begin -->", "<!-- tables of {}: end -->"
# What the paper has for each claim, and at which scale it drew each figure.
PAPER = json.loads(Path(__file__).with_name("paper.json").read_text())
_UNKNOWN = "not measured"


def main() -> None:
    """Read the command line and obey it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument(
        "--verdicts-only", action="store_true", help="publish the claims, and neither records nor figures"
    )
    args = parser.parse_args()
    run = Run.open(args.run)
    plan, tasks = Plan.from_json(run.settings), args.run.parent / "cells"
    folder = RESULTS / plan.name
    if not args.verdicts_only:
        # Whatever is told follows from what is published, with all studies that were asked for, here or elsewhere.
        copy_finished(args.run.parent, folder, names={args.run.name})
        run = Run.open(folder / args.run.name)
        plan = Plan.from_json(run.settings)
        copy_finished(args.run.parent, folder, names={task.name for task in tasks_of(plan)})
        keep_shown(findings_of(run, tasks), tasks, folder / "cells")
    records = collect([run])
    judged = judge(records)
    save_verdicts(judged, folder / "verdicts.jsonl")
    if args.verdicts_only:
        fill(plan.name, claims(plan, judged, []))
    else:
        found, evidence = findings_of(run), Evidence(records)
        drawn = draw(found, folder / "figures")
        fill(
            plan.name,
            [
                *claims(plan, judged, drawn),
                *by_size(plan, evidence),
                *located(plan, evidence),
                *explained(plan, evidence),
                *led_to(plan, evidence),
                *figures(plan, found, evidence, drawn),
            ],
        )
    fill("verdicts", verdicts())


def fill(name: str, lines: Iterable[str]) -> None:
    """Put lines between the page's marks of this name."""
    text, begin, end = PAGE.read_text(), BEGIN.format(name), END.format(name)
    head, tail = text[: text.index(begin) + len(begin)], text[text.index(end) :]
    PAGE.write_text("\n".join([head, "", *lines, tail]))


def save_verdicts(judged: list[Verdict], path: Path) -> None:
    """One line a claim."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(_told(verdict), ensure_ascii=False) + "\n" for verdict in judged))


def draw(found: list[Findings], folder: Path) -> list[Record]:
    """Draw all figures, in place of those that are there, and list them in index.json.

    Args:
        found: what came out of each study.
        folder: for the drawings.

    Returns:
        Of every figure its study, title and file, the paper's figures that it redraws and the claims it bears on.
    """
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    listed = []
    for findings in found:
        for figure in find_study(findings.study).draw(findings):
            # What is moved by hand is for the page alone.
            picture = None if isinstance(figure, NoiseSlider) else draw_svg(figure)
            if picture is not None:
                name = f"{findings.study}-{anchor(figure.title)}.svg"
                told = {"study": findings.study, "title": figure.title, "file": name}
                listed.append(told | {"redraws": list(figure.redraws), "claims": list(figure.claims)})
                (folder / name).write_text(picture)
    (folder / "index.json").write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    return listed


def keep_shown(found: list[Findings], tasks: Path, published: Path) -> None:
    """Publish what figures are drawn of beside records, such as a few samples of a model, if it is of the same training."""
    if tasks.resolve() == published.resolve():
        return
    shown: dict[str, set[str]] = {}
    for findings in found:
        find_study(findings.study).draw(findings)
        for name, arrays in findings.seen.items():
            shown.setdefault(name, set()).update(arrays)
    for name, arrays in shown.items():
        if is_copy(published / name, tasks / name):
            copy_arrays(tasks / name, published / name, arrays, images=SHOWN)


def claims(plan: Plan, judged: list[Verdict], drawn: list[Record]) -> Iterator[str]:
    """The claims, as Markdown, with the figures that bear on them.

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
        if not _is_about(plan, verdict.claim):
            continue
        studies = ", ".join(name for name in STUDIES if verdict.claim in find_study(name).claims)
        of_claim = (entry for entry in drawn if verdict.claim in entry["claims"])
        seen = ", ".join(_linked(plan, entry, str(number)) for number, entry in enumerate(of_claim, 1))
        told = f"**{verdict.claim}** {verdict.text}" + (f" Figures {seen}" if seen else "")
        why = f": {verdict.reason}" if verdict.reason and verdict.is_measured else ""
        yield f"| {told} | {studies} | | | {PAPER['claims'][verdict.claim]} | **{verdict.verdict}**{why} |"
        for part in verdict.statistics:
            yield f"| {part.name} | {_units(part)} | {_number(part)} | {part.threshold} | | |"
        for beside in verdict.controls:
            yield f"| *control: {beside.name}* | | {_number(beside)} | | | |"
    yield ""


def figures(plan: Plan, found: list[Findings], evidence: Evidence, drawn: list[Record]) -> Iterator[str]:
    """The paper's figures and ours, as Markdown.

    Yields:
        Lines.
    """
    yield f"### Figures on {plan.name}\n"
    yield (
        f"Here networks are {plan.training['network']} with {plan.width} channels after {plan.kimg:,g} thousand images, in "
        "the paper EDM-VE (NCSN++) with 128 on FFHQ at 64×64, unless said. Its epoch 921 is read as 921 thousand images.\n"
    )
    parts = {findings.study: f" ({findings.done} of {len(findings.parts)} parts)" for findings in found}
    yield "| the paper's | there | drawn as | here | by | claims |"
    yield "|---|---|---|---|---|---|"
    for number in range(1, 31):
        if not _is_about(plan, number):
            continue
        redrawn = [entry for entry in drawn if number in entry["redraws"]]
        links = (_linked(plan, entry, entry["title"]) for entry in redrawn)
        by = list(dict.fromkeys(entry["study"] for entry in redrawn)) or [
            name for name in plan.studies if number in find_study(name).figures
        ]
        scales = (scale(plan, evidence.where(study=name), name, number) for name in by)
        told, here = "; ".join(links) or "not yet", "; ".join(dict.fromkeys(scales))
        done = ", ".join(name + parts.get(name, "") for name in by)
        bearing = {claim for entry in redrawn for claim in entry["claims"]}
        about = ", ".join(sorted(bearing, key=lambda claim: int(claim[1:])))
        yield f"| {number} | {PAPER['figures'][str(number)]} | {told} | {here} | {done} | {about} |"
    yield ""


def scale(plan: Plan, evidence: Evidence, study: str, figure: int) -> str:
    """On how many images, and else how, the networks of a figure are trained; of those planned, what there is."""
    least, most, half = (f"{n:,}" for n in (plan.sizes[0], plan.sizes[-1], plan.available // 2))
    if figure in (4, 10, 11, 22):  # of the networks of most images alone, unlike others of their studies
        epochs = [record["epoch"] for record in evidence.where(method="adam").records]
        return f"N = {most}" + (f"; Adam, {max(epochs)} epochs" if figure in (4, 22) and epochs else "")
    sizes = [f"{n:,}" for n in sorted({record["n"] for record in evidence.records if "n" in record})]
    widths = sorted({record["width"] for record in evidence.where(n=plan.few).records if "width" in record})
    roles = {
        "large": f"{half} + {half}",
        "small": f"{least} + {least}",
        "early": f"{least} + {least} after {plan.early:,g} thousand images",
        "narrow": f"{least} + {least} at width {plan.narrow}",
    }
    return {
        "distillation": f"N = {most} and {least}",
        "linearity": f"N = {least} to {most}",
        "size": f"N = {least} to {most}",
        "time": f"N = {' and '.join(sizes)}, {plan.times[0]:,g} to {plan.kimg:,g} thousand images",
        "capacity": f"N = {plan.few:,}, widths {', '.join(map(str, widths))}",
        "strong": "; ".join(words for role, words in roles.items() if len(evidence.where(role=role, noise="same"))),
        "networks": f"N = {most} and {least}; {half} + {half}",
        "autoencoders": f"N = {most}, one network a level",
    }.get(study, f"N = {most}")


def verdicts() -> Iterator[str]:
    """All claims on all data that are published, with how many of their numbers lie where the paper says.

    Yields:
        Lines.
    """
    paths = sorted(RESULTS.glob("*/verdicts.jsonl"))
    judged = {path.parent.name: [json.loads(line) for line in path.read_text().splitlines()] for path in paths}
    yield f"| claim | {' | '.join(judged)} |"
    yield f"|---|{'---|' * len(judged)}"
    for of_data in zip(*judged.values(), strict=True):
        yield f"| **{of_data[0]['claim']}** {of_data[0]['text']} | {' | '.join(map(_at_a_glance, of_data))} |"
    yield ""


def _is_about(plan: Plan, what: str | int) -> bool:
    """Whether to tell of a claim or a figure of the paper: of all, but where few studies are planned of those alone."""
    studies = [find_study(name) for name in plan.studies]
    return len(studies) > len(STUDIES) / 2 or any(what in (*study.claims, *study.figures) for study in studies)


def _told(verdict: Verdict) -> Record:
    """A verdict with its numbers as JSON can hold it; `as_claimed` says on which side of its threshold a number lies."""
    numbers = ("name", "value", "low", "high")
    return {
        **{name: getattr(verdict, name) for name in ("claim", "text", "verdict")},
        "statistics": [
            {name: shorter(getattr(part, name)) for name in (*numbers, "images", "seeds", "missing")}
            | {"threshold": str(part.threshold), "as_claimed": _as_claimed(part)}
            for part in verdict.statistics
        ],
        "controls": [{name: shorter(getattr(beside, name)) for name in numbers} for beside in verdict.controls],
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
        return _UNKNOWN
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
            f"N*: images from which on fewer than 5 % of samples are copies after training for {plan.kimg:,g} thousand"
        )
        yield f"| {what} | {needed.value:,.0f} [{ends}] | {seeds} |"
    if turning is not None:
        what = f"τ*: thousand images after which N = {plan.few:,} is closest to its Gaussian"
        yield f"| {what} | {format_time(turning.value, turning.low, turning.high)} | {len(turning.at)} |"
    if onset is not None and onset.starts is not None:
        what = "thousand images after which 5 % of its samples are copies"
        yield f"| {what} | {format_time(onset.starts, onset.low, onset.high)} | {onset.memorizing} of {onset.seeds} |"
    yield ""


def _linked(plan: Plan, entry: Record, text: str) -> str:
    return f"[{text}](../results/{plan.name}/figures/{entry['file']})"


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


if __name__ == "__main__":
    main()
