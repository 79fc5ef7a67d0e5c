"""The state of a training run on disk, from which it goes on as if it had never stopped.

State is saved every 30 seconds, and every 2 % of the run where that costs little, so that short runs lose little too.
Tensors are copied where they are and written by a thread, while training continues. A state is written whole or not at
all, and the one before stays until then.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from ..atomic_files import load_tensors, save_tensors
from ..store.run import Run

_KIND = "gausslens training state"
_NAME = "state.safetensors"
_SECONDS = 30.0
_SHARE = 0.02
_COST = 0.1  # largest share of the time that saving may take, where it is not due by the clock


def load_state(run: Run) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The latest state of a run, tensors and metadata; None if there is none yet."""
    return load_tensors(run.path / _NAME, kind=_KIND) if (run.path / _NAME).exists() else None


class Checkpoints:
    """Saves the state of a run of `total` steps, in the background."""

    def __init__(self, run: Run, total: int, saved_step: int = 0) -> None:
        self.run, self.total, self.saved_step = run, total, saved_step
        self._saved_at, self._cost = time.perf_counter(), 0.0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] = self._writer.submit(lambda: None)

    def due(self, step: int) -> bool:
        """Whether it is time to save; raises what went wrong while saving before, if it did."""
        if not self._writing.done():
            return False
        self.wait()
        elapsed = time.perf_counter() - self._saved_at
        has_advanced = step - self.saved_step >= _SHARE * self.total
        return elapsed >= _SECONDS or (has_advanced and elapsed >= self._cost / _COST)

    def save(self, step: int, tensors: Mapping[str, Tensor], provenance: Mapping[str, Any], **metadata: Any) -> None:
        """Save; an error while saving is raised by the next call of any method."""
        self.wait()
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}

        def write() -> None:
            started = time.perf_counter()
            save_tensors(self.run.path / _NAME, copies, kind=_KIND, step=step, **metadata)
            self.run.save_json("provenance.json", provenance)
            self._cost = time.perf_counter() - started
            self.saved_step = step

        self._saved_at = time.perf_counter()
        self._writing = self._writer.submit(write)

    def wait(self) -> None:
        """Until what was saved is on disk."""
        self._writing.result()

    def close(self) -> None:
        """Finish writing, and end the thread."""
        self._writer.shutdown(wait=True)
