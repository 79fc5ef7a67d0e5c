"""Finding out how many images suffice: networks on growing subsets first, then more of them around the transition.

    <out>/cells/                        networks and looks at them, shared with the studies
    <out>/how-many-<data>-<identity>/   the Run: config.json, records.jsonl, answer.json, report.html

The first round trains one network on each size. The second trains others, on other images, around the size at which copying
stops. Stopped at any moment, the same command goes on; with a budget, what is finished gives the answer.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..errors import require
from ..evaluation.model_tasks import run_of, tags_of
from ..evaluation.references import load_run_images
from ..experiments.executors import default_workers
from ..experiments.graph import Outcome, Progress, run_tasks
from ..experiments.task import Task, TaskContext, TaskStore, task
from ..generation import best_device
from ..identity import identity_of
from ..images import quantize
from ..measures.memorization import MEMORIZED
from ..measures.neighbors import nearest
from ..monitor.probe import Probe, ProbeImages, ProbeOptions
from ..paper.claims.evidence import Evidence
from ..paper.plan import Plan, rounded
from ..paper.run import identity, plan_study
from ..report import ImageGrid, save_report
from ..store.records import Record, of_estimate
from ..store.run import Run, load_trained
from ..store.typed_command import typed_command, typed_options
from .config import HowManyConfig
from .summary import Answer, counts_at_end, make_page

VERSION = 1
"""Of answer.json."""

_FEWEST, _MOST_SIZES = 16, 9
# Shares of the training at which networks are looked at, besides its end.
_TIMES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
_COUNT, _NOISES, _STEPS = 100, 4, 18  # of a look (see `ProbeOptions`)
_SHOWN = 12  # samples of a network on the page


@dataclass(frozen=True)
class HowMany:
    """The run that holds the answer, and how it was found."""

    run: Run
    page: Path | None
    answer: Answer | None  # None while too little is finished
    outcome: Outcome  # tasks that failed, were skipped or left out


class Question:
    """How many images a network needs: which networks to train for the answer, and their records."""

    def __init__(self, config: HowManyConfig, plan: Plan) -> None:
        self.config, self.plan = config, plan
        self.sizes = tuple(sorted(set(config.sizes))) or growing_sizes(plan.available)
        most = plan.available
        require(self.sizes[-1] <= most, f"sizes must be at most {most}, the images to train on; got {self.sizes[-1]}.")
        self.store = TaskStore(Path(config.out) / "cells")

    @property
    def identity(self) -> str:
        """Eight hexadecimal digits; more seeds or minutes add to the same answer."""
        return identity_of(VERSION, identity(self.plan), self.sizes, self.config.samples)

    def task(self, n: int, seed: int) -> Task:
        """The looks at one network, which need its training."""
        snapshots = tuple(rounded(share * self.plan.kimg) for share in _TIMES)
        model = self.plan.model(n, seed, split_seed=seed, snapshots=snapshots)
        looks = len(snapshots) + 1
        calls = (looks + 1) * 2 * _COUNT * _NOISES * 3 + looks * self.config.samples * _STEPS
        return self.plan.on_model(look_at_copies, model, calls=calls, samples=self.config.samples)

    def first_round(self) -> list[tuple[int, int]]:
        """One network of each size: number of images and seed, the ends first."""
        ends = (self.sizes[0], self.sizes[-1])
        return [(n, 0) for n in sorted(self.sizes, key=lambda n: (n not in ends, n))]

    def second_round(self) -> list[tuple[int, int]]:
        """Networks around the transition, seed by seed, as far as the first round shows where it is."""
        shares = {count.n: count.share for count in counts_at_end(self.evidence(self.first_round()), self.plan.kimg)}
        if len(shares) < 2:
            return []
        return [(n, seed) for seed in range(self.config.seeds) for n in sizes_around(shares)]

    def evidence(self, networks: Sequence[tuple[int, int]]) -> Evidence:
        """The records of the networks whose tasks are finished, each network once."""
        tasks = [self.task(*network) for network in dict.fromkeys(networks)]
        results = [self.store.result(task) for task in tasks if self.store.is_done(task)]
        return Evidence({"data": self.plan.name, **record} for result in results for record in result.records)

    def pictures(self) -> ImageGrid:
        """Samples of the first network of each size, and the training images nearest to them."""
        labels, rows = [], []
        for n in self.sizes:
            if self.store.is_done(task := self.task(n, 0)):
                arrays = self.store.result(task).arrays
                labels += [f"N = {n:,}", "nearest"]
                rows += [arrays["samples"].numpy(), arrays["nearest"].numpy()]
        return ImageGrid(
            title="Samples and their nearest training images",
            caption="Below each row of samples, the training images nearest to them.",
            rows=tuple(labels),
            columns=tuple(f"noise {index + 1}" for index in range(len(rows[0]))),
            images=np.stack(rows),
        )


@task("look_at_copies", version=2, of_0_1="sufficiency.looking")
def look_at_copies(context: TaskContext) -> Iterator[Record]:
    """Look at the network of the first input at each snapshot, and count copies. Options: `samples`.

    Its arrays hold some samples of the end, uint8 (k, c, h, w), and the training images `nearest` to them.
    """
    run, samples = run_of(context.inputs[0]), context.options["samples"]
    images = load_run_images(run, data=context.options.get("data"))
    sets = images.train, images.held_out, images.train_labels, images.held_out_labels
    probed = ProbeImages(*sets, (-1.0, 1.0), images.train_groups)
    how = ProbeOptions(_COUNT, _NOISES, samples, _STEPS, run.config.seed)
    probe = Probe(probed, how, sigmas=None, device=context.device)
    for number, kimg in enumerate(context.each(run.snapshots)):
        network = load_trained(run, kimg=kimg, device=context.device)
        look, tags = probe.look(network, kimg, number), tags_of(run, kimg)
        if look.rho is not None:
            yield of_estimate("rho", look.rho, **tags)
        yield of_estimate("gaussian_rmse", look.gaussian, **tags)
        assert look.memorized is not None  # networks of all noise levels can be sampled
        yield of_estimate("memorized_fraction", look.memorized, copies=look.copies, **tags)
    for on, relative in zip(("train", "held_out"), probe.relative_losses(network), strict=False):
        yield of_estimate("relative_loss", relative, on=on, **tags)
    shown = quantize(probe.generate(network, number)[:_SHOWN].cpu())
    _, indices = nearest(shown, images.train)
    context.save_arrays(samples=shown, nearest=images.train[indices[:, 0]])


def how_many(
    config: HowManyConfig, *, plan: Plan | None = None, progress: Callable[[Progress], None] | None = None
) -> HowMany:
    """Find out how many images suffice, or go on, or find it found."""
    started = time.monotonic()
    question = Question(config, plan or plan_study(config.study))
    plan = question.plan
    settings = {"plan": asdict(plan), "sizes": list(question.sizes), "samples": config.samples}
    run = Run.create(config.out, "how-many", plan.name, question.identity, settings)
    session = run.begin_session(best_device(cpu=config.cpu))
    question.store.path.mkdir(exist_ok=True)

    def work(networks: Sequence[tuple[int, int]]) -> Outcome:
        left = None if config.budget is None else max(60 * config.budget - (time.monotonic() - started), 0.0)
        tasks = [question.task(*network) for network in networks]
        workers = config.workers or default_workers(cpu=plan.cpu)
        return run_tasks(tasks, question.store.path, on=config.on, workers=workers, budget=left, progress=progress)

    networks = question.first_round()
    outcome = work(networks)
    if second_round := question.second_round():
        networks += second_round
        outcome = work(networks)
    evidence = question.evidence(networks)
    run.save_records(evidence.records)
    if len({count.n for count in counts_at_end(evidence, plan.kimg)}) < 2:
        return HowMany(run, None, None, outcome)
    answer = Answer(plan, evidence, typed_command("how-many", config.data, typed_options(config)))
    run.save_json("answer.json", {"version": VERSION, **answer.as_json()})
    page = run.path / "report.html"
    save_report(page, make_page(answer, question.pictures(), session), images=config.images)
    return HowMany(run, page, answer, outcome)


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
