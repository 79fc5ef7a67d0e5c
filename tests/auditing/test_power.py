"""What an audit would have found: the counts that it states are those at which a search over planted copies convicts."""

from math import comb

import pytest
import torch

from gausslens.auditing.controls import ONCE, REPEATED
from gausslens.auditing.copies import find_copies
from gausslens.auditing.families import PLAIN, Family
from gausslens.auditing.pool import Pool
from gausslens.auditing.power import PLANTINGS, Planting, copy_power
from gausslens.measures.transformations import Transformation

SAMPLES, EXACT = 400, PLANTINGS[0]
PLAIN_ALONE = {"families": [Family(PLAIN)]}


def search(samples, train, held_out=None, **how):
    return find_copies(samples, Pool(train, held_out), **how)


def images(n, seed, side=6):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed)) * 2 - 1


TRAIN, HELD_OUT, NEW = images(300, 0), images(300, 1), images(SAMPLES, 2)


@pytest.fixture(scope="module", name="audit")
def audit_of_new_samples():
    return search(NEW, TRAIN, HELD_OUT)


@pytest.fixture(scope="module", name="powers")
def power_of_that_audit(audit):
    return {power["kind"]: power for power in copy_power(audit)}


def planted(originals, planting=EXACT, seed=10):
    """The samples with so many copies among them, changed as described; a part is copied alone."""
    made = planting.transformation.apply(originals) + planting.rmse * torch.randn(
        originals.shape, generator=torch.Generator().manual_seed(seed)
    )
    rows = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(seed + 1))[: len(originals)]
    samples = NEW.clone()
    if planting.family == "top half":
        samples[rows, :, :3] = made[:, :, :3]
    else:
        samples[rows] = made
    return samples


def drawn(count, seed=20):
    return TRAIN[torch.randperm(len(TRAIN), generator=torch.Generator().manual_seed(seed))[:count]]


def test_the_smallest_counts_of_copies_convict_and_one_fewer_does_not(audit):
    for concentrated in (False, True):
        smallest = search(NEW, TRAIN, HELD_OUT, **PLAIN_ALONE).find().smallest_count(concentrated=concentrated)
        for count, exist in ((smallest, True), (smallest - 1, False)):
            originals = TRAIN[7:8].repeat(count, 1, 1, 1) if concentrated else drawn(count)
            found = search(planted(originals), TRAIN, HELD_OUT, **PLAIN_ALONE)
            assert found.exist == exist
            assert sum(found.counts.values()) == (count if exist else 0)


def test_so_do_those_of_an_image_that_stands_there_repeatedly():
    train = torch.cat([TRAIN, TRAIN[:1].repeat(9, 1, 1, 1)])
    smallest = search(NEW, train, HELD_OUT, **PLAIN_ALONE).find(PLAIN, REPEATED).smallest_count(concentrated=True)
    once = search(NEW, train, HELD_OUT, **PLAIN_ALONE).find(PLAIN, ONCE).smallest_count(concentrated=True)
    assert smallest > once  # held-out images are its only control, and its share of the level is less
    for count, exist in ((smallest, True), (smallest - 1, False)):
        assert search(planted(TRAIN[:1].repeat(count, 1, 1, 1)), train, HELD_OUT, **PLAIN_ALONE).exist == exist


def test_each_kind_is_told_and_noise_makes_copies_harder_to_find(powers):
    assert list(powers) == [planting.name for planting in PLANTINGS]
    assert {power["count"] for power in powers.values()} == {SAMPLES}
    noisy = [powers[name] for name in ("exact", "noise 0.02", "noise 0.05", "noise 0.1")]
    assert noisy[0]["recognised"] == 1.0
    assert [power["recognised"] for power in noisy] == sorted((power["recognised"] for power in noisy), reverse=True)
    assert [power["value"] for power in noisy] == sorted(power["value"] for power in noisy)


@pytest.mark.parametrize("name", [planting.name for planting in PLANTINGS])
def test_the_count_told_convicts_in_a_search_over_copies_of_that_kind(powers, name):
    """Other copies, in other places, through the whole search. All are recognised, so one fewer does not convict."""
    power, planting = powers[name], next(planting for planting in PLANTINGS if planting.name == name)
    assert power["recognised"] == 1.0
    for count, convicts in ((power["value"], True), (power["value"] - 1, False)):
        found = search(planted(drawn(count), planting), TRAIN, HELD_OUT)
        assert found.find(planting.family).convicts == convicts


def test_of_copies_that_are_not_all_recognised_it_takes_more_as_the_binomial_law_says(audit):
    planting = Planting("noise 0.17", rmse=0.17)
    (power,) = copy_power(audit, plantings=[planting])
    assert 0.2 < power["recognised"] < 0.95
    needed, q = audit.find().smallest_count(concentrated=False, exact=False), power["recognised"]

    def found(n):
        return 1 - sum(comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(needed))

    assert found(power["value"]) >= 0.95 > found(power["value"] - 1)
    # In another search as many of them are recognised, but for chance.
    copies = search(planted(TRAIN, planting), TRAIN, HELD_OUT, **PLAIN_ALONE)
    expected = q * len(TRAIN)
    assert abs(copies.find().samples.copies - expected) < 4 * (q * (1 - q) * len(TRAIN) * (1 + 300 / 256)) ** 0.5


def test_what_is_never_recognised_is_never_found(audit):
    (hidden,) = copy_power(audit, plantings=[Planting("noise 1", rmse=1.0)])
    assert (hidden["recognised"], hidden["value"]) == (0.0, None)


def test_where_not_even_all_samples_would_convict_there_is_no_count():
    exact, *_ = copy_power(search(NEW[:3], TRAIN[:4], **PLAIN_ALONE))
    assert (exact["recognised"], exact["value"], exact["count"]) == (1.0, None, 3)


def test_chance_copies_raise_the_count(powers):
    """Where held-out images coincide with training images, it takes more samples that do to convict."""
    held_out = HELD_OUT.clone()
    held_out[:30] = TRAIN[:30]
    exact, *_ = copy_power(search(NEW, TRAIN, held_out), plantings=[EXACT])
    assert exact["value"] > 2 * powers["exact"]["value"]


def test_kinds_that_were_not_looked_for_are_left_out():
    found = search(NEW[:60], TRAIN[:50], HELD_OUT[:50], **PLAIN_ALONE)
    assert [power["kind"] for power in copy_power(found)] == [planting.name for planting in PLANTINGS[:4]]
    assert list(copy_power(found, plantings=[Planting("far", "shifted", Transformation(down=3))])) == []


def test_flat_images_are_not_planted():
    """Of a tenth of the training images, all alike, nobody could tell a noisy copy."""
    train, noisy = TRAIN[:200].clone(), [Planting("noise 0.05", rmse=0.05)]
    train[:20] *= 0.02
    assert next(copy_power(search(NEW, train, HELD_OUT), plantings=noisy))["recognised"] == 1.0
    alike = planted(train[:20], noisy[0])
    assert search(alike, train, HELD_OUT, **PLAIN_ALONE).find().samples.copies == 0


def test_nothing_is_planted_where_nothing_could_be_told():
    twice = torch.cat([TRAIN[:50], TRAIN[:50]])
    for train in (twice, TRAIN[:2]):
        assert list(copy_power(search(NEW[:50], train, HELD_OUT[:50]))) == []


def test_the_seed_alone_decides(audit):
    how = {"plantings": [Planting("noise 0.17", rmse=0.17)]}
    assert list(copy_power(audit, **how, seed=1)) == list(copy_power(audit, **how, seed=1))
    assert list(copy_power(audit, **how, seed=1)) != list(copy_power(audit, **how, seed=2))
