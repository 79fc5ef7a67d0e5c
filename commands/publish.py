"""Publish a study: its records under results/, its figures as SVG, and the tables of docs/reproduce.md.

    python commands/publish.py runs/study-cifar10-00b65abe [--verdicts-only]

RUN is the folder of a study beside its cells. It adds to what results/ has already, so the cells of earlier sessions need
not be at hand: results/cifar10 is itself a folder of runs, without weights and with the few images that figures show;
`gausslens report` makes a page of it. Every number in the tables is computed here from records; the paper's numbers beside
them are of arXiv:2410.24060 and its published notebooks. Other text of docs/reproduce.md stays as it is. Of a study that
anybody can repeat within the hour, `--verdicts-only` keeps the verdicts with their numbers alone.
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gausslens.report.drawings import drawing
from gausslens.report.figures import NoiseSlider
from gausslens.report.rendering import anchor
from gausslens.runs import Record, Run
from gausslens.studies.catalogue import find_study
from gausslens.studies.claims import judge
from gausslens.studies.claims.evidence import Evidence, Number, mean, slope
from gausslens.studies.claims.findings import Control, Statistic
from gausslens.studies.claims.inference import Combined, combine
from gausslens.studies.claims.verdicts import Verdict
from gausslens.studies.config import STUDIES
from gausslens.studies.copying import SHOWN, copy_arrays, copy_finished, is_copy, shorter
from gausslens.studies.drawing import line
from gausslens.studies.explaining import QUANTITY as EXPLAINED
from gausslens.studies.plans import Plan
from gausslens.studies.running import cells_of, collect, findings_of
from gausslens.studies.study import Findings
from gausslens.studies.turning_points import closest, images_needed, memorizing_from, timed

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "reproduce.md"
BEGIN, END = "<!-- tables of {}: begin -->", "<!-- tables of {}: end -->"
# σ, and the variance of public CIFAR-10 models that the Gaussian and the multi-delta denoiser explain there.
PUBLISHED_EV = (
    (0.5, 0.952, 0.929), (1.0, 0.923, 0.838), (2.0, 0.913, 0.603), (5.0, 0.942, 0.535), (10.0, 0.965, 0.969),
)  # fmt: skip
PUBLISHED_KIMG = 200_000  # how long those models were trained
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
    plan, cells = Plan.from_json(run.settings), args.run.parent / "cells"
    folder = RESULTS / plan.name
    if not args.verdicts_only:
        # Whatever is told follows from what is published, with all studies that were asked for, here or elsewhere.
        copy_finished(args.run.parent, folder, names={args.run.name})
        run = Run.open(folder / args.run.name)
        plan = Plan.from_json(run.settings)
        copy_finished(args.run.parent, folder, names={cell.name for cell in cells_of(plan)})
        keep_shown(findings_of(run, cells), cells, folder / "cells")
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
                *located(plan, evidence),
                *explained(plan, evidence),
                *led_to(plan, evidence),
                *figures(plan, found, drawn),
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
            picture = None if isinstance(figure, NoiseSlider) else drawing(figure)
            if picture is not None:
                name = f"{findings.study}-{anchor(figure.title)}.svg"
                told = {"study": findings.study, "title": figure.title, "file": name}
                listed.append(told | {"redraws": list(figure.redraws), "claims": list(figure.claims)})
                (folder / name).write_text(picture)
    (folder / "index.json").write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    return listed


def keep_shown(found: list[Findings], cells: Path, published: Path) -> None:
    """Publish what figures are drawn of beside records, such as a few samples of a model, if it is of the same training."""
    if cells.resolve() == published.resolve():
        return
    shown: dict[str, set[str]] = {}
    for findings in found:
        find_study(findings.study).draw(findings)
        for name, arrays in findings.seen.items():
            shown.setdefault(name, set()).update(arrays)
    for name, arrays in shown.items():
        if is_copy(published / name, cells / name):
            copy_arrays(cells / name, published / name, arrays, images=SHOWN)


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
        yield f"| {told} | {studies} | | | {PAPER['claims'][verdict.claim]} | **{verdict.verdict}** |"
        for part in verdict.statistics:
            yield f"| {part.name} | {_units(part)} | {_number(part)} | {part.threshold} | | |"
        for beside in verdict.controls:
            yield f"| *control: {beside.name}* | | {_number(beside)} | | | |"
    yield ""


def figures(plan: Plan, found: list[Findings], drawn: list[Record]) -> Iterator[str]:
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
    yield "| the paper's | there | drawn as | here | by |"
    yield "|---|---|---|---|---|"
    for number in range(1, 31):
        if not _is_about(plan, number):
            continue
        redrawn = [entry for entry in drawn if number in entry["redraws"]]
        links = (_linked(plan, entry, entry["title"]) for entry in redrawn)
        by = list(dict.fromkeys(entry["study"] for entry in redrawn)) or [
            name for name in STUDIES if number in find_study(name).figures
        ]
        told, here = "; ".join(links) or "not yet", "; ".join(dict.fromkeys(scale(plan, name, number) for name in by))
        done = ", ".join(name + parts.get(name, "") for name in by)
        yield f"| {number} | {PAPER['figures'][str(number)]} | {told} | {here} | {done} |"
    yield ""


def scale(plan: Plan, study: str, figure: int) -> str:
    """On how many images, and else how, the networks of a figure are trained."""
    least, most, half = (f"{n:,}" for n in (plan.sizes[0], plan.sizes[-1], plan.available // 2))
    if figure in (4, 10, 11, 22):  # of the networks of most images alone, unlike others of their studies
        return f"N = {most}"
    return {
        "distillation": f"N = {most} and {least}",
        "linearity": f"N = {least} to {most}",
        "size": f"N = {least} to {most}",
        "time": f"N = {plan.few:,}, {plan.times[0]:,g} to {plan.kimg:,g} thousand images",
        "capacity": f"N = {plan.few:,}, widths {plan.widths[0]} to {plan.widths[-1]}",
        "strong": f"{half} + {half}; {least} + {least}, also after {plan.early:,g} thousand images, "
        f"and at width {plan.narrow}",
        "networks": f"N = {most} and {least}; {half} + {half}",
        "autoencoders": f"N = {most}, one network a level",
    }.get(study, f"N = {most}")


def verdicts() -> Iterator[str]:
    """All claims on all data that are published, with how many of their numbers lie where the paper says.

    Yields:
        Lines.
    """
    judged = {}
    for path in sorted(RESULTS.glob("*/verdicts.jsonl")):
        told = [json.loads(line) for line in path.read_text().splitlines()]
        if sum(_at_a_glance(claim) != _UNKNOWN for claim in told) > len(told) / 2:  # else a study of something special
            judged[path.parent.name] = told
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
        yield f"| {what} | {timed(turning.value, turning.low, turning.high)} | {len(turning.at)} |"
    if onset is not None and onset.starts is not None:
        what = "thousand images after which 5 % of its samples are copies"
        yield f"| {what} | {timed(onset.starts, onset.low, onset.high)} | {onset.memorizing} of {onset.seeds} |"
    yield ""


def explained(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """How much of the network's variance its Gaussian and the multi-delta denoiser explain, beside published models.

    Yields:
        Lines.
    """
    of_network = evidence.where(study="references", denoiser="network", n=plan.sizes[-1], kimg=plan.kimg)
    known = [of_network.where(quantity=quantity) for quantity in ("gap_ev", EXPLAINED)]
    if not plan.name.startswith("cifar10") or not any(map(len, known)):
        return
    yield f"### Explained variance on {plan.name}\n"
    yield (
        "The published models are at the level named, ours at the nearest measured; G is the Gaussian, M multi-delta. "
        "Control: what M explains of G itself, on training images.\n"
    )
    sets = ("published", "training images", "held-out images")
    yield f"| published | ours | {' | '.join(f'{whose}, {images}' for whose in 'GM' for images in sets)} | control |"
    yield "|---|---|---|---|---|---|---|---|---|"
    curves = []
    for reference in ("gaussian", "multidelta"):
        for on in ("train", "held_out"):
            drawn = [line(reference, part.where(reference=reference, on=on)) for part in known]
            curves.append({x: rest for one in drawn for x, *rest in zip(one.x, one.y, one.low, one.high, strict=True)})
    control = evidence.where(study="references", quantity=EXPLAINED, denoiser="gaussian", on="train")
    without = line("control", control)
    of_gaussian = {x: rest for x, *rest in zip(without.x, without.y, without.low, without.high, strict=True)}
    for sigma, *published in PUBLISHED_EV:
        level = min(curves[0], key=lambda known, sigma=sigma: abs(math.log(known / sigma)))  # type: ignore[misc]
        ours = ["{:.3f} [{:.3f}, {:.3f}]".format(*curve[level]) for curve in curves]
        gaussian, memory = (f"{value:.3f}" for value in published)
        beside = "{:.3f} [{:.3f}, {:.3f}]".format(*of_gaussian[sigma]) if sigma in of_gaussian else "not measured"
        yield f"| σ = {sigma:g} | σ = {level:.3g} | {' | '.join([gaussian, *ours[:2], memory, *ours[2:], beside])} |"
    yield ""


def led_to(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """Explained variance after a training as long as that of published models, if distances change on as they do at the end.

    Yields:
        Lines, for the noise levels near published ones; nothing before there are two trainings that were followed in time.
    """
    many = evidence.where(study="time", on="held_out", denoiser="network", reference="gaussian", n=plan.sizes[-1])
    gaps, shares = many.where(quantity="gap_rmse"), many.where(quantity="gap_ev", kimg=plan.kimg)
    doublings = [min(plan.times, key=lambda kimg, part=part: abs(kimg * part - plan.kimg)) for part in (8, 4, 2, 1)]  # type: ignore[misc]
    rows, seeds = [], 0
    for sigma, at_level in gaps.by("sigma").items() if len(gaps) and plan.name.startswith("cifar10") else ():
        near = " and ".join(f"{value:.3f} at {at:g}" for at, value, _ in PUBLISHED_EV if 0.6 < at / sigma < 1.7)
        now = shares.where(sigma=sigma)
        of_seeds = [(lengths.over("kimg"), now.where(seed=seed)) for seed, lengths in at_level.by("seed").items()]
        trends = [
            _trend(rmse, share.one().value, doublings)
            for rmse, share in of_seeds
            if len(share) and {*doublings} <= {*rmse}
        ]
        if near and len(trends) > 1:
            seeds = len(trends)
            share, *steps, end = (combine(values, [0.0] * seeds) for values in zip(*trends, strict=True))
            told = [f"{sigma:.3g}", f"{share.value:.3f}", *(_with_ends(step, 4) for step in steps)]
            reached = "no line: it ends below 0" if math.isnan(end.value) else _with_ends(end, 3)
            rows.append(f"| {' | '.join(told)} | {reached} | {near} |")
    if rows:
        yield f"### Where explained variance on {plan.name} is headed\n"
        yield (
            "By how much the RMSE between network and Gaussian grows with each doubling of the length of training, and what "
            f"would be explained after {PUBLISHED_KIMG / 1000:g} million images, the length of published trainings, if it "
            f"went on along a line through the lengths from {doublings[1]:g} to {doublings[-1]:g} thousand. Held-out "
            f"images; intervals are over {seeds} trainings, and those of the line hold only if it does: nothing beyond "
            f"{plan.kimg:g} thousand was measured, and where growth changes from doubling to doubling it does not hold.\n"
        )
        between = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(doublings)]
        yield f"| σ | explained by the Gaussian now | {' | '.join(between)} | along the line | published |"
        yield "|---|---|---|---|---|---|---|"
        yield from rows
        yield ""


def _trend(rmse: Mapping[float, Number], share: float, doublings: Sequence[float]) -> tuple[float, ...]:
    """Of one training: EV now, growth of the RMSE in each of the last three doublings, and EV along the line.

    The line goes through RMSE against the logarithm of the length, over the last two doublings; 1 − EV is taken to grow with
    RMSE². It is NaN where the line ends below 0.

    Args:
        rmse: by length of training.
        share: EV at its end.
        doublings: the lengths between which growth is told, the last of them the end.
    """
    late = {kimg: number for kimg, number in rmse.items() if kimg >= doublings[1]}
    middle = math.exp(sum(map(math.log, late)) / len(late))
    reached = mean(late.values()).value + slope(late).value * math.log(PUBLISHED_KIMG / middle)
    steps = [rmse[high].value - rmse[low].value for low, high in itertools.pairwise(doublings)]
    end = 1 - (1 - share) * (reached / rmse[doublings[-1]].value) ** 2
    return share, *steps, end if reached > 0 else math.nan


def _with_ends(number: Combined, digits: int) -> str:
    low, high = number.interval() or (math.nan, math.nan)
    return f"{number.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


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
