"""Tells the coordinator which states the application was told: the next application is told the others.

A state was told when all callbacks that were registered for it have returned. So a mark of how far the connection is
goes through the queue of callbacks, and what comes out at the end is acknowledged, for all pilots or tasks of a manager
at once. A manager that has never had a callback has told nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rp_api.coordination.contract import ClientConnection, Mark
from rp_api.loop.event_loop import Loop, Timer
from rp_client.engine.callbacks import Dispatcher
from rp_client.engine.tracker import Tracker

ROUND = 0.1
"""Seconds between acknowledgements: what callbacks were told within the last ones is told again after a SIGKILL."""


class Acknowledger:
    """Acknowledges for all managers of a session; runs in the thread of the engine."""

    def __init__(self, loop: Loop, connection: ClientConnection, dispatcher: Dispatcher) -> None:
        self._loop = loop
        self._connection = connection
        self._dispatcher = dispatcher
        self._trackers: list[Tracker] = []
        self._timer: Timer | None = None
        self._under_way = False
        self._last: tuple[Sequence[str], Mark] = [], Mark()
        connection.on_mark = self.soon

    def follow(self, tracker: Tracker) -> None:
        """Acknowledge what the callbacks of a tracker were told, too; may be called in any thread."""
        self._trackers.append(tracker)

    def soon(self) -> None:
        """There may be something to acknowledge now."""
        if self._timer is None and not self._under_way and self._owners():
            self._timer = self._loop.call_later(ROUND, self._begin)

    def finish(self) -> None:
        """Have everything acknowledged that callbacks are still to be told, and nothing told after that."""
        if self._timer is not None:
            self._timer.cancel()
        self._send_mark()
        self._dispatcher.end()

    def _owners(self) -> list[str]:
        return [tracker.owner for tracker in self._trackers if tracker.tells]

    def _begin(self) -> None:
        self._timer = None
        self._send_mark()

    def _send_mark(self) -> None:
        """Have the present mark come back when all callbacks have returned that are in the queue now."""
        news = self._owners(), self._connection.mark
        if news[0] and news != self._last:
            self._last = news
            self._under_way = True
            self._dispatcher.call(self._loop.call_soon, self._acknowledge, *news)

    def _acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        self._under_way = False
        self._connection.acknowledge(owners, mark)
        self.soon()
