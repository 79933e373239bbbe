"""How long calls take, judging by recent ones, and how many of them make up a bulk and a stock."""

from __future__ import annotations

_BULK = 0.002     # seconds of work in a bulk
_STOCK = 0.02     # seconds of work that a worker has for each of its ranks
_MOST = 512       # calls in a bulk
_DEEPEST = 8192   # calls in the stock of a rank
_LEAST = 2        # calls in the stock of a rank: one that runs and the next one


class Estimate:
    """Seconds of a call. It follows calls that become longer at once, and shorter ones by halves."""

    def __init__(self) -> None:
        self.seconds = _BULK

    def learn(self, count: int, seconds: float) -> None:
        """Take into account that so many calls took so long together."""
        mean = max(seconds, 0.0) / count
        self.seconds = mean if mean > self.seconds else (self.seconds + mean) / 2

    @property
    def bulk(self) -> int:
        """Calls that a rank gets at once."""
        return max(1, min(_MOST, int(_BULK / max(self.seconds, 1e-9))))

    @property
    def stock(self) -> int:
        """Calls that are in hand for each rank, so that none has to wait for more."""
        return max(_LEAST, min(_DEEPEST, int(_STOCK / max(self.seconds, 1e-9))))
