"""What is said of the images themselves."""

import numpy as np
import pytest

from gausslens.data.splits import Splits
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.config import StudyConfig
from gausslens.paper.run import plan_study
from gausslens.paper.tasks.dataset_stats import describe_images, format_duplicates


@pytest.fixture(name="records")
def describe(tmp_path):
    """Of 120 random images, 30 held out, with three repeated among those to train on and two among those held out."""
    images = np.random.default_rng(0).integers(0, 256, (120, 8, 8, 3), dtype=np.uint8)
    splits = Splits(120, held_out=30, seed=0)
    available, unseen = splits.named("all"), splits.held_out
    images[available[10:13]] = images[available[0]]
    images[unseen[0]] = images[available[40]]
    images[unseen[1]] = np.clip(images[available[50]].astype(int) + 5, 0, 255)
    np.savez(tmp_path / "images.npz", images=images)
    task = plan_study(StudyConfig(str(tmp_path / "images.npz"), held_out=30, cpu=True)).on_images(describe_images)
    assert not run_tasks([task], tmp_path / "cells", on="here").failed
    return TaskStore(tmp_path / "cells").result(task).records, images[available]


def test_repeated_images_are_counted(records):
    found, available = records
    by_name = {(record["quantity"], record.get("on")): record for record in found}
    assert by_name["duplicates", "train"] == {"quantity": "duplicates", "value": 3, "count": 90, "on": "train"}
    assert by_name["duplicates", "held_out"] == {"quantity": "duplicates", "value": 2, "count": 30, "on": "held_out"}
    assert by_name["dim", None]["value"] == 192
    expected = np.sqrt(np.mean((available / 127.5 - 1) ** 2))
    assert by_name["data_rms", None]["value"] == pytest.approx(expected)


def test_they_are_said(records):
    found, _ = records
    said = format_duplicates(Evidence(found))
    assert "of the 90 images" in said
    assert "3 repeat another one" in said
    assert "of the 30 held-out images, 2 repeat a training image" in said
    none = format_duplicates(Evidence([{**record, "value": 0} for record in found]))
    assert none.startswith(" No exact or near duplicates")
    assert "the 90 images" in none
    assert "the 30 held-out images" in none
    assert format_duplicates(Evidence([])) == ""
