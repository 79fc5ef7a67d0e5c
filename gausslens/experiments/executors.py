"""Executors of tasks: in this process, in a pool of processes, or on a Ray cluster.

Each is an `Executor` of `concurrent.futures`. A task computes with one thread everywhere, so that its numbers are the same,
and two tasks at once on two cores are faster than one after the other.
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
    """Do a task's work in this process, on one thread, and write the share that is done into a file."""
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
    """Clear the frames of an error: a pool keeps its last error, which would keep their tensors in memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def share_done(task: Task, folder: Path) -> float:
    """The share of a running task's work that is done, as last reported."""
    try:
        return float((folder / task.name / "share").read_text())
    except (OSError, ValueError):  # not there yet, or being written
        return 0.0


def _or_leave(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Do the work, and end the process on SystemExit, which a worker would take for a result and wait for ever."""
    try:
        return work(*args, **kwargs)
    except SystemExit as leaving:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 1)


class SerialExecutor(Executor):
    """Runs each piece of work at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do the work, and return a finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class PoolExecutor(ProcessPoolExecutor):
    """A pool of processes that does not wait for running work when an exception, such as Ctrl-C, ends it.

    Workers are sent SIGTERM, on which training saves its state.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do the work in one of the processes, which ends if SIGTERM ends the work."""
        return super().submit(_or_leave, fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> bool | None:
        """Leave after the work is done, or at once on an exception."""
        if kind is None:
            return super().__exit__(kind, *error)
        workers = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        return None


class RayExecutor(Executor):
    """Runs work on a Ray cluster: the one of `RAY_ADDRESS`, or a local one with this many workers.

    The folder of tasks must be on a file system that all nodes share.
    """

    def __init__(self, workers: int) -> None:
        self._ray = ray = import_extra("ray", "running on Ray needs the package ray", "'gausslens[cluster]'")
        self._began = not ray.is_initialized()
        if self._began:
            there = {"address": "auto"} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
            ray.init(**there, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        # Ray hides GPUs from work that requests none.
        self._gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0) / workers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do the work on a worker."""
        remote = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(fn)
        future: Future[Any] = remote.remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, if this executor has joined it."""
        if self._began:
            self._ray.shutdown()


def _start_worker(parent: int) -> None:
    """Make a worker end when its parent does, however that ends, and ignore Ctrl-C, which is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
