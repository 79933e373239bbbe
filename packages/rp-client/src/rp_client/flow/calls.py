"""Calls to agents and RAPTOR masters: sent to a pilot as tasks of modes of their own, which applications do not see.

A call is a task so that it is stored, delivered once, and ends with its pilot. No task manager knows it: it has no
callbacks, is not counted by task schedulers, and is forgotten as soon as it is final.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout  # its own before Python 3.11
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from rp_api import states, units
from rp_api.batch import Batch
from rp_api.coordination.contract import KnownTask, Update
from rp_api.errors import CoordinationError
from rp_api.task_modes import KIND, OWNER, PILOT_RPC
from rp_client.flow.submission import pack_plain

if TYPE_CHECKING:
    from rp_client.core.pilot import PilotRecord
    from rp_client.engine.engine import Engine
    from rp_client.flow.uids import Uids


class Call:
    """A call to one agent or master; `outcome` gets its value, or a RuntimeError with the reason of a failure."""

    __slots__ = ('description', 'outcome', 'place', 'text', 'uid')

    def __init__(self, uid: str, place: PilotRecord | None, text: str, description: Mapping[str, Any]) -> None:
        self.uid = uid
        self.place = place
        self.text = text   # for error messages
        self.description = description
        self.outcome: Future[Any] = Future()

    def failed(self, reason: str) -> None:
        """End the call without a value, unless it has ended."""
        with suppress(InvalidStateError):
            self.outcome.set_exception(RuntimeError(f'{self.text} failed: {reason}'))

    def ended(self, state: str, info: Mapping[str, Any]) -> None:
        """End the call as its agent reports, unless the caller does not wait any more."""
        if state != states.DONE:
            detail = info.get('exception_detail')
            self.failed(f'{info.get("exception") or state}' + (f'\n{detail}' if detail else ''))
        else:
            with suppress(InvalidStateError):
                self.outcome.set_result(info.get('return_value'))


class PilotCalls:
    """The calls of a session. `call` may be used in any thread but the engine's; callbacks may use it.

    The other methods run in the thread of the engine.
    """

    def __init__(self, engine: Engine, uids: Uids) -> None:
        self._engine = engine
        self._uids = uids
        self._unsent: deque[Call] = deque()
        self.sent: dict[str, Call] = {}
        self._waited: set[Call] = set()
        self._closed = ''   # why no call is possible any more
        self._lock = threading.Lock()
        engine.on_broken.append(lambda error: self.close(f'the session cannot go on: {error}'))

    def call(self, places: Sequence[PilotRecord], name: str, description: Mapping[str, Any],
             timeout: units.Time | None) -> Any:
        """Call an agent or master by each of these pilots or partitions, and return the value of the first.

        Args:
            places: Pilots with one agent, or partitions.
            name: The uid of the pilot or master that is called.
            description: Mode, method, arguments of the call, as a task description has them.
            timeout: Seconds in which all answers have to arrive; None: no limit.

        Raises:
            ValueError: An argument is not plain data, or a value is not valid.
            RuntimeError: A call has failed, its pilot has ended, or the session was closed.
            TimeoutError: An answer has not arrived in time; the calls are cancelled.
        """
        text = f'{description["method"]} of {name}'
        timeout = units.limit(timeout, 'rpc_timeout')
        if timeout is not None and not timeout > 0:
            raise ValueError(f'rpc_timeout is {timeout!r}, it must be above 0')
        deadline = None if timeout is None else time.monotonic() + timeout
        calls = [self._make(place, name, text, description) for place in places]
        self._wait_for(calls)
        try:
            for call in calls:
                self._engine.call(self._start, call)
            first, *_ = [_outcome(call, deadline, timeout) for call in calls]
            return first
        finally:
            with self._lock:
                self._waited.difference_update(calls)
            self._abandon([call for call in calls if not call.outcome.done()])

    def update(self, updates: Iterable[Update]) -> None:
        """Apply the updates of agents; called for tasks of any kind."""
        for uid, state, info in updates:
            call = self.sent.get(uid)
            if call is None:
                continue
            if state == states.TMGR_STAGING_OUTPUT_PENDING:
                state = (info or {}).get('target_state', states.DONE)
                self._engine.connection.update_tasks([Update(uid, state)])
            if state in states.FINAL:
                self._end(call, state, info or {})

    def pilot_ended(self, pilot: PilotRecord, results: Iterable[Update]) -> None:
        """End the calls to a pilot that became final; `results` are the updates that its agent could not deliver."""
        for call in [call for call in self._unsent if call.place is pilot]:
            call.failed(ended(pilot))
        left = {uid: call for uid, call in self.sent.items() if call.place is pilot}
        found = [update for update in results if update.uid in left]
        found += [Update(uid, states.FAILED, {'exception': ended(pilot)})
                  for uid in left.keys() - {update.uid for update in found}]
        if found:
            self._engine.connection.update_tasks(found)
            self.update(found)

    def restore(self, known: Iterable[KnownTask], pilots: Mapping[str, PilotRecord]) -> None:
        """Forget the calls of an earlier application, which have no caller any more, when they are final."""
        for task in known:
            call = self.sent[task.uid] = Call(task.uid, pilots.get(task.pilot), task.uid, {})
            if call.place is None or call.place.state in states.FINAL:
                self._engine.connection.update_tasks([Update(task.uid, states.FAILED)])
                self._end(call, states.FAILED, {})
            else:
                self.update([Update(task.uid, task.state, task.info)])

    def close(self, reason: str) -> None:
        """Fail all calls; may be called in any thread, and again."""
        with self._lock:
            self._closed = self._closed or reason
            waited = list(self._waited)
        for call in waited:
            call.failed(reason)

    # in the thread of the caller

    def _make(self, place: PilotRecord, name: str, text: str, description: Mapping[str, Any]) -> Call:
        uid, = self._uids.of_tasks([None], (f'{name}.{KIND}', 4))
        self._uids.claim_tasks([uid], partial(self._uids.reserve_tasks, [uid]))
        pack_plain(description, uid)   # raises an error here, not in the loop
        return Call(uid, place, text, description)

    def _wait_for(self, calls: Sequence[Call]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError(f'{calls[0].text} failed: {self._closed}')
            self._waited.update(calls)

    def _abandon(self, calls: Sequence[Call]) -> None:
        """Cancel calls that their caller does not wait for any more."""
        for call in calls:
            call.outcome.cancel()
            with suppress(CoordinationError):
                self._engine.call(self._cancel, call)

    # in the thread of the engine

    def _start(self, call: Call) -> None:
        assert call.place is not None
        if self._pump not in self._engine.on_room:
            self._engine.on_room.append(self._pump)
        if call.place.state in states.FINAL:
            call.failed(ended(call.place))
        else:
            self._unsent.append(call)
            self._pump()

    def _pump(self) -> None:
        """Send as many calls as the connection accepts."""
        while self._unsent and self._engine.connection.room:
            call = self._unsent.popleft()
            assert call.place is not None
            if not call.outcome.done():
                self._send(call, call.place)

    def _send(self, call: Call, place: PilotRecord) -> None:
        self.sent[call.uid] = call
        self._engine.connection.insert_batch(place.uid, Batch.of([(call.uid, call.description)]), OWNER)
        if call.description['mode'] == PILOT_RPC:   # overtakes tasks whose delivery is suspended
            self._engine.connection.command(place.uid, {
                'cmd': 'call', 'task': {**call.description, 'uid': call.uid}})

    def _cancel(self, call: Call) -> None:
        if call.uid in self.sent and call.place is not None:
            self._engine.connection.command(call.place.uid, {'cmd': 'cancel_tasks', 'uids': [call.uid]})

    def _end(self, call: Call, state: str, info: Mapping[str, Any]) -> None:
        del self.sent[call.uid]
        self._engine.connection.forget_tasks([call.uid])
        call.ended(state, info)


def ended(pilot: PilotRecord) -> str:
    """Return the sentence that a pilot has ended, and why."""
    return f'{pilot.uid} is {pilot.state}: {pilot.exception or (pilot.log[-1] if pilot.log else "it has ended")}'


def _outcome(call: Call, deadline: float | None, timeout: float | None) -> Any:
    try:
        return call.outcome.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except FutureTimeout:
        if call.outcome.done():
            raise
        raise TimeoutError(f'{call.text} was not answered within {timeout} s') from None
