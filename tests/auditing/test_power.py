"""What an audit would have found: planted rows give what planting the images gives, and curves say so."""

from dataclasses import replace

import pytest
import torch

from gausslens.auditing.copies import find_copies
from gausslens.auditing.power import PLANTINGS, Planting, PowerCurve, copy_power, identifiable, plant, with_planted
from gausslens.measures.transformations import Transformation
from gausslens.errors import ConfigError, DataError
from gausslens.measures.twoset import judge_neighborhood, may_count


def images(n, seed, side=6):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.fixture(scope="module")
def audit():
    pool = images(600, 0)
    return find_copies(images(400, 1), pool[:300], pool[300:], permutations=4999)


@pytest.mark.parametrize("planting", PLANTINGS, ids=lambda planting: planting.name)
def test_planted_rows_are_those_of_planted_images(audit, planting):
    """Taking the place of a sample in what is known of it is the same as taking its place before the search."""
    originals, rows = identifiable(audit)[:25], torch.arange(100, 125)
    made = plant(audit, planting, originals)
    samples = images(400, 1)
    samples[rows] = made
    again = find_copies(samples, audit.pool.train, audit.pool.held_out, permutations=4999)
    for family, around in audit.neighborhoods.items():
        near = audit.pool.neighborhood(made, family, audit.pool.in_train(made, family))
        test = judge_neighborhood(with_planted(around, near, rows), permutations=4999, false_discovery=0.1)
        assert torch.equal(test.ratios, again.tests[family].ratios)
        assert test.p_value == again.tests[family].p_value
        assert torch.equal(test.copies, again.tests[family].copies)


def test_planted_images_are_what_they_are_called(audit):
    originals = identifiable(audit)
    assert len(originals.unique()) == len(originals) > 250
    for planting in PLANTINGS:
        clean = planting.transformation.apply(audit.pool.train[originals])
        difference = plant(audit, planting, originals) - clean
        assert float(difference.square().mean().sqrt()) == pytest.approx(planting.rmse, rel=0.05)


def test_where_any_number_of_copies_is_hidden_the_most_alone_are_tried():
    """Samples that copy held-out images outweigh copies of training images, however many."""
    pool = images(400, 0)
    audit = find_copies(pool[200:], pool[:200], pool[200:], permutations=999)
    exact, *_ = copy_power(audit, trials=5)
    assert exact.counts == (40,)
    assert exact.found == (0,)
    assert "not even 20.0% copies" in str(exact)


def test_flat_images_are_not_planted():
    pool = images(400, 2)
    pool[:20] *= 0.02  # a tenth of the training images, all alike
    audit = find_copies(images(50, 3), pool[:200], pool[200:], shifts=())
    assert int(identifiable(audit).min()) >= 20


def test_curves_rise_and_say_what_would_be_found(audit):
    curves = {curve.planting.name: curve for curve in copy_power(audit, trials=20)}
    assert list(curves) == [planting.name for planting in PLANTINGS]
    exact = curves["exact"]
    # At a level of 0.001/3 all of at least 12 copies must have fallen to the training half.
    assert exact.counts[0] == 12
    assert exact.smallest(0.95) <= 20 / 400
    assert exact.smallest(0.8) <= exact.smallest(0.95)
    assert "exact: would find 3" in str(exact)
    hidden = copy_power(audit, plantings=[Planting("noise 1", rmse=1.0)], trials=5)[0]
    assert hidden.smallest(0.8) is None
    assert str(hidden) == "noise 1: would find not even 20.0% copies"


def test_the_share_said_to_be_found_is_found(audit):
    """The claim put to the proof with other copies in other places, through the whole search."""
    curve = copy_power(audit, plantings=PLANTINGS[1:2], trials=40)[0]
    count = round(curve.smallest(0.95) * 400)
    found = 0
    for seed in range(1, 6):
        samples = images(400, 1)
        rows = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:count]
        samples[rows] = plant(audit, PLANTINGS[1], identifiable(audit, seed)[:count], seed)
        found += find_copies(samples, audit.pool.train, audit.pool.held_out, shifts=(1,), seed=seed).alarm
    assert found >= 4


def test_copies_already_named_do_not_help():
    pool = images(600, 4)
    copying = find_copies(torch.cat([pool[:100] + 0.001, images(300, 5)]), pool[:300], pool[300:], shifts=())
    clean = find_copies(images(300, 5), pool[:300], pool[300:], shifts=())
    curves = [copy_power(audit, plantings=PLANTINGS[:1], trials=10)[0] for audit in (copying, clean)]
    assert curves[0].samples == curves[1].samples == 300
    assert curves[0].counts == curves[1].counts
    everything = find_copies(pool[:100] + 0.001, pool[:300], pool[300:], mirrored=False, shifts=())
    assert str(copy_power(everything, plantings=PLANTINGS[:1])[0]) == "exact: would find nothing: all are copies"


def test_kinds_that_were_not_looked_for_are_left_out():
    pool = images(100, 6)
    audit = find_copies(images(60, 7), pool[:50], pool[50:], mirrored=False, shifts=())
    assert [curve.planting.name for curve in copy_power(audit, trials=1)] == [p.name for p in PLANTINGS[:4]]
    shifted = Planting("far", Transformation(down=3))
    assert copy_power(audit, plantings=[shifted], trials=1) == []


def test_bad_input_is_named(audit):
    with pytest.raises(ConfigError, match="trials must be at least 1"):
        copy_power(audit, trials=0)
    with pytest.raises(DataError, match="without held-out images"):
        copy_power(find_copies(images(5, 8), images(20, 9)))
    curve = PowerCurve(PLANTINGS[0], (5, 10), (10, 20), 20, 100)
    assert (curve.smallest(0.5), curve.smallest(0.8)) == (0.05, 0.1)


def test_samples_that_may_not_count_change_no_p_value(audit):
    originals, rows = identifiable(audit)[:25], torch.arange(100, 125)
    made = plant(audit, PLANTINGS[2], originals)
    for family, around in audit.neighborhoods.items():
        everything = with_planted(
            around, audit.pool.neighborhood(made, family, audit.pool.in_train(made, family)), rows
        )
        counting = may_count(everything, 1 / 3)
        assert not counting.all()
        fewer = replace(everything, distances=everything.distances[counting], members=everything.members[counting])
        tests = [judge_neighborhood(which, permutations=999) for which in (everything, fewer)]
        assert tests[0].p_value == tests[1].p_value
        assert (tests[0].nearer_train, tests[0].nearer_held_out) == (tests[1].nearer_train, tests[1].nearer_held_out)
