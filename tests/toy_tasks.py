"""Work for tasks that tests can follow: each call leaves a line in a log."""

import os
import signal
import time

import torch

from gausslens.experiments.task import Task, TaskContext, task


def add(number, *needs, cost=1.0, **options):
    return Task(add_up, {"number": number, **options}, tuple(needs), cost=cost)


@task("add_up", version=1)
def add_up(context: TaskContext):
    """The option plus the values of all inputs; every step is kept, so that a stopped task goes on."""
    with open(context.folder.parent / "log", "a") as log:
        log.write(f"{context.folder.name}\n")
    steps = context.options.get("steps", 0)
    kept = context.folder / "steps"
    for step in range(int(kept.read_text()) if kept.exists() else 0, steps):
        time.sleep(context.options.get("seconds", 0.01))
        temporary = kept.with_suffix(".partial")
        temporary.write_text(str(step + 1))
        os.replace(temporary, kept)
        context.report((step + 1) / steps)
    value = context.options["number"] + sum(result.records[0]["value"] for result in context.inputs)
    context.save_arrays(value=torch.tensor([float(value)]))
    yield {"quantity": "sum", "value": value, "threads": torch.get_num_threads()}


@task("do_nothing", version=1)
def do_nothing(context: TaskContext):
    return [{"quantity": "nothing", "value": 0}]


@task("fail", version=1)
def fail(context: TaskContext):
    raise ValueError(f"told to fail with {context.options}")


@task("die_once", version=1)
def die_once(context: TaskContext):
    """Kills its process the first time."""
    mark = context.folder / "been here"
    if not mark.exists():
        mark.touch()
        os._exit(9)
    return [{"quantity": "alive", "value": 1}]


@task("die", version=1)
def die(context: TaskContext):
    """Kills its process every time, when others have begun."""
    time.sleep(0.5)
    os._exit(9)


@task("save_and_leave", version=1)
def save_and_leave(context: TaskContext):
    """Takes a minute, or until SIGTERM, as training does: then it keeps what there is, in its own time, and leaves."""
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append(1))
    (context.folder / "begun").touch()
    for _ in range(600):
        time.sleep(0.1)
        if noted:
            time.sleep(1)
            (context.folder / "kept").touch()
            signal.signal(signal.SIGTERM, before)
            raise SystemExit(143)
    return [{"quantity": "slept", "value": 60}]
