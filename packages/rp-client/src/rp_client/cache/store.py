"""The store of results in a base directory, which all its sessions share.

Small data is in a SQLite database. The output files of a task are in a directory of their own, which gets its name when
it is complete, before the result is in the database. So a crash leaves no incomplete result, only directories that
belong to none, which `prune` removes. When the size exceeds the limit, results that were used least recently go. One
that exceeds it alone is not stored.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rp_api.staging.files import copy
from rp_api.system import private
from rp_api.wire import codec
from rp_client.cache.files import SIZE, joined, read_digest

_log = logging.getLogger('radical.pilot.cache')

NAME = '.rp.cache'
"""Name of the store in a base directory."""

LIMIT = 10 * 10 ** 9
"""Bytes of all results at most, unless the user sets another limit."""

_DATABASE, _OUTPUTS = 'cache.db', 'outputs'
_VERSION = 2
_TIMEOUT = 60.0   # seconds to wait for another process that writes
_NOTED = 600.0   # seconds within which a second use of a result is not noted: reading should not need to write
_FORGOTTEN = 3600.0   # seconds after which a directory that belongs to no result was left by a crash
_OLDEST = 64   # results that are read together to make room
_OVERHEAD = 128   # bytes of a row besides its data

_TABLES = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (identity BLOB PRIMARY KEY, label TEXT, info BLOB, directory TEXT, files BLOB,
    size INTEGER, made REAL, used REAL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS results_used ON results (used);
"""
_COLUMNS = 'identity, label, info, directory, files, size, made, used'


class CachedResult(NamedTuple):
    """A cached result.

    Attributes:
        identity: What it is found by.
        label: What it is the result of, for people.
        info: The packed data.
        directory: Name of the directory with the output files; empty without any.
        files: Their sizes and digests, by path in the directory; see `_mark` for links and directories.
        size: Bytes that it takes.
        made: Seconds since 1970 when it was stored.
        used: Seconds since 1970 when it was used last.
    """

    identity: bytes
    label: str
    info: bytes
    directory: str
    files: Mapping[str, tuple[int, bytes]]
    size: int
    made: float
    used: float


class CacheSummary(NamedTuple):
    """The number of results, their size in bytes, and the limit of that."""

    number: int
    size: int
    limit: int


class ResultStore:
    """The results in a directory, which is made if it does not exist. All methods can be called in any thread.

    Args:
        directory: The directory.

    Raises:
        OwnershipError: The directory belongs to another user.
        OSError: It cannot be made or used.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        for path in (self.directory, self.directory / _OUTPUTS):
            private.make_directory(path)
        self._lock = threading.Lock()
        with _readable_errors(self.directory):
            self._db = sqlite3.connect(self.directory / _DATABASE, timeout=_TIMEOUT, isolation_level=None,
                                       check_same_thread=False)
            self._db.execute('PRAGMA synchronous = NORMAL')
            self._db.executescript(_TABLES)
            self._check_version()

    def _check_version(self) -> None:
        self._db.execute('INSERT OR IGNORE INTO settings VALUES (?, ?)', ('version', _VERSION))
        found = self._setting('version', _VERSION)
        if found < _VERSION:   # no identity is found any more
            self._remove([each for each, in self._db.execute('SELECT identity FROM results')])
            self._set('version', _VERSION)
            return
        if found != _VERSION:
            raise OSError(f'{self.directory} is a cache of version {found}, and this is version {_VERSION}: remove it')

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    def find(self, identities: Sequence[bytes]) -> dict[bytes, CachedResult]:
        """Return the results that exist, by identity, and note their use. One with missing files does not exist."""
        found: dict[bytes, CachedResult] = {}
        now = time.time()
        with self._transaction('BEGIN'):
            for identity in identities:
                row = self._db.execute(f'SELECT {_COLUMNS} FROM results WHERE identity = ?', (identity,)).fetchone()
                result = _result(row) if row else None
                if result is not None and row[2] == _checked(result.info) and self._is_complete(result):
                    found[identity] = result
        noted = [(now, identity) for identity, result in found.items() if now - result.used > _NOTED]
        if noted:
            with self._transaction():
                self._db.executemany('UPDATE results SET used = ? WHERE identity = ?', noted)
        return found

    def path(self, result: CachedResult) -> Path:
        """Return the directory with the output files of a result."""
        return self.directory / _OUTPUTS / result.directory

    def take(self, result: CachedResult) -> Path:
        """Return a directory with the output files of a result as they were stored, which stays when the result goes.

        The caller removes it.

        Raises:
            OSError: A file is gone or damaged; the result does not exist any more.
        """
        taken = self.new_directory()
        modes = []
        try:
            for name, (size, mark) in result.files.items():
                target = taken / name
                if size <= _DIRECTORY:
                    target.mkdir()
                    modes.append((target, _DIRECTORY - size))
                elif size == _LINK:
                    target.symlink_to(os.fsdecode(mark))
                else:
                    _link(self.path(result) / name, target)
                    if read_digest(str(target)) != mark:
                        raise OSError(f'{name} is damaged')
            for target, mode in reversed(modes):
                target.chmod(mode)
        except OSError:
            shutil.rmtree(taken, ignore_errors=True)
            raise
        return taken

    def new_directory(self) -> Path:
        """Make a directory for the output files of a result."""
        path = self.directory / _OUTPUTS / f'{os.urandom(12).hex()}.part'
        path.mkdir(mode=0o700)
        return path

    def add(self, results: Iterable[tuple[bytes, str, bytes, Path | None]]) -> None:
        """Store results, in place of earlier ones with the same identities; one larger than the limit is left out.

        Args:
            results: The identity, the label, the info and the directory of output files of each.
        """
        now = time.time()
        rows = [_row(identity, label, info, directory, now) for identity, label, info, directory in results]
        with self._transaction():
            limit = self._setting('limit', LIMIT)
            for row in rows:
                self._remove([row.identity])
                if row.size > limit:
                    self._leave_out(row, limit)
                    continue
                self._db.execute('INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
                                 row._replace(info=_checked(row.info), files=codec.pack(row.files)))   # type: ignore[arg-type]
                self._grow(row.size)
            self._evict()

    def results(self) -> list[CachedResult]:
        """Return all results, those used last first."""
        with self._transaction('BEGIN'):
            rows = self._db.execute(f'SELECT {_COLUMNS} FROM results ORDER BY used DESC').fetchall()
        return list(map(_result, rows))

    def summary(self) -> CacheSummary:
        """Return the number, the size and the limit of the results."""
        with self._transaction('BEGIN'):
            number, = self._db.execute('SELECT count(*) FROM results').fetchone()
            return CacheSummary(number, self._setting('size', 0), self._setting('limit', LIMIT))

    def set_limit(self, limit: int) -> None:
        """Set the bytes that all results may take together, and remove those that exceed it."""
        with self._transaction():
            self._set('limit', limit)
            self._evict()

    def remove(self, identities: Iterable[bytes]) -> None:
        """Remove results."""
        with self._transaction():
            self._remove(identities)

    def prune(self, older_than: float = float('inf')) -> int:
        """Remove what belongs to no result, and results that were not used for so many seconds; return their number."""
        with self._transaction():
            old = [each for each, in self._db.execute('SELECT identity FROM results WHERE used < ?',
                                                      (time.time() - older_than,))]
            self._remove(old)
            known = {name for name, in self._db.execute('SELECT directory FROM results')}
            for path in (self.directory / _OUTPUTS).iterdir():
                if path.name not in known and time.time() - path.stat().st_mtime > _FORGOTTEN:
                    shutil.rmtree(path, ignore_errors=True)
        return len(old)

    @contextmanager
    def _transaction(self, begin: str = 'BEGIN IMMEDIATE') -> Iterator[None]:
        with self._lock, _readable_errors(self.directory):
            self._db.execute(begin)
            try:
                yield
            except BaseException:
                self._db.execute('ROLLBACK')
                raise
            self._db.execute('COMMIT')

    def _is_complete(self, result: CachedResult) -> bool:
        path = self.path(result)
        try:
            return all(os.lstat(path / name).st_size == size or size < 0 for name, (size, _) in result.files.items())
        except OSError:
            return False

    def _remove(self, identities: Iterable[bytes]) -> None:
        for identity in identities:
            row = self._db.execute('SELECT directory, size FROM results WHERE identity = ?', (identity,)).fetchone()
            if row is None:
                continue
            self._db.execute('DELETE FROM results WHERE identity = ?', (identity,))
            self._grow(-row[1])
            if row[0]:
                shutil.rmtree(self.directory / _OUTPUTS / row[0], ignore_errors=True)

    def _leave_out(self, row: CachedResult, limit: int) -> None:
        """Do not store a result for which all others would have to go."""
        _log.warning('the result of %s is not cached: it has %d bytes, and all results may have %d (rp cache limit)',
                     row.label, row.size, limit)
        if row.directory:
            shutil.rmtree(self.path(row), ignore_errors=True)

    def _evict(self) -> None:
        """Remove the results that were used least recently, until the others do not exceed the limit."""
        excess = self._setting('size', 0) - self._setting('limit', LIMIT)
        while excess > 0:   # mostly few of very many have to go
            rows = self._db.execute('SELECT identity, size FROM results ORDER BY used LIMIT ?', (_OLDEST,)).fetchall()
            if not rows:
                break
            for identity, size in rows:
                self._remove([identity])
                excess -= size
                if excess <= 0:
                    break

    def _grow(self, size: int) -> None:
        self._set('size', self._setting('size', 0) + size)

    def _setting(self, name: str, default: int) -> int:
        row = self._db.execute('SELECT value FROM settings WHERE name = ?', (name,)).fetchone()
        return row[0] if row else default

    def _set(self, name: str, value: int) -> None:
        self._db.execute('INSERT OR REPLACE INTO settings VALUES (?, ?)', (name, value))


@contextmanager
def _readable_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f'the cache in {directory} cannot be used: {error}') from error


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if not source.exists() or error.errno == errno.ENOSPC:
            raise
        copy(str(source), str(target))   # the file system has no links


def _row(identity: bytes, label: str, info: bytes, part: Path | None, now: float) -> CachedResult:
    """Return the result as stored; its directory gets its final name."""
    files: dict[str, tuple[int, bytes]] = {}
    name = ''
    if part is not None:
        for place, below, found in os.walk(part):
            for path in (os.path.join(place, each) for each in (*below, *found)):
                files[os.path.relpath(path, part)] = _mark(path)
        name = part.name.removesuffix('.part')
        part.rename(part.with_name(name))
    size = _OVERHEAD + len(info) + sum(size for size, _ in files.values() if size > 0)
    return CachedResult(identity, label, info, name, files, size, now, now)


_LINK, _DIRECTORY = -1, -2


def _mark(path: str) -> tuple[int, bytes]:
    """Return the size and the digest of a file; `_LINK` and the text of a link; `_DIRECTORY` less its mode."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return _LINK, os.fsencode(os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return _DIRECTORY - stat.S_IMODE(status.st_mode), b''
    return status.st_size, read_digest(path)


def _checked(info: bytes) -> bytes:
    """Return data with its digest in front."""
    return joined(b'info', [info]) + info


def _result(row: Sequence[object]) -> CachedResult:
    found = CachedResult(*row)   # type: ignore[arg-type]
    files = codec.unpack(found.files)   # type: ignore[arg-type]
    return found._replace(info=found.info[SIZE:], files={name: (size, mark) for name, (size, mark) in files.items()})
