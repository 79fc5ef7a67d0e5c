"""A denoiser that remembers: the same answers, each computed once, and no two questions taken for one."""

import pytest
import torch
from torch import nn

from gausslens.evaluation import cached_denoiser as remembering
from gausslens.evaluation.cached_denoiser import CachedDenoiser, multilinear_hash


class _Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, sigma, *labels):
        self.calls += 1
        return x * sigma.reshape(-1, 1, 1, 1) + sum(label.sum() for label in labels)


@pytest.fixture(params=["bytes", "sums"])
def _known_by(request, monkeypatch):
    """Questions are known by a hash of their bytes, as on a CPU, or by sums, as on a GPU."""
    if request.param == "sums":
        by_sums = lambda tensor: tuple(multilinear_hash(tensor.contiguous().flatten()).tolist())  # noqa: E731
        monkeypatch.setattr(remembering, "fingerprint", by_sums)


def _question(seed=0, count=3):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 4, 4, generator=random), torch.rand(count, generator=random)


@pytest.mark.usefixtures("_known_by")
def test_an_answer_is_computed_once_and_is_the_denoisers():
    counting = _Counting()
    denoiser = CachedDenoiser(counting)
    first, second = _question(0), _question(1)
    for question in (first, second, first, second):
        assert torch.equal(denoiser(*question), counting(*question))
    assert counting.calls == 2 + 4


def test_writing_to_an_answer_changes_no_later_one():
    denoiser, question = CachedDenoiser(_Counting()), _question()
    expected = denoiser(*question).clone()
    denoiser(*question).zero_()
    assert torch.equal(denoiser(*question), expected)


@pytest.mark.usefixtures("_known_by")
def test_noise_levels_labels_and_precision_are_part_of_the_question():
    counting = _Counting()
    denoiser, (x, sigma) = CachedDenoiser(counting), _question()
    labels = torch.tensor([0, 1, 2])
    for question in ((x, sigma), (x, 2 * sigma), (x, sigma, labels), (x, sigma, labels + 1), (x.double(), sigma)):
        denoiser(*question)
    assert counting.calls == 5


def test_the_oldest_answers_are_forgotten_first(monkeypatch):
    counting = _Counting()
    denoiser = CachedDenoiser(counting)
    questions = [_question(seed) for seed in range(3)]
    monkeypatch.setattr(remembering, "_BYTES", 2 * questions[0][0].nbytes)
    for index in (0, 1, 2, 2, 1, 0):
        denoiser(*questions[index])
    assert counting.calls == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64])
def test_sums_tell_the_least_change_and_any_order(dtype):
    random = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 200, (5 * 40_000,), generator=random).to(dtype)
    others = [numbers.flip(0), numbers.roll(1), numbers.roll(1 << 14), numbers[:-1]]
    others.append(-numbers if dtype.is_floating_point else numbers + 1)
    for place in (0, 100_000, 199_999):
        changed = numbers.clone()
        changed[place] = changed[place] + 1
        others.append(changed)
    known = {tuple(multilinear_hash(one).tolist()) for one in (numbers, *others)}
    assert len(known) == 1 + len(others)
    assert torch.equal(multilinear_hash(numbers), multilinear_hash(numbers.clone()))


def test_sums_of_many_like_questions_differ():
    """Ten thousand that differ from each other in one or two numbers, some in the sign bit alone."""
    base = torch.randn(64, generator=torch.Generator().manual_seed(0))
    known = set()
    for index in range(10_000):
        changed = base.clone()
        changed[index % 64] = base[index % 64] * (-1 if index < 64 else 1 + index)
        known.add(tuple(multilinear_hash(changed).tolist()))
    assert len(known) == 10_000
