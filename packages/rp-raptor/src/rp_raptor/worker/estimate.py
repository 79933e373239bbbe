"""Estimates the duration of calls from recent ones, and from it the size of bulks and stocks."""

from __future__ import annotations

from collections import deque

_BULK = 0.002     # seconds of work in a bulk, for up to _RANKS ranks
_RANKS = 8
_MAX_BULK_S = 0.02   # the same for any number of ranks
_STOCK = 0.1      # seconds of work that a worker has for each of its ranks
_MAX_BULK_CALLS = 512       # calls in a bulk
_DEEPEST = 8192   # calls in the stock of a rank
_RECENT = 4       # bulks that the estimate is made from
_LEAST = 2        # calls in the stock of a rank: the running one and the next


def span(ranks: int) -> float:
    """Return the seconds of work in a bulk, and between messages of a rank; limits a manager's messages per second."""
    return min(_MAX_BULK_S, _BULK * max(1.0, ranks / _RANKS))


class Estimate:
    """Estimates seconds per call: the least of recent bulks, as any of them may have waited for a core."""

    def __init__(self, ranks: int) -> None:
        self._span = self.seconds = span(ranks)
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def learn(self, count: int, seconds: float) -> None:
        """Record that `count` calls took `seconds` together."""
        self._recent.append(max(seconds, 0.0) / count)
        self.seconds = min(self._recent)

    @property
    def bulk(self) -> int:
        """The number of calls in a bulk."""
        return max(1, min(_MAX_BULK_CALLS, int(self._span / max(self.seconds, 1e-9))))

    @property
    def stock(self) -> int:
        """The number of calls to have in hand for each rank."""
        return max(_LEAST, min(_DEEPEST, int(_STOCK / max(self.seconds, 1e-9))))
