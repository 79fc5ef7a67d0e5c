"""Train and measure everything behind docs/reproduce.md on a GPU, in as many sessions as it takes, and pack the results.

    python commands/reproduce.py cifar10 --data cifar10.npz --minutes 60     # on the GPU; run it again to continue
    python commands/reproduce.py cifar10 --pack results.tar                  # on the GPU: what is new, without weights
    tar -xf results.tar -C runs                                              # at home
    python commands/publish.py runs/study-cifar10-00b65abe                   # at home: results/ and docs/

The grids are those of `gausslens study`, done seed by seed, so that everything that is finished can be published. What is in
results/ is not done again. Weights are not packed, so a network that further work needs is trained again. Several commands
may work in one folder at the same time, each on its own part (`--only`, `--splits`, `--widths`). If they need the same
network, one waits for the other. README.md describes the image files.
"""

import argparse
import os
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from copy_finished import MOST_IMAGES, copy_finished

from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import Task, TaskStore
from gausslens.paper.config import StudyConfig
from gausslens.paper.plan import Plan
from gausslens.paper.run import open_study, plan_study, tasks_of
from gausslens.store.typed_command import typed_options

_EVERY: dict[str, Any] = {
    "network": "ncsnpp",
    "narrow": 4,
    "batch": 128,
    "learning_rate": 1e-3,
    "held_out": 10_000,
    "samples": 256,
}
# The case that memorises in the paper: 782 images, 128 channels. The file is cifar10.npz under another name.
_LONG = _EVERY | {
    "width": 128,
    "sizes": (782, 50_000),
    "few": 782,
    "subset": 782,
    "widths": (4, 16, 64, 128),
    "kimg": 2048.0,
    "seeds": 1,
}
GRIDS: dict[str, dict[str, Any]] = {
    "cifar10": _EVERY | {
        "width": 64, "sizes": (49, 195, 782, 3125, 25_000, 50_000), "few": 195, "subset": 782, "widths": (4, 16, 64, 128),
        "kimg": 512.0, "full": True, "shown": 1,
    },
    "cifar10-long": _LONG | {"only": ("time", "capacity", "strong")},
    # All of CIFAR-10 for four times as long, to see which numbers still change when training ends; again the same file. With
    # `--splits 50000`, only the network of all images.
    "cifar10-all": _LONG | {"width": 64, "widths": (4, 64), "only": ("references", "time")},
    "celeba64": _EVERY | {
        "width": 32, "sizes": (56, 224, 896, 3584, 7168), "few": 224, "subset": 896, "widths": (4, 16, 32, 64),
        "kimg": 384.0, "held_out": 1024, "full": True, "shown": 1,
    },
}  # fmt: skip
RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> None:
    """Read the command line, then work or pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", choices=GRIDS)
    parser.add_argument("--data", help="the .npz file; by default GRID.npz")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--only", default="", help="studies, comma-separated, in the order to do them; by default all")
    parser.add_argument("--splits", default="", help="only work that needs no other training sets than these")
    parser.add_argument("--networks", default="", help="only work that needs no other networks than these")
    parser.add_argument("--widths", default="", help="only work that needs no other numbers of channels than these")
    parser.add_argument("--seeds", default="", help="which seeds, in the order to do them; by default the grid's")
    parser.add_argument("--minutes", type=float, help="minutes after which no new work is started")
    parser.add_argument(
        "--workers", type=int, default=3, help="models to train at a time; one does not fill a large GPU"
    )
    parser.add_argument("--commit", help="the version of the code, where there is no git tree")
    parser.add_argument("--pack", type=Path, help="write a tar of what is finished and not yet published, and stop")
    parser.add_argument(
        "--images",
        type=int,
        default=MOST_IMAGES,
        help="with --pack, how many images of each array; all samples if the other model of a pair is elsewhere",
    )
    parser.add_argument("--print", action="store_true", help="print the options of `gausslens study`, and stop")
    args = parser.parse_args()
    grid = GRIDS[args.grid] | ({"only": tuple(args.only.split(","))} if args.only else {})
    config = StudyConfig(args.data or f"{args.grid}.npz", out=str(args.out), **grid)
    if args.print:
        print(typed_options(config))
    elif args.pack:
        names = {task.name for task in tasks_of(plan_study(config))}
        pack(
            args.out,
            RESULTS / args.grid,
            args.pack,
            names | {path.name for path in args.out.glob(f"study-{args.grid}-*")},
            args.images,
        )
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that training saves where it is
        work(config, args)


def work(config: StudyConfig, args: argparse.Namespace) -> None:
    """Do the tasks of one seed after those of another, until the time is over."""
    start = time.monotonic()
    copy_finished(RESULTS / args.grid, args.out)
    if args.commit:
        os.environ["GAUSSLENS_COMMIT"] = args.commit
    plan = plan_study(config)
    open_study(plan, args.out)

    def tell_finished(task: Task) -> None:
        seconds = TaskStore(args.out / "cells").find(task.name).seconds
        config = (task.needs[0] if task.needs else task).options.get("config", {})
        of = " ".join(str(config[name]) for name in ("network", "width", "split", "seed") if name in config)
        print(f"{time.monotonic() - start:6.0f} s  {task.name} {of}: {seconds:.1f} s", flush=True)

    def tell_failed(task: Task, error: Exception) -> None:
        print(f"{time.monotonic() - start:6.0f} s  failed: {task.name}: {error!r}", flush=True)

    plan = replace(plan, studies=config.only or plan.studies)
    seeds = [int(seed) for seed in args.seeds.split(",")] if args.seeds else range(config.seeds)
    tasks = [task for seed in seeds for task in tasks_of_seed(plan, seed)]
    for field, words in (("split", args.splits), ("network", args.networks), ("width", args.widths)):
        if words:
            known, wanted = set().union(*(of_models(task, field) for task in tasks)), set(words.split(","))
            if wanted - known:
                sys.exit(
                    f"no {field} {', '.join(sorted(wanted - known))} in this work; there are {', '.join(sorted(known))}"
                )
            tasks = [task for task in tasks if of_models(task, field) <= wanted]
    left = None if args.minutes is None else 60 * args.minutes
    outcome = run_tasks(
        tasks, args.out / "cells", workers=args.workers, budget=left, finished=tell_finished, failed=tell_failed
    )
    print(f"{len(outcome.left_out)} tasks left, {len(outcome.skipped)} skipped", flush=True)
    if outcome.failed:
        sys.exit(1)


def tasks_of_seed(plan: Plan, seed: int) -> list[Task]:
    """The tasks that this seed adds to those of the seeds below it. Pictures are made for one seed only."""
    fewer, more = (replace(plan, seeds=n, sweep_seeds=n, shown=min(plan.shown, n - 1)) for n in (seed, seed + 1))
    known = {task.identity for task in tasks_of(fewer)} if seed else set()
    planned = {task.identity for task in tasks_of(replace(plan, seeds=max(plan.seeds, seed + 1)))}
    return [task for task in tasks_of(more) if task.identity in planned - known]


def of_models(task: Task, field: str) -> set[str]:
    """The values of a config field, as typed, of all models that a task trains or needs."""
    own = {str(task.options["config"].get(field))} if "config" in task.options else set()
    return own.union(*(of_models(needed, field) for needed in task.needs))


def pack(folder: Path, published: Path, target: Path, names: Collection[str], images: int = MOST_IMAGES) -> None:
    """Write a tar of those tasks and studies that are finished and not published yet: no weights, and few images."""
    with tempfile.TemporaryDirectory() as name:
        parcel = Path(name)
        copy_finished(published, parcel)
        with tarfile.open(target, "w") as archive:
            for path in copy_finished(folder, parcel, names=names, images=images):
                archive.add(path, path.relative_to(parcel))


if __name__ == "__main__":
    main()
