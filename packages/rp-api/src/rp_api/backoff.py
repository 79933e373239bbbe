"""Back-off: the growing delays between attempts."""

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
