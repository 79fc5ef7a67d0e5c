import shlex

from gausslens.auditing.config import AuditConfig
from gausslens.cli.audit import Options as AuditOptions
from gausslens.paper.config import StudyConfig
from gausslens.sample_size.config import HowManyConfig
from gausslens.store.typed_command import typed_command, typed_options


def test_options_at_their_defaults_are_not_typed():
    assert typed_options(StudyConfig("digits")) == ""
    assert typed_command("study", "digits", "") == "gausslens study digits"


def test_what_a_shell_would_split_is_quoted():
    config = AuditConfig("my model.pkl", train="my images.npz", held_out="others.npz", seed=3, sigmas=(1.0, 2.5))
    command = typed_command("audit", config.model, typed_options(config))
    assert shlex.split(command) == [
        *("gausslens", "audit", "my model.pkl", "--train", "my images.npz", "--held-out", "others.npz"),
        *("--sigmas", "1.0,2.5", "--seed", "3"),
    ]


def test_a_typed_command_gives_back_what_it_was_typed_from():
    from gausslens.cli.parsing import parse

    config = AuditOptions("m.pkl", train="a b.npz", unseen=50, size=8, value_range=(0.0, 1.0), count=20, augment="flip")
    words = shlex.split(typed_command("audit", config.model, typed_options(config)))[2:]
    parsed, _ = parse(AuditOptions, words, program="gausslens audit")
    assert parsed == config


def test_names_that_are_typed_otherwise_are():
    config = HowManyConfig("x.npz", value_range=(0.0, 1.0), learning_rate=1e-3, skip_broken=True)
    assert typed_options(config) == "--range 0.0 1.0 --skip-broken --learning-rate 0.001"
