"""Doing studies: plan, run the tasks, judge the claims and write the page, again whenever a study is finished.

    <out>/cells/                     the tasks of all studies
    <out>/study-<data>-<identity>/   the study's Run: config.json (its plan), records.jsonl, report.html

A published study is one folder: the Run, with its tasks as an archive in place of records.jsonl (`experiments/archive.py`).

The identity is that of the plan's numbers and of the images' content. It does not depend on which studies are done and which
training is shown, so that a later `--only` adds to the same page.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..data.loading import load_images
from ..errors import GausslensError, require
from ..experiments.archive import is_archive, open_tasks
from ..experiments.executors import default_workers
from ..experiments.graph import Outcome, Progress, in_order, run_tasks
from ..experiments.task import Task, TaskStore
from ..generation import best_device
from ..identity import identity_of, semantic_fields
from ..report import Images, save_report
from ..store.records import Record
from ..store.run import Run
from .claims import Verdict, judge
from .config import STUDIES, StudyConfig
from .page import make_page
from .plan import Plan, make_plan
from .registry import find_study
from .study import Findings

_RUNTIME_OPTIONS = ("data", "studies", "options", "shown", "cpu")
REPORT = "report.html"


@dataclass(frozen=True)
class Studied:
    """The results of a study."""

    run: Run
    page: Path
    verdicts: list[Verdict]  # on all claims
    outcome: Outcome  # tasks that failed, were skipped or left out


def plan_study(config: StudyConfig, *, progress: bool = False) -> Plan:
    """Read the images and decide every number."""
    return make_plan(config, load_images(config.data, **config.reading, progress=progress))


def tasks_of(plan: Plan) -> list[Task]:
    """All tasks of a plan, and what they need, in the order they are done."""
    return in_order(part.task for name in plan.studies for part in find_study(name).parts(plan))


def open_study(plan: Plan, folder: Path) -> Run:
    """The run of a plan, new or old, to which this session and its studies are added."""
    run = Run.create(folder, "study", plan.name, identity(plan), asdict(plan))
    asked = {*Plan.from_json(run.settings).studies, *plan.studies}
    run.save_config(asdict(replace(plan, studies=tuple(name for name in STUDIES if name in asked))))
    run.begin_session(best_device(cpu=plan.cpu))
    (folder / "cells").mkdir(exist_ok=True)
    return run


def study(
    config: StudyConfig,
    *,
    plan: Plan | None = None,
    progress: Callable[[Progress], None] | None = None,
    tell: Callable[[str], object] = lambda words: None,
) -> Studied:
    """Do studies, or continue them; finished tasks are not done again."""
    plan = plan or plan_study(config)
    run = open_study(plan, Path(config.out))
    store = TaskStore(run.path.parent / "cells")
    tasks = {name: [part.task for part in find_study(name).parts(plan)] for name in plan.studies}
    missing = {name: {task.identity for task in wanted if not store.is_done(task)} for name, wanted in tasks.items()}

    def on_finished(task: Task) -> None:
        finished = [name for name, wanted in missing.items() if wanted == {task.identity}]
        for wanted in missing.values():
            wanted.discard(task.identity)
        if finished:
            page, _ = write_report(run, images=config.images, svg=config.svg)
            tell(f"finished {', '.join(finished)}; see {page}")

    outcome = run_tasks(
        [task for wanted in tasks.values() for task in wanted],
        store.path,
        on=config.on,
        workers=config.workers or default_workers(cpu=plan.cpu),
        budget=None if config.budget is None else 60 * config.budget,
        finished=on_finished,
        failed=lambda task, error: tell(f"failed: {task.name}: {error}"),
        progress=progress,
    )
    return Studied(run, *write_report(run, images=config.images, svg=config.svg), outcome)


def write_report(
    run: Run, *, images: Images = "shown", svg: bool = False, page: Path | None = None
) -> tuple[Path, list[Verdict]]:
    """Collect the records of a study's run and write its page, from whatever is finished."""
    found, target = findings_of(run), page or run.path / REPORT
    records = [record for of_study in found for record in of_study.records]
    if not is_archive(run.path):
        run.save_records(records)
    verdicts = judge(records)
    made = make_page(Plan.from_json(run.settings), found, verdicts, run.provenance)
    save_report(target, made, images=images, svg=svg)
    return target, verdicts


def findings_of(run: Run) -> list[Findings]:
    """The findings of each study of a run so far."""
    plan, store = Plan.from_json(run.settings), _tasks_beside(run)
    require(
        store.path.is_dir(),
        f"the tasks of {run.path} are not beside it, in {store.path}; its records are there, but its figures need them.",
        GausslensError,
    )
    return [Findings(plan, name, find_study(name).parts(plan), store) for name in plan.studies]


def identity(plan: Plan) -> str:
    """Eight hexadecimal digits that name what is studied."""
    return identity_of(semantic_fields(plan, _RUNTIME_OPTIONS))


def collect(runs: Iterable[Run]) -> list[Record]:
    """The records of several studies together; the tag `plan` separates those of different plans for one data set.

    They are read from the tasks, or if these are missing from the run's own records.
    """
    plans = [(run, replace(Plan.from_json(run.settings), repetition=0)) for run in runs]
    found = []
    for run, plan in plans:
        several = len({identity(other) for _, other in plans if other.name == plan.name}) > 1
        tags = {"plan": identity(plan)} if several else {}
        there = _tasks_beside(run).path.is_dir()
        records = [record for part in findings_of(run) for record in part.records] if there else run.records()
        found += [{**record, **tags} for record in records]
    return found


def _tasks_beside(run: Run) -> TaskStore:
    """The tasks of a run: in the same folder if that is an archive, else in the folder of all tasks beside it."""
    return open_tasks(run.path if is_archive(run.path) else run.path.parent)
