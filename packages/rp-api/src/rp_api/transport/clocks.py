"""How far the clock here is ahead of that of a peer: found out with some messages to and fro.

A question is sent with the time here, and answered with it and the time there. That was read in between, at best in
the middle, so that half the time to and fro is the error. The fastest of several answers is believed: what was delayed
on its way tells less, however long it was.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time_ns

from rp_profiling.write.host_clock import Reading

ROUNDS = 8
"""Questions of one measurement; each is asked when the one before is answered."""

INTERVAL = 60.0
"""Seconds between two measurements: clocks that nobody sets drift by some milliseconds in that time."""


class ClockReader:
    """Measures again and again: `ask(sent)` sends a question, `done(reading)` gets what a measurement has given."""

    def __init__(self, ask: Callable[[int], object], done: Callable[[Reading], object]) -> None:
        self._ask = ask
        self._done = done
        self._sent = 0
        self._left = 0
        self._best: Reading | None = None
        self._finished: float | None = None

    def due(self) -> None:
        """Measure if that is due, or was not finished: a question or the answer to it may have been lost."""
        if self._finished is None or monotonic() - self._finished >= INTERVAL:
            self.start()

    def start(self) -> None:
        """Measure now."""
        self._finished = None
        self._best = None
        self._left = ROUNDS
        self._question()

    def answer(self, sent: int, there: int) -> None:
        """Take in an answer."""
        if sent != self._sent or not self._left:   # to a question of an earlier connection
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
