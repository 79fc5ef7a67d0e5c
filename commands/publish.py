"""Publish a study: its tasks as an archive in results/, its tables, its key figures and its column in the table of claims.

    python commands/publish.py runs/study-cifar10-00b65abe [--verdicts-only]
    python commands/publish.py results/cifar10                 # write the documents again, from what is published

New tasks are added to those in results/, so the tasks of earlier sessions may be on another machine. `gausslens report
results/cifar10` makes a page from what is published, and judges it again.

The command writes three things into docs/: the page docs/tables/NAME.md (see tables.py), the figures in docs/figures/ that
other pages show, and the table of all claims between the two marks of docs/reproduce.md. It changes no other text there.
`--verdicts-only` publishes only the verdicts and their numbers, for a study that anybody can repeat within an hour.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from copy_finished import MOST_IMAGES, copy_arrays, copy_finished, is_copy, round_number
from tables import KEY_FIGURES, Drawn, write_tables

from gausslens.atomic_files import save_tensors
from gausslens.experiments.archive import is_archive, save_archive
from gausslens.experiments.task import ARRAYS, TaskStore
from gausslens.paper.claims import judge
from gausslens.paper.claims.claim import Statistic
from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.claims.verdict import FAILS, HOLDS, UNCERTAIN, Verdict
from gausslens.paper.plan import Plan
from gausslens.paper.registry import find_study
from gausslens.paper.run import collect, findings_of, tasks_of
from gausslens.paper.study import Findings
from gausslens.report.drawings import draw_svg
from gausslens.report.rendering import anchor
from gausslens.store.records import Record
from gausslens.store.run import Run

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
_WORDS = {"hold": HOLDS, "do not hold": FAILS, "undecided": UNCERTAIN}
BEGIN, END = "<!-- table of claims: begin -->", "<!-- table of claims: end -->"


def main() -> None:
    """Read the command line and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a study, or of a published one")
    parser.add_argument("--verdicts-only", action="store_true", help="publish neither records nor figures")
    args = parser.parse_args()
    run = Run.open(args.run)
    folder = RESULTS / Plan.from_json(run.settings).name
    if not args.verdicts_only and not is_archive(run.path):
        add_to_archive(run, folder)
        run = Run.open(folder)  # everything that is written follows from what is published
    plan, records = Plan.from_json(run.settings), collect([run])
    found = [] if args.verdicts_only else findings_of(run)
    drawn = [(part.study, figure) for part in found for figure in find_study(part.study).draw(part)]
    verdicts = judge(records)
    save_verdicts(verdicts, folder / "verdicts.jsonl")
    draw_key_figures(plan.name, drawn)
    write_tables(DOCS / "tables" / f"{plan.name}.md", plan, found, verdicts, Evidence(records), drawn)
    write_claims()


def add_to_archive(run: Run, folder: Path) -> None:
    """Add what has come of a study to what is published of it, with the images that figures show."""
    own = TaskStore(run.path.parent / "cells")
    with TemporaryDirectory() as name:
        parcel = Path(name)
        copy_finished(folder, parcel, images=MOST_IMAGES)
        copy_finished(run.path.parent, parcel, names={run.path.name})
        merged = Run.open(parcel / run.path.name)  # with all studies that were asked for, here or elsewhere
        tasks = {task.name for task in tasks_of(Plan.from_json(merged.settings))} & {*own.names()}
        copy_finished(run.path.parent, parcel, names=tasks)
        published = TaskStore(parcel / "cells")
        published.path.mkdir(exist_ok=True)
        for name in tasks:
            ours = own.find(name)
            if ours.arrays and is_copy(published.find(name), ours):  # of the same training
                copy_arrays(ours, published.path / name, ours.arrays, images=MOST_IMAGES)
        prune_arrays(findings_of(merged), published)
        folder.mkdir(parents=True, exist_ok=True)
        save_archive(published, folder)
        for name in ("config.json", "provenance.json"):
            shutil.copy(merged.path / name, folder)


def prune_arrays(found: list[Findings], store: TaskStore) -> None:
    """Keep only the arrays that figures are drawn from. Images that no figure shows become black."""
    images, arrays = set(), {}
    for findings in found:
        for figure in find_study(findings.study).draw(findings):
            shown = getattr(figure, "images", None)
            images.update(() if shown is None else (image.tobytes() for image in shown.reshape(-1, *shown.shape[-3:])))
        for task, names in findings.seen.items():
            arrays.setdefault(task, set()).update(names)
    for task in store.names():
        kept = {name: array for name, array in store.find(task).arrays.items() if name in arrays.get(task, ())}
        for array in kept.values():
            if array.dtype == torch.uint8:
                for image in array.view(-1, *array.shape[-3:]):
                    if image.numpy().tobytes() not in images:
                        image.zero_()
        save_tensors(store.path / task / "arrays.safetensors", kept, kind=ARRAYS)


def save_verdicts(verdicts: list[Verdict], path: Path) -> None:
    """Write one line per claim."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(_as_json(verdict), ensure_ascii=False) + "\n" for verdict in verdicts))


def draw_key_figures(name: str, drawn: list[Drawn]) -> None:
    """Draw the figures of a study that pages in docs/ show."""
    (DOCS / "figures").mkdir(parents=True, exist_ok=True)
    for study, figure in drawn:
        file = KEY_FIGURES.get(name, {}).get(f"{study}-{anchor(figure.title)}")
        if file is not None:
            (DOCS / "figures" / f"{file}.svg").write_text(draw_svg(figure))


def write_claims() -> None:
    """Write the table of all claims between the two marks of docs/reproduce.md."""
    page = DOCS / "reproduce.md"
    text = page.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    page.write_text("\n".join([head, "", *table_of_claims(), tail]))


def table_of_claims() -> Iterator[str]:
    """All claims on all published data: the verdict, and how many statistics are on the side that the paper claims."""
    paths = sorted(RESULTS.glob("*/verdicts.jsonl"))
    judged = {path.parent.name: [json.loads(line) for line in path.read_text().splitlines()] for path in paths}
    yield f"| claim | {' | '.join(f'[{name}](tables/{name}.md)' for name in judged)} |"
    yield f"|---|{'---|' * len(judged)}"
    for of_data in zip(*judged.values(), strict=True):
        yield f"| **{of_data[0]['claim']}** {of_data[0]['text']} | {' | '.join(map(_at_a_glance, of_data))} |"
    yield f"| *claims in all* | {' | '.join(map(_tally, judged.values()))} |"
    yield ""


def _as_json(verdict: Verdict) -> Record:
    """A verdict with its numbers; `as_claimed` is whether a number is on the claimed side of its threshold."""
    numbers = ("name", "value", "low", "high")
    return {
        **{name: getattr(verdict, name) for name in ("claim", "text", "verdict")},
        "statistics": [
            {name: round_number(getattr(part, name)) for name in (*numbers, "images", "seeds", "missing")}
            | {"threshold": str(part.threshold), "as_claimed": _as_claimed(part)}
            for part in verdict.statistics
        ],
        "controls": [{name: round_number(getattr(beside, name)) for name in numbers} for beside in verdict.controls],
    }


def _as_claimed(part: Statistic) -> bool | None:
    above, below = part.threshold.above, part.threshold.below
    if part.value is None:
        return None
    return (above is None or part.value > above) and (below is None or part.value < below)


def _sides(verdict: Record) -> list[bool]:
    """For each statistic that was measured, whether it is on the claimed side of its threshold."""
    return [part["as_claimed"] for part in verdict["statistics"] if part["as_claimed"] is not None]


def _at_a_glance(verdict: Record) -> str:
    known = _sides(verdict)
    if not known:
        return "not measured"
    missing = len(verdict["statistics"]) - len(known)
    word = verdict["verdict"].replace(UNCERTAIN, "undecided")
    return f"{word}, {sum(known)} of {len(known)}" + (f" ({missing} not measured)" if missing else "")


def _tally(verdicts: list[Record]) -> str:
    """How many claims hold, fail, are undecided, and were not measured."""
    measured = [verdict["verdict"] for verdict in verdicts if _sides(verdict)]
    counts = {word: measured.count(known) for word, known in _WORDS.items()}
    counts["not measured"] = len(verdicts) - len(measured)
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


if __name__ == "__main__":
    main()
