"""Where tasks run: in this process, in a pool of processes, or on a Ray cluster.

Each is an `Executor` of `concurrent.futures`, so that the engine need not know which. A task computes with one thread
everywhere, which makes two tasks at once on two cores faster than one after the other, and its numbers the same.
"""

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from .._kernels.fused import uncompiled
from ..data.decoding import available_cores
from ..errors import import_extra, require
from ..generation import best_device
from .task import Task, TaskStore

_SECONDS_BETWEEN_REPORTS = 0.5


def default_workers(*, cpu: bool) -> int:
    """One worker for each core, or one for a GPU unless `cpu` leaves it alone."""
    return available_cores() if best_device(cpu=cpu).type == "cpu" else 1


def make_executor(on: str, workers: int) -> Executor:
    """The executor by name."""
    if on == "here":
        return SerialExecutor()
    if on == "pool":
        # Not forked: a copy of a process that has used torch's threads can hang.
        context = multiprocessing.get_context("spawn")
        return PoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(os.getpid(),))
    require(on == "ray", f"tasks run on 'here', 'pool' or 'ray'; got {on!r}.")
    return RayExecutor(workers)


def run_task(task: Task, folder: Path) -> float:
    """Do a task's work in this process, on one thread, noting the share that is done in a file."""
    torch.set_num_threads(1)
    last = 0.0

    def report(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_REPORTS:
            (folder / task.name / "share").write_text(f"{share:.4f}")
            last = time.monotonic()

    try:
        with uncompiled():
            return TaskStore(folder).run(task, report)
    except BaseException as error:
        _let_go(error)
        raise
    finally:
        if torch.cuda.is_initialized():  # other workers on this GPU may need its memory before this one does again
            gc.collect()
            torch.cuda.empty_cache()


def _let_go(error: BaseException | None) -> None:
    """Forget what the frames that an error came through held: a pool keeps its last error, and tensors with it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def share_done(task: Task, folder: Path) -> float:
    """The share of a running task's work that it last said was done."""
    try:
        return float((folder / task.name / "share").read_text())
    except (OSError, ValueError):  # not begun, or being written
        return 0.0


def _or_leave(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the work returns. A worker would take its SystemExit for a result, and wait for more work for ever."""
    try:
        return work(*args, **kwargs)
    except SystemExit as leaving:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 1)


class SerialExecutor(Executor):
    """Runs each piece of work at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it, and return a future that is already there."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class PoolExecutor(ProcessPoolExecutor):
    """A pool of processes that does not wait for running work when it is left by an exception, such as Ctrl-C.

    Workers are sent SIGTERM, on which training saves where it is.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Work in one of the processes, which ends if the work is ended by SIGTERM."""
        return super().submit(_or_leave, fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> bool | None:
        """Leave: after the work is done, or at once."""
        if kind is None:
            return super().__exit__(kind, *error)
        workers = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        return None


class RayExecutor(Executor):
    """Runs work on a Ray cluster: one that is there (`RAY_ADDRESS`), or a local one with this many workers.

    The folder of tasks must be on a file system that all nodes share.
    """

    def __init__(self, workers: int) -> None:
        self._ray = ray = import_extra("ray", "running on Ray needs the package ray", "'gausslens[cluster]'")
        self._began = not ray.is_initialized()
        if self._began:
            there = {"address": "auto"} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
            ray.init(**there, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        # Work that asks for no GPU would see none.
        self._gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0) / workers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it on a worker."""
        remote = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(fn)
        future: Future[Any] = remote.remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, if it was joined here."""
        if self._began:
            self._ray.shutdown()


def _start_worker(parent: int) -> None:
    """Make a worker of the pool end when its parent does, however that ends; Ctrl-C is for the parent alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
