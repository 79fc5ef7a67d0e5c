"""What tasks do with models: what is trained is sampled and measured, and every record says of which model it is."""

import numpy as np
import pytest
import torch

from gausslens import GausslensError, load_denoiser
from gausslens.errors import DivergedError
from gausslens.evaluation.model_tasks import measure_model, run_of, sample_model, train_model
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import Task, TaskStore

CONFIG = {"split": "64", "width": 4, "kimg": 1, "batch": 32, "snapshots": [0.5], "seed": 0}
WHERE = {"data": "digits"}


@pytest.fixture(name="grid", scope="module")
def run_a_small_grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    model = Task(train_model, {"config": CONFIG, "content_hash": "any"}, runtime=WHERE)
    samples = [Task(sample_model, {"samples": 6, "steps": 4} | kimg, (model,)) for kimg in ({"kimg": 0.5}, {})]
    options = {"measures": ["linearity"], "sigmas": (1.0,), "count": 8}
    measured = Task(measure_model, options, (model,))
    outcome = run_tasks([*samples, measured], folder, on="here")
    assert not outcome.failed, outcome.failed
    store = TaskStore(folder)
    return store.result(model), [store.result(task) for task in samples], store.result(measured)


def test_the_trained_model_can_be_loaded(grid):
    model, _, _ = grid
    run = run_of(model)
    assert run.snapshots == [0.5, 1.0]
    assert load_denoiser(run)(torch.zeros(2, 1, 8, 8), 1.0).shape == (2, 1, 8, 8)


def test_every_record_names_its_model(grid):
    model, samples, measured = grid
    for result, kimg in ((samples[0], 0.5), (samples[1], 1.0), (measured, 1.0)):
        for record in result.records:
            assert (record["n"], record["seed"], record["width"]) == (64, 0, 4)
            assert record["kimg"] == kimg
    assert {record["quantity"] for record in model.records} >= {"loss", "denoising_loss"}
    assert {record["on"] for record in measured.records if record["quantity"] == "linearity_cosine"} >= {"held_out"}


def test_samples_are_of_the_snapshot_asked_for(grid):
    _, (early, late), _ = grid
    assert early.arrays["network"].shape == early.arrays["nearest"].shape == (6, 1, 8, 8)
    assert early.arrays["network"].dtype == torch.uint8
    assert not torch.equal(early.arrays["network"], late.arrays["network"])


def test_a_stopped_training_under_another_name_is_no_matter(tmp_path):
    images = torch.randint(256, (80, 1, 8, 8), generator=torch.Generator().manual_seed(0)).byte().numpy()
    for name in ("photos", "pictures"):
        np.save(tmp_path / f"{name}.npy", images)

    def task(name):
        where = {"data": str(tmp_path / f"{name}.npy")}
        config = {**CONFIG, "split": "40", "held_out": 20, "kimg": 0.5, "snapshots": []}
        return Task(train_model, {"config": config, "content_hash": "any"}, runtime=where)

    run_tasks([task("photos")], tmp_path / "cells", on="here")
    store = TaskStore(tmp_path / "cells")
    folder = store.result(task("photos")).folder
    (folder / "done.json").unlink()  # as if it had been stopped
    for path in folder.glob("snapshots/*"):
        path.unlink()
    outcome = run_tasks([task("pictures")], tmp_path / "cells", on="here")
    assert not outcome.failed
    run = run_of(store.result(task("pictures")))
    assert run.path == folder
    assert run.is_finished


def test_a_model_that_has_collapsed_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "gausslens.evaluation.model_tasks.collapse_warning", lambda records: "training has collapsed: a test."
    )
    options = {"config": CONFIG, "content_hash": "any"}
    model = Task(train_model, options, runtime=WHERE)
    outcome = run_tasks([model], tmp_path, on="here")
    assert [type(error) for error in outcome.failed.values()] == [GausslensError]
    assert not TaskStore(tmp_path).is_done(model)


@pytest.mark.parametrize(("device", "attempts"), [("cuda", 2), ("cpu", 1)])
def test_a_training_that_diverges_on_a_gpu_goes_on_once(device, attempts, tmp_path, monkeypatch):
    begun = []

    def train_and_diverge(config, *, report, folder):
        begun.append(config)
        raise DivergedError("training diverged: the loss is nan.")

    monkeypatch.setattr("gausslens.evaluation.model_tasks.train", train_and_diverge)
    monkeypatch.setattr("gausslens.experiments.task.best_device", lambda *, cpu: torch.device(device))
    monkeypatch.setattr("gausslens.experiments.task.describe_machine", lambda device: {})  # there may be none such
    task = Task(train_model, {"config": CONFIG, "content_hash": "any"}, runtime=WHERE)
    outcome = run_tasks([task], tmp_path, on="here")
    assert isinstance(outcome.failed[task], DivergedError)
    assert len(begun) == attempts
    assert all(config == begun[0] for config in begun)
