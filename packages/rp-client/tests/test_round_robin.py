"""Tasks are spread evenly over the pilots; who asks for a pilot gets that one."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rp_client.scheduler.base import Binding, Request
from rp_client.scheduler.round_robin import RoundRobin


@pytest.fixture
def scheduler() -> RoundRobin:
    return RoundRobin()


def requests(*uids: str, pilot: str = '') -> list[Request]:
    return [Request(uid, pilot) for uid in uids]


def waiting(scheduler: RoundRobin) -> list[str]:
    return [request.uid for request in scheduler.waiting]


def test_tasks_go_to_the_pilots_in_turn(scheduler: RoundRobin) -> None:
    scheduler.add_pilots(['p0', 'p1', 'p2'])
    assert scheduler.submit(requests('a', 'b')) == [Binding('a', 'p0'), Binding('b', 'p1')]
    assert scheduler.submit(requests('c', 'd')) == [Binding('c', 'p2'), Binding('d', 'p0')]
    assert waiting(scheduler) == []


def test_without_pilots_tasks_wait_in_their_order(scheduler: RoundRobin) -> None:
    assert scheduler.submit(requests('a', 'b', 'c')) == []
    assert waiting(scheduler) == ['a', 'b', 'c']
    assert scheduler.add_pilots(['p0', 'p1']) == [Binding('a', 'p0'), Binding('b', 'p1'), Binding('c', 'p0')]
    assert waiting(scheduler) == []


def test_a_task_that_asks_for_a_pilot_goes_there_and_does_not_count(scheduler: RoundRobin) -> None:
    scheduler.add_pilots(['p0', 'p1'])
    assert scheduler.submit([*requests('a'), *requests('x', 'y', pilot='p1'), *requests('b')]) == [
        Binding('a', 'p0'), Binding('x', 'p1'), Binding('y', 'p1'), Binding('b', 'p1')]


def test_a_task_that_asks_for_an_unknown_pilot_waits_for_it(scheduler: RoundRobin) -> None:
    scheduler.add_pilots(['p0'])
    assert scheduler.submit([*requests('x', pilot='p9'), *requests('a')]) == [Binding('a', 'p0')]
    assert waiting(scheduler) == ['x']
    assert scheduler.add_pilots(['p1']) == []
    assert scheduler.add_pilots(['p9']) == [Binding('x', 'p9')]


def test_a_removed_pilot_gets_no_more_tasks(scheduler: RoundRobin) -> None:
    scheduler.add_pilots(['p0', 'p1', 'p2'])
    scheduler.remove_pilots(['p1', 'unknown'])
    assert Counter(pilot for _, pilot in scheduler.submit(requests(*'abcd'))) == {'p0': 2, 'p2': 2}
    scheduler.remove_pilots(['p0', 'p2'])
    assert scheduler.submit(requests('e')) == []
    assert waiting(scheduler) == ['e']


def test_waiting_tasks_can_be_forgotten(scheduler: RoundRobin) -> None:
    scheduler.submit(requests('a', 'b', 'c'))
    assert scheduler.forget(['c', 'nobody', 'a', 'a']) == ['c', 'a']
    assert scheduler.add_pilots(['p0']) == [Binding('b', 'p0')]
    assert scheduler.forget(['b']) == []


@given(pilots=st.integers(1, 7), bulks=st.lists(st.integers(0, 20)))
def test_no_pilot_has_more_than_one_task_more_than_another(pilots: int, bulks: list[int]) -> None:
    scheduler = RoundRobin()
    names = [f'p{number}' for number in range(pilots)]
    scheduler.add_pilots(names)
    uids = (f't{number}' for number in itertools.count())
    counts = Counter(dict.fromkeys(names, 0))
    for bulk in bulks:
        counts.update(pilot for _, pilot in scheduler.submit(requests(*itertools.islice(uids, bulk))))
        assert max(counts.values()) - min(counts.values()) <= 1
    assert sum(counts.values()) == sum(bulks)


class EachTaskOnce(RuleBasedStateMachine):
    """Whatever comes and goes: each task is bound once, to a pilot that is there, or it waits, or it is forgotten."""

    PILOTS = st.sampled_from(['p0', 'p1', 'p2'])

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = RoundRobin()
        self.here: set[str] = set()
        self.wanted: dict[str, str] = {}
        self.waits: list[str] = []
        self.numbers = itertools.count()

    def bound(self, bindings: list[Binding]) -> None:
        for uid, pilot in bindings:
            assert pilot in self.here
            assert self.wanted[uid] in ('', pilot)
            self.waits.remove(uid)

    @rule(wanted=st.lists(st.one_of(st.just(''), PILOTS), max_size=5))
    def submit(self, wanted: list[str]) -> None:
        new = [Request(f't{next(self.numbers)}', pilot) for pilot in wanted]
        self.wanted.update(new)
        self.waits += [request.uid for request in new]
        self.bound(self.scheduler.submit(new))

    @rule(pilot=PILOTS)
    def add(self, pilot: str) -> None:
        if pilot not in self.here:
            self.here.add(pilot)
            self.bound(self.scheduler.add_pilots([pilot]))

    @rule(pilot=PILOTS)
    def remove(self, pilot: str) -> None:
        self.here.discard(pilot)
        self.scheduler.remove_pilots([pilot])

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.wanted:
            uid = data.draw(st.sampled_from(sorted(self.wanted)))
            expected = [uid] if uid in self.waits else []
            assert self.scheduler.forget([uid]) == expected
            self.waits = [each for each in self.waits if each != uid]

    @invariant()
    def only_those_wait_that_have_to(self) -> None:
        assert waiting(self.scheduler) == self.waits
        for uid in self.waits:
            assert self.wanted[uid] not in self.here
            assert self.wanted[uid] or not self.here


TestEachTaskOnce = EachTaskOnce.TestCase
