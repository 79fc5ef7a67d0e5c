"""Splits are fixed by their seed, nested, disjoint, and apart from what is held out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gausslens.data import Splits
from gausslens.errors import ConfigError

COUNTS = st.integers(5, 300)
RECORDED = [7, 8, 5, 0, 10, 9, 11, 6, 1, 4, 2, 3]


@given(COUNTS, st.integers(0, 9), st.data())
def test_parts_are_nested_and_disjoint(count, seed, data):
    held_out = data.draw(st.integers(0, count - 3))
    splits = Splits(count, held_out=held_out, seed=seed)
    small = data.draw(st.integers(1, splits.available // 2))
    large = data.draw(st.integers(small, splits.available // 2))
    assert len(splits.held_out) == held_out
    assert splits.subset(large)[:small].tolist() == splits.subset(small).tolist()
    for one, many in zip(splits.pair(small), splits.pair(large), strict=True):
        assert len(one) == small
        assert many[:small].tolist() == one.tolist()
    first, second = map(set, splits.pair(large))
    assert not first & second
    assert first | second == set(splits.subset(2 * large))
    everything = set(splits.named("all"))
    assert everything.isdisjoint(splits.held_out)
    assert first | second <= everything
    assert everything | set(splits.held_out) == set(range(count))


def test_the_seed_and_the_count_fix_everything():
    assert np.array_equal(Splits(50, seed=3).named("all"), Splits(50, seed=3).named("all"))
    assert np.array_equal(Splits(50, seed=3).held_out, Splits(50, seed=3).held_out)
    assert not np.array_equal(Splits(50, seed=3).held_out, Splits(50, seed=4).held_out)
    # Recorded: a change would move images between training and held-out parts of everyone's runs.
    assert Splits(12, seed=0).named("all").tolist() == RECORDED[:10]
    assert Splits(12, seed=0).held_out.tolist() == RECORDED[10:]


def test_subsets_do_not_depend_on_how_many_are_held_out():
    few, many = Splits(100, held_out=10), Splits(100, held_out=40)
    assert np.array_equal(few.subset(60), many.subset(60))
    assert set(few.held_out) < set(many.held_out)


def test_a_fifth_is_held_out_by_default_and_nothing_if_so_asked():
    assert len(Splits(1797).held_out) == 359
    whole = Splits(10, held_out=0)
    assert len(whole.held_out) == 0
    assert sorted(whole.subset(10)) == list(range(10))


def test_names_mean_parts():
    splits = Splits(100)
    assert np.array_equal(splits.named("30"), splits.subset(30))
    assert np.array_equal(splits.named("s1:30"), splits.pair(30)[0])
    assert np.array_equal(splits.named("s2:30"), splits.pair(30)[1])
    assert np.array_equal(splits.named("all"), splits.subset(80))
    assert np.array_equal(splits.named("held-out"), splits.held_out)
    for wrong in ("", "s3:30", "s1:", ":30", "s1", "-3", "3.5", "train", "s1:30:2", "²"):
        with pytest.raises(ConfigError, match="1400"):
            splits.named(wrong)


def test_indices_index_arrays_and_cannot_be_changed():
    indices = Splits(10).subset(4)
    assert indices.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        indices[0] = 1


@pytest.mark.parametrize(("ask", "most"), [("81", 80), ("s1:41", 40), ("s2:41", 40), ("0", 80), ("s1:0", 40)])
def test_sizes_that_do_not_exist_name_the_largest_that_does(ask, most):
    with pytest.raises(ConfigError, match=rf"1 … {most} images here \(100 in all, 20 held out\)"):
        Splits(100).named(ask)


@pytest.mark.parametrize(("count", "held_out"), [(0, None), (-1, None), (5, 5), (5, -1), (5, 6)])
def test_impossible_numbers_are_refused(count, held_out):
    with pytest.raises(ConfigError):
        Splits(count, held_out=held_out)
