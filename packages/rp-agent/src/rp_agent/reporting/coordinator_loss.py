"""What an agent does that has lost its coordinator: it finishes its work, and then does not wait for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.loop.event_loop import Loop, Timer

_log = logging.getLogger('radical.pilot.agent')

RETURN = 5.0
"""Seconds that a living client has to start a hub again that has died."""


class CoordinatorLoss:
    """Follows whether the coordinator is there; `give_up()` is called when it is gone for good.

    That is so when no work is left (`unfinished()` tells whether there is some), and `timeout` seconds more have
    passed. With a timeout of 0, tasks that run do not count.
    """

    def __init__(self, loop: Loop, timeout: float, unfinished: Callable[[], bool],
                 give_up: Callable[[], object]) -> None:
        self._loop = loop
        self._unfinished = unfinished
        self._give_up = give_up
        self._rule = ShutdownRule(timeout)
        self._timer: Timer | None = None
        self.lost = False
        """Whether the coordinator is away."""

    def coordinator_lost(self, how: str) -> None:
        """The coordinator has died, or is silent."""
        _log.warning('the coordinator is lost: %s', how)
        self.lost = True
        self._look_at(time.monotonic() + RETURN, self._gone)

    def coordinator_found(self) -> None:
        """It is back."""
        _log.info('the coordinator is back')
        self.lost = False
        self._rule.client_attached()
        self._forget_timer()

    def left(self) -> None:
        """Tasks have left."""
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
        if now - deadline > RETURN:   # this process was stopped: see first whether somebody has come meanwhile
            self._look_at(now + RETURN, callback)
        else:
            callback()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
