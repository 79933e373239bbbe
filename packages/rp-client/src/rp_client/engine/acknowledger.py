"""Acknowledges to the coordinator the states that callbacks have received; the next application gets the others.

A state was received when all callbacks for it have returned. The position of the connection therefore passes through
the queue of callbacks, and is acknowledged at its end, for all pilots or tasks of a manager at once. Nothing is
acknowledged for a manager without callbacks.
"""

from __future__ import annotations

from collections.abc import Sequence

from rp_api.coordination.contract import ClientConnection, Mark
from rp_api.loop.event_loop import Loop, Timer
from rp_client.engine.callbacks import Dispatcher
from rp_client.engine.submissions import Submissions
from rp_client.engine.tracker import Tracker

ROUND = 0.1
"""Seconds between acknowledgements; after a SIGKILL, the states of this time are passed to callbacks again."""


class Acknowledger:
    """The acknowledger of all managers of a session; runs in the thread of the engine."""

    def __init__(self, loop: Loop, connection: ClientConnection, dispatcher: Dispatcher,
                 submissions: Submissions) -> None:
        self._loop = loop
        self._connection = connection
        self._dispatcher = dispatcher
        self._submissions = submissions
        self._trackers: list[Tracker] = []
        self._timer: Timer | None = None
        self._under_way = False
        self._last: tuple[Sequence[str], Mark] = [], Mark()
        connection.on_mark = submissions.on_announced = self.soon

    def follow(self, tracker: Tracker) -> None:
        """Acknowledge the states of another tracker; may be called in any thread."""
        self._trackers.append(tracker)

    def soon(self) -> None:
        """Schedule an acknowledgement, if one is due."""
        if self._timer is None and not self._under_way and self._owners():
            self._timer = self._loop.call_later(ROUND, self._begin)

    def finish(self) -> None:
        """Acknowledge all queued callbacks when they have run, and accept no more callbacks."""
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
        """Queue the position up to which all states are announced behind all queued callbacks."""
        news = self._owners(), self._submissions.mark
        if news[0] and news != self._last:
            self._last = news
            self._under_way = True
            self._dispatcher.call(self._loop.call_soon, self._acknowledge, *news)

    def _acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        self._under_way = False
        self._connection.acknowledge(owners, mark)
        self.soon()
