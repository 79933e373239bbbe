"""Measurement of the offset between this clock and that of a peer.

A request contains the local time, and its answer also the peer's time. That was read in between, at best in the middle,
so the error is half the round-trip time. The fastest of several answers is used, because it has the smallest error.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time_ns

from rp_profiling.write.host_clock import Reading

ROUNDS = 8
"""Number of requests in one measurement, each sent after the answer to the one before."""

INTERVAL = 60.0
"""Seconds between two measurements: unsynchronised clocks drift by some milliseconds in that time."""


class ClockReader:
    """Measures periodically: `ask(sent)` sends a request, `done(reading)` is called with the result."""

    def __init__(self, ask: Callable[[int], object], done: Callable[[Reading], object]) -> None:
        self._ask = ask
        self._done = done
        self._sent = 0
        self._left = 0
        self._best: Reading | None = None
        self._finished: float | None = None

    def due(self) -> None:
        """Start a measurement if it is due, or if the last one was not finished because a message was lost."""
        if self._finished is None or monotonic() - self._finished >= INTERVAL:
            self.start()

    def start(self) -> None:
        """Start a measurement."""
        self._finished = None
        self._best = None
        self._left = ROUNDS
        self._question()

    def answer(self, sent: int, there: int) -> None:
        """Process an answer."""
        if sent != self._sent or not self._left:   # to a request of an earlier connection
            return
        now = time_ns()
        reading = Reading((sent + now) // 2 - there, max(0, now - sent) // 2 + 1)
        if self._best is None or reading.within < self._best.within:
            self._best = reading
        self._left -= 1
        if self._left:
            self._question()
        else:
            self._finished = monotonic()
            self._done(self._best)

    def _question(self) -> None:
        self._sent = time_ns()
        self._ask(self._sent)
