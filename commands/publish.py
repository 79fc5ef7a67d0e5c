"""Publish a study: its records and figures under results/, its tables, and the table of claims in docs/reproduce.md.

    python commands/publish.py runs/study-cifar10-00b65abe [--verdicts-only]

RUN is the folder of a study; the folder `cells` lies beside it. New tasks are added to those in results/, so the tasks of
earlier sessions may be on another machine. results/cifar10 is itself a folder of runs, without weights and with the few
images that figures show; `gausslens report` makes a page of it.

The command writes three things into docs/: the page docs/tables/NAME.md, the figures of docs/reproduce.md that this study
draws, and the table of all claims between the two marks of docs/reproduce.md. It changes no other text there. Every number
in the tables is computed from records. The paper's numbers beside them come from arXiv:2410.24060 and its notebooks.
`--verdicts-only` publishes the verdicts and their numbers alone: it is for a study that anybody can repeat within the hour.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from explained_variance import explained, led_to
from sizes import by_size

from gausslens.paper.claims import judge
from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.claims.findings import Control, Statistic
from gausslens.paper.claims.verdict import FAILS, HOLDS, UNCERTAIN, Verdict
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
from gausslens.store.records import Record
from gausslens.store.run import Run

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
BEGIN, END = "<!-- table of claims: begin -->", "<!-- table of claims: end -->"
# What the paper has for each claim, and at which scale it drew each figure.
PAPER = json.loads(Path(__file__).with_name("paper.json").read_text())
# The figures of docs/reproduce.md: by study, the drawing and its name in docs/figures/.
KEY_FIGURES = {
    "cifar10": {
        "references-distance-of-the-network-to-its-counterparts": "distances",
        "linearity-linearity-over-noise-levels-by-number-of-images": "linearity",
        "size-copies-among-samples-by-number-of-images": "copies",
        "size-samples-their-nearest-training-images-and-samples-of-the-gaussian": "samples",
        "strong-two-models-on-disjoint-images-large": "two-models",
    },
    "cifar10-long": {
        "time-distance-to-the-gaussian-denoiser-against-the-length-of-training": "training",
        "strong-agreement-as-training-goes-on-n-782": "agreement",
    },
    "cifar10-all": {"references-how-much-of-the-network-its-references-explain": "explained"},
}
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
        write_tables(plan, claims(plan, judged, []))
    else:
        found, evidence = findings_of(run), Evidence(records)
        drawn = draw(found, folder / "figures")
        copy_key_figures(plan.name)
        write_tables(
            plan,
            *claims(plan, judged, drawn),
            *by_size(plan, evidence),
            *located(plan, evidence),
            *explained(plan, evidence),
            *led_to(plan, evidence),
            *figures(plan, found, evidence, drawn),
        )
    write_claims()


def write_tables(plan: Plan, *lines: str) -> None:
    """Write the page docs/tables/NAME.md of a study, in place of the one that is there."""
    page = DOCS / "tables" / f"{plan.name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    head = (
        f"# Tables of {plan.name}\n",
        f"`commands/publish.py` writes this page from the records in [results/{plan.name}](../../results/{plan.name}): "
        "do not edit it. [reproduce.md](../reproduce.md) says what was found, [claims.md](../claims.md) how claims are "
        "judged.\n",
        f"The study was made by `{plan.command.replace(plan.data, Path(plan.data).name)}`, with `--only` for a single "
        "study. A *control* is a number that is shown for comparison and not judged.\n",
    )
    page.write_text("\n".join([*head, *lines]).rstrip("\n") + "\n")


def write_claims() -> None:
    """Write the table of all claims between the two marks of docs/reproduce.md."""
    page = DOCS / "reproduce.md"
    text = page.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    page.write_text("\n".join([head, "", *verdicts(), tail]))


def copy_key_figures(name: str) -> None:
    """Copy the drawings of a study that docs/reproduce.md shows."""
    for drawn, shown in KEY_FIGURES.get(name, {}).items():
        path = RESULTS / name / "figures" / f"{drawn}.svg"
        if path.exists():
            (DOCS / "figures").mkdir(parents=True, exist_ok=True)
            (DOCS / "figures" / f"{shown}.svg").write_text(path.read_text())


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
    yield "## Claims\n"
    yield (
        "Each claim is followed by its statistics with their thresholds, and by its controls. n counts images, samples or, "
        "for fits, calls of the network.\n"
    )
    yield "| claim or statistic | study, seeds and n | our value [95 %] | threshold | the paper's value | verdict |"
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
    yield "## Figures\n"
    yield (
        f"Unless a row says otherwise, our networks are {plan.training['network']} with {plan.width} channels, trained on "
        f"{plan.kimg:,g} thousand images. The paper's are EDM-VE (NCSN++) with 128 channels, trained on FFHQ at 64×64. We "
        "read its epoch 921 as 921 thousand images.\n"
    )
    parts = {findings.study: f" ({findings.done} of {len(findings.parts)} parts)" for findings in found}
    yield "| the paper's figure | the paper's setting | our figures | our setting | study | claims |"
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
    """All claims on all data that are published: each verdict, and how many statistics lie where the paper says.

    Yields:
        Lines.
    """
    paths = sorted(RESULTS.glob("*/verdicts.jsonl"))
    judged = {path.parent.name: [json.loads(line) for line in path.read_text().splitlines()] for path in paths}
    yield f"| claim | {' | '.join(f'[{name}](tables/{name}.md)' for name in judged)} |"
    yield f"|---|{'---|' * len(judged)}"
    for of_data in zip(*judged.values(), strict=True):
        yield f"| **{of_data[0]['claim']}** {of_data[0]['text']} | {' | '.join(map(_at_a_glance, of_data))} |"
    yield f"| *claims in all* | {' | '.join(map(_tally, judged.values()))} |"
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
    known = [side for side in _sides(told) if side is not None]
    if not known:
        return _UNKNOWN
    missing = len(told["statistics"]) - len(known)
    verdict = told["verdict"].replace(UNCERTAIN, "undecided")
    return f"{verdict}, {sum(known)} of {len(known)}" + (f" ({missing} not measured)" if missing else "")


def _tally(judged: list[Record]) -> str:
    """How many claims hold, fail, are undecided and were not measured."""
    measured = [told["verdict"] for told in judged if any(side is not None for side in _sides(told))]
    counts = {
        "hold": measured.count(HOLDS),
        "do not hold": measured.count(FAILS),
        "undecided": measured.count(UNCERTAIN),
    }
    counts["not measured"] = len(judged) - len(measured)
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


def _sides(told: Record) -> list[bool | None]:
    return [part["as_claimed"] for part in told["statistics"]]


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
    yield "## The transition\n"
    yield "| quantity | our value [95 %] | training runs |"
    yield "|---|---|---|"
    if needed is not None and needed.value is not None:
        seeds = len(evidence.where(study="size", quantity="memorized_fraction", denoiser="network").seeds())
        ends = ", ".join("beyond those tried" if end is None else f"{end:,.0f}" for end in (needed.low, needed.high))
        what = (
            f"N*: number of training images above which fewer than 5 % of samples are copies (after {plan.kimg:,g} thousand "
            "images of training)"
        )
        yield f"| {what} | {needed.value:,.0f} [{ends}] | {seeds} |"
    if turning is not None:
        what = f"τ*: length of training at which N = {plan.few:,} is closest to its Gaussian (thousand images)"
        yield f"| {what} | {format_time(turning.value, turning.low, turning.high)} | {len(turning.at)} |"
    if onset is not None and onset.starts is not None:
        what = "length of training at which 5 % of its samples are copies (thousand images)"
        yield f"| {what} | {format_time(onset.starts, onset.low, onset.high)} | {onset.memorizing} of {onset.seeds} |"
    yield ""


def _linked(plan: Plan, entry: Record, text: str) -> str:
    return f"[{text}](../../results/{plan.name}/figures/{entry['file']})"


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
