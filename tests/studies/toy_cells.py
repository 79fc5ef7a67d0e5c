"""Work for cells that tests can follow: each call leaves a line in a log."""

import os
import signal
import time

import torch

from gausslens.studies.cells import Cell, Task, versioned

HERE = "toy_cells"


def add(number, *needs, cost=1.0, **options):
    return Cell(f"{HERE}:add_up", {"number": number, **options}, tuple(needs), cost=cost)


@versioned(1)
def add_up(task: Task):
    """The option plus the values of all inputs; every step is kept, so that a stopped cell goes on."""
    with open(task.folder.parent / "log", "a") as log:
        log.write(f"{task.folder.name}\n")
    steps = task.options.get("steps", 0)
    kept = task.folder / "steps"
    for step in range(int(kept.read_text()) if kept.exists() else 0, steps):
        time.sleep(task.options.get("seconds", 0.01))
        temporary = kept.with_suffix(".partial")
        temporary.write_text(str(step + 1))
        os.replace(temporary, kept)
        task.report((step + 1) / steps)
    value = task.options["number"] + sum(result.records[0]["value"] for result in task.inputs)
    task.save_arrays(value=torch.tensor([float(value)]))
    yield {"quantity": "sum", "value": value, "threads": torch.get_num_threads()}


@versioned(1)
def do_nothing(task: Task):
    return [{"quantity": "nothing", "value": 0}]


@versioned(1)
def fail(task: Task):
    raise ValueError(f"told to fail with {task.options}")


@versioned(1)
def die_once(task: Task):
    """Kills its process the first time."""
    mark = task.folder / "been here"
    if not mark.exists():
        mark.touch()
        os._exit(9)
    return [{"quantity": "alive", "value": 1}]


@versioned(1)
def die(task: Task):
    """Kills its process every time, when others have begun."""
    time.sleep(0.5)
    os._exit(9)


@versioned(1)
def save_and_leave(task: Task):
    """Takes a minute, or until SIGTERM, as training does: then it keeps what there is, in its own time, and leaves."""
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append(1))
    (task.folder / "begun").touch()
    for _ in range(600):
        time.sleep(0.1)
        if noted:
            time.sleep(1)
            (task.folder / "kept").touch()
            signal.signal(signal.SIGTERM, before)
            raise SystemExit(143)
    return [{"quantity": "slept", "value": 60}]
