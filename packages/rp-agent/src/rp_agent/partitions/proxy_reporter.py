"""The proxy reporter reports the end of a partition on behalf of an agent that died or was never started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import Update
from rp_api.loop.event_loop import Loop

NAME = 'keeper'
"""Uid of the reporter at the coordinator."""


class ProxyReporter:
    """The reporter of final states of partitions; `silent()` is called when all reports are delivered."""

    def __init__(self, loop: Loop, access: Mapping[str, Any], silent: Callable[[], object]) -> None:
        self._loop = loop
        self._access = access
        self._silent = silent
        self._speaking: set[Any] = set()

    @property
    def speaking(self) -> bool:
        """True if a report was not delivered yet."""
        return bool(self._speaking)

    def say(self, last: Update) -> None:
        """Report the final state of a partition."""
        connection = agent_connection(self._loop, self._access, last.uid, NAME)
        self._speaking.add(connection)
        connection.hold(True)
        connection.on_refused = lambda reason: self._said(connection)   # the partition is final already
        connection.update_pilots([last])
        connection.when_settled(lambda: self._loop.call_soon(self._said, connection))

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._speaking):
            connection.close()
        self._speaking.clear()

    def _said(self, connection: Any) -> None:
        if connection in self._speaking:
            self._speaking.discard(connection)
            connection.close()
            if not self._speaking:
                self._silent()
