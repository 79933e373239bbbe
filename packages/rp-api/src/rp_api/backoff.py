"""Back-off: the growing delays between attempts, and the restarts of what has ended. No I/O, no clock."""

from __future__ import annotations


def backoff(failures: int, first: float, longest: float, factor: float = 2.0) -> float:
    """Return the seconds before the next attempt, after so many failures in a row (at least 1).

    Args:
        failures: The number of failures.
        first: Seconds after the first failure.
        longest: Seconds to which the delay grows, unless the first one is longer.
        factor: The ratio of two successive delays.
    """
    delay = first
    while failures > 1 and 0 < delay < longest:
        delay, failures = delay * factor, failures - 1
    return max(first, min(delay, longest))


class Restarts:
    """Counts restarts in a row, of which there may be `most`: a run of `steady` seconds ends the row.

    The delay before each grows from `first` to `longest` seconds; see `backoff`.
    """

    def __init__(self, most: int, steady: float, first: float = 0.0, longest: float = 0.0, factor: float = 2.0) -> None:
        self.most = most
        self.count = 0
        """Number of restarts in a row."""
        self._steady = steady
        self._backoff = first, longest, factor

    def next(self, ran: float) -> float | None:
        """Return the seconds until the next start, after a run of `ran` seconds; None for no restart."""
        if ran >= self._steady:
            self.count = 0
        if self.count >= self.most:
            return None
        self.count += 1
        return backoff(self.count, *self._backoff)
