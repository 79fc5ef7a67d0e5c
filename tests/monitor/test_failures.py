"""A monitor that fails: the training goes on, what was seen stays, and the failure is told once and costs little."""

import inspect
import json
import logging
import math

import pytest
import torch
from test_monitor import GAUSSIAN, HELD_OUT, TRAIN, mixture, watched

from gausslens import ConfigError
from gausslens.monitor.monitor import GeneralizationMonitor
from gausslens.monitor.probe import Probe


def small(**options):
    return GeneralizationMonitor(TRAIN, HELD_OUT, **{"count": 4, "samples": 4, "steps": 4, **options})


def raising(x, sigma):
    raise RuntimeError("boom 17")


def short_of_memory(x, sigma):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


FAILING = {
    "not finite": lambda x, sigma: torch.full_like(x, math.nan),
    "RuntimeError: boom 17": raising,
    "shape": lambda x, sigma: x[:, :, :3],
    "tensor": lambda x, sigma: None,
    "memory does not suffice": short_of_memory,
    "must be finite": lambda x, sigma: x / 0,
}


def trained(monitor, denoiser, clock, steps=2000, total=None, call_seconds=0.0):
    """A training of a second a step; returns at which steps the denoiser was called."""
    called, now = [], 0

    def timed(x, sigma):
        clock.now += call_seconds
        called.append(now)
        return denoiser(x, sigma)

    for now in range(1, steps + 1):
        clock.now += 1.0
        monitor.update(timed, now, total)
    return sorted(set(called))


@pytest.mark.parametrize("reason", [reason for reason in FAILING if reason != "not finite"])
def test_a_denoiser_that_fails_ends_no_training_and_is_told_once(clock, caplog, reason):
    monitor = small()
    tried = trained(monitor, FAILING[reason], clock, call_seconds=0.5)
    assert 2 <= len(tried) <= 20, "it is tried again, but ever more rarely"
    assert monitor.cost <= 0.03
    assert reason in monitor.failure
    assert f"at step {tried[-1]} failed" in monitor.failure
    assert [(record.name, record.levelno) for record in caplog.records] == [("gausslens", logging.WARNING)]
    assert reason in caplog.text
    assert "The training goes on" in caplog.text
    assert (monitor.looks, monitor.recommended, monitor.should_stop) == ([], None, False)
    assert monitor.summary("kimg") == f"No look was taken. {monitor.failure.replace('step', 'kimg', 1)}"


def test_what_failed_is_tried_again_and_then_forgotten(clock):
    monitor = small()
    trained(monitor, lambda x, sigma: raising(x, sigma) if clock.now < 500 else GAUSSIAN(x, sigma), clock)
    assert monitor.failure is None
    assert len(monitor.looks) > 3
    assert "failed" not in monitor.summary()


def test_what_was_seen_before_a_failure_stays_and_the_failure_is_told_beside_it():
    monitor = watched(small(), (-0.3, 0.0))
    before = monitor.looks
    assert monitor.finish(raising, 7) is None
    assert monitor.looks == before
    assert "The look at step 7 failed: RuntimeError: boom 17. Keep the weights of step 1." in monitor.summary()
    again = small()
    again.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert again.failure == monitor.failure
    old = {key: value for key, value in monitor.state_dict().items() if key not in ("failure", "final")}
    again.load_state_dict(old)
    assert again.failure is None, "states of earlier versions"


def test_a_failure_leaves_the_denoiser_and_the_random_state_as_they_were():
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Conv2d(1, 1, 3)  # no padding: another shape

        def forward(self, x, sigma):
            assert not self.training
            assert not torch.is_grad_enabled()
            return self.inner(x)

    denoiser, before = Broken().train(), torch.random.get_rng_state()
    monitor = small()
    assert monitor.finish(denoiser, 1) is None
    assert "(4, 1, 6, 6)" in monitor.failure or "input's shape" in monitor.failure
    assert torch.equal(torch.random.get_rng_state(), before)
    assert denoiser.training
    assert denoiser.inner.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_program_stops_it(stop):
    def stopping(x, sigma):
        raise stop

    monitor = small()
    for call in (lambda: monitor.finish(stopping, 1), lambda: monitor.update(stopping, 1, 1)):
        with pytest.raises(stop):
            call()
    assert monitor.failure is None


@pytest.mark.parametrize("step", [math.nan, math.inf, "five", None])
def test_a_step_that_is_no_number_ends_no_training(step, caplog):
    monitor = small()
    update, finish, look = (
        inspect.unwrap(getattr(GeneralizationMonitor, name)) for name in ("update", "finish", "look")
    )  # types are checked in tests alone
    for _ in range(3):
        assert update(monitor, GAUSSIAN, step) is None
    assert finish(monitor, GAUSSIAN, step) is None
    assert "step must be a number" in monitor.failure
    assert len(caplog.records) == 1
    with pytest.raises(ConfigError, match="step must be a number"):
        look(monitor, GAUSSIAN, step)
    assert monitor.finish(GAUSSIAN, 1)["step"] == 1


def test_failures_that_differ_only_in_numbers_are_told_once(caplog):
    monitor = small()
    for step in (1, 2.5, 30):
        monitor.finish(FAILING["not finite"], step)
    assert "step 30" in monitor.failure
    assert len(caplog.records) == 1
    monitor.finish(raising, 31)
    assert len(caplog.records) == 2


def test_memory_that_ran_out_is_given_back(monkeypatch):
    monitor, works = small(), Probe.look
    monkeypatch.setattr(Probe, "look", lambda self, denoiser, step, number: short_of_memory(denoiser, step))
    assert monitor.finish(GAUSSIAN, 1) is None
    assert monitor._probe is None, "training may need it"
    monkeypatch.setattr(Probe, "look", works)
    assert monitor.finish(GAUSSIAN, 2)["step"] == 2


def test_a_look_itself_still_raises():
    with pytest.raises(RuntimeError, match="boom"):
        small().look(raising, 1)


@pytest.mark.parametrize("total", [None, 50])
def test_the_end_is_looked_at_whatever_it_costs(clock, total):
    monitor = small()

    def slow(x, sigma):
        clock.now += 5.0
        return GAUSSIAN(x, sigma)

    monitor.update(slow, 0)
    clock.now += 100.0
    for step in range(1, 51):
        assert (monitor.update(slow, step, total) is not None) == (step == total)
    assert (monitor.finish(slow, 50) is not None) == (total is None)
    assert [look["step"] for look in monitor.looks] == [50]
    assert monitor.finish(slow, 50) is None
    assert monitor.update(slow, 51, total) is None, "who trains on is looked at when it can be afforded"
    assert monitor.recommended == 50
    assert monitor.cost > 0.03
    assert "The look at the end is taken even if the looks then need more than 3%." in monitor.summary()


def test_training_that_has_ended_is_not_looked_at_twice():
    monitor = small()
    monitor.update(GAUSSIAN, 50, 50)
    again = small()
    again.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert again.update(GAUSSIAN, 50, 50) is None
    assert again.finish(GAUSSIAN, 50) is None
    assert again.summary() == monitor.summary().replace(f"{monitor.cost:.1%}", f"{again.cost:.1%}")


def test_a_training_that_nobody_ends_says_what_to_call(clock):
    monitor = small(share=1e-3)
    for step in range(10):
        clock.now += 1.0
        monitor.update(mixture(0.0), step)
    assert monitor.summary().startswith("No look was taken: one may take 0% of the training's time")
    assert "or call finish" in monitor.summary()
