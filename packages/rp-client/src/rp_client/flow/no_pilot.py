"""Tasks that wait while their task manager has no pilot that has not ended, which may be forever.

Pilots in the queue of a batch system count. The application learns it after `NOTICE_DELAY` seconds; after the timeout
of the manager, waits for these tasks raise `NoPilot`, and their futures fail with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rp_api.errors import NoPilot
from rp_api.loop.event_loop import Loop, Timer
from rp_client.engine.waiting import Board, Stall
from rp_client.scheduler.component import TaskScheduling

NOTICE_DELAY = 5.0
"""Seconds after which it is logged that tasks wait without a pilot."""

_NAMED = 3
"""Tasks that a message names."""

_log = logging.getLogger('radical.pilot.task_manager')


class PilotWatch:
    """Watches whether a task manager has pilots for its tasks; `last` says how it lost the last one.

    `includes(uid)` returns whether a task that is not final is bound to no pilot; `timeout` is None to wait forever.
    """

    def __init__(self, owner: str, loop: Loop, board: Board, scheduling: TaskScheduling,
                 includes: Callable[[str], bool], timeout: float | None) -> None:
        self.last = ''
        self._owner = owner
        self._loop = loop
        self._board = board
        self._scheduling = scheduling
        self._includes = includes
        self._timeout = timeout
        self._timers: list[Timer] = []

    def look(self) -> None:
        """Begin or end to count the time without a pilot, as tasks or pilots have come or gone."""
        if not self._scheduling.size or self._scheduling.pilot_count:
            self.close()
        elif not self._timers:
            self._timers.append(self._loop.call_later(NOTICE_DELAY, self._notice))
            if self._timeout is not None:
                self._timers.append(self._loop.call_later(self._timeout, self._stall))

    @property
    def reason(self) -> str:
        """Why tasks wait that are not bound to a pilot; empty if there are pilots."""
        if self._scheduling.pilot_count:
            return ''
        return f'a pilot: {self._owner} has none' + (f' any more, {self.last}' if self.last else '')

    def close(self) -> None:
        """Stop counting."""
        if self._timers:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()
            self._board.stalled(None)

    def _waiting(self) -> str:
        """Return which tasks wait, and for what; empty if none do."""
        uids = [task.uid for task in self._scheduling.waiting()]
        if not uids or not self.reason:
            return ''
        more = f' and {len(uids) - _NAMED} others' if len(uids) > _NAMED else ''
        return f'{", ".join(uids[:_NAMED])}{more} wait for {self.reason} (see add_pilots)'

    def _notice(self) -> None:
        if waiting := self._waiting():
            _log.warning('%s', waiting)

    def _stall(self) -> None:
        if waiting := self._waiting():
            self._board.stalled(Stall(self._includes, lambda: NoPilot(
                f'{waiting}; no_pilot_timeout of the TaskManager is {self._timeout:g} s')))
