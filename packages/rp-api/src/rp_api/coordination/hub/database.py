"""The file of a session: an SQLite database in WAL mode, with one counter of revisions and writes that are grouped.

The revision is a number that only grows. It is kept with every commit, since what had no effect has used up numbers,
too, and readers may have seen them. The file is readable with any SQLite client while and after the session runs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

MANY_BYTES = 16 << 20
"""Size after which a batch takes no further row, so that a message with it stays far below what can be sent."""

_PAGE = 1 << 14
"""Bytes of a page of the file."""

_LOG = 4 << 20
"""Bytes that the write-ahead log may have before it is taken over into the file, so that it is never much larger."""

_PROBE = 1 << 20
"""Bytes that have to be free before more is written to a file that could not grow."""

_PRAGMAS = f"""
PRAGMA page_size = {_PAGE};
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA cache_size = -8192;
PRAGMA wal_autocheckpoint = {_LOG // _PAGE};
PRAGMA journal_size_limit = {2 * _LOG};
"""

# What SQLite says when the fault is not in what it was asked to do; it may well work later. (Error codes would be
# better to tell by, but Python 3.10 does not have them.)
_PASSING = ('disk is full', 'disk I/O error', 'is locked', 'unable to open database file', 'readonly database')

Row = tuple[Any, ...]


class Batch(NamedTuple):
    """Rows that a reader has not seen yet, and the revision up to which there are no others."""

    rows: list[Row]
    upto: int


class Database:
    """The open file; writes become durable with `commit()`."""

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
        """A fact about the session."""
        found = self.query('SELECT value FROM meta WHERE key = ?', (key,)).fetchone()
        return found[0] if found else default

    def set_meta(self, values: Iterable[tuple[str, Any]]) -> None:
        """Keep facts about the session (key, value)."""
        self.write_many('INSERT OR REPLACE INTO meta VALUES (?, ?)', values)

    def take(self, count: int) -> range:
        """The next revisions, that many of them."""
        first = self.rev + 1
        self.rev += count
        return range(first, self.rev + 1)

    def write(self, statement: str, values: Row = ()) -> sqlite3.Cursor:
        """Change something, as part of the next commit."""
        self._begin()
        return self.query(statement, values)

    def write_many(self, statement: str, rows: Iterable[Row]) -> int:
        """Change something for each row, as part of the next commit; how many rows of the table have changed."""
        self._begin()
        return self._db.executemany(statement, rows).rowcount

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self.query('BEGIN')

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return self._db.in_transaction

    def commit(self) -> None:
        """Make everything durable that was written since the last commit."""
        if self.dirty:
            self.set_meta([('rev', self.rev)])
            self.query('COMMIT')

    def rollback(self) -> None:
        """Forget everything that was written since the last commit."""
        if self.dirty:   # some errors have done that already
            self.query('ROLLBACK')

    def probe(self) -> None:
        """Raise what a write would raise now, also one that is not that small.

        The log is taken over into the file before and after: what is written next uses its room again.
        """
        self.rollback()
        self._take_over_log()
        self.set_meta([('probe', bytes(_PROBE))])
        self.query('COMMIT')
        self.set_meta([('probe', None)])
        self.query('COMMIT')
        self._take_over_log()

    def _take_over_log(self) -> None:
        self.query('PRAGMA wal_checkpoint(PASSIVE)').fetchone()

    def close(self) -> None:
        """Commit and close the file; harmless when it is closed already."""
        if not self._closed:
            self._closed = True
            try:
                self.commit()
            finally:
                self._db.close()


def is_passing(error: sqlite3.Error) -> bool:
    """Whether the fault is the disk's, or somebody else's who uses the file: the same may work later."""
    return isinstance(error, sqlite3.OperationalError) and any(text in str(error) for text in _PASSING)


def batch(cursor: Iterable[Row], limit: int, end: int) -> Batch:
    """The first rows, at most `limit`; the first column is the revision, the last one the large one.

    `end` is the revision up to which there are no others if all rows fit.
    """
    rows = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[-1] or b'')
        if len(rows) >= limit or size >= MANY_BYTES:
            return Batch(rows, row[0])
    return Batch(rows, end)
