"""The restart policy of an instance: whether it is started again, and after what delay. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api.backoff import backoff
from rp_api.description.service import RESTART


class Restarts:
    """Counts the restarts of an instance in a row: a run that was ready for `limit` seconds ends the row."""

    def __init__(self, policy: Mapping[str, Any] | None) -> None:
        self._policy = policy or RESTART
        self.count = 0
        """Number of restarts in a row."""

    @property
    def most(self) -> int:
        """The largest number of restarts in a row."""
        return int(self._policy['attempts'])

    def next(self, ready: float) -> float | None:
        """Return the seconds until the next start, after a run that was ready for some seconds; None for no restart."""
        limit = self._policy['limit']
        if ready >= limit:
            self.count = 0
        if self.count >= self.most:
            return None
        self.count += 1
        return backoff(self.count, min(self._policy['delay'], limit), limit, self._policy['factor'])
