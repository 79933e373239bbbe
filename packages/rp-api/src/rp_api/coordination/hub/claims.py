"""The assignment of tasks to the agents of their pilot: each task goes to exactly one of them.

A claim is a range of revisions: all tasks that were bound to the pilot in it belong to the agent. So there is at most
one row for each message to an agent, not for each task; an agent that claims the next range extends its claim. Claims
join without gaps; tasks that were bound after the last of them are free. An agent that restarts or reconnects gets
those tasks of its own claims that it has not received; no other agent does.
"""

from __future__ import annotations

from itertools import pairwise

from rp_api.coordination.hub.database import Batch, Database
from rp_api.coordination.hub.task_table import TaskTable

SCHEMA = """
CREATE TABLE IF NOT EXISTS claims (
    pilot TEXT NOT NULL, last INTEGER NOT NULL, first INTEGER NOT NULL, agent TEXT NOT NULL,
    PRIMARY KEY (pilot, last)) WITHOUT ROWID;
"""

_PRUNE_AFTER_CLAIMS = 256
"""Number of new claims after which claims without remaining tasks are pruned."""


class Claims:
    """The claims of all agents of a session."""

    def __init__(self, database: Database, tasks: TaskTable) -> None:
        self._db = database
        self._tasks = tasks
        self._prune_at = _PRUNE_AFTER_CLAIMS
        self._made = 0

    def own(self, pilot: str, agent: str, since: int, limit: int) -> Batch:
        """Return the next tasks after a revision that the agent has claimed (see `TaskTable.new`)."""
        for first, last in self._db.query(
                'SELECT first, last FROM claims WHERE pilot = ? AND last > ? AND agent = ? ORDER BY last',
                (pilot, since, agent)):
            found = self._tasks.new(pilot, max(since, first - 1), limit, last)
            if found.rows:
                return found
        return Batch([], since)

    def free(self, pilot: str, limit: int) -> Batch:
        """Return the next tasks without a claim."""
        return self._tasks.unclaimed(pilot, self.end(pilot), limit)

    def claim(self, pilot: str, agent: str, upto: int) -> None:
        """Claim everything free up to this revision for an agent."""
        end = self.end(pilot)
        if upto <= end:
            return
        extended = self._db.write('UPDATE claims SET last = ? WHERE pilot = ? AND last = ? AND agent = ?',
                                  (upto, pilot, end, agent)).rowcount
        if not extended:
            self._db.write('INSERT INTO claims VALUES (?, ?, ?, ?)', (pilot, upto, end + 1, agent))
            self._made += 1
            if self._made >= self._prune_at:
                self._prune()

    def end(self, pilot: str) -> int:
        """Return the revision after which everything is free."""
        found: int | None = self._db.query('SELECT max(last) FROM claims WHERE pilot = ?', (pilot,)).fetchone()[0]
        return found or 0

    def _prune(self) -> None:
        """Drop claims without tasks at their agents, except the last one of each pilot, which marks the free ones."""
        rows = self._db.query('SELECT pilot, last, first FROM claims ORDER BY pilot, last').fetchall()
        done = [(pilot, last) for (pilot, last, first), following in pairwise(rows)
                if following[0] == pilot and not self._tasks.new(pilot, first - 1, 1, last).rows]
        self._db.write_many('DELETE FROM claims WHERE pilot = ? AND last = ?', done)
        self._made = 0
        self._prune_at = max(_PRUNE_AFTER_CLAIMS, len(rows) - len(done))
