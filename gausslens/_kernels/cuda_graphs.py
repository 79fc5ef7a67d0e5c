"""Many small steps on a GPU as one: a CUDA graph, recorded once and replayed.

A GPU that waits for Python between short kernels is idle half of the time. A function whose steps do not depend on the
numbers, only on the shapes, is recorded once; replaying it costs a single launch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Replay:
    """A function of CUDA tensors, some of which may be None, recorded for inputs of one shape.

    Its memory stays reserved as long as it lives. A copy or a pickle of it is None: a recording belongs to one process.
    The function must not read values of tensors, and must use the same memory at every call. It must have been called
    before with such inputs, since compiling and autotuning cannot be recorded.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor | None) -> None:
        self.shapes = _shapes_of(inputs)
        self._inputs = [part if part is None else part.clone(memory_format=torch.contiguous_format) for part in inputs]
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a recording has memory of its own
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._outputs = function(*self._inputs)

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """The outputs for other values; they are overwritten by the next call."""
        for held, tensor in zip(self._inputs, inputs, strict=True):
            if held is not None and tensor is not None:
                held.copy_(tensor)
        self._graph.replay()
        return self._outputs

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return type(None), ()


def try_capture(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor | None) -> Replay | None:
    """A recording of the function, or None where one of its steps cannot be recorded or memory does not suffice."""
    try:
        return Replay(function, *inputs)
    except RuntimeError:
        return None


class Recorder:
    """Records a function of tensors, some of which may be None, once inputs of one shape have come often in a row.

    The first `warm_up` calls with such inputs run as they are. So do all calls with inputs of a shape for which recording
    has failed, and with `enabled=False`.
    """

    def __init__(self, *, warm_up: int, enabled: bool) -> None:
        self.replay: Replay | None = None
        self._warm_up, self._enabled = warm_up, enabled
        self._failed: list[list[Any]] = []  # shapes
        self._shapes: list[Any] = []  # of the latest inputs that were not replayed
        self._seen = 0  # how often in a row

    def __call__(self, function: Callable[..., Tensor], *inputs: Tensor | None) -> Tensor:
        """The function's value, which later calls leave alone; the function is the same at every call."""
        shapes = _shapes_of(inputs)
        if self._enabled and shapes not in self._failed and not self._has(shapes):
            self._seen = self._seen + 1 if shapes == self._shapes else 1
            self._shapes = shapes
            if self._seen > self._warm_up:
                replay, self._seen = try_capture(lambda *held: (function(*held),), *inputs), 0
                if replay is None:
                    self._failed.append(shapes)
                else:
                    self.replay = replay
        return self.replay(*inputs)[0].clone() if self.replay and self._has(shapes) else function(*inputs)

    def _has(self, shapes: list[Any]) -> bool:
        return self.replay is not None and self.replay.shapes == shapes


def _shapes_of(tensors: tuple[Tensor | None, ...]) -> list[Any]:
    return [None if tensor is None else tensor.shape for tensor in tensors]
