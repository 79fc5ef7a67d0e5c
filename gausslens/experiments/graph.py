"""The engine: runs a grid of tasks, each once, those that are needed first.

Tasks are given from the most to the least informative; a task that is needed counts as early as the first that needs it.
Finished tasks are skipped, and what they needed is not asked for again. A task that fails takes down those that need it and
no other. With a budget, a task is left out, and said to be, unless it is expected to end in time together with the least
that others make of it: a network that nothing is left to measure of is not worth its training.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import GausslensError, is_short_of_memory
from .executors import make_executor, run_task, share_done
from .task import Task, TaskStore

_POLL_SECONDS = 0.25
# A worker that dies (killed for memory, say) breaks its pool, and nobody knows whose task it was: all that were running are
# suspects, and go on one at a time. A task that dies alone is given up after so many attempts.
_ATTEMPTS = 2
# Pools that break one after the other, with nothing finished between, until it is said that none will last.
_BROKEN_POOLS = 10


@dataclass(frozen=True)
class Progress:
    """How far a grid is.

    Attributes:
        done: seconds of work that are done, as expected beforehand and corrected by how long tasks really took.
        total: seconds of work in all, likewise.
        running: the tasks that are being worked on, with the share of each that is done.
    """

    done: float
    total: float
    running: dict[Task, float]


@dataclass(frozen=True)
class Outcome:
    """What became of a grid.

    Attributes:
        failed: tasks that failed, and why.
        skipped: tasks that need one that failed.
        left_out: tasks that the budget did not allow.
    """

    failed: dict[Task, Exception] = field(default_factory=dict)
    skipped: list[Task] = field(default_factory=list)
    left_out: list[Task] = field(default_factory=list)


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


def _costs_with_use(tasks: Sequence[Task], cost: Callable[[Task], float]) -> dict[str, float]:
    """What each task is expected to cost with the cheapest chain of tasks that comes of it; `tasks` are in order."""
    costs: dict[str, float] = {}
    least_use: dict[str, float] = {}
    for task in reversed(tasks):
        costs[task.identity] = cost(task) + least_use.get(task.identity, 0.0)
        for need in task.needs:
            least_use[need.identity] = min(costs[task.identity], least_use.get(need.identity, math.inf))
    return costs


def run_tasks(
    tasks: Iterable[Task],
    folder: Path,
    *,
    on: str = "pool",
    workers: int = 1,
    budget: float | int | None = None,
    finished: Callable[[Task], None] | None = None,
    failed: Callable[[Task, Exception], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run tasks, and what they need."""
    return _Engine(tasks, folder, on, 1 if on == "here" else workers, budget, failed).run(finished, progress)


class _Engine:
    def __init__(
        self,
        tasks: Iterable[Task],
        folder: Path,
        on: str,
        workers: int,
        budget: float | int | None,
        failed: Callable[[Task, Exception], None] | None,
    ) -> None:
        self.store, self.folder, self.on, self.tell_failure = TaskStore(folder), folder, on, failed
        self.workers = self.most_workers = workers
        missing = (task for task in tasks if not self.store.is_done(task))
        wanted = in_order(missing, is_there=self.store.is_complete)
        self.done = {task.identity for task in wanted if self.store.is_complete(task)}
        self.todo = [task for task in wanted if task.identity not in self.done]
        self.running: dict[Future[float], Task] = {}
        self.crowded: set[str] = set()  # tasks beside which others have run since they were begun
        self.suspects: set[str] = set()
        self.attempts: dict[str, int] = {}  # of suspects that died alone
        self.broken_pools = 0  # since a task was finished
        self.deadline = None if budget is None else time.monotonic() + budget
        self.pace = _Pace()
        self.costs = _costs_with_use(self.todo, self.pace.seconds)
        self.outcome = Outcome()

    def run(self, finished: Callable[[Task], None] | None, progress: Callable[[Progress], None] | None) -> Outcome:
        with ExitStack() as stack:
            executor = stack.enter_context(make_executor(self.on, self.workers)) if self.todo else None
            while self.todo or self.running:
                try:
                    while executor is not None and len(self.running) < self._most and (task := self._next()):
                        try:
                            self._note_begun(task, executor.submit(run_task, task, self.folder))
                        except BrokenProcessPool:  # it broke before anything said so
                            self.todo.insert(0, task)
                            raise
                    for task in self._collect():
                        if finished is not None:
                            finished(task)
                except BrokenProcessPool:
                    self._count_broken()
                    executor = stack.enter_context(make_executor(self.on, self.workers))
                if progress is not None:
                    progress(self._progress())
        return self.outcome

    @property
    def _most(self) -> int:
        """How many tasks may run at a time."""
        return 1 if self.suspects else self.workers

    def _next(self) -> Task | None:
        """The first task that can run now; those that cannot run at all are put aside."""
        hopeless = {task.identity for task in (*self.outcome.failed, *self.outcome.skipped)}
        without = {task.identity for task in self.outcome.left_out}
        for task in list(self.todo):
            needs = {need.identity for need in task.needs}
            if needs & hopeless:
                self._put_aside(task, self.outcome.skipped, hopeless)
            elif needs & without or not self._fits(task):
                self._put_aside(task, self.outcome.left_out, without)
            elif needs <= self.done:
                self.todo.remove(task)
                return task
        return None

    def _note_begun(self, task: Task, future: Future[float]) -> None:
        self.running[future] = task
        self.crowded.discard(task.identity)
        if len(self.running) > 1:
            self.crowded.update(one.identity for one in self.running.values())

    def _put_aside(self, task: Task, where: list[Task], known: set[str]) -> None:
        self.todo.remove(task)
        where.append(task)
        known.add(task.identity)

    def _fits(self, task: Task) -> bool:
        return self.deadline is None or time.monotonic() + self.costs[task.identity] <= self.deadline

    def _collect(self) -> list[Task]:
        """Wait a little for running tasks; returns those that have finished."""
        finished, broken, alone = [], None, len(self.running) == 1
        for future in wait(self.running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            task = self.running.pop(future)
            error = future.exception()
            if not isinstance(error, BrokenProcessPool):
                self.suspects.discard(task.identity)
            if error is None:
                self.pace.note(task, future.result())
                self.costs = _costs_with_use([*self.running.values(), *self.todo], self.pace.seconds)
                self.done.add(task.identity)
                self.broken_pools = 0
                finished.append(task)
            elif isinstance(error, BrokenProcessPool):
                broken = error
                self._give_back(task, error, alone=alone)
            elif task.identity in self.crowded and is_short_of_memory(error):
                self._make_room_for(task)
            elif isinstance(error, Exception):
                self._fail(task, error)
            else:
                raise error
        if broken is not None:
            raise broken
        return finished

    def _give_back(self, task: Task, error: Exception, *, alone: bool) -> None:
        """Try a task whose worker may have died again, unless it has died alone often enough."""
        self.attempts[task.identity] = self.attempts.get(task.identity, 0) + alone
        if self.attempts[task.identity] < _ATTEMPTS:
            self.suspects.add(task.identity)
            self.todo.insert(0, task)
        else:
            self.suspects.discard(task.identity)
            self._fail(task, error)

    def _fail(self, task: Task, error: Exception) -> None:
        if is_short_of_memory(error):  # alone, so that others are not to blame
            self.workers = self.most_workers
        self.outcome.failed[task] = error
        if self.tell_failure is not None:
            self.tell_failure(task, error)

    def _make_room_for(self, task: Task) -> None:
        """Try a task again that found too little memory beside others, with one fewer at a time from now on."""
        self.workers = max(self.workers - 1, 1)
        self.todo.insert(0, task)

    def _count_broken(self) -> None:
        self.broken_pools += 1
        if self.broken_pools >= _BROKEN_POOLS:
            raise GausslensError(
                f"{self.broken_pools} pools of worker processes have died without finishing anything. If memory is short, "
                'use fewer workers; in a script of yours, put the call under `if __name__ == "__main__":`, since workers '
                'read the script again. on="here" works without a pool.'
            )

    def _progress(self) -> Progress:
        shares = {task: share_done(task, self.folder) for task in self.running.values()}
        done = self.pace.past + sum(self.pace.seconds(task) * share for task, share in shares.items())
        return Progress(done, self.pace.past + sum(map(self.pace.seconds, [*self.todo, *shares])), shares)


class _Pace:
    """How long tasks take, by kind of work: a start of seconds makes short tasks many times as long, and long ones hardly.

    Attributes:
        past: seconds of all finished tasks.
    """

    def __init__(self) -> None:
        self.past = 0.0
        self._took: dict[str, float] = {}
        self._expected: dict[str, float] = {}

    def note(self, task: Task, seconds: float) -> None:
        """Note how long a task took."""
        self.past += seconds
        self._took[task.kind.name] = self._took.get(task.kind.name, 0.0) + seconds
        self._expected[task.kind.name] = self._expected.get(task.kind.name, 0.0) + task.cost

    def seconds(self, task: Task) -> float:
        """How long a task will take: as expected beforehand, times what others of its kind took of what was expected."""
        expected = self._expected.get(task.kind.name)
        return task.cost * (self._took[task.kind.name] / expected if expected else 1.0)
