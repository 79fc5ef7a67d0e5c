"""The tables of docs/tables/, as Markdown; `publish.py` writes them.

Every number is computed from records. The paper's numbers beside them come from arXiv:2410.24060 and its notebooks.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from gausslens.paper.axes import POSITIVE
from gausslens.paper.claims.claim import Statistic, control
from gausslens.paper.claims.evidence import Evidence, Number, mean, slope
from gausslens.paper.claims.inference import combine
from gausslens.paper.claims.verdict import Verdict
from gausslens.paper.config import STUDIES
from gausslens.paper.critical_points import closest, format_time, images_needed, memorizing_from
from gausslens.paper.figures import line
from gausslens.paper.plan import Plan
from gausslens.paper.registry import find_study
from gausslens.paper.study import Findings
from gausslens.paper.tasks.one_model import EXPLAINED
from gausslens.report import Figure, Series
from gausslens.report.rendering import anchor

Drawn: TypeAlias = tuple[str, Figure]  # a figure with its study

# What the paper has for each claim, and at which scale it drew each figure.
PAPER = json.loads(Path(__file__).with_name("paper.json").read_text())
# The figures that pages of docs/ show: by data and study, with their names in docs/figures/.
KEY_FIGURES = {
    "cifar10": {
        "references-distance-of-the-network-to-its-reference-denoisers": "distances",
        "references-a-little-more-training-at-one-noise-level": "finetuning",
        "linearity-linearity-over-noise-levels-by-number-of-images": "linearity",
        "linearity-a-poorly-parametrised-network": "badly-parametrised",
        "size-copies-among-samples-by-number-of-images": "copies",
        "size-samples-their-nearest-training-images-and-samples-of-the-gaussian": "samples",
        "strong-two-models-on-disjoint-images-large": "two-models",
        "strong-two-models-on-disjoint-images-small": "two-models-small",
        "networks-samples-of-several-architectures-from-the-same-initial-noise": "architectures",
        "autoencoders-distance-of-autoencoders-to-the-gaussian-denoiser": "autoencoders",
    },
    "cifar10-long": {
        "time-distance-to-the-gaussian-denoiser-against-the-length-of-training": "training",
        "time-samples-as-training-goes-on-n-782": "training-samples",
        "strong-agreement-as-training-goes-on-n-782": "agreement",
        "strong-two-models-on-disjoint-images-small": "two-models-long",
        "strong-two-models-on-disjoint-images-early": "two-models-early",
        "strong-two-models-on-disjoint-images-narrow": "two-models-narrow",
    },
    "cifar10-all": {"references-how-much-of-the-network-its-references-explain": "explained"},
    "celeba64": {
        "references-a-little-more-training-at-one-noise-level": "faces-finetuning",
        "linearity-linearity-by-weight-of-the-superposition-on-pure-noise": "faces-pure-noise",
    },
}
# σ, and the variance of public CIFAR-10 models that the Gaussian and the multi-delta denoiser explain there.
PUBLISHED_EV = (
    (0.5, 0.952, 0.929), (1.0, 0.923, 0.838), (2.0, 0.913, 0.603), (5.0, 0.942, 0.535), (10.0, 0.965, 0.969),
)  # fmt: skip
PUBLISHED_KIMG = 200_000  # how long those models were trained


def write_tables(
    page: Path, plan: Plan, found: list[Findings], verdicts: list[Verdict], evidence: Evidence, drawn: list[Drawn]
) -> None:
    """Write the page of a study, in place of the one that is there; without findings, its claims alone."""
    head = (
        f"# Tables of {plan.name}\n",
        f"`commands/publish.py` writes this page from the records in [results/{plan.name}](../../results/{plan.name}): "
        "do not edit it. [reproduce.md](../reproduce.md) says what was found, [claims.md](../claims.md) how claims are "
        "judged.\n",
        f"The study was made by `{plan.command.replace(plan.data, Path(plan.data).name)}`, with `--only` for a single "
        "study. A *control* is a number that is shown for comparison and not judged.\n",
    )
    sections = [claims(plan, verdicts)]
    if found:
        sections += [section(plan, evidence) for section in (by_size, transition, explained_variance, longer_training)]
        sections.append(figures(plan, found, evidence, drawn))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join([*head, *itertools.chain(*sections)]).rstrip("\n") + "\n")


def claims(plan: Plan, verdicts: list[Verdict]) -> Iterator[str]:
    """The claims with their statistics and controls, line by line."""
    yield "## Claims\n"
    yield (
        "Each claim is followed by its statistics with their thresholds, and by its controls. n counts images, samples or, "
        "for fits, calls of the network.\n"
    )
    yield "| claim or statistic | study, seeds and n | our value [95 %] | threshold | the paper's value | verdict |"
    yield "|---|---|---|---|---|---|"
    for verdict in verdicts:
        if not _is_about(plan, verdict.claim):
            continue
        studies = ", ".join(name for name in STUDIES if verdict.claim in find_study(name).claims)
        why = f": {verdict.reason}" if verdict.reason and verdict.is_measured else ""
        claim, paper = f"**{verdict.claim}** {verdict.text}", PAPER["claims"][verdict.claim]
        yield f"| {claim} | {studies} | | | {paper} | **{verdict.verdict}**{why} |"
        for part in verdict.statistics:
            yield f"| {part.name} | {_units(part)} | {_value(part)} | {part.threshold} | | |"
        for beside in verdict.controls:
            value = _number(beside.value, beside.low, beside.high, ".4g")
            yield f"| *control: {beside.name}* | | {value} | | | |"
    yield ""


def _units(part: Statistic) -> str:
    if part.value is None:
        return ""
    seeds = [f"{part.seeds} {'seed' if part.seeds == 1 else 'seeds'}"] if part.seeds else []
    return ", ".join(seeds + ([f"n = {part.images:,}"] if part.images else []))


def _value(part: Statistic) -> str:
    if part.value is None:
        missing = part.missing or ""
        return "not measured" + ("" if missing.startswith("no record") else f": {missing}")
    return _number(part.value, part.low, part.high, ".4g")


def _number(value: float, low: float | None, high: float | None, digits: str) -> str:
    """A number with its interval, where it has one."""
    return f"{value:{digits}}" + ("" if low is None else f" [{low:{digits}}, {high:{digits}}]")


def by_size(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """Linearity and novelty, which C1 and C14 are about, size by size; nothing where fewer than three were trained."""
    samples = evidence.where(study="size", denoiser="network")
    pairs = evidence.where(study="linearity", denoiser="network", quantity="linearity_cosine", on="held_out")
    pairs = pairs.where(alpha=None, preconditioning=(None, "edm"))
    sizes = list(samples.where(quantity="gl").by("n")) if len(samples) else []
    if len(sizes) < 3:
        return
    yield "## Linearity and novelty by number of images\n"
    yield (
        f"Networks of {plan.width} channels, trained on {plan.kimg:,g} thousand images. Linearity is the least over noise "
        "levels, on held-out images. GL is the generalisation score of samples: the paper calls a sample new above 0.6. "
        "Relative GL is GL divided by that of held-out images. Copies are a share of "
        f"{plan.samples} samples. Values are means over training runs; intervals are over training runs and images.\n"
    )
    yield "| N | training runs | affine linearity | raw linearity | GL | relative GL | copies |"
    yield "|---|---|---|---|---|---|---|"
    for n in sizes:
        of_size, linearity = samples.where(n=n), pairs.where(n=n)
        columns = [
            *((linearity.where(affine=affine), Evidence.least, (-math.inf, 1.0)) for affine in (True, False)),
            (of_size.where(quantity="gl"), Evidence.one, POSITIVE),
            (of_size.where(quantity="relative_gl"), Evidence.one, POSITIVE),
            (of_size.where(quantity="memorized_fraction"), Evidence.one, (0.0, 1.0)),
        ]
        numbers = [control("", records, measure, possible) for records, measure, possible in columns]
        cells = ["".join(_number(one.value, one.low, one.high, ".3f") for one in found) for found in numbers]
        yield f"| {n:,} | {len(of_size.where(quantity='gl').seeds())} | {' | '.join(cells)} |"
    yield ""


def transition(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """From which number of training images on networks stop copying, and after which training they copy."""
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


def explained_variance(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """How much of the network's variance its Gaussian and the multi-delta denoiser explain, beside published models."""
    of_network = evidence.where(study="references", denoiser="network", n=plan.sizes[-1], kimg=plan.kimg)
    known = [of_network.where(quantity=quantity) for quantity in ("ev", EXPLAINED)]
    if not plan.name.startswith("cifar10") or not any(map(len, known)):
        return
    yield "## Explained variance\n"
    yield (
        "G is the share of the network's variance that the Gaussian explains, M the share that multi-delta explains. "
        "Published values are at the noise level of the first column, ours at the nearest measured level, in the second. "
        "The control is the share of the Gaussian's variance that multi-delta explains, on training images.\n"
    )
    sets = ("published", "training images", "held-out images")
    yield f"| published at | ours at | {' | '.join(f'{whose}, {images}' for whose in 'GM' for images in sets)} | control |"
    yield "|---|---|---|---|---|---|---|---|---|"
    curves = [
        _by_sigma(*(line(reference, part.where(reference=reference, on=on)) for part in known))
        for reference in ("gaussian", "multidelta")
        for on in ("train", "held_out")
    ]
    of_gaussian = evidence.where(study="references", quantity=EXPLAINED, denoiser="gaussian", on="train")
    beside = _by_sigma(line("control", of_gaussian))
    for sigma, gaussian, multidelta in PUBLISHED_EV:
        level = min(curves[0], key=lambda known, sigma=sigma: abs(math.log(known / sigma)))  # type: ignore[misc]
        ours = [curve[level] for curve in curves]
        columns = [f"{gaussian:.3f}", *ours[:2], f"{multidelta:.3f}", *ours[2:], beside.get(sigma, "not measured")]
        yield f"| σ = {sigma:g} | σ = {level:.3g} | {' | '.join(columns)} |"
    yield ""


def _by_sigma(*lines: Series) -> dict[float, str]:
    """The numbers of lines with their intervals, by noise level; later lines replace earlier ones."""
    return {
        x: _number(y, low, high, ".3f")
        for one in lines
        for x, y, low, high in zip(one.x, one.y, one.low, one.high, strict=True)
    }


def longer_training(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """Explained variance after a training as long as that of published models, extrapolated from the last doublings.

    Only for noise levels near published ones, and only where a training was measured at several lengths.
    """
    many = evidence.where(study="time", on="held_out", denoiser="network", reference="gaussian", n=plan.sizes[-1])
    gaps, shares = many.where(quantity="rmse"), many.where(quantity="ev", kimg=plan.kimg)
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
        if near and trends:
            seeds = len(trends)
            share, *steps, end = (combine(values, [0.0] * seeds) for values in zip(*trends, strict=True))
            growth = [_number(step.value, *(step.interval() or (None, None)), ".4f") for step in steps]
            reached = _number(end.value, *(end.interval() or (None, None)), ".3f")
            if math.isnan(end.value):
                reached = "no line: it ends below 0"
            rows.append(f"| {sigma:.3g} | {share.value:.3f} | {' | '.join(growth)} | {reached} | {near} |")
    if not rows:
        return
    runs = "one training run, so there are no intervals"
    if seeds > 1:
        runs = f"{seeds} training runs; intervals are over these"
    yield "## Explained variance after longer training\n"
    yield (
        f"The published models were trained on {PUBLISHED_KIMG / 1000:g} million images. The middle columns show how "
        "much the RMSE between network and Gaussian grows when training doubles from one length to the next (thousand "
        "images). "
        f"The extrapolation follows a line through the lengths from {doublings[1]:,g} to {doublings[-1]:,g} thousand "
        "images. It is a guess: "
        f"nothing beyond {plan.kimg:,g} thousand was measured, and the line fails where growth changes from doubling to "
        f"doubling. Numbers are on held-out images, from {runs}.\n"
    )
    between = [f"{low:,g} to {high:,g}" for low, high in itertools.pairwise(doublings)]
    yield f"| σ | explained by the Gaussian now | {' | '.join(between)} | extrapolated | published |"
    yield "|---|---|---|---|---|---|---|"
    yield from rows
    yield ""


def _trend(rmse: Mapping[float, Number], share: float, doublings: Sequence[float]) -> tuple[float, ...]:
    """Of one training: EV now, growth of the RMSE in each of the last three doublings, and EV after a longer training.

    RMSE is extrapolated linearly in the logarithm of the length, over the last two doublings; 1 − EV grows with RMSE². The
    last number is NaN where the line ends below 0.
    """
    late = {kimg: number for kimg, number in rmse.items() if kimg >= doublings[1]}
    middle = math.exp(sum(map(math.log, late)) / len(late))
    reached = mean(late.values()).value + slope(late).value * math.log(PUBLISHED_KIMG / middle)
    steps = [rmse[high].value - rmse[low].value for low, high in itertools.pairwise(doublings)]
    end = 1 - (1 - share) * (reached / rmse[doublings[-1]].value) ** 2
    return share, *steps, end if reached > 0 else math.nan


def figures(plan: Plan, found: list[Findings], evidence: Evidence, drawn: list[Drawn]) -> Iterator[str]:
    """The paper's figures and ours, line by line."""
    yield "## Figures\n"
    yield (
        f"`gausslens report results/{plan.name}` draws our figures. "
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
        redrawn = [(study, figure) for study, figure in drawn if number in figure.redraws]
        titles = "; ".join(_linked(plan, *entry) for entry in redrawn) or "not yet"
        by = list(dict.fromkeys(study for study, _ in redrawn)) or [
            name for name in plan.studies if number in find_study(name).figures
        ]
        here = "; ".join(dict.fromkeys(scale(plan, evidence.where(study=name), name, number) for name in by))
        done = ", ".join(name + parts.get(name, "") for name in by)
        about = ", ".join(
            sorted({claim for _, figure in redrawn for claim in figure.claims}, key=lambda claim: int(claim[1:]))
        )
        yield f"| {number} | {PAPER['figures'][str(number)]} | {titles} | {here} | {done} | {about} |"
    yield ""


def _linked(plan: Plan, study: str, figure: Figure) -> str:
    """The title of a figure, as a link where docs/figures/ has it."""
    file = KEY_FIGURES.get(plan.name, {}).get(f"{study}-{anchor(figure.title)}")
    return figure.title if file is None else f"[{figure.title}](../figures/{file}.svg)"


def scale(plan: Plan, evidence: Evidence, study: str, figure: int) -> str:
    """Number of images, width and length of training of the networks in a figure, as far as they are there."""
    fewest, most, half = (f"{n:,}" for n in (plan.sizes[0], plan.sizes[-1], plan.available // 2))
    if figure in (4, 10, 11, 22):  # of the networks of most images alone, unlike others of their studies
        epochs = [record["epoch"] for record in evidence.where(method="adam").records]
        return f"N = {most}" + (f"; Adam, {max(epochs)} epochs" if figure in (4, 22) and epochs else "")
    sizes = [f"{n:,}" for n in sorted({record["n"] for record in evidence.records if "n" in record})]
    widths = sorted({record["width"] for record in evidence.where(n=plan.few).records if "width" in record})
    roles = {
        "large": f"{half} + {half}",
        "small": f"{fewest} + {fewest}",
        "early": f"{fewest} + {fewest} after {plan.early:,g} thousand images",
        "narrow": f"{fewest} + {fewest} at width {plan.narrow}",
    }
    return {
        "distillation": f"N = {most} and {fewest}",
        "linearity": f"N = {fewest} to {most}",
        "size": f"N = {fewest} to {most}",
        "time": f"N = {' and '.join(sizes)}, {plan.times[0]:,g} to {plan.kimg:,g} thousand images",
        "capacity": f"N = {plan.few:,}, widths {', '.join(map(str, widths))}",
        "strong": "; ".join(words for role, words in roles.items() if len(evidence.where(role=role, noise="same"))),
        "networks": f"N = {most} and {fewest}; {half} + {half}",
        "autoencoders": f"N = {most}, one network a level",
    }.get(study, f"N = {most}")


def _is_about(plan: Plan, what: str | int) -> bool:
    """Whether a claim or a figure of the paper has a row: all have, unless only few studies are planned."""
    studies = [find_study(name) for name in plan.studies]
    return len(studies) > len(STUDIES) / 2 or any(what in (*study.claims, *study.figures) for study in studies)
