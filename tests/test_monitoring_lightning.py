"""The monitor as a Lightning callback."""

import sys
from pathlib import Path

import pytest
import torch
from test_monitoring import HELD_OUT, TRAIN, mixture
from two_processes import run_on_two

from gausslens import MissingExtraError
from gausslens.monitoring import GeneralizationMonitor
from gausslens.monitoring_lightning import monitoring_callback


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


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_watched_by_one_and_stopped_together(tmp_path):
    pytest.importorskip("lightning.pytorch")
    run_on_two(Path(__file__).with_name("lightning_on_two.py"), tmp_path)
    (steps, recommended), (others, _) = ((tmp_path / f"{rank}.txt").read_text().split() for rank in (0, 1))
    assert steps == others
    assert int(steps) < 10
    assert (tmp_path / "kept" / f"step-{recommended}.ckpt").exists()
