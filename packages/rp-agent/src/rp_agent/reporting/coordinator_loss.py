"""Loss of the coordinator: the agent finishes its tasks, then waits until a time-out before it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.loop.event_loop import Loop, Timer

_log = logging.getLogger('radical.pilot.agent')

RETURN = 5.0
"""Seconds that a client has to restart a hub that has died."""


class CoordinatorLoss:
    """The watcher of the coordinator, which calls `give_up()` when it does not return.

    The agent waits until no task is left (`unfinished()` is false) and for `timeout` seconds more. With a timeout of 0,
    it does not wait for running tasks.
    """

    def __init__(self, loop: Loop, timeout: float, unfinished: Callable[[], bool],
                 give_up: Callable[[], object]) -> None:
        self._loop = loop
        self._unfinished = unfinished
        self._give_up = give_up
        self._rule = ShutdownRule(timeout)
        self._timer: Timer | None = None
        self.lost = False
        """True if the coordinator is lost at present."""

    def coordinator_lost(self, how: str) -> None:
        """Start the time-out: the coordinator has died or does not answer."""
        _log.warning('the coordinator is lost: %s', how)
        self.lost = True
        self._look_at(time.monotonic() + RETURN, self._gone)

    def coordinator_found(self) -> None:
        """End the time-out: the coordinator has returned."""
        _log.info('the coordinator is back')
        self.lost = False
        self._rule.client_attached()
        self._forget_timer()

    def left(self) -> None:
        """Check the end of the agent after tasks have left it."""
        if self._rule.orphaned:
            self._look()

    def _gone(self) -> None:
        self._rule.client_lost()
        self._look()

    def _look(self) -> None:
        self._forget_timer()
        action, again = self._rule.next(time.monotonic(), self._unfinished(), 0)
        if action == 'end':
            self._give_up()
        if again is not None:
            self._look_at(again, self._look)

    def _look_at(self, deadline: float, callback: Callable[[], object]) -> None:
        self._forget_timer()
        self._timer = self._loop.call_at(deadline, self._due, deadline, callback)

    def _due(self, deadline: float, callback: Callable[[], object]) -> None:
        now = time.monotonic()
        if now - deadline > RETURN:   # this process was stopped meanwhile: give the coordinator time again
            self._look_at(now + RETURN, callback)
        else:
            callback()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
