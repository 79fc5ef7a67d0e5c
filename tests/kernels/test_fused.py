"""Steps that are compiled on a GPU, and when they are not."""

import pytest
import torch

from gausslens._kernels import fused as module
from gausslens._kernels.fused import fused, uncompiled


class OnGpu:
    """Looks like a large tensor on a GPU."""

    is_cuda = True

    def numel(self):
        return 1 << 30


@pytest.fixture
def compiled(monkeypatch):
    """The functions that were compiled; compiling one makes it return "compiled"."""
    found = []

    def compile(function):
        found.append(function)
        return lambda *_: "compiled"

    monkeypatch.setattr(module, "_compiled", compile)
    return found


def step(_):
    return "as written"


def test_large_tensors_on_a_gpu_alone_are_compiled_for(compiled):
    assert fused(step, OnGpu()) == "compiled"
    assert fused(step, torch.ones(1 << 21)) == "as written"
    assert compiled == [step]


def test_nothing_is_compiled_inside_and_all_is_as_before_after_an_error(compiled):
    def fail():
        with uncompiled():
            assert fused(step, OnGpu()) == "as written"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert compiled == []
    assert fused(step, OnGpu()) == "compiled"


def test_a_function_that_cannot_be_compiled_runs_as_written_and_is_not_tried_again(monkeypatch):
    tried = []

    def compile(function):
        tried.append(function)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(module, "_compiled", compile)
    monkeypatch.setattr(module, "_UNCOMPILABLE", set())
    assert [fused(step, OnGpu()) for _ in range(2)] == ["as written"] * 2
    assert tried == [step]
