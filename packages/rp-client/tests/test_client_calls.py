"""Calls to agents and masters, with an agent that answers as the tests say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from client_support import Connection, a_pilot

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination.contract import KnownTask, Update
from rp_api.loop.event_loop import Loop
from rp_api.task_modes import OWNER
from rp_client.core.pilot import PilotRecord
from rp_client.engine.engine import Engine
from rp_client.flow.calls import PilotCalls
from rp_client.flow.uids import Uids

ECHO = {'mode': 'pilot.rpc', 'method': 'echo', 'args': [], 'kwargs': {}}


class Session(Connection):
    """A loop in a thread, and a connection whose agent calls `answer` with each call that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.connection = self
        self.on_room: list[Callable[[], None]] = []
        self.on_broken: list[Callable[[BaseException], None]] = []
        self.answer: Callable[[str, dict[str, Any]], object] = lambda uid, description: None
        self.got = threading.Event()
        self.calls = PilotCalls(cast(Engine, self), Uids())
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon(function, *args)

    def insert_batch(self, pilot: str, batch: Batch, owner: str = '') -> None:
        assert owner == OWNER
        self.tasks.append((pilot, batch.tasks()))
        for uid, description in batch.tasks():
            self.answer(uid, description)
        self.got.set()

    def command(self, pilot: str, command: Any) -> None:
        if command['cmd'] == 'call':   # it counts once
            assert (command['task'].pop('uid'), command['task']) == self.tasks[-1][1][-1]
            return
        super().command(pilot, command)
        self.got.set()

    def report(self, uid: str, state: str, **info: Any) -> None:
        """Have the agent report a state of a call."""
        self.loop.call_soon(self.calls.update, [Update(uid, state, info)])

    def end(self) -> None:
        self.loop.stop()
        self._thread.join()
        self.loop.close()

    def do(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop, and wait for its return."""
        done = threading.Event()
        self.loop.call_soon(function, *args)
        self.loop.call_soon(done.set)
        assert done.wait(10)


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session()
    yield made
    made.end()


def ask(session: Session, *places: PilotRecord, timeout: float | None = 10.0, **attributes: Any) -> Any:
    return session.calls.call(places or [a_pilot()], 'pilot.0000', ECHO | attributes, timeout)


def test_concurrent_calls_get_their_own_answers(session: Session) -> None:
    waiting: list[tuple[str, Any]] = []

    def in_reverse(uid: str, description: dict[str, Any]) -> None:
        waiting.append((uid, description['args'][0]))
        if len(waiting) == 8:
            for each, value in reversed(waiting):
                session.report(each, states.DONE, return_value=value)
            waiting.clear()

    session.answer = in_reverse
    with ThreadPoolExecutor(8) as pool:
        for first in range(0, 64, 8):
            numbers = list(range(first, first + 8))
            assert list(pool.map(lambda number: ask(session, args=[number]), numbers)) == numbers
    assert len(set(session.forgotten)) == 64


def test_failure_is_raised_with_its_reason_and_detail(session: Session) -> None:
    session.answer = lambda uid, _: session.report(
        uid, states.TMGR_STAGING_OUTPUT_PENDING, target_state=states.FAILED, exception='it is full',
        exception_detail='last line')
    with pytest.raises(RuntimeError, match=r'echo of pilot\.0000 failed: it is full\nlast line'):
        ask(session)
    (update,), = session.updates
    assert (update.state, session.forgotten) == (states.FAILED, [update.uid])


def test_deadline_cancels_the_call(session: Session) -> None:
    with pytest.raises(TimeoutError, match=r'echo of pilot\.0000 was not answered within 0\.05 s'):
        ask(session, timeout=0.05)
    session.do(lambda: None)
    uid = 'pilot.0000.rpc.0000'
    assert session.commands == [('pilot.0000', {'cmd': 'cancel_tasks', 'uids': [uid]})]
    assert session.forgotten == []
    session.do(session.calls.update, [Update(uid, states.CANCELED)])
    assert session.forgotten == [uid]


def test_call_to_a_pilot_that_has_ended(session: Session) -> None:
    pilot = a_pilot()
    pilot.state = states.FAILED
    pilot.learn({'exception': 'killed'})
    with pytest.raises(RuntimeError, match=r'echo of pilot\.0000 failed: pilot\.0000 is FAILED: killed'):
        ask(session, pilot, timeout=None)
    assert session.tasks == []


@pytest.mark.parametrize('room', [True, False])
def test_end_of_the_pilot_ends_its_calls(session: Session, room: bool) -> None:
    pilot, session.free = a_pilot(), room
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, session, pilot, timeout=None)
        if room:
            assert session.got.wait(10)
        else:
            while not session.calls._unsent:
                session.do(lambda: None)
        pilot.state = states.CANCELED
        session.do(session.calls.pilot_ended, pilot, [])
        with pytest.raises(RuntimeError, match=r'pilot\.0000 is CANCELED'):
            call.result(10)
    assert len(session.forgotten) == int(room)


def test_result_that_the_agent_could_not_deliver(session: Session) -> None:
    pilot = a_pilot()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, session, pilot, timeout=None)
        assert session.got.wait(10)
        result = Update('pilot.0000.rpc.0000', states.DONE, {'return_value': 7})
        session.do(session.calls.pilot_ended, pilot, [Update('task.000000', states.DONE), result])
        assert call.result(10) == 7
    assert session.updates == [[result]]


def test_call_of_all_partitions(session: Session) -> None:
    """The value is that of the first, and one that fails fails the call."""
    parts = [a_pilot('part.0'), a_pilot('part.1')]
    session.answer = lambda uid, _: session.report(uid, states.DONE, return_value=uid)
    assert ask(session, *parts) == 'pilot.0000.rpc.0000'
    assert [place for place, _ in session.tasks] == ['part.0', 'part.1']
    session.answer = lambda uid, _: session.report(uid, states.FAILED, exception=uid)
    with pytest.raises(RuntimeError, match=r'rpc\.0002'):
        ask(session, *parts)


def test_call_waits_for_room(session: Session) -> None:
    session.free = False
    session.answer = lambda uid, _: session.report(uid, states.DONE)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, session)
        while not session.calls._unsent:
            session.do(lambda: None)
        assert session.tasks == []
        session.free = True
        session.do(session.on_room[0])
        assert call.result(10) is None


@pytest.mark.parametrize('timeout', [0, -1.0, True, float('nan'), 'soon'])
def test_timeouts_that_are_refused(session: Session, timeout: Any) -> None:
    with pytest.raises(ValueError, match='rpc_timeout is'):
        ask(session, timeout=timeout)


def test_arguments_that_are_refused(session: Session) -> None:
    with pytest.raises(ValueError, match='not plain data'):
        ask(session, args=[object()])
    assert session.tasks == []


def test_end_of_the_session_ends_all_calls(session: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, session, timeout=None)
        assert session.got.wait(10)
        session.calls.close('it is closed')
        with pytest.raises(RuntimeError, match='it is closed'):
            call.result(10)
    with pytest.raises(RuntimeError, match='it is closed'):
        ask(session)


def test_calls_of_an_earlier_application_are_forgotten(session: Session) -> None:
    pilot, dead = a_pilot(), a_pilot('pilot.0001')
    dead.state = states.FAILED
    known = [KnownTask(f'call.{number}', OWNER, place, 1, {}, state, None, states.NEW) for number, place, state in (
        (0, 'pilot.0000', states.DONE), (1, 'pilot.0000', states.AGENT_EXECUTING),
        (2, 'pilot.0001', states.AGENT_EXECUTING))]
    session.do(session.calls.restore, known, {'pilot.0000': pilot, 'pilot.0001': dead})
    assert session.forgotten == ['call.0', 'call.2']
    session.do(session.calls.update, [Update('call.1', states.DONE)])
    assert session.forgotten[2:] == ['call.1']
