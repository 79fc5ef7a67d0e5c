"""A task is found again by its registered name and version, wherever its function lives."""

import json
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

from gausslens import evaluation, sample_size
from gausslens.experiments.task import Task, task
from gausslens.paper import tasks

OF_0_1 = json.loads((Path(__file__).parents[1] / "fixtures" / "0.1" / "identities.json").read_text())["tasks"]
NAMES = {known["work"].partition(":")[2] for known in OF_0_1}
WORK = {
    name: getattr(import_module(module.name), name)
    for package in (evaluation, sample_size, tasks)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    for name in vars(import_module(module.name))
    if name in NAMES
}


@pytest.mark.parametrize("known", OF_0_1, ids=lambda known: known["work"].partition(":")[2])
def test_a_task_of_0_1_has_the_identity_that_it_had(known):
    work = WORK[known["work"].partition(":")[2]]
    assert (work.task.key, work.task.version) == (known["work"], known["version"])
    assert Task(work, {"a": 1}).identity == known["identity"]


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
