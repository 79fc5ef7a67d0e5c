"""`gausslens how-many`: rounds, the answer in words, JSON and a page, and going on."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gausslens import ConfigError
from gausslens.cli import GlobalOptions
from gausslens.cli.how_many import Options, run
from gausslens.sample_size import how_many as running
from gausslens.sample_size.config import HowManyConfig
from gausslens.sample_size.how_many import growing_sizes, how_many, sizes_around


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Networks that learn nothing in no time."""
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))
    for name, value in (("_TIMES", (1 / 2,)), ("_COUNT", 10), ("_NOISES", 1), ("_STEPS", 4)):
        monkeypatch.setattr(running, name, value)
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).integers(0, 256, (120, 1, 8, 8), dtype=np.uint8))
    return HowManyConfig(
        str(tmp_path / "noise.npy"),
        width=4,
        kimg=0.32,
        batch=16,
        sizes=(8, 24, 90),
        seeds=2,
        samples=16,
        on="here",
        out=str(tmp_path / "runs"),
        cpu=True,
    )


def test_sizes_grow_to_all():
    assert growing_sizes(1438) == (16, 32, 64, 128, 256, 512, 1024, 1438)
    assert growing_sizes(64) == (16, 32, 64)
    many = growing_sizes(50_000)
    assert (many[0], many[-1]) == (16, 50_000)
    assert len(many) <= 9


def test_the_second_round_is_around_the_last_size_that_copies():
    assert sizes_around({16: 0.9, 32: 0.5, 64: 0.1, 128: 0.0, 256: 0.0}) == [32, 64, 91, 128]
    assert sizes_around({16: 0.9, 32: 0.0}) == [16, 23, 32]
    assert sizes_around({16: 0.9, 32: 0.5, 64: 0.4}) == [32, 64]
    assert sizes_around({16: 0.0, 32: 0.0, 64: 0.0}) == [16, 32]


def test_it_answers_and_goes_on(config, monkeypatch):
    found = how_many(config)
    assert not found.outcome.failed
    told = json.loads((found.run.path / "answer.json").read_text())
    assert told["version"] == 1
    assert {(network["n"], network["seed"]) for network in told["networks"]} == {
        (8, 0),
        (24, 0),
        (90, 0),
        (8, 1),
        (24, 1),
    }
    assert told["images_needed"].keys() == {"value", "low", "high"}
    assert [onset["n"] for onset in told["onsets"]] == [8, 24, 90]
    assert "does not memorise even with 8" in found.answer.words
    assert 0.5 < told["relative_loss"] < 2
    for relative_loss, hardly in ((1.2, True), (1.0, False)):
        found.answer.relative_loss = relative_loss
        assert ("it has hardly learned: with 90 images" in found.answer.words) == hardly
    assert "Copies among samples" in found.page.read_text()

    def refuse(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("gausslens.training.train.train", refuse)
    again = how_many(config)
    assert again.run.path == found.run.path
    assert {"version": 1, **json.loads(json.dumps(again.answer.as_json()))} == told


@pytest.mark.slow
def test_networks_that_have_hardly_learned_are_told_from_trained_ones(config, monkeypatch):
    monkeypatch.setattr(running, "_COUNT", 100)
    hardly, longer = (
        how_many(replace(config, data="digits", sizes=(8, 64), seeds=1, width=8, learning_rate=5e-3, kimg=kimg)).answer
        for kimg in (0.32, 12.8)
    )
    assert hardly.relative_loss > 1.5 > 1.1 > longer.relative_loss
    assert "hardly learned" in hardly.words
    assert "hardly learned" not in longer.words


def test_seeds_are_trained_on_other_images(config):
    plan = running.plan_study(config.study)
    question = running.Question(config, plan)
    first, second = (question.task(24, seed).needs[0].options["config"] for seed in (0, 1))
    assert first["split_seed"] != second["split_seed"]
    assert first["seed"] != second["seed"]


def test_a_budget_leaves_out_and_says_so(config, capsys):
    run(Options(**{**vars(config), "budget": 1e-6}), GlobalOptions(quiet=True))
    assert "Too few networks are finished" in capsys.readouterr().out


def test_a_dry_run_lists_the_networks(config, capsys):
    run(Options(**vars(config)), GlobalOptions(dry_run=True))
    listed = capsys.readouterr().out
    assert "90 images, seed 0" in listed
    assert "4 sizes around the transition" in listed


def test_what_cannot_be_meant_is_refused(config):
    for changes in ({"seeds": 0}, {"sizes": (5,)}, {"kimg": 0.0}, {"no_images": True, "blur": True}):
        with pytest.raises(ConfigError):
            replace(config, **changes)
    with pytest.raises(ConfigError, match="at most"):
        how_many(replace(config, sizes=(8, 10_000)))
