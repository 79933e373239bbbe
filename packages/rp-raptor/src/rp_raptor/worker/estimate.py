"""How long calls take, judging by recent ones, and how many of them make up a bulk and a stock."""

from __future__ import annotations

from collections import deque

_BULK = 0.002     # seconds of work in a bulk, for up to so many ranks:
_RANKS = 8
_LONGEST = 0.02   # the same for any number of ranks
_STOCK = 0.1      # seconds of work that a worker has for each of its ranks
_MOST = 512       # calls in a bulk
_DEEPEST = 8192   # calls in the stock of a rank
_RECENT = 4       # bulks that are looked at
_LEAST = 2        # calls in the stock of a rank: one that runs and the next one


def span(ranks: int) -> float:
    """Seconds of work in a bulk, and between the messages of a rank: a manager manages some thousand per second."""
    return min(_LONGEST, _BULK * max(1.0, ranks / _RANKS))


class Estimate:
    """Seconds of a call: the least that recent bulks took per call, as any of them may have had to wait for a core."""

    def __init__(self, ranks: int) -> None:
        self._span = self.seconds = span(ranks)
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def learn(self, count: int, seconds: float) -> None:
        """Take into account that so many calls took so long together."""
        self._recent.append(max(seconds, 0.0) / count)
        self.seconds = min(self._recent)

    @property
    def bulk(self) -> int:
        """Calls that a rank gets at once."""
        return max(1, min(_MOST, int(self._span / max(self.seconds, 1e-9))))

    @property
    def stock(self) -> int:
        """Calls that are in hand for each rank, so that none has to wait for more."""
        return max(_LEAST, min(_DEEPEST, int(_STOCK / max(self.seconds, 1e-9))))
