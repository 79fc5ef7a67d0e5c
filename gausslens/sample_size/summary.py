"""The answer to how many images suffice, in plain words, as JSON and as a page."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import numpy as np

from ..auditing.thresholds import THRESHOLDS
from ..measures.memorization import MEMORIZED
from ..measures.transition import Count, fit_transition
from ..paper import axes
from ..paper.claims.evidence import Evidence
from ..paper.critical_points import find_onset
from ..paper.figures import Curves, Line
from ..paper.plan import Plan
from ..report import CurveFigure, Figure, Page, Section, Series
from ..store.provenance import made_by

_RHO = axes.quantity("rho", "ρ").by(axes.SIZE)
_COPIES: dict[str, Any] = {"y": axes.COPIES.y, "thresholds": axes.COPIES.levels}


def counts_at_end(evidence: Evidence, kimg: float) -> tuple[Count, ...]:
    """The copies of each network at the end of training."""
    records = evidence.where(quantity="memorized_fraction", kimg=kimg).records
    return tuple(Count(record["n"], record["seed"], record["copies"], record["count"]) for record in records)


class Answer:
    """What the records of networks on two numbers of images or more say; `command` asks the same question."""

    def __init__(self, plan: Plan, evidence: Evidence, command: str) -> None:
        self.plan, self.evidence, self.command = plan, evidence, command
        self.copies = evidence.where(quantity="memorized_fraction")
        self.counts = counts_at_end(evidence, plan.kimg)
        self.sizes = sorted({count.n for count in self.counts})
        self.transition = fit_transition(self.counts)
        self.onsets = [  # when memorising starts, by number of images
            find_onset(n, [{record["kimg"]: record["value"] for record in seed.records} for seed in of_size.seeds()])
            for n, of_size in self.copies.by("n").items()
        ]
        # Of the networks of most images, in units of the Gaussian's: on training or on held-out images, where it is less.
        losses = evidence.where(quantity="relative_loss", n=self.sizes[-1])
        self.relative_loss = min(fmean(each["value"] for each in of_set.records) for of_set in losses.by("on").values())

    @property
    def words(self) -> str:
        """The answer in plain words."""
        plan = self.plan
        network = f"{plan.training['network']} with {plan.width} channels"
        trained = f"{network}, trained for {plan.kimg:,g} thousand images on {plan.name}:"
        lines = [trained, self._how_many(), *self._how_long(), self._hardly_trained(), self._advice()]
        return "\n".join(filter(None, lines))

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
        fewest, most = self.sizes[0], self.sizes[-1]
        needed, seeds = self.transition.needed, len({count.seed for count in self.counts})
        low, high = _rounded(needed.low, f"below {fewest:,}"), _rounded(needed.high, f"above {most:,}")
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

    def _how_long(self) -> Iterator[str]:
        for onset in self.onsets:
            if onset.starts is None:
                continue
            interval = "" if onset.low is None else f", 95 % interval {onset.low:.3g} to {onset.high:.3g}"
            some = "" if onset.memorizing == onset.seeds else f" at {onset.memorizing} of {onset.seeds} seeds"
            safe = f"up to {onset.safe:g} none does" if onset.safe else "already at the first look"
            yield (
                f"  {onset.n:>7,} images: memorising starts after {onset.starts:.3g} thousand images{some}{interval}; "
                f"{safe}."
            )
        free = [f"{onset.n:,}" for onset in self.onsets if onset.starts is None]
        if free:
            listed = " and ".join(filter(None, (", ".join(free[:-1]), free[-1])))
            yield f"  No memorising within {self.plan.kimg:,g} thousand images with {listed} images."

    def _hardly_trained(self) -> str:
        """What to know if the network falls behind a linear filter even on images it was trained on; else empty."""
        if self.relative_loss <= THRESHOLDS["behind"].value:
            return ""
        return (
            f"But it has hardly learned: with {self.sizes[-1]:,} images its loss is still {self.relative_loss:.2g} times "
            "that of a Wiener filter, even on training images. With longer training it may copy more; repeat this with a "
            "larger --kimg."
        )

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


def make_page(answer: Answer, samples: Figure, machine: Mapping[str, Any]) -> Page:
    """The page."""
    kimg = answer.plan.kimg
    rho = Curves(
        title="Between the Gaussian and copying",
        caption="ρ places the gap between held-out and training loss on a scale: 0 is the Gaussian denoiser of the "
        "training images, and 1 the denoiser that retrieves them. Bands are 95 % intervals over images.",
        of=_RHO,
        lines=[Line("seed {}".format, by="seed", kimg=kimg)],
    )
    how_many = Section(
        "How many images?",
        "Networks were trained on increasing numbers of images. A sample counts as a copy if it is less than a third as far "
        "from one training image as from any other.",
        _with_command(answer, _copies_by_size(answer), rho.draw(answer.evidence), samples),
    )
    how_long = Section(
        "How long may it train?",
        "The same networks during their training.",
        _with_command(answer, _copies_by_time(answer)),
    )
    return Page(
        title=f"How many images? {answer.plan.name}",
        summary=answer.words.replace("\n", "\n\n"),
        sections=(how_many, how_long),
        made_by=made_by([machine]),
    )


def _with_command(answer: Answer, *figures: Figure | None) -> tuple[Figure, ...]:
    return tuple(replace(figure, command=answer.command) for figure in figures if figure is not None)


def _copies_by_size(answer: Answer) -> Figure:
    transition, kimg = answer.transition, answer.plan.kimg
    median, low, high = transition.curve.tolist()
    lines = [Series("the transition", transition.sizes, median, low, high, markers=False)]
    for seed, of_seed in answer.copies.where(kimg=kimg).by("seed").items():
        shares = of_seed.over("n")
        lines.append(Series(f"seed {seed}", tuple(shares), [share.value for share in shares.values()], dashed=True))
    return CurveFigure(
        title="Copies among samples",
        caption=f"Dashed lines: the share of copies among the samples of each network after {kimg:,g} thousand images of "
        "training. Solid line: the fitted transition with its 95 % band. Below the threshold a network no longer memorises.",
        x=axes.SIZE.axis,
        series=tuple(lines),
        **_COPIES,
    )


def _copies_by_time(answer: Answer) -> Figure:
    lines = []
    for n, of_size in answer.copies.by("n").items():
        by_time = {kimg: [record["value"] for record in found.records] for kimg, found in of_size.by("kimg").items()}
        mean, least, most = ([float(of(seeds)) for seeds in by_time.values()] for of in (np.mean, np.min, np.max))
        lines.append(Series(f"N = {n:,}", tuple(by_time), mean, least, most))
    return CurveFigure(
        title="Copies among samples as training goes on",
        caption="The share of copies, as a mean over seeds. Bands reach from the least to the greatest seed.",
        x=axes.TIME.axis,
        series=tuple(lines),
        **_COPIES,
    )


def _rounded(value: float | None, otherwise: str = "") -> str:
    return otherwise if value is None else f"{float(f'{value:.2g}'):,.0f}"
