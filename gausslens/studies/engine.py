"""The engine: runs a grid of cells, each once, those that are needed first.

Cells are given from the most to the least informative; a cell that is needed counts as early as the first that needs it.
Finished cells are skipped, and what they needed is not asked for again. A cell that fails takes down those that need it and
no other. With a budget, a cell is left out, and said to be, unless it is expected to end in time together with the least
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
from .cells import Cell, CellStore
from .executors import carry_out, make_executor, share_done

_POLL_SECONDS = 0.25
# A worker that dies (killed for memory, say) breaks its pool, and nobody knows whose cell it was: all that were running are
# suspects, and go on one at a time. A cell that dies alone is given up after so many attempts.
_ATTEMPTS = 2
# Pools that break one after the other, with nothing finished between, until it is said that none will last.
_BROKEN_POOLS = 10


@dataclass(frozen=True)
class Progress:
    """How far a grid is.

    Attributes:
        done: seconds of work that are done, as expected beforehand and corrected by how long cells really took.
        total: seconds of work in all, likewise.
        running: the cells that are being worked on, with the share of each that is done.
    """

    done: float
    total: float
    running: dict[Cell, float]


@dataclass(frozen=True)
class Outcome:
    """What became of a grid.

    Attributes:
        failed: cells that failed, and why.
        skipped: cells that need one that failed.
        left_out: cells that the budget did not allow.
    """

    failed: dict[Cell, Exception] = field(default_factory=dict)
    skipped: list[Cell] = field(default_factory=list)
    left_out: list[Cell] = field(default_factory=list)


def in_order(cells: Iterable[Cell], *, is_there: Callable[[Cell], bool] = lambda _: False) -> list[Cell]:
    """The cells and all that they need, each once and after what it needs, otherwise in the order given.

    Args:
        cells: the cells.
        is_there: whether a cell is there with all that it made, so that what it needed is needed no more.

    Returns:
        The cells.
    """
    ordered: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        if cell.identity not in ordered:
            for need in () if is_there(cell) else cell.needs:
                add(need)
            ordered[cell.identity] = cell

    for cell in cells:
        add(cell)
    return list(ordered.values())


def _costs_with_use(cells: Sequence[Cell], cost: Callable[[Cell], float]) -> dict[str, float]:
    """What each cell is expected to cost with the cheapest chain of cells that comes of it; `cells` are in order."""
    costs: dict[str, float] = {}
    least_use: dict[str, float] = {}
    for cell in reversed(cells):
        costs[cell.identity] = cost(cell) + least_use.get(cell.identity, 0.0)
        for need in cell.needs:
            least_use[need.identity] = min(costs[cell.identity], least_use.get(need.identity, math.inf))
    return costs


def run_cells(
    cells: Iterable[Cell],
    folder: Path,
    *,
    on: str = "pool",
    workers: int = 1,
    budget: float | int | None = None,
    finished: Callable[[Cell], None] | None = None,
    failed: Callable[[Cell, Exception], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run cells, and what they need.

    Args:
        cells: from the most to the least informative.
        folder: of cells, finished or not.
        on: "here", "pool" or "ray".
        workers: how many cells run at a time; one fewer each time that one finds too little memory beside others.
        budget: seconds after which no cell should be running; None is no limit.
        finished: is told of each cell that was run, in this process.
        failed: is told of each that failed, as soon as it has.
        progress: is told now and then how far it all is.

    Returns:
        What failed, what was skipped for it, and what was left out.
    """
    return _Engine(cells, folder, on, 1 if on == "here" else workers, budget, failed).run(finished, progress)


class _Engine:
    def __init__(
        self,
        cells: Iterable[Cell],
        folder: Path,
        on: str,
        workers: int,
        budget: float | int | None,
        failed: Callable[[Cell, Exception], None] | None,
    ) -> None:
        self.store, self.folder, self.on, self.tell_failure = CellStore(folder), folder, on, failed
        self.workers = self.most_workers = workers
        missing = (cell for cell in cells if not self.store.is_done(cell))
        wanted = in_order(missing, is_there=self.store.is_complete)
        self.done = {cell.identity for cell in wanted if self.store.is_complete(cell)}
        self.todo = [cell for cell in wanted if cell.identity not in self.done]
        self.running: dict[Future[float], Cell] = {}
        self.crowded: set[str] = set()  # cells beside which others have run since they were begun
        self.suspects: set[str] = set()
        self.attempts: dict[str, int] = {}  # of suspects that died alone
        self.broken_pools = 0  # since a cell was finished
        self.deadline = None if budget is None else time.monotonic() + budget
        self.pace = _Pace()
        self.costs = _costs_with_use(self.todo, self.pace.seconds)
        self.outcome = Outcome()

    def run(self, finished: Callable[[Cell], None] | None, progress: Callable[[Progress], None] | None) -> Outcome:
        with ExitStack() as stack:
            executor = stack.enter_context(make_executor(self.on, self.workers)) if self.todo else None
            while self.todo or self.running:
                try:
                    while executor is not None and len(self.running) < self._most and (cell := self._next()):
                        try:
                            self._note_begun(cell, executor.submit(carry_out, cell, self.folder))
                        except BrokenProcessPool:  # it broke before anything said so
                            self.todo.insert(0, cell)
                            raise
                    for cell in self._collect():
                        if finished is not None:
                            finished(cell)
                except BrokenProcessPool:
                    self._count_broken()
                    executor = stack.enter_context(make_executor(self.on, self.workers))
                if progress is not None:
                    progress(self._progress())
        return self.outcome

    @property
    def _most(self) -> int:
        """How many cells may run at a time."""
        return 1 if self.suspects else self.workers

    def _next(self) -> Cell | None:
        """The first cell that can run now; those that cannot run at all are put aside."""
        hopeless = {cell.identity for cell in (*self.outcome.failed, *self.outcome.skipped)}
        without = {cell.identity for cell in self.outcome.left_out}
        for cell in list(self.todo):
            needs = {need.identity for need in cell.needs}
            if needs & hopeless:
                self._put_aside(cell, self.outcome.skipped, hopeless)
            elif needs & without or not self._fits(cell):
                self._put_aside(cell, self.outcome.left_out, without)
            elif needs <= self.done:
                self.todo.remove(cell)
                return cell
        return None

    def _note_begun(self, cell: Cell, future: Future[float]) -> None:
        self.running[future] = cell
        self.crowded.discard(cell.identity)
        if len(self.running) > 1:
            self.crowded.update(one.identity for one in self.running.values())

    def _put_aside(self, cell: Cell, where: list[Cell], known: set[str]) -> None:
        self.todo.remove(cell)
        where.append(cell)
        known.add(cell.identity)

    def _fits(self, cell: Cell) -> bool:
        return self.deadline is None or time.monotonic() + self.costs[cell.identity] <= self.deadline

    def _collect(self) -> list[Cell]:
        """Wait a little for running cells; returns those that have finished.

        Raises:
            BrokenProcessPool: if a worker died, after putting its cells back.
        """
        finished, broken, alone = [], None, len(self.running) == 1
        for future in wait(self.running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            cell = self.running.pop(future)
            error = future.exception()
            if not isinstance(error, BrokenProcessPool):
                self.suspects.discard(cell.identity)
            if error is None:
                self.pace.note(cell, future.result())
                self.costs = _costs_with_use([*self.running.values(), *self.todo], self.pace.seconds)
                self.done.add(cell.identity)
                self.broken_pools = 0
                finished.append(cell)
            elif isinstance(error, BrokenProcessPool):
                broken = error
                self._give_back(cell, error, alone=alone)
            elif cell.identity in self.crowded and is_short_of_memory(error):
                self._make_room_for(cell)
            elif isinstance(error, Exception):
                self._fail(cell, error)
            else:
                raise error
        if broken is not None:
            raise broken
        return finished

    def _give_back(self, cell: Cell, error: Exception, *, alone: bool) -> None:
        """Try a cell whose worker may have died again, unless it has died alone often enough."""
        self.attempts[cell.identity] = self.attempts.get(cell.identity, 0) + alone
        if self.attempts[cell.identity] < _ATTEMPTS:
            self.suspects.add(cell.identity)
            self.todo.insert(0, cell)
        else:
            self.suspects.discard(cell.identity)
            self._fail(cell, error)

    def _fail(self, cell: Cell, error: Exception) -> None:
        if is_short_of_memory(error):  # alone, so that others are not to blame
            self.workers = self.most_workers
        self.outcome.failed[cell] = error
        if self.tell_failure is not None:
            self.tell_failure(cell, error)

    def _make_room_for(self, cell: Cell) -> None:
        """Try a cell again that found too little memory beside others, with one fewer at a time from now on."""
        self.workers = max(self.workers - 1, 1)
        self.todo.insert(0, cell)

    def _count_broken(self) -> None:
        self.broken_pools += 1
        if self.broken_pools >= _BROKEN_POOLS:
            raise GausslensError(
                f"{self.broken_pools} pools of worker processes have died without finishing anything. If memory is short, "
                'use fewer workers; in a script of yours, put the call under `if __name__ == "__main__":`, since workers '
                'read the script again. on="here" works without a pool.'
            )

    def _progress(self) -> Progress:
        shares = {cell: share_done(cell, self.folder) for cell in self.running.values()}
        done = self.pace.past + sum(self.pace.seconds(cell) * share for cell, share in shares.items())
        return Progress(done, self.pace.past + sum(map(self.pace.seconds, [*self.todo, *shares])), shares)


class _Pace:
    """How long cells take, by kind of work: a start of seconds makes short cells many times as long, and long ones hardly.

    Attributes:
        past: seconds of all finished cells.
    """

    def __init__(self) -> None:
        self.past = 0.0
        self._took: dict[str, float] = {}
        self._expected: dict[str, float] = {}

    def note(self, cell: Cell, seconds: float) -> None:
        """Note how long a cell took."""
        self.past += seconds
        self._took[cell.work] = self._took.get(cell.work, 0.0) + seconds
        self._expected[cell.work] = self._expected.get(cell.work, 0.0) + cell.cost

    def seconds(self, cell: Cell) -> float:
        """How long a cell will take: as expected beforehand, times what others of its kind took of what was expected."""
        expected = self._expected.get(cell.work)
        return cell.cost * (self._took[cell.work] / expected if expected else 1.0)
