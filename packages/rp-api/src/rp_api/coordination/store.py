"""The hub's memory: pilots, tasks and commands of one session in an SQLite file (WAL mode).

Every row that somebody has to hear of carries a revision, a number that only grows: `rev` when it came in, `changed`
when its state changed last. A reader remembers the last revision it has seen and asks for what came after it, so a
restart of either side needs no further book-keeping. The revision itself is kept with every commit: what had no effect
has used up numbers, too, and readers may have seen them. Writes are grouped: the hub commits once for all messages of
one turn of its event loop. The file is readable with any SQLite client while and after the session runs.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from rp_api import states
from rp_api.errors import CoordinationError

MANY_BYTES = 16 << 20
"""Size after which a batch takes no further row, so that a message with it stays far below what can be sent."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pilots (
    rev INTEGER PRIMARY KEY, uid TEXT UNIQUE NOT NULL, description BLOB NOT NULL,
    state TEXT NOT NULL, value INTEGER NOT NULL, changed INTEGER NOT NULL, info BLOB);
CREATE TABLE IF NOT EXISTS shared (id INTEGER PRIMARY KEY, description BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (
    rev INTEGER PRIMARY KEY, uid TEXT UNIQUE NOT NULL, pilot TEXT NOT NULL,
    shared INTEGER NOT NULL, description BLOB NOT NULL,
    state TEXT NOT NULL, value INTEGER NOT NULL, changed INTEGER NOT NULL, info BLOB);
CREATE INDEX IF NOT EXISTS tasks_pilot ON tasks (pilot, rev);
CREATE INDEX IF NOT EXISTS tasks_changed ON tasks (changed);
CREATE TABLE IF NOT EXISTS commands (rev INTEGER PRIMARY KEY, pilot TEXT NOT NULL, command BLOB NOT NULL);
"""
_BOUND = states.AGENT_STAGING_INPUT_PENDING
_BOUND_VALUE = states.TASK.value(_BOUND)
_LEFT_AGENT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)

# A state only moves forward; the model says which final states can be corrected by what was already on its way.
_UPDATE = """
UPDATE {table} SET state = ?, value = ?, info = coalesce(?, info), changed = coalesce(?, changed)
WHERE uid = ? AND (value < ? OR (state, ?) IN (VALUES {corrections}))
"""

Row = tuple[Any, ...]


class Batch(NamedTuple):
    """Rows that a reader has not seen yet, and the revision up to which there are no others."""

    rows: list[Row]
    upto: int


def claim(directory: str) -> int:
    """Make sure that no other hub uses the directory of a session; the claim holds until the descriptor is closed.

    Raises `CoordinationError` if one does: the session is still open, or its application died and its pilots work on.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CoordinationError(f'another session is at work in {directory}: give this one another uid, or wait for '
                                'the end of the other one') from None
    return descriptor


def set_aside(path: str) -> None:
    """Rename the file that an earlier session of the same name left, with all that belongs to it, to `<path>.<n>`."""
    if not os.path.exists(path):
        return
    number = next(number for number in itertools.count(1) if not os.path.exists(f'{path}.{number}'))
    for end in ('-wal', '-shm', ''):
        if os.path.exists(path + end):
            os.rename(path + end, f'{path}.{number}{end}')


class Store:
    """One session's pilots, tasks and commands; writes become durable with `commit()`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._closed = False
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute('PRAGMA journal_mode = WAL')
        self._db.execute('PRAGMA synchronous = NORMAL')
        self._db.executescript(_SCHEMA)
        found = self._db.execute("SELECT value FROM meta WHERE key = 'rev'").fetchone()
        self.rev: int = found[0] if found else 0

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute('BEGIN')

    def _next(self) -> int:
        self.rev += 1
        return self.rev

    def set_meta(self, values: Iterable[tuple[str, str]]) -> None:
        """Keep facts about the session (key, value)."""
        self._begin()
        self._db.executemany('INSERT OR REPLACE INTO meta VALUES (?, ?)', values)

    def insert_pilots(self, pilots: Iterable[tuple[str, bytes]]) -> None:
        """Add pilots (uid, description); those that are there already stay as they are."""
        self._begin()
        self._db.executemany(
            "INSERT OR IGNORE INTO pilots VALUES (?, ?, ?, 'NEW', 0, 0, NULL)",
            [(self._next(), uid, description) for uid, description in pilots])

    def insert_tasks(self, pilot: str, shared: bytes, tasks: Iterable[tuple[str, bytes]]) -> None:
        """Add tasks (uid, description) bound to a pilot; those that are there already stay as they are."""
        self._begin()
        shared_id = self._db.execute('INSERT INTO shared (description) VALUES (?)', (shared,)).lastrowid
        self._db.executemany(
            f"INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, {shared_id}, ?, '{_BOUND}', {_BOUND_VALUE}, 0, NULL)",
            [(self._next(), uid, pilot, description) for uid, description in tasks])

    def insert_command(self, pilot: str, command: bytes) -> None:
        """Add a command for the agent of a pilot."""
        self._begin()
        self._db.execute('INSERT INTO commands VALUES (?, ?, ?)', (self._next(), pilot, command))

    def update_pilots(self, updates: Iterable[tuple[str, str, bytes | None]], *, announce: bool) -> None:
        """Move pilots (uid, state, info) forward; `announce` makes the changes show up in `pilots_since`."""
        self._update('pilots', states.PILOT, updates, announce)

    def update_tasks(self, updates: Iterable[tuple[str, str, bytes | None]], *, announce: bool) -> None:
        """Move tasks (uid, state, info) forward; `announce` makes the changes show up in `tasks_since`."""
        self._update('tasks', states.TASK, updates, announce)

    def _update(self, table: str, model: states.StateModel, updates: Iterable[tuple[str, str, bytes | None]],
                announce: bool) -> None:
        self._begin()
        corrections = ', '.join(map(repr, model.corrections))
        rows = []
        for uid, state, info in updates:
            value = model.value(state)
            rows.append((state, value, info, self._next() if announce else None, uid, value, state))
        self._db.executemany(_UPDATE.format(table=table, corrections=corrections), rows)

    def commit(self) -> None:
        """Make everything durable that was written since the last commit."""
        if self._db.in_transaction:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('rev', ?)", (self.rev,))
            self._db.execute('COMMIT')

    def new_tasks(self, pilot: str, since: int, limit: int) -> Batch:
        """The next tasks for a pilot after a revision: (rev, uid, shared id, description); never any that are final."""
        return self._batch('SELECT rev, uid, shared, description FROM tasks '
                           f'WHERE pilot = ? AND rev > ? AND value < {_LEFT_AGENT} ORDER BY rev', (pilot, since), limit)

    def shared(self, shared_id: int) -> bytes:
        """The shared part of a bulk of descriptions."""
        found: bytes = self._db.execute('SELECT description FROM shared WHERE id = ?', (shared_id,)).fetchone()[0]
        return found

    def new_commands(self, pilot: str, since: int, limit: int) -> Batch:
        """The next commands for a pilot after a revision: (rev, command)."""
        return self._batch('SELECT rev, command FROM commands WHERE pilot = ? AND rev > ? ORDER BY rev',
                           (pilot, since), limit)

    def tasks_since(self, since: int, limit: int) -> Batch:
        """The next task changes after a revision: (changed, uid, state, info)."""
        return self._batch('SELECT changed, uid, state, info FROM tasks WHERE changed > ? ORDER BY changed',
                           (since,), limit)

    def pilots_since(self, since: int, limit: int) -> Batch:
        """The next pilot changes after a revision: (changed, uid, state, info)."""
        return self._batch('SELECT changed, uid, state, info FROM pilots WHERE changed > ? ORDER BY changed',
                           (since,), limit)

    def _batch(self, query: str, arguments: Row, limit: int) -> Batch:
        """The first rows of a query, at most `limit`; the first column is the revision, the last one the large one."""
        rows = []
        size = 0
        for row in self._db.execute(query, arguments):
            rows.append(row)
            size += len(row[-1] or b'')
            if len(rows) >= limit or size >= MANY_BYTES:
                return Batch(rows, row[0])
        return Batch(rows, self.rev)

    def live_pilots(self) -> list[str]:
        """Uids of the pilots that are not final."""
        return [uid for uid, in self._db.execute(
            'SELECT uid FROM pilots WHERE value < ?', (states.PILOT.value(states.DONE),))]

    def unfinished(self) -> int:
        """Number of tasks that live pilots still have to work on."""
        found: int = self._db.execute(
            'SELECT count(*) FROM tasks JOIN pilots ON pilots.uid = tasks.pilot '
            f'WHERE tasks.value < {_LEFT_AGENT} AND pilots.value < ?', (states.PILOT.value(states.DONE),)).fetchone()[0]
        return found

    def results(self) -> Iterable[Row]:
        """All tasks in the order in which they came: (uid, pilot, state, info)."""
        return self._db.execute('SELECT uid, pilot, state, info FROM tasks ORDER BY rev')

    def close(self) -> None:
        """Commit and close the file; harmless when it is closed already."""
        if not self._closed:
            self._closed = True
            self.commit()
            self._db.close()
