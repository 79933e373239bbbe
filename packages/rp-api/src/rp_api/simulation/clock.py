"""A virtual clock for discrete-event simulation."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class VirtualClock:
    """Calls functions at virtual times, in seconds from 0; those of the same time in the order of their insertion."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        """Return the current virtual time."""
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function at a time, or at once if that has passed."""
        self._count += 1
        heappush(self._events, (max(when, self.now), self._count, callback, arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function after a number of seconds."""
        self.call_at(self.now + delay, callback, *arguments)

    def run(self) -> None:
        """Process events until none is left."""
        while self._events:
            self.now, _, callback, arguments = heappop(self._events)
            callback(*arguments)
