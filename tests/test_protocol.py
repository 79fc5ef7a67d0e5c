"""Denoisers are called by one set of rules and left as they were found."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from gausslens import Denoiser
from gausslens.denoisers.protocol import call, check_input, eval_mode, expand_sigma, in_batches, placement, range_of
from gausslens.errors import ConfigError, DataError

X = torch.zeros(4, 3, 2, 2, dtype=torch.float64)


def test_functions_and_modules_are_denoisers():
    assert isinstance(lambda x, sigma: x, Denoiser)
    assert isinstance(nn.Identity(), Denoiser)


@pytest.mark.parametrize("sigma", [2, 2.0, torch.tensor(2.0), torch.tensor([2.0]), torch.full((4,), 2)])
def test_sigma_in_any_form_becomes_one_level_per_image(sigma):
    levels = expand_sigma(sigma, X)
    assert levels.dtype == torch.float64
    assert levels.tolist() == [2.0] * 4


def test_levels_keep_their_images():
    assert expand_sigma(torch.tensor([1.0, 2.0, 3.0, 4.0]), X).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (torch.ones(2), r"shape \(b,\) = \(4,\) to match x of shape \(4, 3, 2, 2\); got shape \(2,\)"),
        (torch.ones(4, 1), r"got shape \(4, 1\)"),
        (0.0, "positive and finite; got 0"),
        (torch.tensor([1.0, 2.0, -3.0, 1.0]), "got -3"),
        (torch.tensor([1.0, float("inf"), 1.0, 1.0]), "got inf"),
        (float("nan"), "got nan"),
        ("high", "a number or a tensor of noise levels; got 'high'"),
        (None, "got None"),
    ],
)
def test_sigma_that_cannot_be_is_refused(sigma, message):
    with pytest.raises(ConfigError, match=message):
        expand_sigma(sigma, X)


@pytest.mark.parametrize(
    ("x", "arrived"),
    [
        (torch.zeros(4, 3, 2, 3), r"shape \(4, 3, 2, 3\), dtype torch.float32"),
        (torch.zeros(3, 2, 2), r"shape \(3, 2, 2\)"),
        (torch.zeros(4, 3, 2, 2, dtype=torch.uint8), r"shape \(4, 3, 2, 2\), dtype torch.uint8"),
        ([[0.0]], "list"),
    ],
)
def test_inputs_of_another_shape_are_refused(x, arrived):
    check_input(X, (3, 2, 2))
    with pytest.raises(DataError, match=rf"shape \(b, 3, 2, 2\); got {arrived}"):
        check_input(x, (3, 2, 2))


def test_call_passes_levels_and_labels_of_the_batch():
    seen = []

    def denoiser(x, sigma, *args):
        seen.append((sigma, *args))
        return x / 2

    assert torch.equal(call(denoiser, X + 1, 3.0), X + 0.5)
    call(denoiser, X, 3.0, torch.arange(4))
    assert len(seen[0]) == 1
    assert seen[0][0].tolist() == [3.0] * 4
    assert torch.equal(seen[1][1], torch.arange(4))


@pytest.mark.parametrize(("wrong", "arrived"), [(X[:, :1], r"\(4, 1, 2, 2\)"), (None, "NoneType"), (1.0, "float")])
def test_outputs_of_another_shape_are_refused(wrong, arrived):
    with pytest.raises(DataError, match=rf"its input's shape \(4, 3, 2, 2\); got {arrived}"):
        call(lambda x, sigma: wrong, X, 1.0)


def test_modules_decide_where_they_are_called():
    images = torch.zeros(1, 3, 2, 2)
    with_parameter = nn.Linear(2, 2).to(torch.float64)
    with_buffer = nn.Module()
    with_buffer.register_buffer("count", torch.tensor(3))
    with_buffer.register_buffer("mean", torch.zeros(2, dtype=torch.bfloat16))
    assert placement(with_parameter, images) == (torch.device("cpu"), torch.float64)
    assert placement(with_buffer, images) == (torch.device("cpu"), torch.bfloat16)
    assert placement(nn.Linear(2, 2).to("meta"), images)[0] == torch.device("meta")


def test_images_decide_for_what_has_no_parameters():
    for denoiser in (lambda x, sigma: x, nn.Identity()):
        assert placement(denoiser, X)[1] == torch.float64
        assert placement(denoiser, X.float())[1] == torch.float32
        assert placement(denoiser, X.to(torch.uint8))[1] == torch.float32
        assert placement(denoiser, X.half())[1] == torch.float32


def test_arguments_override_both():
    module = nn.Linear(2, 2)
    assert placement(module, X, device="meta", dtype=torch.float16) == (torch.device("meta"), torch.float16)


def mixed_module():
    module = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(3)), nn.Identity())
    module[1][1].eval()  # a frozen layer inside a network in training
    return module


def test_modules_are_evaluated_and_put_back_as_they_were():
    module, other = mixed_module(), nn.Dropout().eval()
    before = [m.training for m in module.modules()]
    assert len(set(before)) == 2
    with eval_mode(module, other, lambda x, sigma: x):
        assert not any(m.training for m in (*module.modules(), other))
        assert not torch.is_grad_enabled()
    assert [m.training for m in module.modules()] == before
    assert not other.training
    assert torch.is_grad_enabled()


def test_modules_are_put_back_after_an_error():
    module = mixed_module()
    before = [m.training for m in module.modules()]
    with pytest.raises(KeyError), eval_mode(module):
        raise KeyError
    assert [m.training for m in module.modules()] == before
    assert torch.is_grad_enabled()


def test_gradients_may_stay_on():
    with eval_mode(mixed_module(), gradients=True):
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("batch_size", [1, 3, 10, 1000, None])
def test_ranges_cover_everything_once_in_order(batch_size):
    ranges = list(in_batches(lambda start, stop: range(start, stop), 10, batch_size))
    assert [i for r in ranges for i in r] == list(range(10))
    assert max(map(len, ranges)) <= (batch_size or 256)


def test_nothing_to_do_is_no_range():
    assert list(in_batches(lambda start, stop: 1, 0)) == []


@pytest.mark.parametrize("capacity", [1, 5, 64])
def test_out_of_memory_halves_the_batch_and_loses_nothing(capacity):
    attempts = []

    def work(start, stop):
        attempts.append(stop - start)
        if stop - start > capacity:
            raise torch.OutOfMemoryError("too much")
        return list(range(start, stop))

    done = list(in_batches(work, 100))
    assert [i for part in done for i in part] == list(range(100))
    failures = [size for size in attempts if size > capacity]
    assert failures[0] == 100  # not 256: a range is never retried at the size that failed
    assert all(after <= before / 2 for before, after in pairwise(failures))


def test_out_of_memory_for_a_single_item_is_raised():
    def work(start, stop):
        raise torch.OutOfMemoryError("too much")

    with pytest.raises(torch.OutOfMemoryError):
        list(in_batches(work, 8))


def test_the_failed_attempt_is_freed_before_the_cache_is_emptied(monkeypatch):
    class Held:
        alive = 0

        def __init__(self):
            Held.alive += 1

        def __del__(self):
            Held.alive -= 1

    def work(start, stop):
        held = Held()  # as an activation is, by the frame that the exception keeps
        if stop - start > 2:
            raise torch.OutOfMemoryError("too much")
        return held and stop - start

    at_emptying = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: at_emptying.append(Held.alive))
    assert list(in_batches(work, 8)) == [2, 2, 2, 2]
    assert at_emptying == [0, 0]


def test_other_errors_are_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        list(in_batches(lambda start, stop: 1 / 0, 8))


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0"):
        list(in_batches(lambda start, stop: 1, 8, 0))


def test_a_range_of_noise_levels_is_found_behind_averages_of_weights():
    module = nn.Identity()
    assert range_of(lambda x, sigma: x) == range_of(module) == (0.0, math.inf)
    module.sigma_range = (0.01, 157)
    averaged = torch.optim.swa_utils.AveragedModel(module)
    assert range_of(module) == range_of(averaged) == (0.01, 157.0)
    module.sigma_range = (1.0,)
    with pytest.raises(ConfigError, match=r"as its sigma_range.*got \(1.0,\)"):
        range_of(module)
