"""Claims: the cached requests that are in flight, so that equal ones wait for their results instead of running as well.

A claim is a row of a database in the directory of the cache, and belongs to an owner: a session, or the calls of an
executor. The owner locks a file of its own, which the kernel unlocks when its process ends, however that happens. On
hosts where such a lock does not reach the other hosts, the time of the file tells: an owner sets it as a heartbeat.

An owner whose process has died may have been a session that goes on without it. What becomes of its claims decide the
`Successors`: they are respected while `follow` returns True, and void afterwards.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

from rp_api.errors import OwnershipError
from rp_api.system import private

_log = logging.getLogger('radical.pilot.cache')

LEASE = 60.0
"""Seconds after the last heartbeat that an owner on another host counts as alive, if its lock does not tell."""

BEAT = 10.0
"""Seconds between heartbeats."""

POLL = 0.5
"""Seconds between looks at the claims of others that requests wait for: no descriptor tells when they end."""

NOTICE_DELAY = 5.0
"""Seconds after which a wait for another owner is told."""

_TIMEOUT = 60.0   # seconds to wait for another process that writes

Owner = Mapping[str, str]
"""The data of an owner of claims: its `host` and `pid`, and the `session` (its directory), if it is one."""

Freed = Callable[[], bool]
"""Called when a request may look for the result again; returns False if it is not interested any more."""


class Successors(Protocol):
    """The interface that continues sessions whose process has died."""

    def follow(self, owner: Owner) -> bool:
        """Return whether the claims of a session are still to be respected. It does not block."""

    def close(self) -> None:
        """Follow no session any more."""


_locks: set[int] = set()   # descriptors of the locked files of this process


class Claims:
    """The claims of one owner. All methods may be called from any thread.

    Args:
        directory: The directory of the cache, which exists.
        session: The directory of the session that is the owner; empty for an executor's calls.
        successors: Decides on the claims of sessions whose process has died; None voids them.
        **more: What else the owner tells of itself.
    """

    def __init__(self, directory: Path, session: str = '', successors: Successors | None = None, **more: str) -> None:
        self._directory = directory / 'claims'
        private.make_directory(self._directory)
        self._owner = {'host': os.uname().nodename, 'pid': str(os.getpid()), 'session': session, **more}
        self._successors = successors
        self._token = os.urandom(12).hex()
        self._path = self._directory / f'{self._token}.owner'
        self._fd = private.open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with suppress(OSError):   # a file system without locks
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _locks.add(self._fd)
        os.write(self._fd, json.dumps(self._owner).encode())
        self._db = sqlite3.connect(self._directory / 'claims.db', timeout=_TIMEOUT, isolation_level=None,
                                   check_same_thread=False)
        self._db.execute('PRAGMA synchronous = OFF')   # after a crash of the host, no claim holds
        self._db.execute('CREATE TABLE IF NOT EXISTS claims (identity BLOB PRIMARY KEY, owner TEXT) WITHOUT ROWID')
        self._tidy()
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._mine: set[bytes] = set()
        self.unawaited: set[bytes] = set()
        """Claims of this owner that its own requests do not wait for."""
        self._waiting: dict[bytes, list[Freed]] = {}
        self._since: dict[str, float] = {}   # when waits for other owners began
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, identities: Iterable[bytes]) -> set[bytes]:
        """Claim requests; return those that were not in flight, and are claimed from now on."""
        taken: set[bytes] = set()
        with self._lock:
            wanted = [identity for identity in dict.fromkeys(identities) if identity not in self._mine]
            if self._closed or not wanted:
                return taken
            try:
                taken = self._insert(wanted)
            except sqlite3.Error as error:
                _log.warning('cached requests do not wait for equal ones: %s', error)
                return set(wanted)
            self._mine |= taken
            self._start()
        return taken

    def _insert(self, wanted: Iterable[bytes]) -> set[bytes]:
        taken = set()
        alive: dict[str, bool] = {}
        with self._transaction():
            for identity in wanted:
                owner = self._owner_of(identity)
                if owner is None or owner == self._token or not self._respected(owner, alive):
                    self._db.execute('INSERT OR REPLACE INTO claims VALUES (?, ?)', (identity, self._token))
                    taken.add(identity)
        return taken

    def release(self, identities: Iterable[bytes], *, stored: bool) -> None:
        """End claims of this owner, and wake the requests that wait; if no result was `stored`, the first of each."""
        ready: list[list[Freed]] = []
        with self._lock:
            ended = [identity for identity in identities if identity in self._mine]
            if self._closed or not ended:
                return
            with suppress(sqlite3.Error), self._transaction():   # it is void when this process ends
                self._db.executemany('DELETE FROM claims WHERE identity = ? AND owner = ?',
                                     [(identity, self._token) for identity in ended])
            self._mine.difference_update(ended)
            for identity in ended:
                ready += self._next(identity, everyone=stored)
        _wake(ready)

    def when_free(self, identity: bytes, freed: Freed) -> None:
        """Call `freed` when a request that `take` has not claimed is in flight no more; in any thread."""
        with self._news:
            self._waiting.setdefault(identity, []).append(freed)
            self._start()
            self._news.notify()

    def close(self, *, leave: bool = False) -> None:
        """End all claims, unless the session goes on without this process (`leave`)."""
        with self._news:
            if self._closed:
                return
            self._closed = True
            self._news.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._successors is not None:
            self._successors.close()
        if not leave or not self._mine:
            with suppress(OSError, sqlite3.Error):
                self._forget(self._token)
        self._db.close()
        _locks.discard(self._fd)
        os.close(self._fd)

    # the claims of others

    def _next(self, identity: bytes, *, everyone: bool) -> list[list[Freed]]:
        """Return the requests to be woken for an identity, in lists of which one is to be interested."""
        waiting = self._waiting.pop(identity, [])
        if everyone or not waiting:
            return [[each] for each in waiting]
        return [[lambda: self._pass_on(identity, waiting)]]

    def _pass_on(self, identity: bytes, waiting: list[Freed]) -> bool:
        """Wake the first request that is interested; the others go on waiting."""
        for position, freed in enumerate(waiting, 1):
            if freed():
                with self._lock:
                    if waiting[position:]:
                        self._waiting.setdefault(identity, []).extend(waiting[position:])
                return True
        return False

    def _owner_of(self, identity: bytes) -> str | None:
        row = self._db.execute('SELECT owner FROM claims WHERE identity = ?', (identity,)).fetchone()
        return row[0] if row else None

    def _respected(self, token: str, known: dict[str, bool]) -> bool:
        """Return whether another owner, or its successor, lives; `known` has what was found out before."""
        if token not in known:
            owner = self._read(token)
            known[token] = owner is not None and (
                self._is_locked(token, owner) or (
                    self._successors is not None and owner['session'] not in ('', self._owner['session'])
                    and self._successors.follow(owner)))
            if not known[token]:
                with suppress(OSError):
                    self._unlink(token)
        return known[token]

    def _read(self, token: str) -> dict[str, str] | None:
        """Return what an owner tells of itself; None if it has ended, or is not this user's."""
        with suppress(OSError, ValueError, OwnershipError):
            found = json.loads(private.read_file(self._directory / f'{token}.owner', 1 << 16))
            if isinstance(found, dict) and isinstance(found.get('session'), str):
                return found
        return None

    def _is_locked(self, token: str, owner: Owner) -> bool:
        """Return whether the process of an owner lives."""
        path = self._directory / f'{token}.owner'
        try:
            with closing(os.fdopen(private.open_file(path), 'rb')) as file:
                recent = time.time() - os.fstat(file.fileno()).st_mtime < LEASE
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        except OSError:   # a file system without locks
            return recent
        return recent and owner.get('host') != self._owner['host']

    def _forget(self, token: str) -> None:
        """Remove an owner and its claims."""
        with self._transaction():
            self._db.execute('DELETE FROM claims WHERE owner = ?', (token,))
        self._unlink(token)

    def _tidy(self) -> None:
        """Remove owners that cannot be succeeded, and the claims of owners that are not there."""
        known = []
        for path in self._directory.glob('*.owner'):
            token, owner = path.stem, self._read(path.stem)
            if (token != self._token and owner is not None and not os.path.isdir(owner['session'] or '-')
                    and not self._is_locked(token, owner)):
                with suppress(OSError):
                    path.unlink()
            else:
                known.append(token)
        with suppress(sqlite3.Error), self._transaction():
            gone = {token for token, in self._db.execute('SELECT DISTINCT owner FROM claims')}.difference(known)
            self._db.executemany('DELETE FROM claims WHERE owner = ?', [(token,) for token in gone])

    def _unlink(self, token: str) -> None:
        (self._directory / f'{token}.owner').unlink(missing_ok=True)

    # the thread

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._watch, name='claims', daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        """Send heartbeats, and look whether requests that wait for others may go on."""
        beat = 0.0
        while True:
            with self._news:
                if not self._closed:
                    self._news.wait(POLL if self._waiting else BEAT)
                if self._closed:
                    return
            if time.monotonic() >= beat:
                with suppress(OSError):
                    os.utime(self._fd)
                beat = time.monotonic() + BEAT
            try:
                _wake(self._freed())
            except (sqlite3.Error, OSError) as error:
                _log.warning('the cached requests of other sessions cannot be seen: %s', error)

    def _freed(self) -> list[list[Freed]]:
        """Return the requests whose claim another owner held, and holds no more."""
        alive: dict[str, bool] = {}
        ready: list[list[Freed]] = []
        owners: set[str] = set()
        with self._lock:
            for identity in list(self._waiting):
                owner = self._token if identity in self._mine else self._owner_of(identity)
                if owner == self._token:
                    continue
                if owner is None or not self._respected(owner, alive):
                    ready += self._next(identity, everyone=True)
                else:
                    owners.add(owner)
        self._tell(owners)
        return ready

    def _tell(self, owners: set[str]) -> None:
        """Say once which owners are waited for."""
        now = time.monotonic()
        for token in owners:
            since = self._since.setdefault(token, now)
            if now - since >= NOTICE_DELAY and (owner := self._read(token)):
                self._since[token] = float('inf')
                _log.warning('cached requests wait for equal ones of process %s on %s%s', owner.get('pid'),
                             owner.get('host'), f', the session in {owner["session"]}' if owner['session'] else '')

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute('BEGIN IMMEDIATE')

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute('ROLLBACK' if kind else 'COMMIT')


def _wake(ready: Sequence[Sequence[Freed]]) -> None:
    for each in ready:
        any(freed() for freed in each)


def _forked() -> None:
    """Close the locks of the parent, which end with that process and not with this fork of it."""
    for fd in _locks:
        os.close(fd)
    _locks.clear()


os.register_at_fork(after_in_child=_forked)
