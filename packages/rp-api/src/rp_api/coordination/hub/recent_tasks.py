"""Tasks that have just come in, still in memory: most go on to their agent at once, and need not be read for that.

All tasks that were bound to a pilot after some revision are here, or none. What happens to such tasks otherwise (they
are bound elsewhere, they end before an agent has them) ends that: whoever wants them reads the file then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rp_api.coordination.contract import BULK
from rp_api.coordination.hub.database import MANY_BYTES, Batch, Row, batch

MOST = 8 * BULK
"""Tasks of a pilot that are kept; of one whose agents do not keep up, none are."""


class _Tail:
    """The tasks of a pilot that were bound after the revision `since`: (rev, uid, shared id, description)."""

    __slots__ = ('rows', 'since', 'size', 'uids')

    def __init__(self, since: int) -> None:
        self.since = since
        self.rows: deque[Row] = deque()
        self.uids: set[str] = set()
        self.size = 0


class RecentTasks:
    """The tasks of all pilots that are in memory."""

    def __init__(self) -> None:
        self._tails: dict[str, _Tail] = {}

    def add(self, pilot: str, rows: list[Row]) -> None:
        """Take tasks that were bound to a pilot, with the next revisions that there were."""
        tail = self._tails.get(pilot)
        if tail is None:
            tail = self._tails[pilot] = _Tail(rows[0][0] - 1)
        tail.rows += rows
        tail.uids.update([row[1] for row in rows])
        tail.size += sum([len(row[-1]) for row in rows])
        if len(tail.rows) > MOST or tail.size > MANY_BYTES:
            del self._tails[pilot]

    def clear(self) -> None:
        """Keep none of those that are here."""
        self._tails.clear()

    def changed(self, pilot: str, updates: Sequence[tuple[str, str, bytes | None]]) -> None:
        """The state of tasks of a pilot (uid, state, info) has changed."""
        tail = self._tails.get(pilot)
        if tail is not None and tail.uids and not tail.uids.isdisjoint([uid for uid, _, _ in updates]):
            del self._tails[pilot]

    def after(self, pilot: str, since: int, limit: int, end: int) -> Batch | None:
        """The next tasks bound to a pilot after a revision; None if they are not here. Older ones are kept no longer.

        `end` is the revision up to which there are no others if all of them fit.
        """
        tail = self._tails.get(pilot)
        if tail is None or tail.since > since:
            return None
        rows = tail.rows
        while rows and rows[0][0] <= since:
            _, uid, _, description = rows.popleft()
            tail.uids.discard(uid)
            tail.size -= len(description)
        return batch(rows, limit, end)
