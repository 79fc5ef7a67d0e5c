"""When a function is recorded, and that its values stay the same; recordings themselves need a GPU."""

import pytest
import torch

from gausslens._kernels import cuda_graphs
from gausslens._kernels.cuda_graphs import Recorder


class Replayed:
    """What a recording is to its user."""

    made = 0

    def __init__(self, function, *inputs):
        type(self).made += 1
        self.function, self.shapes = function, cuda_graphs._shapes_of(inputs)

    def __call__(self, *inputs):
        return self.function(*inputs)


@pytest.fixture
def recordings(monkeypatch):
    monkeypatch.setattr(Replayed, "made", 0)
    monkeypatch.setattr(cuda_graphs, "try_capture", Replayed)


def double(x, y=None):
    return 2 * x if y is None else 2 * x + y


@pytest.mark.usefixtures("recordings")
def test_inputs_of_one_shape_in_a_row_are_recorded_once():
    recorder = Recorder(warm_up=2, enabled=True)
    for count, size in ((0, 3), (0, 3), (1, 3), (1, 3), (1, 4), (1, 4), (1, 3), (2, 4), (2, 4)):
        x = torch.randn(size)
        assert torch.equal(recorder(double, x, None), 2 * x)
        assert Replayed.made == count
    assert torch.equal(recorder(double, x, x), 3 * x)
    assert Replayed.made == 2, "another input is another shape"


def test_what_cannot_or_need_not_be_recorded_runs_as_it_is(monkeypatch):
    tried = []
    monkeypatch.setattr(cuda_graphs, "try_capture", lambda *given: tried.append(given))
    able, unable = Recorder(warm_up=1, enabled=True), Recorder(warm_up=1, enabled=False)
    for _ in range(4):
        assert torch.equal(able(double, torch.ones(2)), unable(double, torch.ones(2)))
    assert len(tried) == 1
