"""When copies exist: Fisher's test against its definition, few originals, and the smallest counts."""

from dataclasses import replace
from math import comb

import pytest

from gausslens.auditing.controls import Comparison, Tally, fisher_p


def comparison(copies=0, real=(0, 650), gaussian=(0, 1000), **others):
    known = {"originals": 100, "exact": False, "level": 0.0007, "kind": "once", "family": "plain"}
    return Comparison(**{**known, **others}, samples=Tally(copies, 1000), real=Tally(*real), gaussian=Tally(*gaussian))


def by_hand(copies, count, control_copies, control_count):
    """P(X ≥ copies), X the copies that fall to the samples if those of both sets are dealt out at random."""
    both, everything = copies + control_copies, count + control_count
    ways = [comb(both, k) * comb(everything - both, count - k) for k in range(copies, min(both, count) + 1)]
    return sum(ways) / comb(everything, count)


@pytest.mark.parametrize("counts", [(3, 10, 1, 12), (0, 10, 2, 12), (10, 10, 0, 12), (15, 100, 3, 65), (2, 30, 2, 30)])
def test_fishers_p_value_is_the_hypergeometric_tail(counts):
    assert fisher_p(*counts) == pytest.approx(by_hand(*counts), rel=1e-9)


def test_copies_must_be_more_than_both_controls():
    assert comparison(30).convicts
    assert not comparison(30, gaussian=(30, 1000)).convicts
    assert not comparison(30, real=(20, 650)).convicts
    assert comparison(30, gaussian=(30, 1000)).p_value == pytest.approx(fisher_p(30, 1000, 30, 1000))
    assert comparison(1000, real=(0, 0)).p_value == 1.0


def test_few_originals_need_rare_chance_copies_or_an_exact_one():
    few = comparison(300, real=(1, 60), originals=2)
    assert few.p_value < 1e-6
    assert not few.convicts
    assert replace(few, exact=True).convicts
    assert replace(few, originals=5).convicts
    assert comparison(300, originals=1).convicts  # 0 of 650 real images: at most .6 %


def test_copies_that_few_held_out_images_can_neither_explain_nor_refute_are_undecided():
    assert comparison(54, real=(0, 50)).undecided
    assert not comparison(54, real=(0, 500)).undecided  # they convict
    assert not comparison(54, real=(3, 50)).undecided  # as many as by nature
    assert not comparison(54, real=(0, 50), gaussian=(50, 1000)).undecided
    assert not comparison(2, real=(0, 50)).undecided


def test_fifteen_of_a_thousand_are_found_beside_600_and_50_real_images():
    assert comparison().smallest_count(concentrated=False) == 15
    assert comparison().smallest_count(concentrated=True, exact=False) == 15


@pytest.mark.parametrize("real", [(0, 650), (0, 100), (3, 650), (10, 300)])
@pytest.mark.parametrize("gaussian", [(0, 1000), (5, 1000)])
def test_the_smallest_count_convicts_and_one_fewer_does_not(real, gaussian):
    smallest = comparison(real=real, gaussian=gaussian).smallest_count(concentrated=False)
    assert comparison(smallest, real=real, gaussian=gaussian).convicts
    assert not comparison(smallest - 1, real=real, gaussian=gaussian).convicts


def test_where_no_number_of_copies_would_convict_there_is_no_smallest_count():
    assert comparison(real=(0, 0)).smallest_count(concentrated=False) is None
    assert comparison(real=(0, 3)).smallest_count(concentrated=False) is not None
    assert comparison(real=(3, 3)).smallest_count(concentrated=False) is None
    unsure = comparison(real=(0, 50), originals=1)
    assert unsure.smallest_count(concentrated=True, exact=False) is None
    assert unsure.smallest_count(concentrated=True) is not None
