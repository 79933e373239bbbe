"""The final report of an agent: it is delivered, or written to disk with all other undelivered updates."""

from __future__ import annotations

from collections.abc import Callable

from rp_agent.reporting.reporter import Reporter
from rp_api.coordination.contract import AgentConnection, Update
from rp_api.loop.event_loop import Loop

DELIVERY_TIMEOUT = 2.0
"""Seconds until updates that the coordinator has not acknowledged are written to disk."""

SETTLE = 15.0
"""Further seconds to wait for the acknowledgement while the coordinator is connected."""


class FinalReport:
    """The report of a pilot's final state, after all updates of its tasks; `over()` is called when it is acknowledged.

    If the coordinator does not answer in time, the updates are written to disk before `over()`.
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
        """Send the report: the coordinator is connected."""
        self._lost = False
        if not self._said:
            self._said = True
            self._reporter.flush()
            self._connection.update_pilots([self._last])
            self._connection.when_settled(self._arrived)

    def lost(self) -> None:
        """Note that the coordinator is lost."""
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
