"""The report on what waits for a place: part of the information on the pilot, so that users are told why.

It is made some seconds after the last change, while something waits, and sent only if it has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rp_api.loop.event_loop import Loop, Timer

INTERVAL_S = 2.0
"""Seconds between two reports if a requirement, or the reason why it is not met, is new."""

QUIET_INTERVAL_S = 10.0
"""Seconds between two reports if only numbers and the tasks that are named have changed."""

NODES_PER_SECOND = 200
"""The information on the pilot grows with its nodes: larger pilots report less often."""

Entries = list[dict[str, Any]]


class WaitingReport:
    """Reports `explain()` by `changed()`, which reads `entries`, for a pilot with that number of nodes."""

    def __init__(self, loop: Loop, explain: Callable[[], Entries], changed: Callable[[], object], nodes: int) -> None:
        self._loop = loop
        self._explain = explain
        self._changed = changed
        self._interval = max(INTERVAL_S, nodes / NODES_PER_SECOND)
        self._quiet = max(QUIET_INTERVAL_S, 5 * self._interval)
        self._timer: Timer | None = None
        self._idle = True
        self._sent = 0.0
        self.entries: Entries = []
        """What was reported last."""

    def note(self) -> None:
        """Note a change of tasks."""
        if self._idle:
            self._idle = False
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(self._interval, self._look)

    def _look(self) -> None:
        now, found = time.monotonic(), self._explain()
        self._timer = self._loop.call_later(self._quiet, self._look) if found else None
        self._idle = True
        if found != self.entries and (_essence(found) != _essence(self.entries) or now - self._sent >= self._quiet):
            self.entries, self._sent = found, now
            self._changed()


def _essence(entries: Entries) -> list[Any]:
    """Return what makes a report worth sending at once."""
    return [(entry['needs'], entry['sentence']) for entry in entries]
