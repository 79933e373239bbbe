"""The last word of an agent: it arrives, or it is left on disk with all else that did not arrive."""

from __future__ import annotations

from collections.abc import Callable

from rp_agent.reporting.reporter import Reporter
from rp_api.coordination.contract import AgentConnection, Update
from rp_api.loop.event_loop import Loop

DELIVERY_TIMEOUT = 2.0
"""Seconds that the last messages have to arrive before they are written to disk."""

SETTLE = 15.0
"""Seconds more that they have while the coordinator is there."""


class FinalReport:
    """Tells the coordinator the last state of the pilot, after all about its tasks, and calls `over()` when that is
    accepted, or nobody is there to accept it.
    """

    def __init__(self, loop: Loop, connection: AgentConnection, reporter: Reporter, last: Update,
                 over: Callable[[], object]) -> None:
        self._loop = loop
        self._connection = connection
        self._reporter = reporter
        self._last = last
        self._over = over
        self._said = False
        self._lost = True
        loop.call_later(DELIVERY_TIMEOUT, self._keep)

    def found(self) -> None:
        """The coordinator is there (again): it can be told."""
        self._lost = False
        if not self._said:
            self._said = True
            self._reporter.flush()
            self._connection.update_pilots([self._last])
            self._connection.when_settled(self._arrived)

    def lost(self) -> None:
        """The coordinator is away (again)."""
        self._lost = True

    def _arrived(self) -> None:
        self._reporter.forget()
        self._over()

    def _keep(self) -> None:
        self._reporter.keep(self._last)
        if self._lost:
            self._over()
        else:
            self._loop.call_later(SETTLE, self._over)
