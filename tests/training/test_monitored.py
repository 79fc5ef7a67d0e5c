"""Monitoring a training run: the weights are the same to the last bit, and what was seen survives a stop."""

import json
import signal
from dataclasses import replace
from functools import partial

import pytest
import torch
from test_training import assert_same_weights, stop_at
from tiny_training import config

from gausslens import CheckpointError, load_denoiser, train
from gausslens.cli import main as cli
from gausslens.monitor.probe import Probe
from gausslens.training import monitored as watching

LOOKS = {"measure": "monitor", "quantity": "gaussian_rmse"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


class Eager(watching.GeneralizationMonitor):
    """Looks at every tenth step, whatever it costs."""

    def update(self, denoiser, step, total=None):
        calls = self.calls = getattr(self, "calls", 0) + 1
        return self.look(denoiser, step) if calls % 10 == 0 else None


def memorizing(monkeypatch, since):
    """Let every sample count as a copy after `since` kimg."""
    look = watching.GeneralizationMonitor.look

    def seen(self, denoiser, step):
        if self._probe is not None:
            self._probe._count_copies = lambda images: len(images) if step >= since else 0
        return look(self, denoiser, step)

    monkeypatch.setattr(watching.GeneralizationMonitor, "look", seen)


@pytest.fixture
def eager(monkeypatch):
    monkeypatch.setattr(watching, "GeneralizationMonitor", Eager)


def steps_of(run):
    return [record["step"] for record in run.records() if LOOKS.items() <= record.items()]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "options",
    [{"dropout": 0.1}, *(pytest.param(each, marks=pytest.mark.slow) for each in ({"augment": 0.2}, {"flip": True}))],
)
def test_monitoring_changes_no_bit_of_what_is_learned(tmp_path, options):
    plain = train(config(tmp_path, out=str(tmp_path / "plain"), kimg=0.8, **options))
    run = train(config(tmp_path, out=str(tmp_path / "watched"), kimg=0.8, monitor=True, **options))
    assert run.identity == plain.identity
    assert steps_of(run) == list(range(10, 51, 10))
    assert_same_weights(run, plain)
    losses = [[r["value"] for r in each.records() if r["quantity"] == "loss"] for each in (run, plain)]
    assert losses[0] == losses[1]


@pytest.mark.usefixtures("eager")
def test_what_is_recommended_is_kept_as_a_snapshot(tmp_path):
    run = train(config(tmp_path, monitor=True, kimg=0.8))
    found = json.loads((run.path / watching.REPORT).read_text())
    seen = {record["kimg"]: record["value"] for record in run.records() if record["quantity"] == "loss_held_out"}
    assert found["recommended"] == min(seen, key=seen.get)
    assert found["recommended"] in run.snapshots
    assert "Keep the weights" in found["summary"]
    asked = train(config(tmp_path, out=str(tmp_path / "asked"), kimg=0.8, snapshots=(found["recommended"],)))
    kept, expected = (each.weights(found["recommended"]) for each in (run, asked))
    assert all(torch.equal(kept[name], expected[name]) for name in expected)
    load_denoiser(run, kimg=found["recommended"])


@pytest.mark.usefixtures("eager")
def test_a_stopped_run_goes_on_watching(tmp_path, monkeypatch, capsys):
    whole = train(config(tmp_path, out=str(tmp_path / "whole"), monitor=True, kimg=0.8))
    with monkeypatch.context() as during:
        stop_at(during, 29, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            train(config(tmp_path, monitor=True, kimg=0.8))
    run = train(config(tmp_path, monitor=True, kimg=0.8))
    assert steps_of(run) == steps_of(whole) == [10, 20, 30, 40, 50]
    assert_same_weights(run, whole)
    found, expected = (json.loads((each.path / watching.REPORT).read_text()) for each in (run, whole))
    assert found["recommended"] == expected["recommended"]
    assert found["closest_to_gaussian"] == expected["closest_to_gaussian"]
    assert run.snapshots == whole.snapshots


@pytest.mark.usefixtures("eager")
def test_a_run_that_memorises_is_stopped_and_stays_so(tmp_path, monkeypatch):
    memorizing(monkeypatch, since=0.8)
    asked = config(tmp_path, stop_when_memorizing=True)
    run = train(asked)
    found = json.loads((run.path / watching.REPORT).read_text())
    assert found["memorization"]["step"] == 0.8
    assert run.snapshots[-1] == found["memorization"]["latest"] == 0.96
    assert found["recommended"] < 0.8
    assert found["recommended"] in run.snapshots
    again = train(asked)
    assert again.snapshots == run.snapshots, "nothing was trained"
    on = train(replace(asked, stop_when_memorizing=False))
    assert on.is_finished


def test_a_network_of_one_noise_level_is_judged_by_its_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "GeneralizationMonitor", Eager)
    run = train(config(tmp_path, monitor=True, sigma=0.5, kimg=0.4))
    assert not [record for record in run.records() if record["quantity"] == "memorized_fraction"]
    assert steps_of(run) == [10, 20, 25]


@pytest.mark.slow
def test_looking_costs_less_than_its_share(tmp_path, monkeypatch):
    brief = partial(watching.GeneralizationMonitor, count=16, samples=8, steps=6)  # also a busy machine affords several
    monkeypatch.setattr(watching, "GeneralizationMonitor", brief)
    run = train(config(tmp_path, monitor=True, kimg=80.0))
    assert len(steps_of(run)) > 1
    assert json.loads((run.path / watching.REPORT).read_text())["cost"] <= 0.03


def test_what_was_seen_is_told_after_an_interruption_in_the_last_step(tmp_path, monkeypatch):
    options = {"monitor": True}
    with monkeypatch.context() as during:
        stop_at(during, 99, signal.SIGINT)  # the last step
        with pytest.raises(KeyboardInterrupt):
            train(config(tmp_path, **options))
    (folder,) = (tmp_path / "runs").iterdir()
    assert not (folder / "monitor.json").exists()
    assert (train(config(tmp_path, **options)).path / "monitor.json").exists()


def test_a_run_that_was_finished_without_a_monitor_says_so(tmp_path, capsys):
    words = ["train", "digits", "--split", "64", "--kimg", "0.2", "--batch", "32", "--width", "8", "--cpu", "--quiet"]
    for more in ((), ("--monitor",)):
        assert cli.main([*words, *more, "--out", str(tmp_path)]) == 0
    assert "finished before, without a monitor" in capsys.readouterr().out


def found_in(run):
    return json.loads((run.path / watching.REPORT).read_text())


def failing(*unused, **unused_too):
    raise RuntimeError("boom")


def test_the_end_is_looked_at_once_and_its_weights_are_those_of_the_run(tmp_path, capsys):
    asked = config(tmp_path, monitor=True, kimg=0.35)
    run = train(asked)
    assert steps_of(run) == [22], "a batch of 16 is more than what was left"
    assert found_in(run)["recommended"] == 0.35
    assert run.snapshots == [0.35], "nothing is kept twice"
    (run.path / watching.REPORT).unlink()  # as if it was stopped before that was written
    assert found_in(train(asked))["recommended"] == 0.35
    assert steps_of(run) == [22]
    longer = train(replace(asked, kimg=0.7))
    assert steps_of(longer) == [22, 44]


def test_a_training_that_ends_early_is_looked_at_where_it_ends(tmp_path, monkeypatch):
    asked_for = []

    def stops(self):
        asked_for.append(1)
        return len(asked_for) > 30

    monkeypatch.setattr(watching.GeneralizationMonitor, "should_stop", property(stops))
    asked = config(tmp_path, stop_when_memorizing=True)
    run = train(asked)
    assert run.snapshots == [0.48]
    assert steps_of(run) == [30]
    assert found_in(run)["recommended"] == 0.48
    for is_told in (True, False):
        if not is_told:
            (run.path / watching.REPORT).unlink()
        train(asked)
        assert steps_of(run) == [30]
        assert found_in(run)["recommended"] == 0.48


def test_a_monitor_that_fails_ends_no_training(tmp_path, monkeypatch, caplog, capsys):
    plain = train(config(tmp_path, out=str(tmp_path / "plain")))
    monkeypatch.setattr(Probe, "look", failing)
    monkeypatch.setattr(watching, "GeneralizationMonitor", partial(watching.GeneralizationMonitor, share=1.0))
    run = train(config(tmp_path, monitor=True))
    assert run.is_finished
    assert_same_weights(run, plain)
    assert found_in(run)["recommended"] is None
    assert found_in(run)["summary"] == "No look was taken. The look at kimg 1.6 failed: RuntimeError: boom."
    assert caplog.text.count("boom") == 1


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("_records", "Recording the numbers at step 0.16"),
        ("under", "Keeping the recommended weights"),
        ("asdict", "Writing the monitor's report"),
    ],
)
def test_what_cannot_be_kept_or_written_ends_no_training(tmp_path, monkeypatch, caplog, part, what):
    monkeypatch.setattr(watching, part, failing)
    run = train(config(tmp_path, monitor=True, kimg=0.32))
    assert run.is_finished
    assert f"{what} failed: RuntimeError: boom" in caplog.text
    assert (run.path / watching.REPORT).exists() == (part != "asdict"), "one failure does not stop the rest"


def test_what_was_seen_before_and_cannot_be_read_ends_no_training(tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as during:
        stop_at(during, 49, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            train(config(tmp_path, monitor=True))
    old = CheckpointError("the monitor's state is of another version.")

    def refusing(self, state):
        raise old

    monkeypatch.setattr(watching.GeneralizationMonitor, "load_state_dict", refusing)
    run = train(config(tmp_path, monitor=True))
    assert run.is_finished
    assert "Restoring the monitor failed: the monitor's state is of another version." in caplog.text
    assert found_in(run)["recommended"] == 1.6
