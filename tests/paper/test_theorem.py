"""The theorem's check agrees with the algebra where it is true, and tells where it is not."""

import pytest
import torch

from gausslens.denoisers.gaussian import GaussianDenoiser
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.paper.config import StudyConfig
from gausslens.paper.run import plan_study
from gausslens.paper.tasks.theorem import check_theorem, residuals


@pytest.fixture(name="images")
def draw_images():
    return torch.rand(40, 1, 3, 3, generator=torch.Generator().manual_seed(0)).double() * 2 - 1


def test_both_ways_end_at_the_wiener_filter(images):
    found = residuals(images, 1.5)
    assert set(found) == {"optimum", "gradient descent"}
    assert 0 < max(found.values()) < 1e-10


def test_images_of_hardly_any_mean_have_hardly_any_bias_and_end_there_too(images):
    centred = (images - images.mean(0) + 1e-6).clamp(-1, 1)
    assert max(residuals(centred, 0.1).values()) < 1e-10


def test_another_filter_is_told_apart(images, monkeypatch):
    true = GaussianDenoiser.weight
    monkeypatch.setattr(GaussianDenoiser, "weight", lambda self, sigma: true(self, 1.001 * sigma))
    assert min(residuals(images, 1.5).values()) > 1e-6


def test_levels_that_would_take_too_long_are_left_out(images):
    few = images[:5]  # of fewer dimensions than pixels have, so that conditioning is by σ²
    assert set(residuals(few, 1e-2)) == {"optimum"}
    assert not residuals(few, 1e-4)


def test_the_task_judges_every_level_it_can(tmp_path):
    plan = plan_study(StudyConfig(data="digits"))
    task = plan.on_images(check_theorem, split=False, cost=2.0)
    assert not run_tasks([task], tmp_path, on="here").failed
    records = TaskStore(tmp_path).result(task).records
    of_kind = {kind: [r["sigma"] for r in records if r["kind"] == kind] for kind in ("optimum", "gradient descent")}
    assert len(of_kind["optimum"]) >= 8
    assert len(of_kind["gradient descent"]) >= 4
    assert all(record["value"] <= 1e-10 for record in records)
