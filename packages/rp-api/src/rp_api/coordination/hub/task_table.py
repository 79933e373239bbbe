"""The tasks of a session in its database: descriptions, bindings to pilots, and states.

`id` is the order of submission. `rev` is the revision at which a task was bound to its pilot, `changed` that of its
last change, negative if its client made it and need not be notified (see `acknowledged`). The tasks of a pilot are
found through the ranges in which they were bound (`bindings`): the tasks from `id` on have the revisions from `first`
to `last`, unless they were bound to another pilot since.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from rp_api import states
from rp_api.coordination.contract import BOUND_STATE, BULK, LEFT_AGENT, UNBOUND, UNBOUND_STATE
from rp_api.coordination.hub.chunk_table import ChunkTable
from rp_api.coordination.hub.database import (
    INCREMENT_BYTES,
    SHARED,
    Database,
    Increment,
    Row,
    add_shared,
    increment,
    keep_told,
)
from rp_api.task_modes import SERVICE_MODES
from rp_api.wire import codec

SCHEMA = f"""
{SHARED}
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY, uid TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, pilot TEXT NOT NULL,
    attempts INTEGER NOT NULL, rev INTEGER NOT NULL, state TEXT NOT NULL, value INTEGER NOT NULL,
    changed INTEGER NOT NULL, told INTEGER NOT NULL, info BLOB, shared INTEGER NOT NULL, description BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS tasks_changed ON tasks (changed) WHERE changed > 0;
CREATE TABLE IF NOT EXISTS bindings (
    pilot TEXT NOT NULL, last INTEGER NOT NULL, first INTEGER NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (pilot, last)) WITHOUT ROWID;
"""

_BOUND_VALUE = states.TASK.value(BOUND_STATE)

# Parameters of a statement take as long per row as the rest of it, so values that many rows share are in its text.

_INSERT = """
INSERT OR IGNORE INTO tasks VALUES (?1, ?2, ?3, ?4, {attempts}, ?1, '{state}', {value}, -?1, 0, NULL, ?5, ?6)
"""
INSERT_KEPT = _INSERT.format(attempts=0, state=UNBOUND_STATE, value=states.TASK.value(UNBOUND_STATE))
INSERT_BOUND = _INSERT.format(attempts=1, state=BOUND_STATE, value=_BOUND_VALUE)
"""Parameters: revision, uid, owner, pilot, id of the shared part, description."""

_INSERT_ALIKE = """
INSERT OR IGNORE INTO tasks SELECT ?1 + key, value, ?3, ?4, {attempts}, ?1 + key, '{state}', {value}, -(?1 + key), 0,
NULL, ?5, substr(?6, 1 + key * ?7, ?8) FROM json_each(?2)
"""
INSERT_KEPT_ALIKE = _INSERT_ALIKE.format(attempts=0, state=UNBOUND_STATE, value=states.TASK.value(UNBOUND_STATE))
INSERT_BOUND_ALIKE = _INSERT_ALIKE.format(attempts=1, state=BOUND_STATE, value=_BOUND_VALUE)
"""The same for tasks with `_Joined` descriptions; parameters: first revision, uids, and as above, stride and size."""

MAX_ROWS = 8 * BULK
"""Maximum number of cached tasks of a pilot; if its agents do not keep up, none are cached."""


def _update(state: str, changed: str, condition: str = '', uid: str = '?2', source: str = '', info: str = '?1') -> str:
    """Return the statement that moves tasks to a state; its parameters are info, uid and (as `changed`) the revision.

    A state only moves forward; the model lists the final states that a late report can correct.
    """
    value = states.TASK.value(state)
    corrected = ''.join(f" OR tasks.state = '{before}'" for before, after in states.TASK.corrections if after == state)
    repeated = f' OR (tasks.value = {value} AND ?1 IS NOT NULL)' if state in states.TASK.repeated else ''
    return (f"UPDATE tasks SET state = '{state}', value = {value}, info = coalesce({info}, info), "
            f'{keep_told("tasks")}, changed = {changed}{source} '
            f'WHERE uid = {uid} AND (tasks.value < {value}{corrected}{repeated}){condition}')


_UPDATE = {state: _update(state, '-?3') for state in states.TASK.names}
UPDATE_BY_AGENT = {state: _update(state, '?4', ' AND pilot = ?3') for state in states.TASK.names}
"""By new state; parameters: info, uid, pilot and revision."""
_REPORT_ALIKE = {state: _update(state, '?4 + new.key', ' AND pilot = ?3', 'new.value', ' FROM json_each(?2) AS new',
                                'substr(?1, 1 + new.key * ?5, ?6)') for state in states.TASK.names}
"""The same for tasks with `_Joined` info; parameters: info, uids, pilot, first revision, stride and size."""

_WITHDRAW = (f"UPDATE tasks SET pilot = '{UNBOUND}', state = '{states.AGENT_SCHEDULING}', {keep_told('tasks')}, "
             f'value = {states.TASK.value(states.AGENT_SCHEDULING)}, info = ?, changed = ? WHERE id = ?')
"""Parameters: info, revision and id."""

_FORGET = f"""
UPDATE tasks SET owner = '', info = NULL, description = x'{codec.NOTHING.hex()}'
WHERE uid = ? AND value >= {states.TASK.value(states.DONE)}
"""

ALIKE_MIN = 8
"""Tasks at least that one statement writes together."""

Update = tuple[str, str, bytes | None]
"""Uid, state and info."""

# Large numbers of values are passed to SQLite as bytearray: for each bytes object, its module looks up an adapter,
# which takes a fifth of the time of an update.
# Tasks with equal or equally long data are written by one statement, in half the time of a statement for each. SQLite
# has JSON and UPDATE FROM since 3.38; older versions may lack them.


class _Joined(NamedTuple):
    """The uids of tasks as JSON, and their data: equal, or joined with a stride, as all have the same size."""

    uids: str
    data: bytes | None
    stride: int
    size: int


class TaskTable:
    """The tasks of one session, without those in chunks that are not opened."""

    def __init__(self, database: Database, chunks: ChunkTable) -> None:
        self._db = database
        self._chunks = chunks
        self._recent = RecentTasks()
        self._joins = sqlite3.sqlite_version_info >= (3, 38)

    def insert(self, pilot: str, owner: str, shared: bytes, tasks: Sequence[tuple[str, bytes]]) -> None:
        """Add tasks (uid, description) for a pilot or none; existing ones are unchanged."""
        revisions = self._db.take(len(tasks))
        shared_id = add_shared(self._db, shared)
        inserted = self._insert(revisions, pilot, owner, shared_id, tasks)
        if not inserted:
            self._db.write('DELETE FROM shared WHERE id = ?', (shared_id,))
        elif pilot != UNBOUND:
            self._add_binding(pilot, revisions, revisions[0])
        if inserted < len(tasks):
            self._recent.clear()
        elif inserted and pilot != UNBOUND:
            self._recent.add(pilot, [(rev, uid, shared_id, description)
                                     for rev, (uid, description) in zip(revisions, tasks, strict=True)])

    def insert_chunk(self, pilot: str, owner: str, shared: bytes, uid: str, count: int, rows: bytes) -> None:
        """Add a chunk of tasks for a pilot or none; an existing one is unchanged."""
        self._recent.clear()
        self._chunks.insert(pilot, owner, shared, uid, count, rows)

    def _insert(self, revisions: range, pilot: str, owner: str, shared_id: int | None,
                tasks: Sequence[tuple[str, bytes]]) -> int:
        """Add tasks, and return how many did not exist."""
        joined = self._joined(tasks)
        if joined:
            uids, data, stride, size = joined
            return self._db.write(INSERT_KEPT_ALIKE if pilot == UNBOUND else INSERT_BOUND_ALIKE, (
                revisions[0], uids, owner, pilot, shared_id, data, stride, size)).rowcount
        return self._db.write_many(
            INSERT_KEPT if pilot == UNBOUND else INSERT_BOUND,
            [(rev, uid, owner, pilot, shared_id, bytearray(description))
             for rev, (uid, description) in zip(revisions, tasks, strict=True)])

    def _joined(self, rows: Sequence[tuple[str, bytes | None]]) -> _Joined | None:
        """Return uids and data of tasks if one statement does for all of them."""
        if len(rows) < ALIKE_MIN or not self._joins:
            return None
        uids, data = zip(*rows, strict=True)
        if len(set(uids)) != len(uids):
            return None
        first, stride = data[0], 0
        size = len(first or b'')
        if first is not None and not size:   # SQLite takes a part of nothing for NULL
            return None
        if len(set(data)) > 1:
            if None in data or set(map(len, data)) != {size}:
                return None
            first, stride = b''.join(data), size
        packed = json.dumps(uids)   # SQLite restores not all escaped characters
        return None if '\\' in packed else _Joined(packed, first, stride, size)

    def bind(self, pilot: str, uids: Iterable[str]) -> None:
        """Bind tasks to this pilot, except those already bound to it, and those that have left their agent."""
        self._recent.clear()
        if self._chunks.any:
            uids = [each for uid in uids for each in self._chunks.bind(pilot, uid)]
            self._chunks.open_with(uids)
        ids = [row[0] for uid in uids for row in self._db.query(
            f'SELECT id FROM tasks WHERE uid = ? AND pilot != ? AND value < {LEFT_AGENT}', (uid, pilot))]
        revisions = self._db.take(len(ids))
        self._db.write_many(
            f"UPDATE tasks SET rev = ?1, pilot = ?2, attempts = attempts + 1, state = '{BOUND_STATE}', "
            f'value = {_BOUND_VALUE}, {keep_told("tasks")}, changed = -?1 WHERE id = ?3',
            [(rev, pilot, task) for rev, task in zip(revisions, ids, strict=True)])
        for _, run in groupby(zip(revisions, ids, strict=True), lambda pair: pair[0] - pair[1]):
            (first, task), *rest = run
            self._add_binding(pilot, range(first, first + len(rest) + 1), task)

    def withdraw(self, uids: Iterable[str], claimed: Callable[[str], int]) -> None:
        """Unbind tasks that no agent has claimed, and announce that their pilots return them.

        `claimed(pilot)` is the revision up to which the tasks of a pilot are claimed.
        """
        self._recent.clear()
        ends: dict[str, int] = {}
        for uid in uids:
            for task, pilot, rev in self._db.query(
                    "SELECT id, pilot, rev FROM tasks WHERE uid = ? AND state = ? AND pilot != ?",
                    (uid, BOUND_STATE, UNBOUND)).fetchall():
                if pilot not in ends:
                    ends[pilot] = claimed(pilot)
                if rev > ends[pilot]:
                    self._db.write(_WITHDRAW, (codec.pack({'returned': pilot}), self._db.take(1)[0], task))

    def _add_binding(self, pilot: str, revisions: range, task: int) -> None:
        self._db.write('INSERT INTO bindings VALUES (?, ?, ?, ?)', (pilot, revisions[-1], revisions[0], task))

    def update(self, updates: Sequence[Update]) -> None:
        """Move tasks forward as reported by their client, which is not notified."""
        self._recent.clear()
        if self._chunks.any:
            updates = [each for update in updates for each in self._chunks.update(*update)]
            self._chunks.open_with([uid for uid, _, _ in updates])
        for state, run in _runs(updates):
            self._db.write_many(_UPDATE[state], [
                (info, uid, rev) for rev, (uid, _, info) in zip(self._db.take(len(run)), run, strict=True)])

    def forget(self, uids: Sequence[str]) -> None:
        """Delete the data of those tasks that are final, except uids and states."""
        self._chunks.open_with(uids)
        self._db.write_many(_FORGET, [(uid,) for uid in uids])

    def report(self, updates: Sequence[Update], pilot: str) -> tuple[bool, list[str]]:
        """Move the tasks of a pilot forward, and announce the changes (`since`).

        Return whether all updates had an effect, and the uids of tasks that are bound to other pilots and unchanged.
        """
        self._recent.changed(pilot, updates)
        changed = sum([self._report(state, run, pilot) for state, run in _runs(updates)])
        if changed == len(updates):
            return True, []
        return False, [uid for uid, _, _ in updates if self._db.query(
            'SELECT 1 FROM tasks WHERE uid = ? AND pilot != ?', (uid, pilot)).fetchone()]

    def _report(self, state: str, run: list[Update], pilot: str) -> int:
        """Move tasks of a pilot to a state, and return how many have changed."""
        revisions = self._db.take(len(run))
        joined = self._joined([(uid, info) for uid, _, info in run])
        if joined:
            uids, data, stride, size = joined
            return self._db.write(_REPORT_ALIKE[state], (data, uids, pilot, revisions[0], stride, size)).rowcount
        return self._db.write_many(UPDATE_BY_AGENT[state], [
            (info and bytearray(info), uid, pilot, rev) for rev, (uid, _, info) in zip(revisions, run, strict=True)])

    def new(self, pilot: str, since: int, limit: int, end: int | None = None) -> Increment:
        """Return the next tasks for a pilot, bound after one revision and not after the other, with descriptions.

        Rows are (rev, uid, shared id, description); tasks that have left their agent are not included.
        """
        end = self._db.rev if end is None else end
        return increment(self._bound(pilot, since, end), limit, end)

    def unclaimed(self, pilot: str, since: int, limit: int) -> Increment:
        """Return the next tasks for a pilot, as `new`, none of which was sent to an agent."""
        return self._recent.after(pilot, since, limit, self._db.rev) or self.new(pilot, since, limit)

    def forget_recent(self) -> None:
        """Clear the cache after a rollback."""
        self._recent.clear()

    def _bound(self, pilot: str, since: int, end: int) -> Iterator[Row]:
        for first, last, task in self._db.query(
                'SELECT first, last, id FROM bindings WHERE pilot = ? AND last > ? ORDER BY last', (pilot, since)):
            if first > end:
                return
            if self._chunks.closed:
                self._chunks.open_bound(task, pilot, first)
            shift = first - task
            yield from self._db.query(
                f'SELECT rev, uid, shared, description FROM tasks WHERE id BETWEEN ? AND ? AND rev - id = {shift} '
                f'AND value < {LEFT_AGENT} AND pilot = ? ORDER BY id',
                (max(first, since + 1) - shift, min(last, end) - shift, pilot))

    def shared(self, shared_id: int) -> tuple[bytes, float | None]:
        """Return the shared part of a bulk of descriptions, and the time of its submission; None if it is not known."""
        found: tuple[bytes, float | None] = self._db.query(
            'SELECT description, submitted FROM shared WHERE id = ?', (shared_id,)).fetchone()
        return found

    def since(self, since: int, limit: int) -> Increment:
        """Return the next changes of tasks after a revision: (changed, uid, state, info)."""
        rows: Iterable[Row] = self._db.query(
            'SELECT changed, uid, state, info FROM tasks WHERE changed > ? AND changed > 0 ORDER BY changed', (since,))
        if self._chunks.any:
            rows = merge(rows, self._chunks.since(since))
        return increment(rows, limit, self._db.rev)

    def end_of(self, uid: str) -> tuple[str, str, bytes | None] | None:
        """Return state, pilot and info of a task, without the info of one that is DONE; None if it is unknown."""
        self._chunks.open_with([uid])
        found: tuple[str, str, bytes | None] | None = self._db.query(
            f"SELECT state, pilot, CASE state WHEN '{states.DONE}' THEN NULL ELSE info END FROM tasks WHERE uid = ?",
            (uid,)).fetchone()
        return found

    def known(self, after: int, limit: int) -> tuple[list[Row], int]:
        """Return a page of all tasks and chunks after the one of that id, and the id to continue with (0: the last).

        Rows are (shared id, uid, owner, pilot, attempts, description, state, info, changed, told).
        """
        rows: list[Row] = []
        size = 0
        found: Iterable[Row] = self._db.query(
            'SELECT id, shared, uid, owner, pilot, attempts, description, state, info, changed, told FROM tasks '
            'WHERE id > ? ORDER BY id', (after,))
        if self._chunks.any:
            found = merge(found, self._chunks.known(after))
        for task, *row in found:
            rows.append(tuple(row))
            size += len(row[5]) + len(row[7] or b'')
            if len(rows) >= limit or size >= INCREMENT_BYTES:
                return rows, task
        return rows, 0

    def unfinished(self, stuck: Collection[str] = ()) -> bool:
        """Return whether a live pilot, other than these, has a task to finish that ends by itself."""
        if self._chunks.unfinished(stuck):
            return True
        found = self._db.query(
            'SELECT pilot, shared.description, tasks.description FROM tasks JOIN shared ON shared.id = tasks.shared '
            f'JOIN pilots ON pilots.uid = pilot WHERE tasks.value < {LEFT_AGENT} AND pilots.value < ?',
            (states.PILOT.value(states.DONE),))
        return any(pilot not in stuck and _mode(shared, own) not in SERVICE_MODES for pilot, shared, own in found)


def _mode(shared: bytes, own: bytes) -> Any:
    """Return the mode of the task with this description, or None for the default."""
    return {**codec.unpack(shared), **codec.unpack(own)}.get('mode')


def _runs(updates: Sequence[Update]) -> list[tuple[str, list[Update]]]:
    """Return runs of updates to the same state, in order; raise StateError if a state is unknown."""
    runs = [(state, list(run)) for state, run in groupby(updates, itemgetter(1))]
    for state, _ in runs:
        states.TASK.value(state)
    return runs


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
        if len(tail.rows) > MAX_ROWS or tail.size > INCREMENT_BYTES:
            del self._tails[pilot]

    def clear(self) -> None:
        """Drop all tasks."""
        self._tails.clear()

    def changed(self, pilot: str, updates: Sequence[tuple[str, str, bytes | None]]) -> None:
        """Drop the tasks of a pilot if one of these updates (uid, state, info) changes one of them."""
        tail = self._tails.get(pilot)
        if tail is not None and tail.uids and not tail.uids.isdisjoint([uid for uid, _, _ in updates]):
            del self._tails[pilot]

    def after(self, pilot: str, since: int, limit: int, end: int) -> Increment | None:
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
        return increment(rows, limit, end)
