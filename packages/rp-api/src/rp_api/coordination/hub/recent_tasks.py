"""A cache of tasks that have just arrived: most are sent to their agent at once, without reading the database.

The cache has all tasks that were bound to a pilot after some revision, or none. Any other change of such tasks (another
binding, an end before an agent has them) drops them, and they are read from the database.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rp_api.coordination.contract import BULK
from rp_api.coordination.hub.database import BATCH_BYTES, Batch, Row, batch

MAX_ROWS = 8 * BULK
"""Maximum number of cached tasks of a pilot; if its agents do not keep up, none are cached."""


class _Tail:
    """The tasks of a pilot that were bound after the revision `since`: (rev, uid, shared id, description)."""

    __slots__ = ('rows', 'since', 'size', 'uids')

    def __init__(self, since: int) -> None:
        self.since = since
        self.rows: deque[Row] = deque()
        self.uids: set[str] = set()
        self.size = 0


class RecentTasks:
    """The cached tasks of all pilots."""

    def __init__(self) -> None:
        self._tails: dict[str, _Tail] = {}

    def add(self, pilot: str, rows: list[Row]) -> None:
        """Add tasks that were bound to a pilot, with the next revisions."""
        tail = self._tails.get(pilot)
        if tail is None:
            tail = self._tails[pilot] = _Tail(rows[0][0] - 1)
        tail.rows += rows
        tail.uids.update([row[1] for row in rows])
        tail.size += sum([len(row[-1]) for row in rows])
        if len(tail.rows) > MAX_ROWS or tail.size > BATCH_BYTES:
            del self._tails[pilot]

    def clear(self) -> None:
        """Drop all tasks."""
        self._tails.clear()

    def changed(self, pilot: str, updates: Sequence[tuple[str, str, bytes | None]]) -> None:
        """Drop the tasks of a pilot if one of these updates (uid, state, info) changes one of them."""
        tail = self._tails.get(pilot)
        if tail is not None and tail.uids and not tail.uids.isdisjoint([uid for uid, _, _ in updates]):
            del self._tails[pilot]

    def after(self, pilot: str, since: int, limit: int, end: int) -> Batch | None:
        """Return the next tasks bound to a pilot after a revision, or None if they are not cached; drop earlier ones.

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
