"""Looks get their share of the time, neither more nor later than they need."""

import pytest

from gausslens.monitor.overhead import OverheadBudget


def main_work(clock, steps, seconds=1.0):
    """A budget at each step of main work, while that pauses."""
    budget = OverheadBudget(0.03)
    with budget.spending():
        pass  # from here on time is taken
    for step in range(steps):
        clock.now += seconds
        with budget.spending():
            yield step, budget


def look(clock, budget, seconds):
    with budget.spending():
        clock.now += seconds
    budget.mark()


def test_where_the_end_is_known_looks_begin_earlier_and_cost_no_more_in_the_end(clock):

    def cost_and_first(total):
        first = None
        for step, budget in main_work(clock, 1000):
            if budget.affords(1.0, None if total is None else step / total):
                first = first or step
                look(clock, budget, 1.0)
            assert budget.cost <= 4 * 0.03
        return budget.cost, first

    unknown, known = cost_and_first(None), cost_and_first(1000)
    assert max(unknown[0], known[0]) <= 0.03
    assert known[1] <= unknown[1] / 3


@pytest.mark.parametrize("seconds", [1.0, 2.0, 5.0, 9.0, 12.0, 20.0])
def test_where_the_end_is_known_there_is_time_for_a_look_at_the_end(clock, seconds):
    for step, budget in main_work(clock, 1000):
        if budget.affords(seconds, (step + 1) / 1000):
            look(clock, budget, seconds)
    with budget.spending():
        clock.now += seconds
    assert budget.cost <= 0.03


def test_deciding_against_a_look_is_paid_for_too(clock):
    budget = OverheadBudget(0.03)
    with budget.spending():
        pass
    for _ in range(3):
        clock.now += 100.0
        with budget.spending():
            clock.now += 1.0
    assert (budget.own, budget.main) == (3.0, 300.0)
    clock.now += 100.0
    with budget.spending():
        clock.now += 1.0
        with budget.spending():  # a look, between that decision and the end of the call
            clock.now += 5.0
        assert (budget.own, budget.main, budget.spent) == (8.0, 400.0, 5.0)
        clock.now += 1.0
    assert (budget.own, budget.main) == (10.0, 400.0)
    clock.now += 100.0

    def fail():
        with budget.spending():  # on the monitor's account, but not in a call of it
            clock.now += 2.0
            raise OSError("boom")

    with pytest.raises(OSError, match="boom"):
        fail()
    clock.now += 100.0
    assert (budget.own, budget.main_until_now) == (12.0, 600.0)


def test_looks_move_apart_as_training_goes_on(clock):
    count = 0
    for _, budget in main_work(clock, 20000):
        if budget.affords(1e-4):
            budget.mark()
            count += 1
    assert 100 < count < 400


def test_after_failures_looks_are_tried_ever_more_rarely(clock):
    tried = []
    for step, budget in main_work(clock, 20001):
        if step < 20000 and budget.affords(1e-4):
            budget.mark(failed=True)
            tried.append(step)
    assert 5 < len(tried) < 25
    assert tried[-1] >= 2 * tried[-2] - 1
    budget.mark()
    clock.now += 0.03 * budget.main
    with budget.spending():
        assert budget.affords(1e-4), "one that succeeds ends it"
