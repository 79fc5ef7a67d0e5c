"""Every test runs seeded, on one thread, with property tests that do not depend on the clock."""

import os
import sys
import time

import pytest
import torch
from hypothesis import settings

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

settings.register_profile("house", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def _deterministic():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    if state := sys.modules.get("accelerate.state"):  # it holds the first device for good: a GPU, or with --cpu none
        state.AcceleratorState._reset_state(reset_partial_state=True)


class _Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 100.0


@pytest.fixture
def clock(monkeypatch):
    clock = _Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock
