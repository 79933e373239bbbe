"""Waiting tasks are tried by priority and arrival, and no shape more often than it has a chance."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rp_agent.scheduler.wait_pool import WaitPool

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pool() -> WaitPool[str]:
    return WaitPool()


def fill(pool: WaitPool[str], *tasks: tuple[str, int, str]) -> None:
    for uid, priority, shape in tasks:
        pool.add(uid, uid, priority, shape)
    pool.check()


def counting(calls: list[str], fits: Callable[[str], bool]) -> Callable[[str], bool]:
    def counted(task: str) -> bool:
        calls.append(task)
        return fits(task)
    return counted


def test_all_are_placed_in_the_order_of_their_coming_whatever_their_shapes(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 'small'), ('b', 0, 'large'), ('c', 0, 'small'), ('d', 0, 'large'))
    assert pool.place(lambda task: True) == ['a', 'b', 'c', 'd']
    assert len(pool) == 0
    pool.check()


def test_higher_priorities_go_first(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 7, 's'), ('c', -1, 's'), ('d', 7, 't'))
    assert pool.place(lambda task: True) == ['b', 'd', 'a', 'c']


def test_a_shape_that_does_not_fit_is_tried_once_and_holds_up_nobody_else(pool: WaitPool[str]) -> None:
    calls: list[str] = []
    fill(pool, ('a', 0, 'large'), ('b', 0, 'large'), ('c', 0, 'small'), ('d', 5, 'large'))
    assert pool.place(counting(calls, lambda task: task == 'c')) == ['c']
    assert calls == ['d', 'c']
    assert len(pool) == 3
    pool.check()


def test_a_full_shape_is_not_tried_again_before_something_was_freed(pool: WaitPool[str]) -> None:
    calls: list[str] = []
    fill(pool, ('a', 0, 'large'))
    pool.place(counting(calls, lambda task: False))
    fill(pool, ('b', 0, 'large'), ('c', 3, 'large'), ('d', 0, 'small'))
    assert pool.place(counting(calls, lambda task: True)) == ['d']
    assert calls == ['a', 'd']
    pool.wake()
    assert pool.place(counting(calls, lambda task: True)) == ['c', 'a', 'b']


def test_the_rest_of_a_shape_waits_when_one_of_it_does_not_fit_any_more(pool: WaitPool[str]) -> None:
    fill(pool, *((f't{number}', 0, 's') for number in range(5)))
    room = iter([True, True, False])
    assert pool.place(lambda task: next(room)) == ['t0', 't1']
    assert len(pool) == 3
    pool.check()


def test_tasks_can_be_taken_out(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 0, 's'), ('c', 1, 't'))
    assert pool.remove(['c', 'nobody', 'a', 'a']) == ['c', 'a']
    pool.check()
    assert pool.clear() == ['b']
    assert pool.clear() == []
    assert pool.place(lambda task: True) == []


def test_a_task_waits_only_once(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'))
    with pytest.raises(ValueError, match='a waits already'):
        pool.add('a', 'a', 0, 't')
    pool.check()


def test_an_error_while_placing_leaves_the_pool_whole(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 0, 's'))

    def fail(task: str) -> bool:
        if task == 'b':
            raise ZeroDivisionError
        return True

    with pytest.raises(ZeroDivisionError):
        pool.place(fail)
    pool.check()
    assert len(pool) == 1


class PoolAgainstModel(RuleBasedStateMachine):
    """The pool does what a plain sorted list would do, on a machine with a number of cores."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: WaitPool[str] = WaitPool()
        self.waiting: list[tuple[int, int, str, int]] = []   # (-priority, arrival, uid, cores)
        self.running: dict[str, int] = {}
        self.free = 4
        self.arrivals = 0

    @rule(priority=st.integers(0, 2), cores=st.integers(1, 4))
    def add(self, priority: int, cores: int) -> None:
        uid = f't{self.arrivals}'
        self.pool.add(uid, uid, priority, cores)
        self.waiting.append((-priority, self.arrivals, uid, cores))
        self.arrivals += 1

    @rule()
    def place(self) -> None:
        expected = []
        free = self.free
        for _, _, uid, cores in sorted(self.waiting):
            if cores <= free:
                free -= cores
                expected.append(uid)
        assert self.pool.place(self.fits) == expected
        self.waiting = [each for each in self.waiting if each[2] not in expected]

    def fits(self, uid: str) -> bool:
        cores = next(each[3] for each in self.waiting if each[2] == uid)
        if cores > self.free:
            return False
        self.free -= cores
        self.running[uid] = cores
        return True

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.running:
            uid = data.draw(st.sampled_from(sorted(self.running)))
            self.free += self.running.pop(uid)
            self.pool.wake()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            entry = data.draw(st.sampled_from(self.waiting))
            assert self.pool.remove([entry[2]]) == [entry[2]]
            self.waiting.remove(entry)

    @invariant()
    def whole(self) -> None:
        self.pool.check()
        assert len(self.pool) == len(self.waiting)


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(max_examples=100, deadline=None)
