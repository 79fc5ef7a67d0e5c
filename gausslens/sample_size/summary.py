"""The answer to how many images suffice, in plain words, as JSON and as a page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import gausslens

from ..auditing.thresholds import THRESHOLDS
from ..measures.memorization import MEMORIZED
from ..measures.transition import Count, Transition
from ..paper.critical_points import Onset
from ..paper.plan import Plan
from ..report import Axis, CurveFigure, Figure, ImageGrid, Page, Section, Series, Threshold
from ..store.records import Record

_IMAGES = Axis("training images N", log=True)
_TIME = Axis("training", "thousands of images", log=True)
_THRESHOLDS = (Threshold(MEMORIZED, "memorising"),)


@dataclass(frozen=True, eq=False)
class Answer:
    """What was found."""

    plan: Plan
    transition: Transition  # from copying to novelty
    counts: tuple[Count, ...]  # of every network, at its end
    onsets: tuple[Onset, ...]  # when memorising starts, by number of images
    # Of the network of most images, in units of the Gaussian's: on training or on held-out images, where it is less.
    relative_loss: float | None
    command: str  # that asks the same

    @property
    def words(self) -> str:
        """The answer in plain words."""
        plan = self.plan
        network = f"{plan.training['network']} with {plan.width} channels"
        trained = f"{network}, trained for {plan.kimg:,g} thousand images on {plan.name}:"
        return "\n".join([trained, self._how_many(), *self._how_long(), *self._hardly_trained(), self._advice()])

    def as_json(self) -> dict[str, Any]:
        """The answer as JSON can hold it."""
        plan = self.plan
        return {
            "data": plan.name,
            "network": str(plan.training["network"]),
            **{name: getattr(plan, name) for name in ("width", "kimg", "available")},
            "threshold": MEMORIZED,
            "relative_loss": self.relative_loss,
            "command": self.command,
            "images_needed": asdict(self.transition.needed),
            "midpoint": asdict(self.transition.midpoint),
            "probability_more_than_tried": self.transition.always,
            "probability_fewer_than_tried": self.transition.never,
            "networks": [{**asdict(count), "memorized_fraction": count.share} for count in self.counts],
            "onsets": [asdict(onset) for onset in self.onsets],
            "words": self.words,
        }

    def _how_many(self) -> str:
        fewest, most = (end(count.n for count in self.counts) for end in (min, max))
        needed, seeds = self.transition.needed, len({count.seed for count in self.counts})
        low, high = _end(needed.low, f"below {fewest:,}"), _end(needed.high, f"above {most:,}")
        if needed.value is None:
            known = needed.low is not None or needed.high is not None
            interval = f" (95 % interval: {low} to {high})" if known else ""
            if self.transition.always > self.transition.never:
                return f"It still memorises with {most:,} images, the most that were tried: more are needed.{interval}"
            return f"It does not memorise even with {fewest:,} images, the fewest that were tried.{interval}"
        few = "" if seeds > 2 else " This is from too few seeds to be sure."
        return (
            f"It stops memorising from about {_rounded(needed.value)} images on (95 % interval {low} to {high}, "
            f"{len(self.counts)} networks, {seeds} seed{'s' * (seeds > 1)}): fewer than {MEMORIZED:.0%} of a typical "
            f"network's samples are copies then.{few}"
        )

    def _how_long(self) -> list[str]:
        lines = []
        for onset in self.onsets:
            if onset.starts is None:
                continue
            interval = "" if onset.low is None else f", 95 % interval {onset.low:.3g} to {onset.high:.3g}"
            some = "" if onset.memorizing == onset.seeds else f" at {onset.memorizing} of {onset.seeds} seeds"
            safe = f"up to {onset.safe:g} none does" if onset.safe else "already at the first look"
            lines.append(
                f"  {onset.n:>7,} images: memorising starts after {onset.starts:.3g} thousand images{some}{interval}; "
                f"{safe}."
            )
        free = [onset.n for onset in self.onsets if onset.starts is None]
        if free:
            lines.append(f"  No memorising within {self.plan.kimg:,g} thousand images with {_listed(free)} images.")
        return lines

    def _hardly_trained(self) -> list[str]:
        """What to know if the network falls behind a linear filter even on images it was trained on."""
        if self.relative_loss is None or self.relative_loss <= THRESHOLDS["behind"].value:
            return []
        most = max(count.n for count in self.counts)
        return [
            f"But it has hardly learned: with {most:,} images its loss is still {self.relative_loss:.2g} times that of a "
            "plain Wiener filter, on training images too. Trained longer it may copy more; ask again with a longer --kimg."
        ]

    def _advice(self) -> str:
        needed, longest = self.transition.needed, self.onsets[-1]
        whole_length = f"it may train for {self.plan.kimg:,g} thousand images."
        if needed.high is not None and needed.high <= self.plan.available:
            return f"With all {self.plan.available:,} images of this set {whole_length}"
        if longest.starts is None:
            return f"With {longest.n:,} images {whole_length}"
        stop = "no length that was looked at is safe:"
        if longest.safe:
            stop = f"stop after {longest.safe:,g} thousand images,"
        return f"With {longest.n:,} images {stop} take a smaller network, or collect more images."


def make_page(
    answer: Answer, records: Sequence[Record], samples: Sequence[tuple[int, Any, Any]], machine: Mapping[str, Any]
) -> Page:
    """The page."""
    how_many = Section(
        "How many images?",
        "Networks were trained on more and more images, and copies counted among their samples: a copy is less than a third "
        "as far from one training image as from any other.",
        tuple(_of_size(answer, records, samples)),
    )
    how_long = Section(
        "How long may it train?",
        "The same networks, looked at while they were trained.",
        (_of_time(answer, records),),
    )
    made_on = ", ".join(f"{key} {value}" for key, value in machine.items() if isinstance(value, str | int | float))
    return Page(
        title=f"How many images? {answer.plan.name}",
        summary=answer.words.replace("\n", "\n\n"),
        sections=(how_many, how_long),
        made_by=f"gausslens {gausslens.__version__}. {made_on}",
    )


def _of_size(answer: Answer, records: Sequence[Record], samples: Sequence[tuple[int, Any, Any]]) -> list[Figure]:
    transition, seeds = answer.transition, sorted({count.seed for count in answer.counts})
    median, low, high = (row.tolist() for row in transition.curve)
    lines = [Series("the transition", transition.sizes, median, low, high, markers=False)]
    positions = []
    for seed in seeds:
        own = sorted((count.n, count.share) for count in answer.counts if count.seed == seed)
        lines.append(Series(f"seed {seed}", [n for n, _ in own], [share for _, share in own], dashed=True))
        chosen = {"quantity": "rho", "seed": seed, "kimg": answer.plan.kimg}
        found = sorted((r for r in records if chosen.items() <= r.items()), key=lambda record: record["n"])
        if found:
            n, rho, least, most = ([record[key] for record in found] for key in ("n", "value", "low", "high"))
            positions.append(Series(f"seed {seed}", n, rho, least, most))
    figures: list[Figure] = [
        CurveFigure(
            title="Copies among samples",
            caption=f"Share of copies after {answer.plan.kimg:,g} thousand images of training, network by network, and the "
            "transition fitted to them with its 95 % band. Below the threshold a network no longer memorises.",
            command=answer.command,
            x=_IMAGES,
            y=Axis("memorised fraction"),
            series=tuple(lines),
            thresholds=_THRESHOLDS,
        )
    ]
    if positions:
        figures.append(
            CurveFigure(
                title="Between the Gaussian and copying",
                caption="ρ, the position of the gap between held-out and training loss: 0 is the Gaussian denoiser of the "
                "training images, 1 the denoiser that retrieves them. Bands are 95 % intervals over images.",
                command=answer.command,
                x=_IMAGES,
                y=Axis("ρ"),
                series=tuple(positions),
            )
        )
    if samples:
        width = min(len(made) for _, made, _ in samples)
        figures.append(
            ImageGrid(
                title="Samples and their nearest training images",
                caption="Below each row of samples, the training images nearest to them.",
                command=answer.command,
                rows=tuple(label for n, _, _ in samples for label in (f"N = {n:,}", "nearest")),
                columns=tuple(f"noise {index + 1}" for index in range(width)),
                images=np.stack([images[:width] for _, made, nearest in samples for images in (made, nearest)]),
            )
        )
    return figures


def _of_time(answer: Answer, records: Sequence[Record]) -> CurveFigure:
    copied = [record for record in records if record["quantity"] == "memorized_fraction"]
    lines = []
    for n in sorted({record["n"] for record in copied}):
        times = sorted({record["kimg"] for record in copied if record["n"] == n})
        values = [[r["value"] for r in copied if r["n"] == n and r["kimg"] == kimg] for kimg in times]
        ends = ([min(of_time) for of_time in values], [max(of_time) for of_time in values])
        lines.append(Series(f"N = {n:,}", times, [float(np.mean(of_time)) for of_time in values], *ends))
    return CurveFigure(
        title="Copies among samples as training goes on",
        caption="Mean over seeds; bands reach from the least to the greatest.",
        command=answer.command,
        x=_TIME,
        y=Axis("memorised fraction"),
        series=tuple(lines),
        thresholds=_THRESHOLDS,
    )


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,.0f}"


def _end(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else _rounded(value)


def _listed(sizes: Sequence[int]) -> str:
    texts = [f"{n:,}" for n in sizes]
    return " and ".join(([", ".join(texts[:-1])] if texts[1:] else []) + texts[-1:])
