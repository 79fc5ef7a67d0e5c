"""The engine: runs a graph of tasks, each once and after the tasks that it needs.

Tasks are given from the most to the least informative; a needed task comes right before the first task that needs it.
Finished tasks are skipped, and so is what only they needed. If a task fails, those that need it are skipped, and no others.
With a budget, a task is left out unless it is expected to end in time together with the cheapest task that uses it: a
network that cannot be measured any more is not worth training.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import GausslensError, is_short_of_memory
from .executors import make_executor, run_task, share_done
from .task import Task, TaskStore

_POLL_SECONDS = 0.25
# A worker that dies (killed for memory, say) breaks its pool without saying which task it had: all running tasks are
# suspects, and are run again one at a time. A task that dies alone fails after this many attempts.
_ATTEMPTS = 2
_BROKEN_POOLS = 10  # after this many broken pools in a row, with nothing finished between, an error is raised


@dataclass(frozen=True)
class Progress:
    """The progress of a graph in seconds of work, as expected and then corrected by how long tasks really took."""

    done: float
    total: float
    running: dict[Task, float]  # the running tasks, with the share of each that is done


@dataclass(frozen=True)
class Outcome:
    """The outcome of a graph: the tasks that did not finish."""

    failed: dict[Task, Exception] = field(default_factory=dict)  # tasks that failed, and why
    skipped: list[Task] = field(default_factory=list)  # tasks that need one that failed
    left_out: list[Task] = field(default_factory=list)  # tasks that the budget did not allow


def in_order(tasks: Iterable[Task], *, is_there: Callable[[Task], bool] = lambda _: False) -> list[Task]:
    """The tasks and all that they need, each once and after what it needs, otherwise in the order given."""
    ordered: dict[str, Task] = {}

    def add(task: Task) -> None:
        if task.identity not in ordered:
            for need in () if is_there(task) else task.needs:
                add(need)
            ordered[task.identity] = task

    for task in tasks:
        add(task)
    return list(ordered.values())


def run_tasks(
    tasks: Iterable[Task],
    folder: Path,
    *,
    on: str = "pool",
    workers: int = 1,
    budget: float | int | None = None,
    finished: Callable[[Task], object] = lambda task: None,
    failed: Callable[[Task, Exception], object] = lambda task, error: None,
    progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    """Run tasks, and what they need."""
    engine = _Engine(tasks, folder, 1 if on == "here" else workers, budget, failed)
    if not engine.todo:
        return engine.outcome
    with ExitStack() as stack:
        executor = stack.enter_context(make_executor(on, engine.workers))
        while engine.todo or engine.running:
            try:
                engine.submit(executor)
                for task in engine.collect():
                    finished(task)
            except BrokenProcessPool:
                engine.count_broken_pool()
                executor = stack.enter_context(make_executor(on, engine.workers))
            if progress is not None:
                progress(engine.progress())
    return engine.outcome


class _Engine:
    def __init__(
        self,
        tasks: Iterable[Task],
        folder: Path,
        workers: int,
        budget: float | int | None,
        on_failed: Callable[[Task, Exception], object],
    ) -> None:
        self.folder, self.on_failed = folder, on_failed
        self.workers = self.most_workers = workers
        store = TaskStore(folder)
        wanted = in_order((task for task in tasks if not store.is_done(task)), is_there=store.is_complete)
        self.done = {task.identity for task in wanted if store.is_complete(task)}
        self.todo = [task for task in wanted if task.identity not in self.done]
        self.running: dict[Future[float], Task] = {}
        self.crowded: set[str] = set()  # running tasks that have shared memory with others
        self.suspects: dict[str, int] = {}  # how often each has died alone
        self.broken_pools = 0  # since a task was finished
        self.deadline = math.inf if budget is None else time.monotonic() + budget
        # Seconds that finished tasks took and were expected to take, by kind of work: the time to start matters for short
        # tasks only.
        self.took: defaultdict[str, float] = defaultdict(float)
        self.expected: defaultdict[str, float] = defaultdict(float)
        self.costs = self._costs_with_use()
        self.outcome = Outcome()

    def submit(self, executor: Executor) -> None:
        """Begin as many tasks as may run at a time."""
        while len(self.running) < (1 if self.suspects else self.workers) and (task := self._next()):
            try:
                self.running[executor.submit(run_task, task, self.folder)] = task
            except BrokenProcessPool:  # it broke before any future reported it
                self.todo.insert(0, task)
                raise
            self.crowded.discard(task.identity)
            if len(self.running) > 1:
                self.crowded.update(one.identity for one in self.running.values())

    def _next(self) -> Task | None:
        """The first task that can run now; tasks that cannot run at all are skipped or left out."""
        hopeless = {task.identity for task in (*self.outcome.failed, *self.outcome.skipped)}
        without = {task.identity for task in self.outcome.left_out}
        for task in list(self.todo):
            needs = {need.identity for need in task.needs}
            if needs & hopeless:
                aside, known = self.outcome.skipped, hopeless
            elif needs & without or time.monotonic() + self.costs[task.identity] > self.deadline:
                aside, known = self.outcome.left_out, without
            elif needs <= self.done:
                self.todo.remove(task)
                return task
            else:
                continue
            self.todo.remove(task)
            aside.append(task)
            known.add(task.identity)
        return None

    def collect(self) -> list[Task]:
        """Wait a little for running tasks, and return those that have finished."""
        finished, broken, alone = [], None, len(self.running) == 1
        for future in wait(self.running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            task, error = self.running.pop(future), future.exception()
            if isinstance(error, BrokenProcessPool):
                broken = error
                self._give_back(task, error, alone=alone)
                continue
            self.suspects.pop(task.identity, None)
            if error is None:
                self.took[task.kind.name] += future.result()
                self.expected[task.kind.name] += task.cost
                self.costs = self._costs_with_use()
                self.done.add(task.identity)
                self.broken_pools = 0
                finished.append(task)
            elif task.identity in self.crowded and is_short_of_memory(error):  # other tasks may have used it
                self.workers = max(self.workers - 1, 1)
                self.todo.insert(0, task)
            elif isinstance(error, Exception):
                self._fail(task, error)
            else:
                raise error
        if broken is not None:
            raise broken
        return finished

    def _give_back(self, task: Task, error: Exception, *, alone: bool) -> None:
        """Queue a task again whose worker may have died, unless it has died alone too often."""
        deaths = self.suspects.pop(task.identity, 0) + alone
        if deaths < _ATTEMPTS:
            self.suspects[task.identity] = deaths
            self.todo.insert(0, task)
        else:
            self._fail(task, error)

    def _fail(self, task: Task, error: Exception) -> None:
        if is_short_of_memory(error):  # even alone, so the others may use all workers again
            self.workers = self.most_workers
        self.outcome.failed[task] = error
        self.on_failed(task, error)

    def count_broken_pool(self) -> None:
        """Count a pool that has died; raises an error after too many in a row."""
        self.broken_pools += 1
        if self.broken_pools >= _BROKEN_POOLS:
            raise GausslensError(
                f"{self.broken_pools} pools of worker processes have died without finishing anything. If memory is short, "
                'use fewer workers. In a script, put the call under `if __name__ == "__main__":`, since each worker imports '
                'the script. on="here" works without a pool.'
            )

    def progress(self) -> Progress:
        """The progress so far."""
        shares = {task: share_done(task, self.folder) for task in self.running.values()}
        past = sum(self.took.values(), 0.0)
        done = past + sum(self._seconds(task) * share for task, share in shares.items())
        return Progress(done, past + sum(map(self._seconds, [*self.todo, *shares])), shares)

    def _seconds(self, task: Task) -> float:
        """How long a task will take: its expected time, corrected by how long others of its kind took."""
        expected = self.expected[task.kind.name]
        return task.cost * (self.took[task.kind.name] / expected if expected else 1.0)

    def _costs_with_use(self) -> dict[str, float]:
        """The expected cost of each unfinished task together with the cheapest chain of tasks that use it."""
        costs: dict[str, float] = {}
        least_use: dict[str, float] = {}
        for task in reversed([*self.running.values(), *self.todo]):  # every task after those that need it
            costs[task.identity] = self._seconds(task) + least_use.get(task.identity, 0.0)
            for need in task.needs:
                least_use[need.identity] = min(costs[task.identity], least_use.get(need.identity, math.inf))
        return costs
