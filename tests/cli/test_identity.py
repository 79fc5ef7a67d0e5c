"""What a command is known by on disk: changes of the command line must not orphan finished work."""

import pytest

from gausslens.auditing.audit import identity as audit_identity
from gausslens.auditing.context import AuditContext
from gausslens.cli import audit, how_many, measure, study, train
from gausslens.cli.parsing import parse
from gausslens.config import TrainConfig
from gausslens.evaluation.measure import identity as measure_identity
from gausslens.evaluation.measure import resolve
from gausslens.paper.run import identity as study_identity
from gausslens.paper.run import plan_study, tasks_of
from gausslens.sample_size.how_many import Question
from gausslens.store.run import Run


class SomeRun(Run):
    """A run that is on no disk."""

    identity, snapshots = "0a1b2c3d", [1.0, 2.5]


class SomeAudit(AuditContext):
    """A model and its images without either."""

    identity, sample_count = "model and data", 50

    def __init__(self, config):
        vars(self)["config"] = config


def options(verb, *words):
    return parse(verb.Options, words, program="gausslens")[0]


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ([], "1f44a928"),
        (["--width", "8", "--multipliers", "1,2", "--flip", "--held-out", "7", "--kimg", "3", "--cpu"], "7e7b7d48"),
        (["--network", "ncsnpp", "--size", "32", "--range", "0", "1", "--labels", "--precision", "bf16"], "ddff7b05"),
    ],
)
def test_training_runs_keep_their_identity(words, known):
    asked = options(train, "digits", *words)
    config = TrainConfig(**{name: getattr(asked, name) for name in TrainConfig.__dataclass_fields__})
    assert config.resolve((1, 8, 8)).identity("0" * 64) == known


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ([], "bd9f93af"),
        (["--sigmas", "10,1,0.1", "--weights", "raw", "--samples", "100", "--calls", "9", "--cpu"], "00c8e99f"),
    ],
)
def test_measurements_keep_their_identity(words, known):
    trained = SomeRun("runs/r")
    assert measure_identity(resolve(options(measure, "runs/r", *words), trained), trained) == known


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ([], "89f47bbc"),
        (["--train", "x", "--unseen", "9", "--size", "8", "--steps", "4", "--groups", "a(b)"], "30200f1f"),
    ],
)
def test_audits_keep_their_identity(words, known):
    assert audit_identity(SomeAudit(options(audit, "m.pkl", *words))) == known


@pytest.mark.parametrize(
    ("words", "known", "tasks"),
    [
        (["--cpu"], "8a7f8c43", "describe_images-f8911e9d0eac"),
        (
            ["--sizes", "20,100", "--width", "12", "--seeds", "1", "--kimg", "5", "--only", "size"],
            "194038d1",
            "train_model-f5c798d9da0c",
        ),
    ],
)
def test_studies_and_their_tasks_keep_their_identity(words, known, tasks):
    plan = plan_study(options(study, "digits", *words))
    assert study_identity(plan) == known
    assert tasks_of(plan)[0].name == tasks


@pytest.mark.parametrize(
    ("words", "known"), [([], "c30bd615"), (["--width", "12", "--sizes", "20,100", "--held-out", "500"], "a6ab80bf")]
)
def test_answers_of_how_many_keep_their_identity(words, known):
    config = options(how_many, "digits", *words)
    assert Question(config, plan_study(config.study)).identity == known
