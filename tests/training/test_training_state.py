"""When the state is saved, and that saving does not race with training."""

import time

import pytest
import torch

from gausslens import CheckpointError, Run
from gausslens.training.state import Checkpoints, load_state


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path, "train", "digits", "0", {})


def clock(monkeypatch, start=0.0):
    now = [start]
    monkeypatch.setattr("gausslens.training.state.time.perf_counter", lambda: now[0])
    return now


def test_what_is_saved_is_the_state_at_the_call(run):
    checkpoints = Checkpoints(run, 100)
    assert load_state(run) is None
    weights = torch.zeros(100_000)
    checkpoints.save(7, {"weights": weights}, {"sessions": [1]}, losses=[0.5])
    weights.fill_(1.0)
    checkpoints.wait()
    tensors, metadata = load_state(run)
    assert tensors["weights"].sum() == 0
    assert metadata == {"step": 7, "losses": [0.5]}
    assert run.provenance == {"sessions": [1]}
    checkpoints.close()


def test_saving_is_due_by_the_clock_and_by_the_share_of_the_run(run, monkeypatch):
    now = clock(monkeypatch)
    checkpoints = Checkpoints(run, 1000)
    assert not checkpoints.due(19)
    assert checkpoints.due(20)  # 2 % of the steps
    long = Checkpoints(run, 10**6)
    now[0] = 29.9
    assert not long.due(100)
    now[0] = 30.0
    assert long.due(100)


def test_slow_saving_waits_for_the_clock(run, monkeypatch):
    now = clock(monkeypatch)
    checkpoints = Checkpoints(run, 100)

    def slow(*args, **kwargs):
        now[0] += 2.0

    monkeypatch.setattr("gausslens.training.state.save_tensors", slow)
    checkpoints.save(1, {}, {})
    checkpoints.wait()
    now[0] = 19.9  # ten times the cost is 20 seconds
    assert not checkpoints.due(50)
    now[0] = 20.1
    assert checkpoints.due(50)


def test_an_error_while_saving_is_not_lost(run, monkeypatch):
    def full(*args, **kwargs):
        raise CheckpointError("no room")

    monkeypatch.setattr("gausslens.training.state.save_tensors", full)
    checkpoints = Checkpoints(run, 100)
    checkpoints.save(1, {}, {})
    while not checkpoints._writing.done():
        time.sleep(0.001)
    with pytest.raises(CheckpointError, match="no room"):
        checkpoints.due(1)
    assert checkpoints.saved_step == 0
