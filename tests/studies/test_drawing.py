"""Captions say how much stands behind a figure."""

import pytest

from gausslens.studies.claims.evidence import Evidence
from gausslens.studies.drawing import trainings


@pytest.mark.parametrize(
    ("seeds", "words"),
    [([3], "1 training seed"), ([0, 1000, 1, 1001], "2 training seeds"), ([None], "0 training seeds")],
)
def test_captions_count_the_trainings_that_are_there(seeds, words):
    assert trainings(Evidence({"quantity": "x", "value": 0.0, "seed": seed} for seed in seeds)) == words
