"""A task is found again by its registered name and version, wherever its function lives."""

import pytest

from gausslens.experiments.keys import KEYS_OF_0_1
from gausslens.experiments.task import Task, task


def test_a_task_of_0_1_has_the_identity_that_it_had():
    # As 0.1 computed it: sha256 of ["gausslens.paper.models:train_model", 1, {"a": 1}, []].
    from gausslens.evaluation.model_tasks import train_model

    assert KEYS_OF_0_1["train_model"] == "gausslens.paper.models:train_model"
    assert Task(train_model, {"a": 1}).identity == "b12395f9702c"


def test_a_new_task_has_the_identity_of_its_name_and_version():
    @task("of this test", version=1)
    def first(context):
        return []

    @task("of this test", version=2)
    def second(context):
        return []

    assert Task(first).identity != Task(second).identity
    assert Task(first).identity == Task(first).identity
    assert Task(first).name.startswith("of this test-")


def test_two_tasks_cannot_share_a_name():
    def stranger(context):
        return []

    stranger.__module__ = "elsewhere"
    with pytest.raises(ValueError, match="two tasks are named 'train_model'"):
        task("train_model", version=1)(stranger)
