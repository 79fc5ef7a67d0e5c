"""Plans: numbers that follow from the images, and tasks that are shared."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from gausslens.cli.parsing import parse
from gausslens.cli.study import Options
from gausslens.config import TrainConfig
from gausslens.data.loading import load_images
from gausslens.errors import ConfigError
from gausslens.experiments.costs import seconds_to_train
from gausslens.paper.config import DEFAULT_STUDIES, STUDIES, StudyConfig
from gausslens.paper.plan import Plan, make_plan
from gausslens.paper.run import identity, plan_study, tasks_of
from gausslens.paper.tasks.dataset_stats import describe_images
from gausslens.store.typed_command import typed_options


def plan(**options):
    return make_plan(StudyConfig("digits", **options), load_images("digits"))


def test_sizes_reach_from_few_images_to_all_with_half_of_them_among():
    made = plan()
    assert made.sizes == (10, 48, 186, 719, 1438)
    assert made.available == 1438
    assert made.few in made.sizes
    assert made.width in made.widths


def test_training_sets_of_at_most_half_are_the_first_of_two_disjoint_ones():
    made = plan()
    assert [made.split(n) for n in made.sizes] == ["s1:10", "s1:48", "s1:186", "s1:719", "1438"]
    assert made.split(64, half=2) == "s2:64"


def test_the_same_model_is_the_same_task():
    made, again = plan(), plan()
    assert made.model(64, 0).identity == again.model(64, 0).identity
    others = [made.model(64, 1), made.model(64, 0, half=2), made.model(64, 0, width=4), made.model(10, 0)]
    others += [made.model(64, 0, preconditioning="ve")]
    assert len({task.identity for task in (made.model(64, 0), *others)}) == 6


def test_models_of_the_two_halves_do_not_share_a_seed():
    made = plan()
    first, second = (made.model(16, seed, half=half).options["config"]["seed"] for seed, half in ((2, 1), (2, 2)))
    assert first != second


def test_where_the_data_lies_does_not_change_a_task():
    made = plan()
    moved = Plan.from_json(asdict(made) | {"data": "/elsewhere/digits.npz", "cpu": True})
    assert moved.model(64, 0).identity == made.model(64, 0).identity
    assert moved.measured(moved.model(64, 0), "gap").identity == made.measured(made.model(64, 0), "gap").identity
    assert moved.model(64, 0).runtime["data"] == "/elsewhere/digits.npz"


def test_other_content_changes_every_task():
    made = plan()
    other = Plan.from_json(asdict(made) | {"content_hash": "another"})
    assert other.model(64, 0).identity != made.model(64, 0).identity


def test_how_many_images_are_measured_does_not_change_what_is_trained():
    few, many = plan(count=10), plan(count=20)
    assert few.model(64, 0).identity == many.model(64, 0).identity
    assert few.sampled(few.model(64, 0)).identity != many.sampled(many.model(64, 0)).identity


def test_snapshots_are_kept_for_the_studies_that_look_at_them():
    made = plan()
    kept = {n: made.model(n, 0).options["config"]["snapshots"] for n in made.sizes}
    assert set(made.times[:-1]) <= set(kept[made.few])
    assert set(made.times[:-1]) <= set(kept[made.sizes[-1]])
    assert kept[made.sizes[0]] == (made.early,)
    assert made.short in made.model(made.few, 0, width=4).options["config"]["snapshots"]


def test_a_long_training_is_looked_at_early_as_well():
    assert plan(kimg=512.0).times[0] == 10.7
    assert plan(kimg=2048.0).times[:4] == (10.7, 21.3, 42.7, 64.0)
    assert plan(kimg=577.0).times[:2] == (6.01, 12.0)
    assert list(plan(kimg=4096.0).times) == sorted(plan(kimg=4096.0).times)


def test_the_fewest_images_that_are_taken_suffice_for_a_plan(tmp_path):
    np.savez(tmp_path / "few.npz", images=np.zeros((84, 8, 8, 1), np.uint8))
    made = plan_study(StudyConfig(str(tmp_path / "few.npz"), held_out=20))
    assert made.sizes == (10, 32, 64)
    assert made.few == made.subset == 32


def test_a_plan_survives_json():
    made = plan(sizes=(20, 100, 1000), few=50)
    assert Plan.from_json(json.loads(json.dumps(asdict(made)))) == made


def test_studies_asked_for_come_in_their_order():
    assert plan().studies == DEFAULT_STUDIES
    assert plan(full=True).studies == STUDIES
    assert plan(only=("strong", "size")).studies == ("size", "strong")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ("sise",)}, "only must be among references"),
        ({"sizes": (16, 5000)}, "--sizes must be at most 1438"),
        ({"few": 1000}, "--few must be at most 719"),
        ({"early": 200.0}, "--early must be below --kimg"),
        ({"no_images": True, "blur": True}, "not both"),
        ({"network": "linear"}, "network must be one whose width can be chosen"),
        ({"seeds": 0}, "seeds must be an integer of at least 1"),
        ({"held_out": 1790}, "at least 64 images to train on"),
        ({"widths": (4,)}, "two or more different"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(options, words):
    with pytest.raises(ConfigError, match=words):
        plan(**options)


def test_a_wider_network_is_expected_to_take_longer():
    made = plan()
    assert made.model(64, 0, width=48).cost > 1.3 * made.model(64, 0).cost
    assert made.model(64, 0, kimg=160.0, snapshots=()).cost == pytest.approx(2 * made.model(64, 0).cost, rel=0.1)


@pytest.mark.parametrize("network", ["unet", "ncsnpp", "ddpmpp", "adm", "skipnet", "dit", "linear"])
def test_what_any_network_takes_can_be_estimated(network):
    config = TrainConfig("digits", network=network, sigma=1.0 if network in ("skipnet", "dit", "linear") else None)
    assert 0 < seconds_to_train(config, (1, 8, 8), cpu=True) < math.inf


def test_figures_name_the_command_that_makes_them():
    typed = ("--range 0.0 1.0 --kimg 5.0 --full --sizes 20,1000 --seeds 1", "")
    config = StudyConfig("digits", full=True, sizes=(20, 1000), kimg=5.0, seeds=1, value_range=(0.0, 1.0), budget=3.0)
    assert (typed_options(config), typed_options(StudyConfig("digits", only=("size",), cpu=True))) == typed
    assert plan(kimg=5.0).command == "gausslens study digits --kimg 5.0"
    options, _ = parse(Options, ["digits", *typed_options(config).split()], program="gausslens study")
    assert typed_options(options) == typed_options(config)


def test_a_repetition_shares_no_seed_and_no_split_with_the_first():
    first, again = plan(), plan(repetition=2)
    (one, other) = (made.model(16, 0, half=2).options["config"] for made in (first, again))
    assert {name for name in one if one[name] != other[name]} == {"seed", "split_seed"}
    assert first.on_images(describe_images) != again.on_images(describe_images)
    assert Plan.from_json(asdict(again)) == again


def test_pictures_are_of_the_training_asked_for_and_change_no_identity():
    first, second = plan(), plan(shown=1)
    assert identity(first) == identity(second)
    numbers = {False: set(), True: set()}
    for made in (first, second):
        numbers[made.shown == 1] = {task.identity for task in tasks_of(made)}
    only_first = [task for task in tasks_of(first) if task.identity not in numbers[True]]
    only_second = [task for task in tasks_of(second) if task.identity not in numbers[False]]
    assert only_first
    assert [task.kind.name for task in only_first] == [task.kind.name for task in only_second]
    for tasks, seed in ((only_first, 0), (only_second, 1)):
        assert {task.needs[0].options["config"]["seed"] for task in tasks} == {seed}
    # Whatever a claim is judged by is measured of every training.
    assert not any(
        "measure" in task.kind.name or "distill_model" in task.kind.name for task in only_first + only_second
    )


@pytest.mark.parametrize("shown", [-1, 3])
def test_pictures_cannot_be_of_a_training_that_is_not_done(shown):
    with pytest.raises(ConfigError, match="shown must be"):
        StudyConfig("digits", shown=shown)
