"""The engine: every task once, in order, on any executor; kills, failures, budgets and changed options."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import toy_tasks
from toy_tasks import add

from gausslens import CheckpointError, ConfigError, GausslensError, MissingExtraError
from gausslens.experiments.executors import SerialExecutor, make_executor
from gausslens.experiments.graph import in_order, run_tasks
from gausslens.experiments.task import Task, TaskName, TaskStore

FOLDER = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _importable_in_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]))


def _grid(*needs):
    """A diamond and a chain: 2, 2+3, 2+5, (2+3)+(2+5)+7; more by what the root needs."""
    root = add(2, *needs)
    left, right = add(3, root), add(5, root)
    return root, left, right, add(7, left, right)


def _values(folder, tasks):
    store = TaskStore(folder)
    return [store.result(task).records[0]["value"] for task in tasks]


def _log(folder):
    return Counter((folder / "log").read_text().splitlines())


def test_needed_tasks_come_first_and_once():
    root, left, right, top = _grid()
    assert in_order([top, left]) == [root, left, right, top]


@pytest.mark.parametrize(("on", "needs"), [("here", ()), ("pool", (Task(toy_tasks.die_once),))])
def test_every_executor_gives_the_same_records_and_runs_each_task_once(on, needs, tmp_path):
    """Also if a worker dies, which is replaced."""
    grid = _grid(*needs)
    told = []
    outcome = run_tasks([grid[-1]], tmp_path, on=on, workers=2, finished=told.append)
    machine = json.loads((tmp_path / grid[0].name / "done.json").read_text())["machine"]
    assert {"started", "commit", "torch", "device"} <= machine.keys()
    assert not (outcome.failed)
    assert not (outcome.skipped)
    assert not (outcome.left_out)
    assert _values(tmp_path, needs) == [1] * len(needs)
    assert _values(tmp_path, grid) == ([3, 6, 8, 21] if needs else [2, 5, 7, 19])
    assert sorted(task.name for task in told) == sorted(task.name for task in (*needs, *grid))
    assert set(_log(tmp_path).values()) == {1}
    store = TaskStore(tmp_path)
    assert store.result(grid[-1]).arrays["value"].tolist() == _values(tmp_path, grid[-1:])
    assert store.result(grid[-1]).records[0]["threads"] == 1
    run_tasks([grid[-1]], tmp_path, on=on, workers=2)
    assert set(_log(tmp_path).values()) == {1}


def test_only_what_depends_on_a_change_runs_again(tmp_path, monkeypatch):
    grid = _grid()
    run_tasks([grid[-1]], tmp_path, on="here")
    root, left = grid[:2]
    changed = add(7, left, add(6, root))
    run_tasks([changed], tmp_path, on="here")
    assert _values(tmp_path, [changed]) == [20]
    assert sum(_log(tmp_path).values()) == 4 + 2
    monkeypatch.setattr(toy_tasks.add_up, "task", TaskName("add_up", 2))
    again = _grid()
    assert not {task.identity for task in again} & {task.identity for task in grid}


def test_identity_is_what_is_computed_not_how_long_it_takes():
    assert add(1, cost=5).identity == add(1, cost=7).identity
    assert add(1, other=1).identity != add(1).identity
    assert add(1, add(2)).identity != add(1).identity
    assert add(1, add(2), add(3)).identity != add(1, add(3), add(2)).identity


@pytest.mark.parametrize("on", ["here", pytest.param("pool", marks=pytest.mark.slow)])
def test_a_failure_takes_down_what_needs_it_and_nothing_else(on, tmp_path):
    broken = Task(toy_tasks.fail, {"reason": 1})
    above, beside = add(1, broken), add(4)
    outcome = run_tasks([above, beside], tmp_path, on=on, workers=2)
    assert list(outcome.failed) == [broken]
    assert "told to fail" in str(outcome.failed[broken])
    assert outcome.skipped == [above]
    assert _values(tmp_path, [beside]) == [4]
    assert not TaskStore(tmp_path).is_done(broken)
    with pytest.raises(CheckpointError, match="not finished"):
        TaskStore(tmp_path).result(broken)


@pytest.fixture(name="broken_pools")
def pools_that_take_no_work(monkeypatch):
    class Broken(SerialExecutor):
        def submit(self, fn, /, *args, **kwargs):
            raise BrokenProcessPool("no worker lives")

    monkeypatch.setattr("gausslens.experiments.graph.make_executor", lambda on, workers: Broken())


@pytest.mark.usefixtures("broken_pools")
def test_pools_that_never_last_are_given_up_in_words(tmp_path):
    with pytest.raises(GausslensError, match="__main__"):
        run_tasks([add(k) for k in range(9)], tmp_path, workers=2)


@pytest.mark.slow
def test_a_task_whose_worker_always_dies_fails_alone(tmp_path):
    guilty, innocent = Task(toy_tasks.die), add(1, steps=20, seconds=0.1)
    above, beside = add(2, guilty), add(3, innocent)
    outcome = run_tasks([guilty, innocent, above, beside], tmp_path, on="pool", workers=2)
    assert list(outcome.failed) == [guilty]
    assert outcome.skipped == [above]
    assert _values(tmp_path, [innocent, beside]) == [1, 4]


class _Crowd(Executor):
    """Work finds too little memory if more is there at any time than its task's option `room`; it ends when told to."""

    def __init__(self, together=False):
        self.together, self.there, self.most_seen, self.crowds = together, {}, {}, []

    def submit(self, work, task, folder):
        future = Future()
        self.there[future] = task
        self.crowds.append(len(self.there))
        self.most_seen |= {one: max(self.most_seen.get(one, 0), len(self.there)) for one in self.there}
        return future

    def go_on(self):
        for future in list(self.there)[: None if self.together else 1]:
            task = self.there.pop(future)
            if self.most_seen[future] > task.options["room"]:
                future.set_exception(MemoryError("there is no room"))
            else:
                future.set_result(1.0)


@pytest.mark.parametrize("together", [True, False])
def test_tasks_that_found_too_little_memory_beside_each_other_are_done_one_by_one(together, tmp_path, monkeypatch):
    crowd = _Crowd(together)
    monkeypatch.setattr("gausslens.experiments.graph.make_executor", lambda on, workers: crowd)
    tasks = [add(number, room=1) for number in (1, 2)]
    outcome = run_tasks(tasks, tmp_path, workers=2, progress=lambda progress: crowd.go_on())
    assert crowd.crowds == [1, 2, 1, 1]
    assert not outcome.failed


def test_a_task_that_is_tried_again_after_others_have_ended_still_has_its_budget(tmp_path, monkeypatch):
    crowd = _Crowd()
    monkeypatch.setattr("gausslens.experiments.graph.make_executor", lambda on, workers: crowd)
    tasks = [add(1, room=9), add(2, room=1)]
    outcome = run_tasks(tasks, tmp_path, workers=2, budget=60, progress=lambda progress: crowd.go_on())
    assert crowd.crowds == [1, 2, 1]
    assert not outcome.failed
    assert not outcome.left_out


def test_a_task_that_finds_too_little_memory_alone_fails_and_others_get_their_workers_back(tmp_path, monkeypatch):
    crowd, told = _Crowd(), []
    monkeypatch.setattr("gausslens.experiments.graph.make_executor", lambda on, workers: crowd)
    giant, *others = (add(number, room=room) for number, room in enumerate((0, 9, 9, 9)))
    run = {"failed": lambda *what: told.append(what), "progress": lambda progress: crowd.go_on()}
    outcome = run_tasks([giant, *others], tmp_path, workers=2, **run)
    assert list(outcome.failed) == [giant]
    assert told == [(giant, outcome.failed[giant])]
    # The giant beside another, alone, and the other two beside each other.
    assert crowd.crowds == [1, 2, 1, 1, 2]


def test_a_budget_leaves_out_what_does_not_fit_and_what_needs_it(tmp_path):
    cheap, dear = add(1, cost=0.01), add(2, cost=1e6)
    above = add(3, dear, cost=0.01)
    outcome = run_tasks([dear, above, cheap], tmp_path, on="here", budget=60)
    assert outcome.left_out == [dear, above]
    assert _values(tmp_path, [cheap]) == [1]


def test_a_budget_counts_what_a_task_is_needed_for(tmp_path):
    """A network that could be trained in time, but not measured, is left out; one that can be measured is not."""
    long, short = add(1, cost=50), add(2, cost=50)
    measured, looked_at = add(3, long, cost=60), add(4, short, cost=5)
    outcome = run_tasks([measured, add(5, short, cost=60), looked_at], tmp_path, on="here", budget=100)
    store = TaskStore(tmp_path)
    assert store.is_done(looked_at)
    assert long in outcome.left_out
    assert measured in outcome.left_out


def test_a_budget_learns_how_long_work_takes_by_its_kind(tmp_path):
    """Many times as long as expected is soon said of short work, and says nothing of long work of another kind."""
    short, alike = add(1, steps=1, seconds=0.3, cost=0.001), add(2, cost=30)
    other = Task(toy_tasks.do_nothing, {}, cost=30)
    outcome = run_tasks([short, alike, other], tmp_path, on="here", budget=60)
    assert outcome.left_out == [alike]
    assert TaskStore(tmp_path).is_done(other)


@pytest.mark.slow
def test_progress_never_falls_back_and_ends_at_the_end(tmp_path):
    shares = []
    tasks = [add(k, steps=20, seconds=0.02, cost=0.4) for k in range(4)]
    run_tasks(tasks, tmp_path, on="pool", workers=2, progress=lambda p: shares.append((p.done, p.total, p.running)))
    assert shares[-1][0] == pytest.approx(shares[-1][1])
    assert shares[-1][2] == {}
    assert any(0 < share < 1 for _, _, running in shares for share in running.values())


def test_bad_names_and_missing_packages_are_named(monkeypatch):
    with pytest.raises(ConfigError, match="nowhere"):
        make_executor("nowhere", 1)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"gausslens\[cluster\]"):
        make_executor("ray", 1)


SCRIPT = """
import sys
from pathlib import Path
from toy_tasks import add
from gausslens.experiments.graph import run_tasks

if __name__ == "__main__":
    roots = [add(k, steps=15, seconds=0.02) for k in range(6)]
    run_tasks([add(100, *roots), *roots], Path(sys.argv[1]), on="pool", workers=2)
"""


def _started(script, folder):
    return subprocess.Popen([sys.executable, script, folder], start_new_session=True)


@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_ends_with_the_same_records(tmp_path):
    script, folder = tmp_path / "grid.py", tmp_path / "cells"
    script.write_text(SCRIPT)
    rng = random.Random(0)
    for _ in range(20):
        process = _started(script, folder)
        time.sleep(rng.uniform(0.2, 3.5))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert _started(script, folder).wait(120) == 0
    roots = [add(k, steps=15, seconds=0.02) for k in range(6)]
    assert _values(folder, [*roots, add(100, *roots)]) == [0, 1, 2, 3, 4, 5, 115]
    assert all(json.loads(path.read_text()) for path in folder.glob("*/done.json"))
    assert not list(folder.glob("*/*.partial"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_local_ray_with_two_workers_gives_the_same_records(tmp_path):
    pytest.importorskip("ray", reason="needs the extra 'cluster'")
    grid = _grid()
    outcome = run_tasks([grid[-1]], tmp_path, on="ray", workers=2)
    assert not (outcome.failed)
    assert not (outcome.skipped)
    assert not (outcome.left_out)
    assert _values(tmp_path, grid) == [2, 5, 7, 19]
    assert set(_log(tmp_path).values()) == {1}
    assert TaskStore(tmp_path).result(grid[-1]).records[0]["threads"] == 1


def test_a_pool_that_is_interrupted_does_not_wait_for_running_work(tmp_path):
    def interrupt(progress):
        if progress.running and (tmp_path / "log").exists():
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_tasks([add(1, steps=600, seconds=0.1)], tmp_path, on="pool", workers=1, progress=interrupt)
    assert time.monotonic() - started < 40  # of the minute that the work takes; workers start slowly on a busy machine


FAILING = """
import sys
import time
from pathlib import Path
import toy_tasks
from toy_tasks import add
from gausslens.experiments.task import Task
from gausslens.experiments.graph import run_tasks

def fail(progress):
    if list(Path(sys.argv[1]).glob("*/begun")) and list(Path(sys.argv[1]).glob("*/done.json")):
        time.sleep(1)  # the other worker waits for work, and holds the lock of the queue when it is ended
        raise ValueError("drawn wrongly")

if __name__ == "__main__":
    tasks = [Task(toy_tasks.save_and_leave, {}), add(1)]
    run_tasks(tasks, Path(sys.argv[1]), on="pool", workers=2, progress=fail)
"""


@pytest.mark.slow
def test_an_error_beside_running_work_ends_the_program_at_once_and_work_is_kept(tmp_path):
    script, folder = tmp_path / "failing.py", tmp_path / "cells"
    script.write_text(FAILING)
    answer = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=50, check=False)
    assert "drawn wrongly" in answer.stderr
    assert answer.returncode == 1
    assert list(folder.glob("*/kept"))
