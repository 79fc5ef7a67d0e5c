"""The monitor as a Lightning callback."""

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_monitor import HELD_OUT, TRAIN, mixture
from two_processes import run_on_two

from gausslens import MissingExtraError
from gausslens.monitor.lightning import monitoring_callback
from gausslens.monitor.monitor import GeneralizationMonitor


def test_without_lightning_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(MissingExtraError, match="pip install lightning"):
        monitoring_callback(GeneralizationMonitor(TRAIN))


class Eager(GeneralizationMonitor):
    def update(self, denoiser, step, total=None):
        return self.look(denoiser, step)


def growing():
    """A module whose denoiser goes from the Gaussian to the multi-delta one in four steps."""
    lightning = pytest.importorskip("lightning.pytorch")

    class Growing(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x, sigma):
            return mixture(min(1.0, 0.25 * float(self.weight)))(x, sigma)

        def training_step(self, batch, index):
            return -self.weight.sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    return Growing()


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_is_watched_and_stopped(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    def trainer(callback, steps):
        return lightning.Trainer(
            accelerator="cpu",
            callbacks=[callback],
            max_steps=steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )

    monitor = Eager(TRAIN, HELD_OUT)
    callback = monitoring_callback(monitor, keep=tmp_path / "kept", stop=True)
    first = trainer(callback, 50)
    batches = torch.utils.data.DataLoader(torch.zeros(50, 1), batch_size=1)
    first.fit(growing(), batches)
    assert monitor.should_stop
    assert first.global_step == len(monitor.looks) < 10
    assert (tmp_path / "kept" / f"step-{monitor.recommended}.ckpt").exists()
    kept = {int(path.stem.removeprefix("step-")) for path in (tmp_path / "kept").iterdir()}
    assert kept == set(monitor.looks[-1]["wanted"])

    again = Eager(TRAIN, HELD_OUT)
    resumed = monitoring_callback(again, keep=tmp_path / "kept")
    resumed.load_state_dict(callback.state_dict())
    assert again.recommended == monitor.recommended
    assert set(resumed.kept) == kept


class Trainer:
    """As much of Lightning's as a callback sees, so that it is tested without Lightning, too."""

    def __init__(self, total=math.inf, world_size=1):
        self.is_global_zero, self.world_size, self.should_stop = True, world_size, False
        self.estimated_stepping_batches, self.global_step = total, 0
        self.strategy = SimpleNamespace(broadcast=lambda values: values)
        self.logged, self.saved = {}, []
        self.loggers = [SimpleNamespace(log_metrics=lambda numbers, step: self.logged.update({step: numbers}))]

    def save_checkpoint(self, path):
        self.saved.append(path.name)

    def fit(self, callback, module, steps):
        for self.global_step in range(1, steps + 1):
            callback.on_train_batch_end(self, module, None, None, 0)
            if self.should_stop:
                break
        callback.on_train_end(self, module)
        return self


@pytest.fixture
def no_lightning(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace(Callback=object))


@pytest.mark.usefixtures("no_lightning")
@pytest.mark.parametrize("total", [math.inf, 5])
def test_the_end_of_training_is_looked_at_and_kept(tmp_path, total):
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=4)
    trainer = Trainer(total).fit(monitoring_callback(monitor, keep=tmp_path), mixture(0.0), 5)
    assert [look["step"] for look in monitor.looks] == [5]
    assert trainer.saved == ["step-5.ckpt"]
    assert trainer.logged[5]["monitor/gaussian_rmse"] == pytest.approx(0, abs=1e-4)


@pytest.mark.usefixtures("no_lightning")
def test_the_others_are_told_what_the_first_process_saw_at_the_end(tmp_path):
    monitor, trainer = GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=4), Trainer(world_size=2)
    trainer.is_global_zero = False
    trainer.strategy.broadcast = lambda values: ((5, True, [5]), False)
    monitoring_callback(monitor, keep=tmp_path).on_train_end(trainer, mixture(0.0))
    assert monitor.looks == []
    assert trainer.saved == ["step-5.ckpt"]


def broken(*unused, **unused_too):
    raise OSError("boom")


@pytest.mark.usefixtures("no_lightning")
@pytest.mark.parametrize("part", ["denoiser", "factory", "logger", "checkpoint", "total"])
def test_nothing_that_fails_ends_a_training(tmp_path, caplog, part):
    class Unclear(Trainer):
        @property
        def estimated_stepping_batches(self):
            return broken() if part == "total" else 3

        @estimated_stepping_batches.setter
        def estimated_stepping_batches(self, value):
            pass

    monitor, trainer = GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=4), Unclear()
    if part == "logger":
        trainer.loggers[0].log_metrics = broken
    if part == "checkpoint":
        trainer.save_checkpoint = broken
    callback = monitoring_callback(
        monitor, keep=tmp_path, denoiser=broken if part == "factory" else lambda module: module
    )
    trainer.fit(callback, broken if part == "denoiser" else mixture(0.0), 3)
    assert trainer.global_step == 3
    assert len(monitor.looks) == (part not in ("denoiser", "factory"))
    assert [record.message.count("OSError: boom") for record in caplog.records] == [1]


@pytest.mark.usefixtures("no_lightning")
def test_with_several_processes_a_checkpoint_that_fails_lets_nobody_wait(tmp_path):
    trainer = Trainer(world_size=2)
    trainer.save_checkpoint = broken
    callback = monitoring_callback(GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=4), keep=tmp_path)
    with pytest.raises(OSError, match="boom"):
        trainer.fit(callback, mixture(0.0), 3)


@pytest.mark.usefixtures("no_lightning")
def test_a_checkpoint_of_another_monitor_ends_no_training(caplog):
    state = monitoring_callback(GeneralizationMonitor(TRAIN, HELD_OUT, count=5)).state_dict()
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, count=4)
    monitoring_callback(monitor).load_state_dict(state)
    assert "other options" in monitor.failure


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_watched_by_one_and_stopped_together(tmp_path):
    pytest.importorskip("lightning.pytorch")
    run_on_two(Path(__file__).with_name("lightning_on_two.py"), tmp_path)
    (steps, recommended), (others, _) = ((tmp_path / f"{rank}.txt").read_text().split() for rank in (0, 1))
    assert steps == others
    assert int(steps) < 10
    assert (tmp_path / "kept" / f"step-{recommended}.ckpt").exists()
