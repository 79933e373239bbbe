"""Callbacks come in order, in a thread of their own, and no one of them can stop the others."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from rp_client.engine.callbacks import Dispatcher, Registry, arguments, bulk_callbacks, told

TIMEOUT = 30.0


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    dispatcher = Dispatcher('the callbacks')
    yield dispatcher
    dispatcher.close(TIMEOUT)
    assert 'the callbacks' not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def registry() -> Registry:
    return Registry({'TASK_STATE': ('task', 'state'), 'WAIT_QUEUE_SIZE': ('task_manager', 'size')})


def one(*args: Any) -> None:
    """A callback."""


def other(*args: Any) -> None:
    """Another callback."""


# who calls


def test_callbacks_come_in_order_in_one_other_thread(dispatcher: Dispatcher) -> None:
    seen: list[tuple[int, str]] = []
    for number in range(100):
        dispatcher.call(lambda number: seen.append((number, threading.current_thread().name)), number)
    dispatcher.close(TIMEOUT)
    assert seen == [(number, 'the callbacks') for number in range(100)]


def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize('error', [ZeroDivisionError('on purpose'), SystemExit(1), KeyboardInterrupt()],
                         ids=lambda error: type(error).__name__)
def test_what_a_callback_raises_is_logged_and_stops_nobody(
        dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    seen: list[str] = []
    dispatcher.call(seen.append, 'before')
    dispatcher.call(failing, error)
    dispatcher.call(seen.append, 'after')
    with caplog.at_level(logging.ERROR):
        dispatcher.close(TIMEOUT)
    assert seen == ['before', 'after']
    record, = caplog.records
    assert record.getMessage() == 'callback failing failed'
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_failures_of_a_registered_callback_are_counted(dispatcher: Dispatcher,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    """The first one has a traceback; the others cost a line for ten times as many, and one at the end."""
    registry = Registry({'METRIC': ('error',)})
    often, seldom = registry.add(failing, 'METRIC')[1], registry.add(lambda error: failing(error), 'METRIC')[1]
    with caplog.at_level(logging.ERROR):
        for number in range(123):
            dispatcher.call(often, OSError(number))
        dispatcher.call(seldom, OSError('once'))
        dispatcher.close(TIMEOUT)
    lines = [record.getMessage() for record in caplog.records]
    assert len([record for record in caplog.records if record.exc_info]) == 2
    assert lines[0] == 'callback failing failed; it goes on to be called, and further failures are counted'
    assert lines[1:3] == ['callback failing has failed 10 times, now with OSError(9)',
                          'callback failing has failed 100 times, now with OSError(99)']
    assert 'lambda' in lines[3]
    assert lines[4:] == ['callback failing has failed 123 times']


def test_a_callback_without_a_name_can_fail_too(dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture) -> None:
    class Nameless:
        def __call__(self) -> None:
            raise ValueError('on purpose')

        def __repr__(self) -> str:
            return 'a nameless one'

    dispatcher.call(Nameless())
    dispatcher.close(TIMEOUT)
    assert 'a nameless one' in caplog.text


def test_a_callback_may_wait_and_may_ask_for_others(dispatcher: Dispatcher) -> None:
    """It holds up the other callbacks, but not those who report."""
    go, seen = threading.Event(), []

    def slow() -> None:
        assert go.wait(TIMEOUT)
        seen.append('slow')
        dispatcher.call(seen.append, 'last')

    dispatcher.call(slow)
    dispatcher.call(seen.append, 'next')
    assert seen == []
    go.set()
    done = threading.Event()
    dispatcher.call(lambda: dispatcher.call(done.set))
    assert done.wait(TIMEOUT)
    assert seen == ['slow', 'next', 'last']


def test_no_thread_is_started_for_nothing() -> None:
    before = set(threading.enumerate())
    Dispatcher('idle').close(TIMEOUT)
    assert set(threading.enumerate()) <= before


def test_close_does_not_wait_longer_than_asked(dispatcher: Dispatcher) -> None:
    go = threading.Event()
    ended = threading.Event()

    def last() -> None:
        if go.wait(TIMEOUT):
            ended.set()

    dispatcher.call(last)
    dispatcher.close(0.01)
    assert not ended.is_set()
    go.set()
    assert ended.wait(TIMEOUT)


def test_close_from_a_callback_does_not_wait_for_itself(dispatcher: Dispatcher) -> None:
    returned = threading.Event()

    def close() -> None:
        dispatcher.close(TIMEOUT)
        returned.set()

    dispatcher.call(close)
    dispatcher.close(TIMEOUT)
    assert returned.is_set()


def test_many_calls_are_made_when_it_is_their_turn(dispatcher: Dispatcher) -> None:
    made: list[int] = []
    seen: list[object] = []
    go = threading.Event()

    def calls() -> Iterator[tuple[int]]:
        for number in range(3):
            made.append(number)
            yield (number,)

    dispatcher.call(go.wait, TIMEOUT)
    dispatcher.call_each(seen.append, calls())
    dispatcher.call_each(failing, [(ZeroDivisionError('on purpose'),)] * 2)
    dispatcher.call(seen.append, 'last')
    assert made == []
    go.set()
    dispatcher.close(TIMEOUT)
    assert seen == [0, 1, 2, 'last']


def test_nothing_is_called_after_the_end(dispatcher: Dispatcher) -> None:
    seen: list[str] = []
    dispatcher.call(seen.append, 'before')
    dispatcher.end()
    dispatcher.call(seen.append, 'after')
    dispatcher.close(TIMEOUT)
    dispatcher.call(seen.append, 'after')
    assert seen == ['before']


def test_what_waits_can_be_dropped(dispatcher: Dispatcher) -> None:
    go, began = threading.Event(), threading.Event()
    seen: list[str] = []

    def begin() -> None:
        began.set()
        go.wait(TIMEOUT)
        seen.append('began')

    dispatcher.call(begin)
    dispatcher.call(seen.append, 'waits')
    assert began.wait(TIMEOUT)
    dispatcher.close(0.01)
    dispatcher.drop()
    go.set()
    dispatcher.close(TIMEOUT)
    assert seen == ['began']


# who is called


def selected(registry: Registry, metric: str) -> list[tuple[Any, ...]]:
    return [(each.function, data, uid) for each, data, uid in registry.select(metric)]


def test_what_waits_for_a_callback_that_is_removed_is_not_called(registry: Registry, dispatcher: Dispatcher) -> None:
    seen: list[int] = []

    def once(task: int, _state: str) -> None:
        seen.append(task)
        registry.remove(once, ['TASK_STATE'])

    registry.add(once, 'TASK_STATE')
    ((callback, *_),) = registry.select('TASK_STATE')
    for number in range(3):
        dispatcher.call(callback, number, 'DONE')
    dispatcher.close(TIMEOUT)
    assert seen == [0]


def test_callbacks_are_selected_by_metric_in_the_order_of_registration(registry: Registry) -> None:
    assert not registry
    registry.add(one, 'TASK_STATE')
    registry.add(other, 'WAIT_QUEUE_SIZE', data=7)
    registry.add(other, 'TASK_STATE', data={'x': 1}, uid='task.0')
    assert registry
    assert selected(registry, 'TASK_STATE') == [(one, None, None), (other, {'x': 1}, 'task.0')]
    assert selected(registry, 'WAIT_QUEUE_SIZE') == [(other, 7, None)]


def test_unknown_metrics_are_refused_everywhere(registry: Registry) -> None:
    sentence = "metric 'PILOT_STATE' is unknown, allowed are: TASK_STATE, WAIT_QUEUE_SIZE"
    with pytest.raises(ValueError, match=sentence):
        registry.add(one, 'PILOT_STATE')
    with pytest.raises(ValueError, match=sentence):
        registry.remove(one, ['TASK_STATE', 'PILOT_STATE'])
    with pytest.raises(ValueError, match=sentence):
        registry.check('PILOT_STATE')
    assert not registry


def test_what_cannot_be_called_is_refused(registry: Registry) -> None:
    with pytest.raises(ValueError, match=r"callback 'one' cannot be called"):
        registry.add('one', 'TASK_STATE')  # type: ignore[arg-type]


@pytest.mark.parametrize(('callback', 'data', 'sentence'), [
    (lambda: None, None, r'\(\) cannot be called with \(task, state\): too many positional arguments'),
    (lambda task: None, None, r'\(task\) cannot be called with \(task, state\): too many'),
    (lambda task, state, log: None, None, r"cannot be called with \(task, state\): missing a required argument: 'log'"),
    (lambda task: None, 7, r'\(task\) cannot be called with \(task, state, cb_data\): too many'),
    (lambda task, state, log, x: None, 7, r'cannot be called with \(task, state, cb_data\): missing a required'),
    (lambda task, state, *, log: None, None, 'missing a required'),
])
def test_what_cannot_be_called_like_that_is_refused(
        registry: Registry, callback: Any, data: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        registry.add(callback, 'TASK_STATE', data)
    assert not registry


@pytest.mark.parametrize(('callback', 'data'), [
    (lambda task, state: None, None), (lambda *args: None, 7), (lambda task, state, log=None: None, None),
    (lambda task, state, log=None: None, 0), (print, None), (dict.update, None), (mock.Mock(), 7),
    (functools.partial(one, 1), None)])
def test_what_can_be_called_like_that_is_taken(registry: Registry, callback: Any, data: object) -> None:
    registry.add(callback, 'TASK_STATE', data)
    assert registry.select('TASK_STATE')


@pytest.mark.parametrize('data', ['TASK_STATE', 7])
def test_data_that_a_callback_does_not_take_is_left_out(
        registry: Registry, caplog: pytest.LogCaptureFixture, data: object) -> None:
    """Applications pass the metric in the place of the data."""
    def callback(task: Any, state: str) -> None:
        """A callback without data."""

    registry.add(callback, 'TASK_STATE', data)
    assert selected(registry, 'TASK_STATE') == [(callback, None, None)]
    record, = caplog.records
    assert f'takes (task, state) and no data: it is called without its cb_data, {data!r}' in record.getMessage()


@pytest.mark.parametrize('bulk', [True, False])
def test_callbacks_for_bulks_get_a_list(monkeypatch: pytest.MonkeyPatch, bulk: bool) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', str(bulk))
    registry = Registry({'TASK_STATE': told('task')})
    callbacks: list[Callable[..., None]] = [lambda tasks: None, lambda task, state: None]
    fits, does_not = callbacks if bulk else reversed(callbacks)
    registry.add(fits, 'TASK_STATE')
    with pytest.raises(ValueError, match='cannot be called with'):
        registry.add(does_not, 'TASK_STATE')


def test_a_callback_can_be_removed_for_a_metric_an_entity_or_altogether(registry: Registry) -> None:
    for metric in ('TASK_STATE', 'WAIT_QUEUE_SIZE'):
        for uid in (None, 'a', 'b'):
            registry.add(one, metric, uid=uid)
    registry.add(other, 'TASK_STATE')
    registry.remove(one, ['WAIT_QUEUE_SIZE'])
    assert registry.select('WAIT_QUEUE_SIZE') == []
    registry.remove(one, ['TASK_STATE'], uid='a')
    assert selected(registry, 'TASK_STATE') == [(one, None, None), (one, None, 'b'), (other, None, None)]
    registry.remove(one, ['TASK_STATE', 'WAIT_QUEUE_SIZE'])
    assert selected(registry, 'TASK_STATE') == [(other, None, None)]


def test_all_callbacks_can_be_removed(registry: Registry) -> None:
    registry.add(one, 'TASK_STATE')
    registry.add(other, 'WAIT_QUEUE_SIZE')
    registry.remove(None, ['TASK_STATE'])
    assert registry.select('WAIT_QUEUE_SIZE')
    registry.remove(None, ['TASK_STATE', 'WAIT_QUEUE_SIZE'])
    assert not registry
    registry.remove(None, ['TASK_STATE'])


def test_a_callback_that_was_not_registered_cannot_be_removed(registry: Registry) -> None:
    registry.add(one, 'TASK_STATE', uid='a')
    for callback, metric, uid in ((other, 'TASK_STATE', None), (one, 'WAIT_QUEUE_SIZE', None),
                                  (one, 'TASK_STATE', 'b')):
        with pytest.raises(ValueError, match='is not registered'):
            registry.remove(callback, [metric], uid=uid)
    assert selected(registry, 'TASK_STATE') == [(one, None, 'a')]


def test_methods_are_recognised(registry: Registry) -> None:
    """A bound method is another object each time it is looked up."""
    seen: dict[Any, Any] = {}
    registry.add(seen.setdefault, 'TASK_STATE')
    registry.remove(seen.setdefault, ['TASK_STATE'])
    assert not registry


def test_a_selection_does_not_change_while_others_register(registry: Registry) -> None:
    registry.add(one, 'TASK_STATE')
    before = registry.select('TASK_STATE')
    entries = registry._entries
    registry.add(other, 'TASK_STATE')
    registry.remove(one, ['TASK_STATE'])
    assert [each.function for each, _, _ in before] == [one]
    assert len(entries) == 1


# what is passed


def test_data_is_passed_only_if_there_is_any() -> None:
    assert arguments('task', 'DONE', data=None) == ('task', 'DONE')
    assert arguments('task', 'DONE', data={}) == ('task', 'DONE', {})
    assert arguments(3, data=0) == (3, 0)


@pytest.mark.parametrize(('value', 'bulk'), [
    (None, False), ('', False), ('FALSE', False), ('no', False), ('0', False), ('True', True), ('TRUE', True),
    ('yes', True), ('1', True)])
def test_bulks_have_to_be_asked_for(monkeypatch: pytest.MonkeyPatch, value: str | None, bulk: bool) -> None:
    if value is None:
        monkeypatch.delenv('RADICAL_PILOT_BULK_CB', raising=False)
    else:
        monkeypatch.setenv('RADICAL_PILOT_BULK_CB', value)
    assert bulk_callbacks() is bulk


def test_the_thread_does_not_keep_the_application_alive() -> None:
    """An application that forgets to close its session can still end."""
    program = ('import threading\nfrom rp_client.engine.callbacks import Dispatcher\nready = threading.Event()\n'
               'Dispatcher("x").call(ready.set)\nassert ready.wait(30)\n')
    assert subprocess.run([sys.executable, '-c', program], timeout=TIMEOUT).returncode == 0
