"""The rule of when a hub without an application ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.coordination.shutdown_rule import CANCEL_TIMEOUT, ShutdownRule


def lost(timeout: float) -> ShutdownRule:
    rule = ShutdownRule(timeout)
    rule.client_lost()
    return rule


def test_nothing_happens_while_there_is_a_client() -> None:
    rule = ShutdownRule(0)
    assert not rule.orphaned
    assert rule.next(1e9, 0, 0) == ('wait', None)
    assert rule.next(1e9, 5, 1) == ('wait', None)


def test_work_is_finished_first_however_long_it_takes() -> None:
    rule = lost(60)
    assert rule.orphaned
    assert rule.next(0, 3, 1) == ('wait', None)
    assert rule.next(1e6, 1, 1) == ('wait', None)


def test_idle_pilots_are_cancelled_after_the_timeout_and_end_it_by_going() -> None:
    rule = lost(60)
    assert rule.next(100, 1, 2) == ('wait', None)
    assert rule.next(200, 0, 2) == ('wait', 260)
    assert rule.next(259.9, 0, 2) == ('wait', 260)
    assert rule.next(260, 0, 2) == ('cancel', 260 + CANCEL_TIMEOUT)
    assert rule.next(261, 0, 1) == ('wait', 260 + CANCEL_TIMEOUT)
    assert rule.next(262, 0, 0) == ('end', None)


def test_pilots_that_do_not_answer_are_not_waited_for_longer_than_the_timeout() -> None:
    rule = lost(0)
    assert rule.next(10, 0, 1) == ('cancel', 10 + CANCEL_TIMEOUT)
    assert rule.next(10 + CANCEL_TIMEOUT, 0, 1) == ('end', None)


def test_new_work_sets_the_clock_back() -> None:
    rule = lost(60)
    assert rule.next(0, 0, 1) == ('wait', 60)
    assert rule.next(50, 1, 1) == ('wait', None)
    assert rule.next(70, 0, 1) == ('wait', 130)


def test_with_timeout_0_nothing_is_finished() -> None:
    assert lost(0).next(5, 17, 1)[0] == 'cancel'


@pytest.mark.parametrize('timeout', [0, 60])
def test_without_pilots_nothing_has_to_be_cancelled(timeout: float) -> None:
    rule = lost(timeout)
    rule.next(0, 0, 0)
    assert rule.next(timeout, 0, 0) == ('end', None)


def test_a_client_that_comes_back_stops_the_clock() -> None:
    rule = lost(60)
    assert rule.next(0, 0, 1) == ('wait', 60)
    rule.client_attached()
    assert not rule.orphaned
    assert rule.next(60, 0, 1) == ('wait', None)
    rule.client_lost()
    assert rule.next(100, 0, 1) == ('wait', 160)


def test_pilots_of_a_client_that_came_and_went_after_a_cancellation_are_cancelled_as_well() -> None:
    rule = lost(60)
    rule.next(0, 0, 1)
    assert rule.next(60, 0, 1)[0] == 'cancel'
    rule.client_attached()
    rule.client_lost()
    assert rule.next(1000, 2, 1) == ('wait', None)
    assert rule.next(1100, 0, 1) == ('wait', 1160)
    assert rule.next(1160, 0, 1)[0] == 'cancel'


@given(timeout=st.floats(0, 100), steps=st.lists(st.tuples(st.floats(0, 50), st.integers(0, 2), st.integers(0, 2))))
def test_it_always_ends_and_never_without_having_cancelled_what_is_there(
        timeout: float, steps: list[tuple[float, int, int]]) -> None:
    rule = lost(timeout)
    now, cancelled = 0.0, False
    for delay, unfinished, pilots in [*steps, (0, 0, 2), (1000, 0, 2), (1000, 0, 2)]:
        now += delay
        action, again = rule.next(now, unfinished, pilots)
        assert again is None or again > now
        assert not (action == 'cancel' and cancelled)
        if action == 'end':
            assert cancelled or not pilots
            return
        cancelled |= action == 'cancel'
    raise AssertionError('it did not end')
