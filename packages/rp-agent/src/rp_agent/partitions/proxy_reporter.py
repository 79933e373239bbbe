"""Tells the coordinator how a partition has ended whose agent cannot do so itself: it died, or never was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import Update
from rp_api.loop.event_loop import Loop

NAME = 'keeper'
"""What the coordinator knows the one who speaks by."""


class ProxyReporter:
    """Speaks for partitions; `silent()` is called when there is nothing left to be said."""

    def __init__(self, loop: Loop, access: Mapping[str, Any], silent: Callable[[], object]) -> None:
        self._loop = loop
        self._access = access
        self._silent = silent
        self._speaking: set[Any] = set()

    @property
    def speaking(self) -> bool:
        """Whether something was said that has not arrived yet."""
        return bool(self._speaking)

    def say(self, last: Update) -> None:
        """Tell in which state the partition has ended."""
        connection = agent_connection(self._loop, self._access, last.uid, NAME)
        self._speaking.add(connection)
        connection.hold(True)
        connection.on_refused = lambda reason: self._said(connection)   # whatever it is, it is final already
        connection.update_pilots([last])
        connection.when_settled(lambda: self._loop.call_soon(self._said, connection))

    def close(self) -> None:
        """Say no more."""
        for connection in list(self._speaking):
            connection.close()
        self._speaking.clear()

    def _said(self, connection: Any) -> None:
        if connection in self._speaking:
            self._speaking.discard(connection)
            connection.close()
            if not self._speaking:
                self._silent()
