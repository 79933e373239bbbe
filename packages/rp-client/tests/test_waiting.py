"""Waiting ends when the awaited state was reached or passed, when the end came, in time, or with the session."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from rp_api import states
from rp_api.errors import NoPilot, StateError
from rp_client.engine.waiting import Board, Stall

TIMEOUT = 30.0


@dataclass
class Thing:
    uid: str
    state: str = states.NEW


@pytest.fixture
def board() -> Board:
    return Board(states.TASK)


class Waiters:
    """Threads that wait on a board, and what came of it."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._threads: list[threading.Thread] = []

    def wait(self, things: list[Thing], wanted: str | Iterable[str] | None = None) -> Future[bool]:
        """Begin to wait; returns when the board knows of it."""
        result: Future[bool] = Future()

        def work() -> None:
            try:
                result.set_result(self._board.wait(things, wanted, TIMEOUT))
            except Exception as error:
                result.set_exception(error)

        known = len(self._board._waiters)
        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)
        tick = threading.Event()
        while len(self._board._waiters) == known and not result.done():
            tick.wait(0.001)
        return result

    def join(self) -> None:
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


@pytest.fixture
def waiters(board: Board) -> Iterator[Waiters]:
    waiters = Waiters(board)
    yield waiters
    waiters.join()
    assert board._waiters == [], 'nobody waits any more'


def move(board: Board, things: list[Thing], state: str) -> None:
    with board.lock:
        for thing in things:
            thing.state = state
        board.changed(state, things)


@pytest.mark.parametrize('wanted', [None, states.DONE, [states.DONE, states.FAILED], [], (states.AGENT_EXECUTING,),
                                    iter([states.NEW])])
def test_what_was_reached_is_not_waited_for(board: Board, wanted: str | Iterable[str] | None) -> None:
    assert board.wait([Thing('a', states.DONE), Thing('b', states.FAILED)], wanted, None)


def test_nothing_is_not_waited_for(board: Board) -> None:
    assert board.wait([], None, None)


def test_a_state_that_was_passed_counts(board: Board) -> None:
    assert board.wait([Thing('a', states.AGENT_EXECUTING)], states.AGENT_SCHEDULING, None)


def test_a_wait_ends_with_the_state(board: Board, waiters: Waiters) -> None:
    thing = Thing('a')
    result = waiters.wait([thing], states.AGENT_EXECUTING)
    move(board, [thing], states.AGENT_SCHEDULING)
    assert not result.done()
    move(board, [thing], states.AGENT_EXECUTING)
    assert result.result(TIMEOUT)


@pytest.mark.parametrize('end', states.FINAL)
@pytest.mark.parametrize('wanted', [None, states.AGENT_EXECUTING, states.DONE, [states.DONE]])
def test_any_end_ends_a_wait(board: Board, waiters: Waiters, wanted: str | None, end: str) -> None:
    thing = Thing('a')
    result = waiters.wait([thing], wanted)
    move(board, [thing], end)
    assert result.result(TIMEOUT)


def test_of_several_states_the_earliest_suffices(board: Board, waiters: Waiters) -> None:
    thing = Thing('a')
    result = waiters.wait([thing], [states.DONE, states.AGENT_SCHEDULING])
    move(board, [thing], states.AGENT_SCHEDULING)
    assert result.result(TIMEOUT)


def test_all_have_to_get_there(board: Board, waiters: Waiters) -> None:
    things = [Thing(uid) for uid in 'abc']
    result = waiters.wait(things)
    move(board, things[:2], states.DONE)
    assert not result.done()
    move(board, [Thing('stranger')], states.DONE)
    assert not result.done()
    move(board, things[2:], states.FAILED)
    assert result.result(TIMEOUT)


def test_many_can_wait_for_the_same(board: Board, waiters: Waiters) -> None:
    things = [Thing(uid) for uid in 'ab']
    early = [waiters.wait(things, states.AGENT_EXECUTING) for _ in range(3)]
    late = [waiters.wait(things[:1], states.DONE) for _ in range(3)]
    move(board, things, states.AGENT_EXECUTING)
    assert all(result.result(TIMEOUT) for result in early)
    assert not any(result.done() for result in late)
    move(board, things, states.DONE)
    assert all(result.result(TIMEOUT) for result in late)


@pytest.mark.parametrize('timeout', [0, 0.01])
def test_a_wait_can_time_out(board: Board, timeout: float) -> None:
    assert not board.wait([Thing('a')], None, timeout)
    assert board._waiters == []


@pytest.mark.parametrize('timeout', ['7 apples', [7], states.DONE])
def test_a_timeout_is_a_number(board: Board, timeout: Any) -> None:
    with pytest.raises(TypeError, match='it must be a number of seconds'):
        board.wait([], None, timeout)
    assert board._waiters == []


def test_an_unknown_state_is_refused(board: Board) -> None:
    with pytest.raises(StateError, match=r'\[NOWHERE\] is not a state of a task'):
        board.wait([Thing('a')], 'NOWHERE', None)
    with pytest.raises(StateError, match='PMGR_ACTIVE'):
        board.wait([Thing('a')], [states.DONE, states.PMGR_ACTIVE], None)


def test_when_the_session_breaks_all_waits_end(board: Board, waiters: Waiters) -> None:
    things = [Thing(uid) for uid in 'ab']
    results = [waiters.wait(things), waiters.wait(things[:1], states.AGENT_EXECUTING)]
    cause = ValueError('the hub is gone')
    board.broke(cause)
    for result in results:
        error = result.exception(TIMEOUT)
        assert isinstance(error, RuntimeError)
        assert str(error) == 'the session cannot go on: the hub is gone'
        assert error.__cause__ is cause


def test_a_broken_session_lets_nobody_wait(board: Board) -> None:
    board.broke(ValueError('the hub is gone'))
    with pytest.raises(RuntimeError, match='the hub is gone'):
        board.wait([Thing('a')], None, None)
    assert board.wait([Thing('b', states.DONE)], None, None), 'what was reached was reached'


def test_what_was_reached_before_it_broke_was_reached(board: Board, waiters: Waiters) -> None:
    thing = Thing('a')
    result = waiters.wait([thing])
    with board.lock:
        thing.state = states.DONE
        board.changed(thing.state, [thing])
        board.broke(ValueError('the hub is gone'))
    assert result.result(TIMEOUT)


def test_a_stall_ends_the_waits_for_what_it_includes(board: Board, waiters: Waiters) -> None:
    stuck, going = Thing('stuck'), Thing('going')
    ended, goes_on = waiters.wait([stuck, going]), waiters.wait([going])
    board.stalled(Stall(lambda uid: uid == 'stuck', lambda: NoPilot('no pilot')))
    assert isinstance(ended.exception(TIMEOUT), NoPilot)
    with pytest.raises(NoPilot):
        board.wait([stuck], None, None)
    with pytest.raises(NoPilot):
        board.wait_until(lambda: False, None, lambda: True)
    assert not board.wait_until(lambda: False, 0)
    board.stalled(None)
    assert not board.wait([stuck], None, 0)
    move(board, [going], states.DONE)
    assert goes_on.result(TIMEOUT)


def test_a_condition_is_looked_at_after_each_change(board: Board) -> None:
    thing = Thing('a')
    found: list[bool] = []

    def work() -> None:
        found.append(board.wait_until(lambda: thing.state == states.DONE, TIMEOUT))

    waiting = threading.Thread(target=work)
    waiting.start()
    while not board._watchers:
        assert waiting.is_alive()
    for state in (states.AGENT_EXECUTING, states.DONE):
        with board.lock:
            thing.state = state
            board.look()
    waiting.join(TIMEOUT)
    assert found == [True]
    assert not board._watchers


def test_a_condition_that_is_true_is_not_waited_for(board: Board) -> None:
    assert board.wait_until(lambda: True, 0)
    assert not board.wait_until(lambda: False, 0)


def test_the_end_of_the_session_ends_the_wait_for_a_condition(board: Board) -> None:
    board.broke(OSError('gone'))
    with pytest.raises(RuntimeError, match='gone'):
        board.wait_until(lambda: False, None)
