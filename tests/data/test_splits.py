"""Splits are fixed by their seed, nested, disjoint, and apart from what is held out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gausslens.data import Splits
from gausslens.errors import ConfigError

COUNTS = st.integers(5, 300)
GROUPS = st.lists(st.integers(0, 12), min_size=5, max_size=120).filter(lambda groups: len(set(groups)) > 2)
RECORDED = [7, 8, 5, 0, 10, 9, 11, 6, 1, 4, 2, 3]
RECORDED_IN_GROUPS = [10, 9, 11]


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
    for wrong in ("", "s3:30", "s1:", ":30", "s1", "-3", "3.5", "train", "s1:30:2", "²", "30@", "@1", "all@1", "30@-1"):
        with pytest.raises(ConfigError, match="1400"):
            splits.named(wrong)


@given(COUNTS, st.integers(0, 9), st.data())
def test_draws_are_disjoint_while_there_are_enough_images(count, seed, data):
    splits = Splits(count, seed=seed)
    n, draws = data.draw(st.integers(1, splits.available // 2)), data.draw(st.integers(2, 5))
    half = splits.available // 2
    subsets = [set(splits.named(f"{n}@{k}")) for k in range(draws)]
    ones, others = ([set(splits.named(f"s{side}:{n}@{k}")) for k in range(draws)] for side in (1, 2))
    assert {len(drawn) for drawn in (*subsets, *ones, *others)} == {n}
    assert len(set().union(*subsets)) == n * draws or n * draws > splits.available
    assert len(set().union(*ones, *others)) == 2 * n * draws or n * draws > half
    assert set().union(*subsets, *ones, *others).isdisjoint(splits.held_out)
    assert all(one.isdisjoint(other) for one, other in zip(ones, others, strict=True))


def test_the_first_draw_is_the_set_without_a_number():
    splits = Splits(100)
    for name in ("30", "s1:30", "s2:30", "80", "s1:40"):
        assert np.array_equal(splits.named(f"{name}@0"), splits.named(name))


def test_where_draws_must_overlap_they_do_as_by_chance():
    splits = Splits(1250)
    first, second = (set(splits.named(f"s1:400@{draw}")) for draw in (0, 1))
    assert 400 * 0.4 - 40 < len(first & second) < 400 * 0.4 + 40  # 400 of 1,000, twice
    assert set(splits.named("1000@3")) == set(splits.named("1000"))


def test_draws_keep_groups_on_their_side():
    groups = np.arange(120) // 4
    splits = Splits(120, held_out=20, groups=groups)
    one, other = (set(groups[splits.named(f"s{side}:40@3")]) for side in (1, 2))
    assert one.isdisjoint(other)
    assert (one | other).isdisjoint(groups[splits.held_out])


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


@given(GROUPS, st.integers(0, 9), st.data())
def test_groups_stay_on_one_side(groups, seed, data):
    groups, count = np.array(groups), len(groups)
    sizes = np.bincount(groups)
    asked = data.draw(st.integers(0, count - 2 * sizes.max()) if count > 2 * sizes.max() else st.just(0))
    splits = Splits(count, held_out=asked, seed=seed, groups=groups)
    known, unseen = splits.named("all"), splits.held_out
    assert sorted([*known, *unseen]) == list(range(count))
    assert set(groups[known]).isdisjoint(groups[unseen])
    assert splits.available == len(known)
    # No group more than it takes.
    assert asked <= len(unseen) < asked + sizes.max() or asked == len(unseen) == 0
    # What a run writes down is what it is asked for the next time.
    again = Splits(count, held_out=len(unseen), seed=seed, groups=groups)
    assert np.array_equal(again.held_out, unseen)
    small = data.draw(st.integers(1, len(known)))
    assert known[:small].tolist() == splits.subset(small).tolist() == again.subset(small).tolist()


@given(GROUPS, st.integers(0, 9), st.data())
def test_pairs_share_no_group(groups, seed, data):
    groups, count = np.array(groups), len(groups)
    splits = Splits(count, held_out=0, seed=seed, groups=groups)
    with pytest.raises(ConfigError, match="each set of a disjoint pair") as caught:
        splits.pair(count)
    most = int(str(caught.value).partition("… ")[2].partition(" ")[0])
    # The smaller set lacks at most the largest group.
    assert most >= (count - np.bincount(groups).max()) / 2
    large = splits.pair(most)
    small = splits.pair(data.draw(st.integers(1, most)))
    assert set(groups[large[0]]).isdisjoint(groups[large[1]])
    for few, many in zip(small, large, strict=True):
        assert len(set(few)) == len(small[0])
        assert many[: len(few)].tolist() == few.tolist()


@given(COUNTS, st.integers(0, 9), st.data())
def test_groups_of_one_image_each_change_nothing(count, seed, data):
    held_out = data.draw(st.integers(0, count - 3))
    plain, grouped = (Splits(count, held_out=held_out, seed=seed, groups=g) for g in (None, np.arange(count) + 5))
    for name in ("all", "held-out", "1", f"s1:{plain.available // 2}", f"s2:{plain.available // 2}"):
        assert np.array_equal(plain.named(name), grouped.named(name))


def test_only_who_belongs_together_matters():
    groups = np.random.default_rng(0).integers(0, 9, 60)
    renamed = np.array([31, 4, 15, 92, 65, 35, 89, 79, 3])[groups]
    one, other = Splits(60, groups=groups), Splits(60, groups=renamed)
    assert np.array_equal(one.held_out, other.held_out)
    assert np.array_equal(one.pair(20)[1], other.pair(20)[1])
    # Recorded, as above.
    assert Splits(12, groups=np.arange(12) // 3).held_out.tolist() == RECORDED_IN_GROUPS


def test_any_group_can_be_held_out_and_large_ones_no_more_often():
    """Groups of one image and of ten, held out one at a time."""
    groups = np.repeat(np.arange(8), [1, 1, 1, 1, 10, 10, 10, 10])
    held_out = [groups[Splits(44, held_out=1, seed=seed, groups=groups).held_out[0]] for seed in range(400)]
    counts = np.bincount(held_out, minlength=8)
    assert counts.min() > 25
    assert counts.max() < 80


@pytest.mark.parametrize(
    ("groups", "held_out", "message"),
    [
        ([0] * 10, None, "held_out must leave something to train on: .* 2 of 10 images take all 1 groups"),
        ([0] * 5 + [1] * 5, 6, "6 of 10 images take all 2 groups"),
        ([0] * 9, None, r"10 integers, one for each image; got shape \(9,\)"),
        ([0.5] * 10, None, "dtype float64"),
    ],
)
def test_groups_that_cannot_be_split_are_refused(groups, held_out, message):
    with pytest.raises(ConfigError, match=message):
        Splits(10, held_out=held_out, groups=groups)
    assert len(Splits(10, held_out=0, groups=[0] * 10).named("all")) == 10
