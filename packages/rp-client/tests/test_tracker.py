"""States move forward only, each is announced once and in order, and what is known comes with the state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from client_support import a_task
from hypothesis import given
from hypothesis import strategies as st

from rp_api import states
from rp_client.engine.callbacks import Dispatcher, Registry, told
from rp_client.engine.tracker import Change, Tracker
from rp_client.handles.task import Task

TIMEOUT = 30.0
LINE = [name for name in states.TASK.names if name not in states.FINAL]


class Thing:
    """An entity that remembers when it learnt what."""

    def __init__(self, uid: str, state: str = states.NEW) -> None:
        self.uid = uid
        self.state = state
        self.learnt: list[tuple[str, dict[str, Any]]] = []
        self.reached: str | None = None
        self.callbacks = Registry({'TASK_STATE': told('task')})

    @property
    def handle(self) -> Thing:
        return self

    def learn(self, info: dict[str, Any]) -> None:
        self.learnt.append((self.state, info))


class Direct(Dispatcher):
    """Calls at once."""

    def call_each(self, callback: Any, calls: Any) -> None:
        for args in calls:
            callback(*args)


class Watch:
    """A tracker, and what it announces: (uid, state)."""

    def __init__(self) -> None:
        self.registry = Registry({'TASK_STATE': ('task', 'state'), 'WAIT_QUEUE_SIZE': ('task_manager', 'size')})
        self.tracker = Tracker(states.TASK, 'TASK_STATE', self.registry, Direct('x'))
        self.seen: list[tuple[str, str]] = []
        self.registry.add(lambda thing, state: self.seen.append((thing.uid, state)), 'TASK_STATE')

    def move(self, thing: Thing, state: str, info: dict[str, Any] | None = None) -> list[Change]:
        return self.tracker.apply([Change(thing, state, info)])


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.delenv('RADICAL_PILOT_BULK_CB', raising=False)
    return Watch()


def states_of(watch: Watch) -> list[str]:
    return [state for _, state in watch.seen]


# states


def test_skipped_states_are_announced_once_in_order(watch: Watch) -> None:
    thing = Thing('a')
    real = watch.move(thing, states.AGENT_EXECUTING)
    assert real == [Change(thing, states.AGENT_EXECUTING, None)]
    assert thing.state == states.AGENT_EXECUTING
    assert states_of(watch) == LINE[1:LINE.index(states.AGENT_EXECUTING) + 1]
    watch.move(thing, states.DONE)
    assert states_of(watch) == [*LINE[1:], states.DONE]


@pytest.mark.parametrize('end', [states.FAILED, states.CANCELED])
def test_a_bad_end_is_announced_alone(watch: Watch, end: str) -> None:
    watch.move(Thing('a', states.TMGR_SCHEDULING), end)
    assert states_of(watch) == [end]


def test_before_a_bad_end_comes_what_was_really_reached(watch: Watch) -> None:
    thing = Thing('a', states.AGENT_STAGING_INPUT_PENDING)
    info = {'reached': states.AGENT_SCHEDULING, 'exception': 'too large'}
    assert watch.move(thing, states.FAILED, info) == [Change(thing, states.FAILED, info)]
    assert states_of(watch) == [states.AGENT_STAGING_INPUT, states.AGENT_SCHEDULING_PENDING, states.AGENT_SCHEDULING,
                                states.FAILED]


def test_what_was_reached_long_ago_is_not_announced_again(watch: Watch) -> None:
    thing = Thing('a', states.AGENT_EXECUTING)
    watch.move(thing, states.CANCELED, {'reached': states.AGENT_SCHEDULING})
    assert states_of(watch) == [states.CANCELED]


@pytest.mark.parametrize(('state', 'late'), [
    (states.AGENT_EXECUTING, states.AGENT_SCHEDULING), (states.AGENT_EXECUTING, states.AGENT_EXECUTING),
    (states.DONE, states.AGENT_EXECUTING), (states.DONE, states.FAILED), (states.DONE, states.CANCELED),
    (states.FAILED, states.DONE), (states.FAILED, states.CANCELED), (states.AGENT_EXECUTING, 'NOWHERE'),
    (states.AGENT_EXECUTING, states.PMGR_ACTIVE)])
def test_late_and_impossible_news_changes_nothing(watch: Watch, state: str, late: str) -> None:
    thing = Thing('a', state)
    assert watch.move(thing, late) == []
    assert thing.state == state
    assert watch.seen == []


@pytest.mark.parametrize('end', [states.DONE, states.FAILED])
def test_a_cancellation_can_be_corrected_by_what_really_happened(watch: Watch, end: str) -> None:
    thing = Thing('a', states.CANCELED)
    assert watch.move(thing, end, {'reached': states.AGENT_EXECUTING, 'exit_code': 3})
    assert thing.state == end
    assert states_of(watch) == [end]
    assert thing.learnt[0][1]['exit_code'] == 3


@given(news=st.lists(st.sampled_from(states.TASK.names), max_size=12))
def test_each_state_is_announced_at_most_once_and_forward(news: list[str]) -> None:
    watch, thing = Watch(), Thing('a')
    for state in news:
        watch.move(thing, state)
    seen = states_of(watch)
    values = [states.TASK.value(state) for state in seen]
    assert values == sorted(values)
    assert len(seen) == len(set(seen))
    assert thing.state == (seen[-1] if seen else states.NEW)
    finals = [state for state in seen if state in states.FINAL]
    assert len(finals) <= 1 or finals[0] == states.CANCELED


# what becomes known


def test_what_is_known_is_there_before_the_state_can_be_seen(watch: Watch) -> None:
    thing = Thing('a', states.AGENT_EXECUTING)
    info = {'exit_code': 3, 'reached': states.AGENT_STAGING_OUTPUT}
    watch.move(thing, states.FAILED, info)
    assert thing.learnt == [(states.AGENT_STAGING_OUTPUT, info)]


def test_more_may_become_known_in_the_same_state(watch: Watch) -> None:
    thing = Thing('a', states.AGENT_EXECUTING)
    assert watch.move(thing, states.AGENT_EXECUTING, {'slots': []}) == []
    assert thing.learnt == [(states.AGENT_EXECUTING, {'slots': []})]
    assert watch.seen == []


def test_old_news_teaches_nothing(watch: Watch) -> None:
    thing = Thing('a', states.DONE)
    watch.move(thing, states.AGENT_EXECUTING, {'exit_code': 1})
    watch.move(thing, states.FAILED, {'exit_code': 1})
    assert thing.learnt == []


# bulks, waits and callbacks


def test_a_bulk_gives_its_real_changes_in_order(watch: Watch) -> None:
    a, b, c = Thing('a'), Thing('b', states.DONE), Thing('c')
    real = watch.tracker.apply([Change(a, states.TMGR_SCHEDULING_PENDING), Change(b, states.AGENT_EXECUTING),
                                Change(c, states.FAILED, {'x': 1}), Change(a, states.TMGR_SCHEDULING)])
    assert [(change.entity.uid, change.state) for change in real] == [
        ('a', states.TMGR_SCHEDULING_PENDING), ('c', states.FAILED), ('a', states.TMGR_SCHEDULING)]
    assert watch.seen == [('a', states.TMGR_SCHEDULING_PENDING), ('c', states.FAILED), ('a', states.TMGR_SCHEDULING)]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([*LINE[-3:], *states.FINAL, 'ODD']),
                          st.sampled_from([None, {}, {'exit_code': 0}, {'reached': LINE[-2]}])), max_size=30))
def test_a_bulk_has_the_effects_of_its_changes_one_by_one(news: list[tuple[int, str, dict[str, Any] | None]]) -> None:
    found = []
    for size in (1, len(news) or 1):
        watch, things = Watch(), [Thing(f't.{number}') for number in range(6)]
        changes = [Change(things[number], state, info) for number, state, info in news]
        real = [change for first in range(0, len(changes), size)
                for change in watch.tracker.apply(changes[first:first + size])]
        found.append(([(thing.state, thing.learnt) for thing in things], watch.seen,
                      [(change.entity.uid, *change[1:]) for change in real]))
    assert found[0] == found[1]


def test_a_bulk_moves_to_one_state(watch: Watch) -> None:
    """Each from where it is; what cannot move there stays."""
    things = [Thing('a'), Thing('b'), Thing('c', states.DONE), Thing('d', states.TMGR_SCHEDULING), Thing('e')]
    watch.tracker.advance(things, states.TMGR_SCHEDULING)
    assert [thing.state for thing in things] == [states.TMGR_SCHEDULING] * 2 + [states.DONE] + [
        states.TMGR_SCHEDULING] * 2
    assert watch.seen == [(uid, state) for uid in 'abe' for state in (
        states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING)]
    watch.tracker.advance(things, states.DONE)
    watch.tracker.advance(things, states.FAILED)
    assert {thing.state for thing in things} == {states.DONE}
    watch.tracker.advance([], states.DONE)


def test_an_empty_bulk_is_no_problem(watch: Watch) -> None:
    assert watch.tracker.apply(iter(())) == []


def test_those_who_wait_are_woken(watch: Watch) -> None:
    thing = Thing('a')
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(watch.tracker.board.wait([thing], None, TIMEOUT)))
    waiter.start()
    watch.move(thing, states.AGENT_EXECUTING)
    watch.move(thing, states.FAILED)
    waiter.join()
    assert results == [True]


def test_states_can_be_seen_when_callbacks_come(watch: Watch) -> None:
    thing = Thing('a')
    seen: list[str] = []
    watch.registry.add(lambda thing, state: seen.append(thing.state), 'TASK_STATE')
    watch.move(thing, states.DONE)
    assert set(seen) == {states.DONE}


def test_callbacks_may_be_for_one_entity_and_have_data(watch: Watch) -> None:
    seen: list[tuple[Any, ...]] = []
    watch.registry.add(lambda *args: seen.append(args), 'TASK_STATE', data='mine', uid='b')
    watch.registry.add(lambda *args: pytest.fail('another metric'), 'WAIT_QUEUE_SIZE')
    a, b = Thing('a'), Thing('b')
    watch.tracker.apply([Change(a, states.FAILED), Change(b, states.FAILED)])
    assert seen == [(b, states.FAILED, 'mine')]
    assert watch.seen == [('a', states.FAILED), ('b', states.FAILED)]


def test_entities_have_callbacks_of_their_own(watch: Watch) -> None:
    a, b = Thing('a'), Thing('b')
    seen: list[tuple[Any, ...]] = []
    a.callbacks.add(lambda *args: seen.append(args), 'TASK_STATE', data=1)
    watch.tracker.apply([Change(a, states.TMGR_SCHEDULING), Change(b, states.TMGR_SCHEDULING)])
    assert seen == [(a, states.TMGR_SCHEDULING_PENDING, 1), (a, states.TMGR_SCHEDULING, 1)]


def test_in_bulk_mode_there_is_one_call_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', 'TRUE')
    registry = Registry({'TASK_STATE': told('task')})
    tracker = Tracker(states.TASK, 'TASK_STATE', registry, Direct('x'))
    seen: list[tuple[Any, ...]] = []
    registry.add(lambda *args: seen.append(args), 'TASK_STATE')
    registry.add(lambda *args: seen.append(args), 'TASK_STATE', data=7, uid='b')
    a, b = Thing('a'), Thing('b')
    tracker.apply([Change(a, states.AGENT_EXECUTING), Change(b, states.AGENT_EXECUTING)])
    tracker.apply([Change(a, states.DONE), Change(b, states.NEW)])
    assert seen == [([a, b],), ([b], 7), ([a],)]


def test_a_bulk_shows_each_state_once_whatever_happens_before_and_during_the_call(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that acts on the final state of each task does so once."""
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', 'TRUE')
    registry = Registry({'TASK_STATE': told('task')})
    dispatcher = Dispatcher('callbacks')
    tracker = Tracker(states.TASK, 'TASK_STATE', registry, dispatcher)
    tasks = [a_task(f't{number}') for number in range(3)]
    seen: list[tuple[str, str, bool]] = []
    entered, changed = threading.Event(), threading.Event()

    def callback(tasks: list[Task]) -> None:
        entered.set()
        assert changed.wait(TIMEOUT)
        seen.extend((task.uid, task.state, task.done()) for task in tasks)

    registry.add(callback, 'TASK_STATE')
    tracker.apply([Change(task, states.AGENT_SCHEDULING) for task in tasks])
    assert entered.wait(TIMEOUT)
    for state in (states.AGENT_EXECUTING, states.FAILED):   # while the first call runs, and before the others
        tracker.apply([Change(task, state) for task in tasks])
    assert {task.state for task in tasks} == {states.FAILED}   # in other threads
    changed.set()
    dispatcher.close(TIMEOUT)
    passed = states.AGENT_SCHEDULING, states.AGENT_EXECUTING, states.FAILED
    assert seen == [(f't{number}', state, state == states.FAILED) for state in passed for number in range(3)]


def test_a_callback_for_a_bulk_that_waits_sees_the_state_that_it_waited_for(
        monkeypatch: pytest.MonkeyPatch, threaded: Dispatcher) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', 'TRUE')
    registry = Registry({'TASK_STATE': told('task')})
    tracker = Tracker(states.TASK, 'TASK_STATE', registry, threaded)
    task = a_task('t')
    entered = threading.Event()
    seen: list[Any] = []

    def callback(tasks: list[Task]) -> None:
        entered.set()
        seen.extend((tracker.board.wait(tasks, None, TIMEOUT), each.state) for each in tasks)

    registry.add(callback, 'TASK_STATE')
    tracker.apply([Change(task, states.AGENT_EXECUTING)])
    assert entered.wait(TIMEOUT)
    tracker.apply([Change(task, states.DONE)])
    threaded.close(TIMEOUT)
    assert seen == [(True, states.DONE)] * 2


@pytest.fixture
def threaded() -> Iterator[Dispatcher]:
    dispatcher = Dispatcher('callbacks')
    yield dispatcher
    dispatcher.close(TIMEOUT)


def test_callbacks_of_many_changes_keep_their_order(threaded: Dispatcher) -> None:
    registry = Registry({'TASK_STATE': told('task')})
    tracker = Tracker(states.TASK, 'TASK_STATE', registry, threaded)
    seen: list[tuple[str, str]] = []
    registry.add(lambda thing, state: seen.append((thing.uid, state)), 'TASK_STATE')
    things = [Thing(f't{number}') for number in range(50)]
    for state in (states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING, states.FAILED):
        tracker.apply([Change(thing, state) for thing in things])
    threaded.close(TIMEOUT)
    assert seen == [(thing.uid, state) for state in (states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING,
                                                     states.FAILED) for thing in things]


# callbacks that come later

@pytest.mark.parametrize('error', [RecursionError('too deep'), MemoryError(), KeyError('odd'), OverflowError('large')])
@pytest.mark.parametrize('state', [states.AGENT_EXECUTING, states.DONE])
def test_an_update_that_cannot_be_dealt_with_fails_one_entity(watch: Watch, error: Exception, state: str) -> None:
    """The others of the bulk go on, and the change that is given is the one that has happened."""
    class Odd(Thing):
        def learn(self, info: dict[str, Any]) -> None:
            if 'odd' in info:
                raise error
            super().learn(info)

    first, odd, last = Odd('first'), Odd('odd'), Odd('last')
    real = watch.tracker.apply([Change(first, state, {'a': 1}), Change(odd, state, {'odd': 1}),
                                Change(last, state, {'a': 1})])
    assert [(change.entity.uid, change.state) for change in real] == [
        ('first', state), ('odd', states.FAILED), ('last', state)]
    assert [first.state, odd.state, last.state] == [state, states.FAILED, state]
    ((_, info),) = odd.learnt
    assert type(error).__name__ in info['exception']
    assert ('odd', states.FAILED) in watch.seen


@pytest.mark.parametrize('reached', [[], {}, 5, None, 'nowhere', '\udcff'])
def test_odd_news_do_not_leave_the_tracker(watch: Watch, reached: Any) -> None:
    thing = Thing('a')
    watch.move(thing, states.FAILED, {'reached': reached})
    watch.move(thing, states.FAILED, {'exception': 'it failed'})
    assert thing.state == states.FAILED


class Restored:
    """A tracker of entities of a former application, and what callbacks are told."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry({'TASK_STATE': told('task')})
        self.tracker = Tracker(states.TASK, 'TASK_STATE', self.registry, Direct('x'), owner='tmgr.0000')

    def thing(self, uid: str, last_told: str, state: str) -> Thing:
        thing = Thing(uid, state)
        self.tracker.restored(thing, last_told)
        return thing

    def register(self, thing: Thing | None = None) -> list[tuple[str, str]]:
        """Register a callback, for one of them or for all; what it is told."""
        seen: list[tuple[str, str]] = []
        entry = self.registry.add(lambda thing, state: seen.append((thing.uid, state)), 'TASK_STATE',
                                  uid=thing.uid if thing else None)
        self.tracker.release(entry, thing)
        return seen


def named(uid: str, first: str, last: str) -> list[tuple[str, str]]:
    """An entity with all states from the first to the last one."""
    return [(uid, state) for state in [*LINE, states.DONE][LINE.index(first):[*LINE, states.DONE].index(last) + 1]]


def test_the_first_callback_is_told_what_no_application_was_told() -> None:
    """All states in between, whether they were passed before or after the restoration; then everything, as it comes."""
    restored = Restored()
    done = restored.thing('done', states.AGENT_SCHEDULING, states.DONE)
    known = restored.thing('known', states.DONE, states.DONE)
    runs = restored.thing('runs', states.AGENT_EXECUTING, states.AGENT_EXECUTING)
    fresh = restored.thing('fresh', states.NEW, states.TMGR_SCHEDULING_PENDING)
    restored.tracker.apply([Change(fresh, states.TMGR_SCHEDULING), Change(runs, states.AGENT_STAGING_OUTPUT)])
    seen = restored.register()
    later = restored.register()
    assert sorted(seen) == sorted([
        *named('done', states.AGENT_EXECUTING_PENDING, states.DONE),
        *named('runs', states.AGENT_STAGING_OUTPUT_PENDING, states.AGENT_STAGING_OUTPUT),
        *named('fresh', states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING)])
    for uid in ('done', 'runs', 'fresh'):
        assert [state for who, state in seen if who == uid] == [
            name for name in states.TASK.names if (uid, name) in seen]
    del seen[:]
    restored.tracker.apply([Change(fresh, states.TMGR_STAGING_INPUT_PENDING), Change(done, states.DONE),
                            Change(known, states.DONE)])
    assert seen == later == [('fresh', states.TMGR_STAGING_INPUT_PENDING)]


def test_what_is_restored_waits_for_a_callback_of_its_own() -> None:
    """One for another entity does not use it up, nor does one for what is new."""
    restored = Restored()
    a = restored.thing('a', states.AGENT_EXECUTING, states.DONE)
    b = restored.thing('b', states.AGENT_EXECUTING, states.AGENT_EXECUTING)
    new = Thing('new', states.AGENT_EXECUTING)
    assert restored.register(new) == []
    restored.tracker.apply([Change(new, states.AGENT_STAGING_OUTPUT_PENDING),
                            Change(b, states.AGENT_STAGING_OUTPUT_PENDING)])
    expected = named('a', states.AGENT_STAGING_OUTPUT_PENDING, states.DONE)
    assert restored.register(a) == expected
    seen: list[tuple[str, str]] = []
    entry = b.callbacks.add(lambda thing, state: seen.append((thing.uid, state)), 'TASK_STATE')
    restored.tracker.release_own(entry, b)
    assert seen == [('b', states.AGENT_STAGING_OUTPUT_PENDING)]
    assert restored.register() == []
    restored.tracker.apply([Change(b, states.AGENT_STAGING_OUTPUT)])
    assert seen[1:] == [('b', states.AGENT_STAGING_OUTPUT)]


def test_a_bad_end_of_what_is_restored_comes_after_what_was_reached() -> None:
    restored = Restored()
    for uid, last_told, state, reached in (
            ('a', states.AGENT_SCHEDULING, states.FAILED, states.AGENT_EXECUTING),
            ('b', states.AGENT_EXECUTING, states.CANCELED, states.AGENT_SCHEDULING),
            ('c', states.AGENT_SCHEDULING, states.FAILED, None), ('d', states.CANCELED, states.DONE, None)):
        restored.thing(uid, last_told, state).reached = reached
    assert sorted(restored.register()) == sorted([
        *named('a', states.AGENT_EXECUTING_PENDING, states.AGENT_EXECUTING), ('a', states.FAILED),
        ('b', states.CANCELED), ('c', states.FAILED), ('d', states.DONE)])


def test_what_is_restored_is_told_in_bulks_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', 'TRUE')
    restored = Restored()
    a, b = (restored.thing(uid, states.AGENT_EXECUTING, states.DONE) for uid in 'ab')
    restored.thing('c', states.DONE, states.DONE)
    seen: list[Any] = []
    restored.tracker.release(restored.registry.add(seen.append, 'TASK_STATE'))
    assert seen == [[a, b]]


def test_a_manager_tells_when_it_has_a_callback_for_all_that_is_restored() -> None:
    restored = Restored()
    assert not restored.tracker.tells
    a = restored.thing('a', states.NEW, states.AGENT_EXECUTING)
    restored.thing('b', states.NEW, states.AGENT_EXECUTING)
    restored.register(a)
    assert not restored.tracker.tells
    restored.register()
    assert restored.tracker.tells
