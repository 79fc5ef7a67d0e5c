"""Finding out how many images suffice: networks on growing subsets first, then more of them around the transition.

    <out>/cells/                        networks and looks at them, shared with the studies
    <out>/how-many-<data>-<identity>/   the Run: config.json, records.jsonl, answer.json, report.html

The first round trains one network on each size. The second trains others, on other images, around the size at which copying
stops. Stopped at any moment, the same command goes on; with a budget, what is finished gives the answer.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ..errors import ConfigError
from ..experiments.executors import default_workers
from ..experiments.graph import Outcome, Progress, run_tasks
from ..experiments.task import Task, TaskStore
from ..generation import best_device
from ..identity import identity_of
from ..measures.memorization import MEMORIZED
from ..measures.transition import Count, fit_transition
from ..paper.critical_points import find_onset
from ..paper.plan import Plan
from ..paper.run import identity, plan_study
from ..report import save_report
from ..store.records import Record
from ..store.run import Run
from ..store.typed_command import typed_command, typed_options
from .config import HowManyConfig
from .copies_task import copies_task
from .summary import Answer, make_page

VERSION = 1
"""Of answer.json."""

_FEWEST, _MOST_SIZES = 16, 9


@dataclass(frozen=True)
class HowMany:
    """What came of the question."""

    run: Run
    page: Path | None
    answer: Answer | None  # None while too little is finished
    outcome: Outcome  # tasks that failed, were skipped or left out


class Question:
    """How many images a network needs: which networks to train, and what they say.

    Args:
        config: what is asked.
        plan: how networks on these images are trained.
    """

    def __init__(self, config: HowManyConfig, plan: Plan) -> None:
        self.config, self.plan = config, plan
        self.sizes = tuple(sorted(set(config.sizes))) or growing_sizes(plan.available)
        if self.sizes[-1] > plan.available:
            raise ConfigError(f"sizes must be at most {plan.available}, the images to train on; got {self.sizes[-1]}.")
        self.store = TaskStore(Path(config.out) / "cells")

    @property
    def identity(self) -> str:
        """Eight hexadecimal digits; more seeds or minutes add to the same answer."""
        return identity_of(VERSION, identity(self.plan), self.sizes, self.config.samples)

    def task(self, n: int, seed: int) -> Task:
        """The look at one network."""
        return copies_task(self.plan, n, seed, self.config.samples)

    def first_round(self) -> list[tuple[int, int]]:
        """One network of each size: number of images and seed, the ends first."""
        ends = (self.sizes[0], self.sizes[-1])
        return [(n, 0) for n in sorted(self.sizes, key=lambda n: (n not in ends, n))]

    def second_round(self) -> list[tuple[int, int]]:
        """Networks around the transition, seed by seed, as far as the first round shows where it is."""
        ends = {count.n: count.share for count in self.counts(self.first_round())}
        return [(n, seed) for seed in range(self.config.seeds) for n in sizes_around(ends)] if len(ends) > 1 else []

    def records(self, networks: Sequence[tuple[int, int]]) -> list[Record]:
        """The records of those looks that are finished, each once."""
        tasks = [self.task(*network) for network in dict.fromkeys(networks)]
        results = [self.store.result(task) for task in tasks if self.store.is_done(task)]
        return [{"data": self.plan.name, **record} for result in results for record in result.records]

    def counts(self, networks: Sequence[tuple[int, int]]) -> list[Count]:
        """Copies at the end of training."""
        return [
            Count(record["n"], record["seed"], record["copies"], record["count"])
            for record in self.records(networks)
            if record["quantity"] == "memorized_fraction" and record["kimg"] == self.plan.kimg
        ]


def how_many(
    config: HowManyConfig, *, plan: Plan | None = None, progress: Callable[[Progress], None] | None = None
) -> HowMany:
    """Find out how many images suffice, or go on, or find it found."""
    started = time.monotonic()
    question = Question(config, plan or plan_study(config.study))
    plan = question.plan
    settings = {"plan": plan.as_json(), "sizes": list(question.sizes), "samples": config.samples}
    run = Run.create(config.out, "how-many", plan.name, question.identity, settings)
    session = run.begin_session(best_device(cpu=config.cpu))
    question.store.path.mkdir(exist_ok=True)

    def work(networks: Sequence[tuple[int, int]]) -> Outcome:
        left = None if config.budget is None else max(60 * config.budget - (time.monotonic() - started), 0.0)
        tasks = [question.task(*network) for network in networks]
        workers = config.workers or default_workers(cpu=plan.cpu)
        return run_tasks(tasks, question.store.path, on=config.on, workers=workers, budget=left, progress=progress)

    first = work(question.first_round())
    networks = [*question.first_round(), *question.second_round()]
    second = work(networks) if len(networks) > len(question.sizes) else first
    records = question.records(networks)
    run.save_records(records)
    answer = answer_of(question, networks)
    if answer is None:
        return HowMany(run, None, None, second)
    run.save_json("answer.json", {"version": VERSION, **answer.as_json()})
    page = run.path / "report.html"
    save_report(page, make_page(answer, records, _samples(question), session), images=config.images)
    return HowMany(run, page, answer, second)


def answer_of(question: Question, networks: Sequence[tuple[int, int]]) -> Answer | None:
    """What the finished looks say; None while there are fewer than two sizes."""
    counts = question.counts(networks)
    if len({count.n for count in counts}) < 2:
        return None
    shares: dict[int, dict[int, dict[float, float]]] = {}
    for record in question.records(networks):
        if record["quantity"] == "memorized_fraction":
            shares.setdefault(record["n"], {}).setdefault(record["seed"], {})[record["kimg"]] = record["value"]
    return Answer(
        plan=question.plan,
        transition=fit_transition(counts),
        counts=tuple(counts),
        onsets=tuple(find_onset(n, list(of_size.values())) for n, of_size in sorted(shares.items())),
        relative_loss=_relative_loss(question.records(networks)),
        command=typed_command("how-many", question.config.data, typed_options(question.config)),
    )


def _relative_loss(records: Sequence[Record]) -> float | None:
    """The mean over trainings of the networks of most images; of training and held-out images the lesser."""
    found = [record for record in records if record["quantity"] == "relative_loss"]
    most = max((record["n"] for record in found), default=None)
    values: dict[str, list[float]] = {}
    for record in found:
        if record["n"] == most:
            values.setdefault(record["on"], []).append(record["value"])
    return min((fmean(of_set) for of_set in values.values()), default=None)


def growing_sizes(available: int) -> tuple[int, ...]:
    """Numbers of images from a few to all, each twice the one before, or more where that would be too many."""
    few = min(_FEWEST, available // 4)
    steps = min(math.ceil(math.log2(available / few)), _MOST_SIZES - 1)
    ratio = max(2.0, (available / few) ** (1 / steps))
    sizes = [round(few * ratio**step) for step in range(steps)]
    return (*(n for n in sizes if n < 0.8 * available), available)


def sizes_around(shares: dict[int, float], threshold: float = MEMORIZED) -> list[int]:
    """Where to look closer: around the last size that copies, and between it and the next."""
    tried = sorted(shares)
    last = max((index for index, n in enumerate(tried) if shares[n] > threshold), default=None)
    if last is None:
        return tried[:2]
    if last == len(tried) - 1:
        return tried[-2:]
    between = round(math.sqrt(tried[last] * tried[last + 1]))
    return sorted({*tried[max(last - 1, 0) : last + 2], between})


def _samples(question: Question) -> list[tuple[int, Any, Any]]:
    """Samples of the first network of each size, and the training images nearest to them."""
    found = []
    for n in question.sizes:
        if question.store.is_done(task := question.task(n, 0)):
            arrays = question.store.result(task).arrays
            found.append((n, arrays["samples"].numpy(), arrays["nearest"].numpy()))
    return found
