"""Training: what it learns, what it writes, and that stopping it changes nothing."""

import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_training import config
from two_processes import run_on_two

from gausslens import (
    CheckpointError,
    ConfigError,
    DataError,
    GausslensError,
    MissingExtraError,
    load_denoiser,
    train,
)
from gausslens.atomic_files import load_tensors
from gausslens.errors import OutOfMemoryError
from gausslens.evaluation.references import load_run_images
from gausslens.training import session as sessions
from gausslens.training import train as running

SCRIPT = str(Path(__file__).with_name("tiny_training.py"))
TIMES = ("seconds", "images_per_second")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


def numbers(run):
    """The records that do not depend on the clock."""
    return [record for record in run.records() if record["quantity"] not in TIMES]


def assert_same_weights(run, other):
    for ema in (True, False):
        weights, expected = run.weights(ema=ema), other.weights(ema=ema)
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in weights)


def stop_at(monkeypatch, step, number=signal.SIGTERM):
    """Send this process a signal during a step."""
    update = sessions.Session._update

    def stopped(self, batch):
        if self.step == step:
            os.kill(os.getpid(), number)
        return update(self, batch)

    monkeypatch.setattr(sessions.Session, "_update", stopped)


def test_the_loss_falls_and_everything_is_written_down(tmp_path):
    run = train(config(tmp_path, kimg=3.2, snapshots=(0, 1.6)))
    losses = [record for record in run.records() if record["quantity"] == "loss"]
    assert [record["step"] for record in losses] == [50, 100, 150, 200]
    assert all(record["count"] == 800 and record["kimg"] == record["step"] * 16 / 1000 for record in losses)
    assert losses[-1]["value"] < 0.6 * losses[0]["value"]
    rates = [record["value"] for record in run.records() if record["quantity"] == "learning_rate"]
    assert rates[-1] == 0.01
    assert run.snapshots == [0, 1.6, 3.2]
    validated = [record for record in run.records() if record["quantity"] == "denoising_loss"]
    assert [(record["on"], record["count"]) for record in validated] == [("train", 50), ("held_out", 10)] * 3
    assert validated[-1]["value"] < 0.6 * validated[1]["value"]
    assert run.manifest["splits"]["all"]["count"] == 50
    (only,) = run.provenance["sessions"]
    assert (only["first_step"], only["last_step"], only["processes"]) == (0, 200, 1)
    assert only["torch"] == torch.__version__
    assert run.config.width == 8
    assert run.is_finished


def test_snapshots_of_one_step_are_all_kept(tmp_path):
    run = train(config(tmp_path, kimg=0.32, snapshots=(0.01, 0.016)))  # steps of 16 images
    assert run.snapshots == [0.01, 0.016, 0.32]
    first, second = (load_denoiser(run, kimg=kimg).state_dict() for kimg in (0.01, 0.016))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_first_snapshot_holds_the_initial_weights(tmp_path):
    run = train(config(tmp_path, kimg=0.16, snapshots=(0,)))
    raw, ema = run.weights(0, ema=False), run.weights(0)
    assert all(torch.equal(raw[name], ema[name]) for name in raw)
    assert not all(torch.equal(raw[name], tensor) for name, tensor in run.weights(ema=False).items())


def test_a_finished_run_is_found_and_a_longer_one_extends_it(tmp_path):
    short = train(config(tmp_path, kimg=0.8))
    assert train(config(tmp_path, kimg=0.8)).path == short.path
    assert len(short.provenance["sessions"]) == 1
    longer = train(config(tmp_path, kimg=1.6))
    assert longer.path == short.path
    assert longer.snapshots == [0.8, 1.6]
    assert [session["first_step"] for session in longer.provenance["sessions"]] == [0, 50]
    whole = train(config(tmp_path, kimg=1.6, out=str(tmp_path / "whole")))
    assert_same_weights(longer, whole)
    assert train(config(tmp_path, kimg=0.8)).config.kimg == 1.6


def test_a_snapshot_that_was_not_kept_cannot_be_had_later(tmp_path):
    run = train(config(tmp_path, kimg=0.32))
    with pytest.raises(ConfigError, match=r"at 0\.32 kimg and has kept no snapshot at 0\.16"):
        train(config(tmp_path, kimg=0.32, snapshots=(0.16,)))
    assert run.is_finished


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"dropout": 0.2}, marks=pytest.mark.slow),
        {"dropout": 0.2, "augment": 0.3, "flip": True},
    ],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, options, capsys):
    whole = train(config(tmp_path, out=str(tmp_path / "whole"), snapshots=(0.8,), **options))
    stopped = config(tmp_path, snapshots=(0.8,), **options)
    with monkeypatch.context() as patch:
        stop_at(patch, 69)
        with pytest.raises(SystemExit) as caught:
            train(stopped)
    assert caught.value.code == 143
    assert "stopped at 1.12 of 1.6 kimg; the same command continues" in capsys.readouterr().err
    run = train(stopped)
    assert [(s["first_step"], s["last_step"]) for s in run.provenance["sessions"]] == [(0, 70), (70, 100)]
    assert_same_weights(run, whole)
    assert numbers(run) == numbers(whole)


def test_ctrl_c_saves_and_interrupts(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    stop_at(monkeypatch, 9, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r"stopped at 0\.16 of 1\.6 kimg"):
        train(config(tmp_path))
    assert signal.getsignal(signal.SIGINT) is before
    (run_path,) = (tmp_path / "runs").iterdir()
    assert load_tensors(run_path / "state.safetensors", kind="gausslens training state")[1]["step"] == 10


@pytest.mark.slow
def test_a_killed_run_goes_on_from_just_before(tmp_path):
    options = {"kimg": 6.4, "snapshots": (1.6,)}
    words = [f"{name}={value!r}" for name, value in options.items()]
    # Standard error goes nowhere: nobody reads it while the process runs.
    process = subprocess.Popen([sys.executable, SCRIPT, str(tmp_path), *words], stderr=subprocess.DEVNULL)
    deadline, saved = time.monotonic() + 60, 0
    while saved < 150 and time.monotonic() < deadline:
        for state in (tmp_path / "runs").glob("*/state.safetensors"):
            saved = load_tensors(state, kind="gausslens training state")[1]["step"]
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 150 <= saved < 400
    run = train(config(tmp_path, **options))
    first, second = run.provenance["sessions"]
    assert first["first_step"] == 0
    assert saved <= second["first_step"] < 400  # at least what was seen on disk is kept, and the end was not reached
    assert second["last_step"] == 400
    whole = train(config(tmp_path, out=str(tmp_path / "whole"), **options))
    assert_same_weights(run, whole)
    assert numbers(run) == numbers(whole)
    assert not list(run.path.rglob(".*.partial"))


def test_divergence_is_named_and_nothing_broken_is_kept(tmp_path):
    with pytest.raises(GausslensError, match=r"training diverged: .* at step \d+ \(") as caught:
        train(config(tmp_path, learning_rate=1e18, ramp_kimg=0, snapshots=(0,)))
    message = str(caught.value)
    assert re.search(r"noise levels [\d.e-]+ to [\d.e+]+, learning rate 1e\+18", message)
    assert "smaller learning rate" in message
    (path,) = (tmp_path / "runs").iterdir()
    for file in path.rglob("*.safetensors"):
        kind = "gausslens training state" if file.name == "state.safetensors" else "gausslens snapshot"
        tensors, _ = load_tensors(file, kind=kind)
        assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert load_denoiser(path, kimg=0)(torch.zeros(1, 1, 8, 8), 1.0).isfinite().all()


def test_divergence_is_found_at_its_step(tmp_path, monkeypatch):
    update = sessions.Session._update
    monkeypatch.setattr(
        sessions.Session, "_update", lambda self, batch: update(self, batch) * (math.nan if self.step == 36 else 1)
    )
    with pytest.raises(GausslensError, match=r"the loss is nan at step 37 \(0\.592 kimg;"):
        train(config(tmp_path))


def test_a_full_disk_is_one_clear_sentence(tmp_path):
    run = train(config(tmp_path, kimg=0.16))
    state = (run.path / "state.safetensors").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(state) // 2, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"could not write .*safetensors: .*has room"):
            train(config(tmp_path, kimg=0.32))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (run.path / "state.safetensors").read_bytes() == state
    assert run.snapshots == [0.16]
    assert train(config(tmp_path, kimg=0.32)).snapshots == [0.16, 0.32]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        MemoryError(),
    ],
)
def test_too_little_memory_is_one_clear_sentence(tmp_path, monkeypatch, error):
    def fail(self, batch):
        raise error

    monkeypatch.setattr(sessions.Session, "_update", fail)
    with pytest.raises(
        OutOfMemoryError, match="memory does not suffice for unet with a batch of 16 images: use a smaller"
    ):
        train(config(tmp_path))


def test_other_errors_keep_their_words(tmp_path, monkeypatch):
    def fail(self, batch):
        raise RuntimeError("something else")

    monkeypatch.setattr(sessions.Session, "_update", fail)
    with pytest.raises(RuntimeError, match="something else"):
        train(config(tmp_path))


def test_a_run_that_is_being_written_is_left_alone(tmp_path):
    run = train(config(tmp_path, kimg=0.16))
    with run.locked(), pytest.raises(CheckpointError, match="another process is writing"):
        train(config(tmp_path))


def test_a_state_of_another_network_is_refused(tmp_path):
    run = train(config(tmp_path, kimg=0.16))
    other = train(config(tmp_path, kimg=0.16, width=16))
    (other.path / "state.safetensors").replace(run.path / "state.safetensors")
    with pytest.raises(CheckpointError, match="does not fit the network"):
        train(config(tmp_path, kimg=0.32))


def test_labels_are_learned_and_asked_for(tmp_path):
    with pytest.raises(DataError, match=r"squares\.npy has none"):
        train(config(tmp_path, labels=True))
    run = train(replace(config(tmp_path, labels=True, kimg=0.16, held_out=100), data="digits"))
    denoiser = load_denoiser(run)
    x = torch.zeros(2, 1, 8, 8)
    first, second = denoiser(x, 1.0, torch.tensor([0, 1]))
    assert not torch.equal(first, second)


def test_one_noise_level_is_trained_on_the_plain_error(tmp_path):
    run = train(config(tmp_path, network="linear", width=None, multipliers=None, blocks=None, sigma=0.5, kimg=6.4))
    assert run.config.preconditioning == "none"
    losses = [record["value"] for record in run.records() if record["quantity"] == "loss"]
    denoiser = load_denoiser(run, ema=False)
    torch.testing.assert_close(denoiser(torch.ones(2, 1, 8, 8), 0.5)[0], denoiser(torch.ones(2, 1, 8, 8), 9.0)[0])
    # Copying the input costs σ² = 0.25, as a linear network does at first; that of Eq. (52) would begin at λ·0.25 = 2.
    assert losses[-1] < 0.15
    assert losses[0] < 0.3


def test_the_caller_s_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(config(tmp_path, kimg=0.16, dropout=0.1))
    assert torch.equal(torch.rand(3), expected)


def test_trackers_are_told(tmp_path, monkeypatch):
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker

    class Notes(GeneralTracker):
        name, requires_logging_directory = "notes", False
        told, finished = [], False

        @property
        def tracker(self):
            return self

        def store_init_configuration(self, values):
            self.told.append(values)

        def log(self, values, step=None, **kwargs):
            self.told.append({**values, "step": step})

        def finish(self):
            type(self).finished = True

    monkeypatch.setattr(running, "_accelerator", lambda config: Accelerator(log_with=Notes()))
    run = train(config(tmp_path, tracker="notes"))
    assert Notes.told[0]["batch"] == 16
    assert [told["step"] for told in Notes.told[1:]] == [50, 100]
    assert Notes.told[-1]["loss"] == [r["value"] for r in run.records() if r["quantity"] == "loss"][-1]
    assert Notes.finished


def test_trackers_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"tracker must be one of .*tensorboard.*; got 'abacus'"):
        train(config(tmp_path, tracker="abacus"))
    with pytest.raises(MissingExtraError, match="pip install swanlab"):
        train(config(tmp_path, tracker="swanlab"))


def test_a_progress_bar_shows_speed_and_loss(tmp_path, capsys):
    train(config(tmp_path, kimg=3.2), progress=True)
    shown = capsys.readouterr().err
    assert re.search(r"kimg \[[\d:]+<[\d:]+, \d+ img/s, loss \d\.\d{4}\]", shown)
    assert "/3.2 kimg" in shown


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_learn_what_one_does(tmp_path):
    alone = train(config(tmp_path))
    path, records = json.loads(run_on_two(SCRIPT, tmp_path, f"out={str(tmp_path / 'two')!r}"))
    assert Path(path).name == alone.path.name
    together = [(r["quantity"], r["step"], r["value"]) for r in records if r["quantity"] not in TIMES]
    expected = [(r["quantity"], r["step"], r["value"]) for r in numbers(alone)]
    assert [t[:2] for t in together] == [e[:2] for e in expected]
    for (*_, value), (*_, other) in zip(together, expected, strict=True):
        assert value == pytest.approx(other, rel=1e-5)


def test_a_batch_that_processes_cannot_share_is_refused(tmp_path, monkeypatch):
    three = SimpleNamespace(num_processes=3, is_main_process=True, main_process_first=nullcontext)
    monkeypatch.setattr(running, "_accelerator", lambda config: three)
    with pytest.raises(ConfigError, match="must divide evenly among 3 processes; got 16"):
        train(config(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"batch": 5000, "kimg": 1}, "more than the whole run"), ({"split": "held-out"}, "tested on")],
)
def test_what_cannot_be_meant_is_refused(options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(config(tmp_path, **options))


def test_other_labels_are_another_run_and_are_missed(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)
    source, runs = tmp_path / "images.npz", []
    for shift in (0, 1):
        np.savez(source, images=images, labels=(np.arange(60) + shift) % 3)
        runs.append(train(replace(config(tmp_path, kimg=0.2, labels=True), data=str(source))))
    assert runs[0].path != runs[1].path
    assert runs[0].manifest["classes"] == [0, 1, 2]
    load_run_images(runs[1])
    with pytest.raises(DataError, match="expected the labels"):
        load_run_images(runs[0])


def test_images_that_were_moved_are_found_by_the_next_command(tmp_path):
    run = train(config(tmp_path, kimg=0.16))
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "squares.npy").rename(tmp_path / "elsewhere" / "squares.npy")
    again = train(replace(run.config, data=str(moved)))
    assert again.path == run.path
    assert len(load_run_images(again).train) == 50


def test_what_a_network_refuses_leaves_no_folder(tmp_path):
    with pytest.raises(GausslensError):
        train(config(tmp_path, network="adm", multipliers=(1, 2, 2, 2, 2, 2)))
    assert not list((tmp_path / "runs").glob("*"))


def test_lengths_have_as_many_digits_as_names_of_snapshots(tmp_path):
    run = train(config(tmp_path, kimg=0.3333333333333333, snapshots=(0.1111111111111111,)))
    assert run.is_finished
    count = len(run.records())
    assert len(train(config(tmp_path, kimg=0.3333333333333333, snapshots=(0.1111111111111111,))).records()) == count
