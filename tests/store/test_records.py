import json

import pytest
import torch

from gausslens import memorization
from gausslens.monitor.summary import Numbers
from gausslens.store.artifact import Artifact


def test_records_of_0_1_are_read_under_the_current_names(tmp_path):
    old = [{"quantity": name, "value": 1.0} for name in ("gap_rmse", "gl_relative", "memorised_fraction", "loss")]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in old))
    found = [record["quantity"] for record in Artifact(tmp_path).records()]
    assert found == ["rmse", "relative_gl", "memorized_fraction", "loss"]


def test_a_look_is_still_read_by_the_name_of_0_1():
    numbers = Numbers(memorized_fraction=0.5)
    with pytest.warns(DeprecationWarning, match="memorized_fraction"):
        assert numbers["memorised_fraction"] == 0.5
    with pytest.raises(KeyError, match="unknown"):
        numbers["unknown"]


def test_memorization_is_still_read_by_the_name_of_0_1():
    images = torch.rand(4, 1, 2, 2)
    found = memorization(images, images, images)
    with pytest.warns(DeprecationWarning, match="relative_gl"):
        assert found.gl_relative == found.relative_gl
