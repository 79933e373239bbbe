"""Tasks go to active pilots only, as many as fit; the others wait in their order and go where something ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rp_client.scheduler.backfilling import (
    HIGH_WATER_MARK,
    OVERSUBSCRIPTION,
    OVERTAKING_TASKS_PER_CORE,
    Backfilling,
    oversubscription,
)
from rp_client.scheduler.base import Binding, Request
from rp_client.scheduler.places import Need
from rp_client.scheduler.room import Node, Room


class Site:
    """A scheduler whose pilots and tasks come and go as the test says; `bound` are the tasks that it has bound."""

    def __init__(self, *pilots: int) -> None:
        self.scheduler = Backfilling()
        self.needs: dict[str, Need] = {}
        self.scheduler.need = self.needs.__getitem__
        self.bound: dict[str, str] = {}
        self.count = 0
        for number, cores in enumerate(pilots):
            self.add(f'p{number}', cores)

    def add(self, pilot: str, cores: int | Sequence[Node] = 0) -> list[str]:
        """Add a pilot, which is active if it has cores."""
        self.places(pilot, cores)
        return self.bind(self.scheduler.add_pilots([pilot]))

    def activate(self, pilot: str, cores: int | Sequence[Node]) -> list[str]:
        """Have a pilot become active, or have other nodes."""
        self.places(pilot, cores)
        return self.bind(self.scheduler.retry())

    def end(self, pilot: str) -> list[str]:
        """End a pilot; its tasks stay where they are."""
        self.scheduler.remove_pilots([pilot])
        self.scheduler.places_changed(pilot, {}, pending=False)
        return self.bind(self.scheduler.retry())

    def places(self, pilot: str, cores: int | Sequence[Node]) -> None:
        nodes = [Node(cores)] if isinstance(cores, int) else list(cores)
        self.scheduler.places_changed(pilot, {pilot: (None, nodes)} if cores else {}, pending=not cores)

    def submit(self, count: int = 1, need: Need | None = None, pilot: str = '') -> list[str]:
        """Submit tasks, and return those that are bound then."""
        uids = [f't{self.count + number}' for number in range(count)]
        self.count += count
        self.needs.update(dict.fromkeys(uids, need or Need()))
        return self.bind(self.scheduler.submit([Request(uid, pilot) for uid in uids]))

    def leave(self, *uids: str) -> list[str]:
        """End tasks, and return those that are bound in their stead."""
        for uid in uids:
            del self.bound[uid]
        return self.bind(self.scheduler.left(uids))

    def bind(self, bindings: list[Binding]) -> list[str]:
        assert not {uid for uid, _ in bindings} & self.bound.keys()
        self.bound.update(bindings)
        self.scheduler.check()
        return [uid for uid, _ in bindings]

    @property
    def waiting(self) -> list[str]:
        return [request.uid for request in self.scheduler.waiting]

    def on(self, pilot: str) -> int:
        """The number of tasks on a pilot."""
        return list(self.bound.values()).count(pilot)


def test_only_active_pilots_get_tasks() -> None:
    site = Site(2, 0)
    assert site.submit(4) == ['t0', 't1']
    assert site.activate('p1', 1) == ['t2']
    assert site.bound == {'t0': 'p0', 't1': 'p0', 't2': 'p1'}
    assert site.waiting == ['t3']


def test_without_pilots_tasks_wait() -> None:
    site = Site()
    assert site.submit(3) == []
    assert site.add('p0', 2) == ['t0', 't1']


def test_tasks_are_spread_over_pilots_with_room() -> None:
    site = Site(4, 4)
    site.submit(4)
    assert (site.on('p0'), site.on('p1')) == (2, 2)
    single = Site(4, 4)
    for _ in range(4):
        single.submit()
    assert (single.on('p0'), single.on('p1')) == (2, 2)


def test_a_task_that_ends_makes_room_for_the_oldest_that_waits() -> None:
    site = Site(1, 1)
    site.submit(5)
    assert site.leave('t1') == ['t2']
    assert site.leave('t0', 't2') == ['t3', 't4']
    assert site.leave('t3', 't4') == []


def test_smaller_tasks_fill_the_gaps() -> None:
    site = Site(4)
    site.submit(1, Need(cores=3))
    site.submit(1, Need(ranks=2))
    assert site.submit(2) == ['t2']
    assert site.leave('t0') == ['t1', 't3']


def test_priority_comes_before_age() -> None:
    site = Site(1)
    site.submit(3)
    site.submit(1, Need(priority=5))
    assert site.leave('t0') == ['t3']
    assert site.leave('t3') == ['t1']


def test_a_task_that_asks_for_a_pilot_waits_for_its_room() -> None:
    site = Site(1, 1)
    assert site.submit(2, pilot='p0') == ['t0']
    assert site.submit(1, pilot='p9') == []
    assert site.submit() == ['t3']
    assert site.bound == {'t0': 'p0', 't3': 'p1'}
    assert site.leave('t3') == []
    assert site.leave('t0') == ['t1']
    assert site.scheduler.wanted('t2') == 'p9'
    assert site.add('p9', 1) == ['t2']


def test_partitions_are_places() -> None:
    site = Site()
    site.scheduler.places_changed('p0', {'p0.0': (0, [Node(1)]), 'p0.1': (1, [Node(2)])}, pending=False)
    site.scheduler.add_pilots(['p0'])
    site.submit(2, Need(partition=1))
    site.submit(1, pilot='p0.0')
    assert site.bound == {'t0': 'p0.1', 't1': 'p0.1', 't2': 'p0.0'}
    assert site.submit(1, pilot='p0') == []
    assert site.leave('t0') == ['t3']


def test_a_pilot_that_is_not_divided_takes_tasks_for_any_partition() -> None:
    """Its agent has the last word on them, as with other schedulers."""
    assert Site(1).submit(1, Need(partition=3)) == ['t0']


def test_calls_of_raptor_need_no_room() -> None:
    site = Site(1)
    site.submit()
    assert site.submit(3, Need(counted=False), 'p0') == ['t1', 't2', 't3']
    assert site.submit() == []
    assert site.leave('t1') == []
    assert site.leave('t0') == ['t4']


def test_waiting_tasks_can_be_forgotten() -> None:
    site = Site(1)
    site.submit(4)
    assert site.scheduler.forget(['t1', 't0', 'unknown']) == ['t1']
    assert site.leave('t0') == ['t2']
    assert site.scheduler.forget(['t3']) == ['t3']
    assert site.leave('t2') == []
    assert site.submit() == ['t4']


def test_a_task_that_fits_nowhere_goes_to_the_largest_pilot_to_be_refused() -> None:
    site = Site(1, 2)
    assert site.submit(1, Need(cores=3)) == ['t0']
    assert site.bound == {'t0': 'p1'}
    assert site.submit(3) == ['t1', 't2', 't3']   # it takes no room


def test_a_task_waits_for_a_pilot_that_may_be_large_enough() -> None:
    site = Site(1, 0)
    assert site.submit(1, Need(cores=3)) == []
    assert site.submit() == ['t1']
    assert site.activate('p1', 4) == ['t0']
    other = Site(1, 0)
    other.submit(1, Need(cores=3))
    assert other.end('p1') == ['t0']
    assert other.bound == {'t0': 'p0'}


def test_tasks_of_a_pilot_that_has_ended_come_first() -> None:
    site = Site(2, 1)
    site.submit(6)
    lost = sorted(uid for uid, pilot in site.bound.items() if pilot == 'p0')
    site.end('p0')
    site.scheduler.returned(lost)
    for uid in lost:
        del site.bound[uid]
    assert site.bind(site.scheduler.submit([Request(uid, '') for uid in lost])) == []
    (left,) = site.bound
    assert site.leave(left) == lost[:1]
    assert site.leave(lost[0]) == lost[1:]
    assert site.leave(lost[1]) == ['t3']


def test_a_removed_pilot_keeps_its_tasks_and_gets_no_more() -> None:
    site = Site(1, 1)
    site.submit(4)
    site.scheduler.remove_pilots(['p0'])
    on_removed = next(uid for uid, pilot in site.bound.items() if pilot == 'p0')
    assert site.leave(on_removed) == []
    assert site.add('p0', 1) == ['t2']


def test_a_pilot_that_loses_nodes_gets_less() -> None:
    site = Site()
    site.add('p0', [Node(2), Node(2)])
    site.submit(6)
    assert site.activate('p0', [Node(2), Node(0)]) == []
    assert site.leave('t0', 't1') == []
    assert site.leave('t2') == ['t4']


def test_restored_tasks_take_room() -> None:
    site = Site()
    site.needs.update(dict.fromkeys('ab', Need()))
    site.scheduler.restored('a', 'p0')
    site.add('p0', 3)
    site.scheduler.restored('b', 'p0')
    assert site.submit(2) == ['t0']
    site.bound |= {'a': 'p0', 'b': 'p0'}
    assert site.leave('a') == ['t1']


def test_an_old_task_gets_a_pilot_to_itself() -> None:
    """Smaller tasks that end one by one never leave enough room for it."""
    site = Site(2, 1)
    site.submit(3)
    site.submit(1, Need(cores=2))
    site.submit(200)
    for _ in range(3 * OVERTAKING_TASKS_PER_CORE * 2):
        oldest = next(uid for uid, pilot in site.bound.items() if pilot == 'p0')
        if 't3' in site.leave(oldest):
            break
    assert site.bound['t3'] == 'p0'
    assert site.count - len(site.waiting) < 3 + 2 * OVERTAKING_TASKS_PER_CORE * 2
    passed = len(site.waiting)
    site.leave('t3')
    assert len(site.waiting) == passed - 2


def test_a_reserved_place_is_free_again_when_the_old_task_is_cancelled() -> None:
    site = Site(2)
    site.submit(2)
    site.submit(1, Need(cores=2))
    site.submit(100)
    while site.on('p0') == 2:
        site.leave(next(iter(site.bound)))
    site.leave(*site.bound)
    assert list(site.bound) == ['t2']
    other = Site(2)
    other.submit(2)
    other.submit(1, Need(cores=2))
    other.submit(100)
    while other.on('p0') == 2:
        other.leave(next(iter(other.bound)))
    other.scheduler.forget(['t2'])
    other.leave()   # as the manager does with the task that it has cancelled
    assert other.on('p0') == 2


def test_oversubscription(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERSUBSCRIPTION, '100')
    site = Site(2, 1)
    site.submit(2)
    assert site.on('p0') == site.on('p1') == 1   # nothing waits in an agent while there is room elsewhere
    site.submit(10)
    assert (site.on('p0'), site.on('p1')) == (4, 2)
    assert len(site.leave('t0')) == 1


@pytest.mark.parametrize(('environment', 'percent'), [
    ({}, 0), ({OVERSUBSCRIPTION: '50'}, 50), ({OVERSUBSCRIPTION: '12.5%'}, 12.5), ({HIGH_WATER_MARK: '200'}, 100),
    ({OVERSUBSCRIPTION: '10', HIGH_WATER_MARK: '200'}, 10), ({OVERSUBSCRIPTION: ''}, 0)])
def test_percentages(environment: dict[str, str], percent: float) -> None:
    assert oversubscription(environment) == percent


@pytest.mark.parametrize(('name', 'value'), [
    (OVERSUBSCRIPTION, 'much'), (OVERSUBSCRIPTION, '-1'), (OVERSUBSCRIPTION, 'inf'), (HIGH_WATER_MARK, '99')])
def test_bad_percentages(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is '{value}', it must be a percentage of at least"):
        oversubscription({name: value})


@given(cores=st.lists(st.integers(1, 8), min_size=1, max_size=5), tasks=st.integers(0, 60), seed=st.randoms())
def test_equal_tasks_run_in_their_order(cores: list[int], tasks: int, seed: object) -> None:
    site = Site(*cores)
    begun = site.submit(tasks)
    while site.bound:
        begun += site.leave(seed.choice(sorted(site.bound)))   # type: ignore[attr-defined]
    assert begun == [f't{number}' for number in range(tasks)]


NEEDS = st.sampled_from([Need(), Need(), Need(cores=2), Need(ranks=3), Need(ranks=9), Need(gpus=1), Need(priority=1),
                         Need(counted=False)])
PILOTS = st.sampled_from(['p0', 'p1', 'p2'])
NODES = {'p0': [Node(1)], 'p1': [Node(4, 1), Node(2)], 'p2': [Node(3, 2)]}


class EachTaskOnce(RuleBasedStateMachine):
    """Whatever comes and goes: each task is bound once or waits, and none waits that could run."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv(OVERSUBSCRIPTION, '50')
        self.site = Site()
        self.here: set[str] = set()
        self.gone: set[str] = set()

    @rule(count=st.integers(1, 4), need=NEEDS, pilot=st.one_of(st.just(''), PILOTS))
    def submit(self, count: int, need: Need, pilot: str) -> None:
        self.site.submit(count, need, pilot)

    @rule(pilot=PILOTS, active=st.booleans())
    def add(self, pilot: str, active: bool) -> None:
        if pilot not in self.here:
            self.here.add(pilot)
            self.site.add(pilot, NODES[pilot] if active else 0)

    @rule(pilot=PILOTS)
    def activate(self, pilot: str) -> None:
        if pilot in self.here:
            self.site.activate(pilot, NODES[pilot])

    @rule(pilot=PILOTS, returns=st.booleans())
    def end(self, pilot: str, returns: bool) -> None:
        if pilot in self.here:
            self.here.discard(pilot)
            self.site.end(pilot)
            left = [uid for uid, place in self.site.bound.items() if place == pilot]
            if returns:
                self.site.scheduler.returned(left)
                for uid in left:
                    del self.site.bound[uid]
                self.site.bind(self.site.scheduler.submit([Request(uid, '') for uid in left]))
            else:
                self.gone.update(left)
                self.site.leave(*left)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.site.bound:
            gone = data.draw(st.lists(st.sampled_from(sorted(self.site.bound)), unique=True))
            self.gone.update(gone)
            self.site.leave(*gone)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.site.waiting:
            uid = data.draw(st.sampled_from(self.site.waiting))
            self.gone.add(uid)
            assert self.site.scheduler.forget([uid]) == [uid]
            self.site.bind(self.site.scheduler.left([uid]))

    @invariant()
    def nothing_is_lost_and_nothing_waits_that_could_run(self) -> None:
        site = self.site
        assert sorted([*site.bound, *site.waiting, *self.gone]) == sorted(site.needs)
        assert set(site.bound.values()) <= self.here
        waiting = site.waiting
        if not site.scheduler._reserved:
            assert site.bind(site.scheduler.retry()) == []
            assert site.waiting == waiting

    @invariant()
    def no_pilot_has_too_many(self) -> None:
        for pilot in self.here:
            cores = sum(node.cores for node in NODES[pilot])
            needs = [self.site.needs[uid] for uid, place in self.site.bound.items() if place == pilot]
            empty = Room(NODES[pilot])
            load = sum(need.ranks * need.cores for need in needs if need.counted and empty.capacity(need))
            assert load <= 1.5 * cores

    def teardown(self) -> None:
        self.patch.undo()


TestEachTaskOnce = EachTaskOnce.TestCase
TestEachTaskOnce.settings = settings(max_examples=40, stateful_step_count=30)
