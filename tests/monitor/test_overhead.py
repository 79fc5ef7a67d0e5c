"""Looks get their share of the time, neither more nor later than they need."""

import pytest

from gausslens.monitor.overhead import OverheadBudget


def test_where_the_end_is_known_looks_begin_earlier_and_cost_no_more_in_the_end(clock):

    def cost_and_first(total):
        pace, first = OverheadBudget(0.03), None
        for step in range(1000):
            pace.leave()
            clock.now += 1.0
            pace.arrive()
            if pace.affords(1.0, None if total is None else step / total):
                first = first or step
                with pace.spending():
                    clock.now += 1.0
                pace.mark()
            assert pace.cost <= 4 * 0.03
        return pace.cost, first

    unknown, known = cost_and_first(None), cost_and_first(1000)
    assert max(unknown[0], known[0]) <= 0.03
    assert known[1] <= unknown[1] / 3


@pytest.mark.parametrize("seconds", [1.0, 2.0, 5.0, 9.0, 12.0, 20.0])
def test_where_the_end_is_known_the_last_look_is_there(clock, seconds):
    pace, taken = OverheadBudget(0.03), []
    for step in range(1, 1001):
        pace.leave()
        clock.now += 1.0
        pace.arrive()
        if pace.affords(seconds, step / 1000):
            with pace.spending():
                clock.now += seconds
            pace.mark()
            taken.append(step)
    assert pace.cost <= 0.03
    assert taken[-1] == 1000


def test_deciding_against_a_look_is_paid_for_too(clock):
    pace = OverheadBudget(0.03)
    for _ in range(4):
        pace.leave()
        clock.now += 100.0
        pace.arrive()
        clock.now += 1.0
    assert (pace.own, pace.main) == (3.0, 400.0)
    with pace.spending():  # a look, between that decision and the end of the call
        clock.now += 5.0
    clock.now += 1.0
    pace.leave()
    assert (pace.own, pace.main, pace.spent) == (10.0, 400.0, 5.0)
    clock.now += 100.0
    with pace.spending():  # on the monitor's account, but not in a call of it
        clock.now += 2.0
    clock.now += 100.0
    pace.arrive()
    assert (pace.own, pace.main) == (12.0, 600.0)


@pytest.mark.parametrize("total", [None, 3000])
def test_resting_misses_no_look(clock, total):
    """Whoever asks at every step and whoever rests in between take the same looks."""
    taken = {True: [], False: []}
    for rests, steps in taken.items():
        pace, asked = OverheadBudget(0.03), 0
        pace.leave()
        for step in range(1, 3001):
            clock.now += 1.0
            if rests and pace.resting and step != total:  # at the end there is no later
                continue
            pace.arrive()
            asked += 1
            if pace.affords(2.0, None if total is None else step / total):
                with pace.spending():
                    clock.now += 2.0
                pace.mark()
                steps.append(step)
            else:
                pace.rest(2.0, None if total is None else step / total)
            pace.leave()
        assert not rests or asked < 1500
    assert len(taken[True]) > 10
    assert taken[True] == taken[False]


def test_looks_move_apart_as_training_goes_on(clock):
    pace = OverheadBudget(0.03)
    count = 0
    for _ in range(20000):
        pace.leave()
        clock.now += 1.0
        pace.arrive()
        if pace.affords(1e-4):
            pace.mark()
            count += 1
    assert 100 < count < 400


def test_after_failures_looks_are_tried_ever_more_rarely(clock):
    pace, tried = OverheadBudget(0.03), []
    for step in range(1, 20001):
        pace.leave()
        clock.now += 1.0
        pace.arrive()
        if pace.affords(1e-4):
            pace.mark(failed=True)
            tried.append(step)
    assert 5 < len(tried) < 25
    assert tried[-1] >= 2 * tried[-2] - 1
    pace.mark()
    pace.leave()
    clock.now += 0.03 * pace.main
    pace.arrive()
    assert pace.affords(1e-4), "one that succeeds ends it"
