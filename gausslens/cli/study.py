"""Study a set of images as the paper does.

Networks of different widths are trained for different lengths of time, on more and more of the images and on disjoint
halves of them. They are measured with controls, the paper's claims are judged, and one page shows the figures. The same
command continues a study that was stopped. Finished work is not done again.

Examples:
  gausslens study digits
  gausslens study digits --full
  gausslens study digits --only size,time --seeds 5
  gausslens study scans/ --size 64 --network ncsnpp --width 64 --kimg 2000 --no-images
  gausslens study photos.zip --budget 60 --dry-run
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import GausslensError
from ..paper.config import StudyConfig as Options
from ..progress import progress_bar
from . import GlobalOptions

if TYPE_CHECKING:
    from ..experiments.graph import Outcome, Progress

_LONG = 24 * 3600  # seconds of work above which a dry run suggests what would take less


def run(options: Options, how: GlobalOptions) -> None:
    """Do the studies, print the verdicts, where the page is, and what it lacks."""
    from ..experiments.task import TaskStore
    from ..paper.claims import as_table
    from ..paper.run import plan_study, study, tasks_of

    plan = plan_study(options, progress=how.progress)
    if how.dry_run:
        store = TaskStore(Path(options.out) / "cells")
        rows = [
            (store.is_done(task), task.cost, f"{task.name:32} {_settings(task.options)}") for task in tasks_of(plan)
        ]
        print(listing(rows, "fewer studies (--only)"))
        return
    with bars("study", how.progress) as show:
        done = study(options, plan=plan, progress=show, tell=lambda words: print(words, file=sys.stderr))
    print(as_table(done.verdicts))
    print(f"The records are in {done.run.path / 'records.jsonl'}, the page is {done.page}")
    tell_rest(done.outcome)


def listing(rows: Sequence[tuple[bool, float, str]], less: str) -> str:
    """A line for each task, of which is known whether it is done, its expected seconds and its name; then their sum."""
    lines = [f"{'done' if done else f'{seconds:6.1f} s':>9}  {name}" for done, seconds, name in rows]
    left = sum(seconds for done, seconds, _ in rows if not done)
    time = f"{left / 60:.1f} minutes" if left < 7200 else f"{left / 3600:.1f} hours"
    total = f"{len(rows)} tasks, {sum(done for done, *_ in rows)} of them done. The rest takes one worker about {time}."
    hint = f" A GPU, {less} or shorter training (--kimg) would take less." if left > _LONG else ""
    return "\n".join([*lines, total + hint])


@contextmanager
def bars(label: str, visible: bool) -> "Iterator[Callable[[Progress], None] | None]":
    """One progress bar for all tasks and one for the task that runs, if visible."""
    with (
        progress_bar(100, unit="%", label=label, enabled=visible) as whole,
        progress_bar(100, unit="%", label="task", enabled=visible) as part,
    ):

        def show(progress: "Progress") -> None:
            whole(100 * min(progress.done / max(progress.total, 1e-9), 1.0), "")
            if progress.running:
                task, share = max(progress.running.items(), key=lambda item: item[1])
                part(100 * share, f"{task.kind.name.replace('_', ' ')} {_settings(task.options)}")

        yield show if visible else None


def _settings(options: dict[str, Any]) -> str:
    """The options that set a task apart from others, in a few words."""
    fields = options.get("config", options)
    wanted = ("split", "width", "network", "sigma", "kimg", "seed", "measures")
    return " ".join(f"{name}={fields[name]}" for name in wanted if fields.get(name) is not None)


def tell_rest(outcome: "Outcome") -> None:
    """Print what was left out; raise an error with the reasons if something failed."""
    if outcome.left_out:
        print(f"{_counted(outcome.left_out)} left out for lack of time. A longer --budget continues from here.")
    if outcome.failed:
        lines = [f"{task.name} ({_settings(task.options)}): {error}" for task, error in outcome.failed.items()]
        failed = f"{_counted([*outcome.failed])} failed, and {len(outcome.skipped)} more depend on them"
        raise GausslensError(f"{failed}:\n  " + "\n  ".join(lines))


def _counted(tasks: Sequence[object]) -> str:
    return f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
