"""The config: what it refuses, what it fills in, and what makes two runs the same."""

import dataclasses
import subprocess
import sys
import typing

import pytest

from gausslens import ConfigError, TrainConfig

CIRCUMSTANCES = {
    "data": "elsewhere",
    "size": 8,
    "value_range": (0.0, 1.0),
    "skip_broken": True,
    "groups": "images.csv:patient",
    "kimg": 7.0,
    "snapshots": (1.0,),
    "monitor": True,
    "stop_when_memorizing": True,
    "compile": True,
    "cpu": True,
    "tracker": "wandb",
    "out": "there",
}
SEMANTIC = {
    "split": "100",
    "held_out": 3,
    "split_seed": 1,
    "network": "ncsnpp",
    "width": 8,
    "multipliers": (1, 1),
    "blocks": 1,
    "attention": (4,),
    "dropout": 0.1,
    "augment": 0.1,
    "flip": True,
    "labels": True,
    "preconditioning": "ve",
    "sigma": 1.0,
    "level_mean": -1.0,
    "level_spread": 1.0,
    "batch": 3,
    "learning_rate": 0.5,
    "ramp_kimg": 0.5,
    "ema_kimg": 0.25,
    "seed": 1,
    "precision": "bf16",
}


def test_every_field_is_of_one_of_the_two_groups():
    assert CIRCUMSTANCES.keys() | SEMANTIC.keys() == {field.name for field in dataclasses.fields(TrainConfig)}
    assert CIRCUMSTANCES.keys().isdisjoint(SEMANTIC)


@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_circumstances_do_not_make_another_run(name):
    config = TrainConfig("digits").resolve((1, 8, 8))
    assert dataclasses.replace(config, **{name: CIRCUMSTANCES[name]}).identity("ab") == config.identity("ab")


@pytest.mark.parametrize("name", SEMANTIC)
def test_what_changes_the_weights_makes_another_run(name):
    config = TrainConfig("digits").resolve((1, 8, 8))
    assert dataclasses.replace(config, **{name: SEMANTIC[name]}).identity("ab") != config.identity("ab")


def test_the_identity_knows_the_images_and_not_who_chose():
    config = TrainConfig("digits").resolve((1, 8, 8))
    assert config.identity("ab") != config.identity("cd")
    chosen = TrainConfig("digits", batch=config.batch, preconditioning="edm").resolve((1, 8, 8))
    assert chosen.identity("ab") == config.identity("ab")
    one, same = (TrainConfig("digits", learning_rate=rate).resolve((1, 8, 8)) for rate in (1, 1.0))
    assert one.identity("ab") == same.identity("ab")
    assert (
        len({config.identity("ab", *hashes) for hashes in [(), ("cd",), (None, "cd"), ("cd", "ef"), (None, "ef")]}) == 5
    )
    assert len(config.identity("ab")) == 8
    int(config.identity("ab"), 16)


@pytest.mark.parametrize("network", typing.get_args(typing.get_type_hints(TrainConfig)["network"]))
@pytest.mark.parametrize("size", [8, 32, 64])
def test_resolving_leaves_nothing_open_and_keeps_what_was_given(network, size):
    config = TrainConfig("digits", network=network, learning_rate=0.25).resolve((3, size, size))
    assert None not in config.recipe
    assert config.learning_rate == 0.25
    assert config.preconditioning == "edm"
    assert config.resolve((3, size, size)) == config


def test_one_noise_level_needs_no_preconditioning():
    assert TrainConfig("digits", sigma=1.0).resolve((1, 8, 8)).preconditioning == "none"
    assert TrainConfig("digits", sigma=1.0, preconditioning="edm").resolve((1, 8, 8)).preconditioning == "edm"


def test_an_open_config_has_no_recipe():
    with pytest.raises(ConfigError, match="batch is still open"):
        TrainConfig("digits").recipe  # noqa: B018


def test_steps_are_whole_batches():
    config = TrainConfig("digits", batch=300, kimg=1.0).resolve((1, 8, 8))
    assert config.steps == 4
    assert [config.step_at(kimg) for kimg in (0, 0.3, 0.301, 0.6)] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", ""),
        ("network", "resnet"),
        ("preconditioning", "flow"),
        ("precision", "fp16"),
        ("batch", 0),
        ("batch", 1.5),
        ("batch", True),
        ("width", -4),
        ("multipliers", (1, 0)),
        ("dropout", 1.0),
        ("augment", -0.1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("kimg", float("inf")),
        ("kimg", "10"),
        ("sigma", -1.0),
        ("level_mean", float("inf")),
        ("level_spread", 0.0),
        ("snapshots", (-1.0,)),
        ("value_range", (1.0, 0.0)),
        ("value_range", (1.0,)),
        ("seed", -1),
        ("groups", ""),
        ("groups", 3),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_value(field, value):
    with pytest.raises(ConfigError, match=field) as caught:
        TrainConfig(**{"data": "digits", field: value})
    assert (", ".join(map(str, value)) if isinstance(value, tuple) else repr(value)) in str(caught.value)


def test_a_snapshot_after_the_end_is_refused():
    with pytest.raises(ConfigError, match=r"snapshots must be at most kimg, which is 5\.0; got \(2\.0, 6\.0\)"):
        TrainConfig("digits", kimg=5, snapshots=(6, 2))


def test_lists_become_tuples_and_snapshots_are_sorted():
    config = TrainConfig("digits", multipliers=[1, 2], snapshots=[3, 1, 3])
    assert config.multipliers == (1, 2)
    assert config.snapshots == (1.0, 3.0)


def test_the_config_is_frozen_and_imports_no_torch():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig("digits").seed = 1
    program = "import sys; from gausslens import TrainConfig; TrainConfig('digits'); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "False\n"
