"""Who has not been heard of for too long, by the clock of the one who listens.

Clocks of different hosts are not compared: who lives changes a number, and what counts is the time since the change was
seen. Time in which nobody could look does not count: the database was away, or the listener itself was stopped.
"""

from __future__ import annotations

from collections.abc import Hashable


class Silence:
    """Adds up the seconds for which each of several beats has not changed."""

    def __init__(self, interval: float) -> None:
        self._longest = 2 * interval
        self._seen: dict[Hashable, tuple[object, float, float]] = {}

    def observe(self, who: Hashable, beat: object, now: float) -> float:
        """Seconds of silence of `who`, whose beat is this at the time `now`."""
        known, looked, silent = self._seen.get(who, (None, now, 0.0))
        silent = silent + min(now - looked, self._longest) if known == beat else 0.0
        self._seen[who] = beat, now, silent
        return silent

    def forget(self, who: Hashable) -> None:
        """Begin anew with `who`."""
        self._seen.pop(who, None)
