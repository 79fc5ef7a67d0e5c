"""Many small steps on a GPU as one: a CUDA graph, recorded once and replayed.

A GPU that waits for Python between short kernels is idle half of the time. A function whose steps do not depend on the
numbers, only on the shapes, is recorded once; replaying it costs a single launch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Replay:
    """A function of CUDA tensors, recorded for inputs of one shape.

    Its memory stays reserved as long as it lives. A copy or a pickle of it is None: a recording belongs to one process.
    The function asks no tensor for its value, and uses the same memory for all else at every call. It has been called
    before with such inputs: compiling and measuring cannot be recorded.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> None:
        self.shapes = [tensor.shape for tensor in inputs]
        self._inputs = [tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs]
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a recording has memory of its own
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._outputs = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs for other values; they are overwritten by the next call."""
        for held, tensor in zip(self._inputs, inputs, strict=True):
            held.copy_(tensor)
        self._graph.replay()
        return self._outputs

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return type(None), ()


def try_capture(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> Replay | None:
    """A recording of the function, or None where one of its steps cannot be recorded or memory does not suffice."""
    try:
        return Replay(function, *inputs)
    except RuntimeError:
        return None


class Later:
    """A number that a GPU is still computing, read without waiting for what is queued after it."""

    def __init__(self, value: Tensor) -> None:
        self._value, self._ready = value, None
        if value.is_cuda:
            self._value = torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record()

    def __float__(self) -> float:
        if self._ready is not None:
            self._ready.synchronize()
        return float(self._value)
