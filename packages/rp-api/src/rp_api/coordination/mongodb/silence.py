"""Detection of missing heartbeats by the clock of the observer.

Clocks of different hosts are not compared: a heartbeat changes a number, and the observer measures the time since it
saw the change. Time without observations does not count: the database was unreachable, or the observer was stopped.
"""

from __future__ import annotations

from collections.abc import Hashable


class Silence:
    """Measures the seconds since each of several heartbeats changed."""

    def __init__(self, interval: float) -> None:
        self._longest = 2 * interval
        self._seen: dict[Hashable, tuple[object, float, float]] = {}

    def observe(self, who: Hashable, beat: object, now: float) -> float:
        """Return the seconds since the heartbeat of `who` changed, which has the value `beat` at the time `now`."""
        known, looked, silent = self._seen.get(who, (None, now, 0.0))
        silent = silent + min(now - looked, self._longest) if known == beat else 0.0
        self._seen[who] = beat, now, silent
        return silent

    def forget(self, who: Hashable) -> None:
        """Stop measuring the heartbeat of `who`."""
        self._seen.pop(who, None)
