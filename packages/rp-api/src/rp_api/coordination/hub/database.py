"""The database of a session: SQLite in WAL mode, with a counter of revisions and grouped writes.

The revision only grows. It is stored with every commit, since statements without effect use up numbers, too, which
readers may have seen. Any SQLite client can read the file, during the session and after it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rp_api import states

INCREMENT_BYTES = 16 << 20
"""Size of a batch in bytes after which no row is added, so that it fits into a message."""

_PAGE_BYTES = 1 << 14
"""Page size of the file in bytes."""

_LOG_BYTES = 4 << 20
"""Size of the write-ahead log in bytes at which a checkpoint moves it to the file."""

_PROBE_BYTES = 1 << 20
"""Free bytes required before writing is resumed to a file that could not grow."""

_PRAGMAS = f"""
PRAGMA page_size = {_PAGE_BYTES};
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA cache_size = -8192;
PRAGMA wal_autocheckpoint = {_LOG_BYTES // _PAGE_BYTES};
PRAGMA journal_size_limit = {2 * _LOG_BYTES};
"""

# Texts of SQLite errors whose cause may pass. (Error codes would be better, but Python 3.10 does not provide them.)
_PASSING = ('disk is full', 'disk I/O error', 'is locked', 'unable to open database file', 'readonly database')

Row = tuple[Any, ...]

# An owner has two revisions: `reported`, up to which its application was notified of agents' reports, and `own`, of
# changes by its client. `changed` of a pilot or task is the revision of its last change, negative if the client made
# it, and `told` the value of the last state notified before. So an acknowledgement is one row for any number of tasks.
ACKNOWLEDGED = """
CREATE TABLE IF NOT EXISTS acknowledged (
    owner TEXT PRIMARY KEY, reported INTEGER NOT NULL, own INTEGER NOT NULL) WITHOUT ROWID;
"""


# What the tasks of a batch share: their common description, and the time of their submission.
SHARED = 'CREATE TABLE IF NOT EXISTS shared (id INTEGER PRIMARY KEY, description BLOB NOT NULL, submitted REAL);'


class Increment(NamedTuple):
    """Rows that a reader has not received, and the revision up to which there are no others."""

    rows: list[Row]
    upto: int


class Database:
    """The open database; writes become durable with `commit()`."""

    def __init__(self, path: str | os.PathLike[str], schema: str) -> None:
        self.path = os.fspath(path)
        self._closed = False
        self._db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        self._db.executescript(_PRAGMAS)
        self._db.executescript(f"""
            CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
            {schema}""")
        self.query = self._db.execute
        self.rev: int = self.meta('rev', 0)

    def meta(self, key: str, default: Any) -> Any:
        """Return a property of the session."""
        found = self.query('SELECT value FROM meta WHERE key = ?', (key,)).fetchone()
        return found[0] if found else default

    def set_meta(self, values: Iterable[tuple[str, Any]]) -> None:
        """Store properties of the session (key, value)."""
        self.write_many('INSERT OR REPLACE INTO meta VALUES (?, ?)', values)

    def take(self, count: int) -> range:
        """Return the next `count` revisions."""
        first = self.rev + 1
        self.rev += count
        return range(first, self.rev + 1)

    def write(self, statement: str, values: Row = ()) -> sqlite3.Cursor:
        """Execute a statement as part of the next commit."""
        self._begin()
        return self.query(statement, values)

    def write_many(self, statement: str, rows: Iterable[Row]) -> int:
        """Execute a statement for each row as part of the next commit; return the number of changed rows."""
        self._begin()
        return self._db.executemany(statement, rows).rowcount

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self.query('BEGIN')

    @property
    def dirty(self) -> bool:
        """True if there is something to commit."""
        return self._db.in_transaction

    def commit(self) -> None:
        """Commit everything written since the last commit."""
        if self.dirty:
            self.set_meta([('rev', self.rev)])
            self.query('COMMIT')

    def rollback(self) -> None:
        """Discard everything written since the last commit."""
        if self.dirty:   # some errors have rolled back already
            self.query('ROLLBACK')

    def probe(self) -> None:
        """Raise the error that a write of some size would raise now.

        Checkpoints before and after it make the space of the log available to the next writes.
        """
        self.rollback()
        self._take_over_log()
        self.set_meta([('probe', bytes(_PROBE_BYTES))])
        self.query('COMMIT')
        self.set_meta([('probe', None)])
        self.query('COMMIT')
        self._take_over_log()

    def _take_over_log(self) -> None:
        self.query('PRAGMA wal_checkpoint(PASSIVE)').fetchone()

    def close(self) -> None:
        """Commit and close the database, if it is open."""
        if not self._closed:
            self._closed = True
            try:
                self.commit()
            finally:
                self._db.close()


def notes_submissions(query: Callable[[str], Iterable[Row]]) -> bool:
    """Return whether the session is of a version that notes when tasks were submitted."""
    return any(column[1] == 'submitted' for column in query('PRAGMA table_info(shared)'))


def add_shared(database: Database, description: bytes) -> int | None:
    """Add the common description of tasks that are submitted now, and return its id."""
    return database.write('INSERT INTO shared (description, submitted) VALUES (?, ?)',
                          (description, time.time())).lastrowid


def is_passing(error: sqlite3.Error) -> bool:
    """Return whether the cause of the error may pass: a full disk, or a lock of another process."""
    return isinstance(error, sqlite3.OperationalError) and any(text in str(error) for text in _PASSING)


def increment(cursor: Iterable[Row], limit: int, end: int) -> Increment:
    """Return the first rows, at most `limit`; the first column is the revision, the last one has variable size.

    `end` is the revision up to which there are no others if all rows fit.
    """
    rows = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[-1] or b'')
        if len(rows) >= limit or size >= INCREMENT_BYTES:
            return Increment(rows, row[0])
    return Increment(rows, end)


def keep_told(table: str) -> str:
    """Return the SQL that updates `told` of a table, before `changed` and `value` are replaced."""
    return (f'told = CASE WHEN EXISTS (SELECT 1 FROM acknowledged AS a WHERE a.owner = {table}.owner '
            f'AND {table}.changed BETWEEN -a.own AND a.reported) THEN max({table}.told, {table}.value) '
            f'ELSE {table}.told END')


def acknowledge(database: Database, owners: Iterable[str], reported: int, own: int) -> None:
    """Record that the application was notified of everything up to these revisions."""
    database.write_many(
        'INSERT INTO acknowledged VALUES (?, ?, ?) ON CONFLICT (owner) DO UPDATE SET '
        'reported = max(reported, excluded.reported), own = max(own, excluded.own)',
        [(owner, reported, own) for owner in owners])


class Told:
    """The notified states according to the database at the time of creation."""

    def __init__(self, database: Database) -> None:
        self._marks = {owner: (-own, reported) for owner, reported, own in database.query('SELECT * FROM acknowledged')}

    def last(self, model: states.StateModel, owner: str, state: str, changed: int, told: int) -> str:
        """Return the last state of a pilot or task of which an application was notified."""
        value = model.value(state)
        first, last = self._marks.get(owner, (0, 0))
        if first <= changed <= last:
            told = max(told, value)
            if told == value:
                return state
        names = [row.name for row in model.rows if row.value == told]
        return next(name for name in reversed(names) if name != state or len(names) == 1)
