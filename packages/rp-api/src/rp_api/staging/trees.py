"""Directory trees of any depth: walking and deleting them.

A tree can exceed the maximum length of paths, Python's recursion limit, and the limit on open files. Therefore a
`Cursor` moves through it one directory at a time. It does not follow links, and keeps few descriptors open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_MAX_OPEN_PARENTS = 4
"""Number of parents whose descriptors stay open; most trees are not deeper."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _Level:
    """A parent directory of a cursor, with the name of the child that the cursor entered."""

    __slots__ = ('fd', 'identity', 'name', 'way_back')

    def __init__(self, fd: int, name: str, *, way_back: bool) -> None:
        self.fd = fd
        self.name = name
        self.identity = _identity(fd)
        self.way_back = way_back
        """True if `..` of the child leads here."""

    def close(self) -> None:
        """Close the descriptor, if it is open."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Cursor:
    """A directory in a tree: first the root, which may be a link, then the directory to which the cursor was moved.

    `at(name)` is a path for system calls at any depth, valid until the cursor moves; `real(name)` is the path for
    messages.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._fd = os.open(root, _DIRECTORY)
        self._levels: list[_Level] = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        for level in self._levels:
            level.close()
        os.close(self._fd)

    @property
    def fd(self) -> int:
        """The descriptor of the directory."""
        return self._fd

    @property
    def names(self) -> list[str]:
        """The names of the directories from the root to this one."""
        return [level.name for level in self._levels]

    def at(self, name: str) -> str:
        """Return a path for system calls to the entry of that name."""
        return f'/proc/self/fd/{self._fd}/{name}'

    def real(self, name: str = '') -> str:
        """Return the real path of the directory, or of the entry of that name."""
        return os.path.join(self.root, *self.names, *([name] if name else []))

    def status(self, name: str) -> os.stat_result:
        """Return the status of the entry of that name, without following links."""
        with self.explaining(name):
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    @contextmanager
    def explaining(self, name: str = '') -> Iterator[None]:
        """Set the real path of the directory, or of the entry of that name, as file name of OSErrors."""
        try:
            yield
        except OSError as error:
            error.filename = self.real(name)
            raise

    def explain(self, error: OSError) -> None:
        """Replace the file name of an error by the real path, if it comes from `at`."""
        if isinstance(error.filename, str) and error.filename.startswith(self.at('')):
            error.filename = self.real(error.filename.removeprefix(self.at('')))

    def enter(self, name: str, *, follow: bool = False) -> None:
        """Move to a child directory; raise `OSError` if it is no directory, or a link and `follow` is not set."""
        with self.explaining(name):
            fd = os.open(name, _DIRECTORY | (0 if follow else os.O_NOFOLLOW), dir_fd=self._fd)
        self._levels.append(_Level(self._fd, name, way_back=not follow))
        self._fd = fd
        if len(self._levels) > _MAX_OPEN_PARENTS and self._levels[-_MAX_OPEN_PARENTS - 1].way_back:
            self._levels[-_MAX_OPEN_PARENTS - 1].close()

    def leave(self) -> None:
        """Move to the parent."""
        level = self._levels[-1]
        fd = level.fd if level.fd >= 0 else self._climb(level)
        self._levels.pop()
        os.close(self._fd)
        self._fd = fd

    def _climb(self, level: _Level) -> int:
        """Return a descriptor of the parent; raise OSError if it is not the directory that the cursor came from."""
        with self.explaining():
            fd = os.open('..', _DIRECTORY, dir_fd=self._fd)
            if _identity(fd) == level.identity:
                return fd
            os.close(fd)
            raise OSError(errno.ESTALE, 'The directory has been moved to another one meanwhile')


class Entry(NamedTuple):
    """An entry that a walk yields, in the directory of its cursor; links are not followed.

    A directory is yielded twice: before its content, when the cursor has entered it (`entered`), and after it, as an
    entry of its parent (`left`).
    """

    name: str
    status: os.stat_result
    entered: bool = False
    left: bool = False

    @property
    def is_directory(self) -> bool:
        """True for a directory, False for a link to one."""
        return stat.S_ISDIR(self.status.st_mode)


def walk(cursor: Cursor, failed: Callable[[OSError], object] | None = None,
         admit: Callable[[Cursor, Entry], object] = lambda cursor, entry: None) -> Iterator[Entry]:
    """Yield all entries below the directory of a cursor, sorted by name, moving the cursor; links are not followed.

    `admit(cursor, entry)` is called before a directory is entered. Entries that cannot be read are skipped and their
    errors passed to `failed(error)`; without that, the error is raised.
    """
    waiting = [_listing(cursor, failed)]
    entered: list[Entry] = []
    while waiting:
        if not waiting[-1]:
            waiting.pop()
            if entered:
                cursor.leave()
                yield entered.pop()._replace(left=True)
            continue
        name = waiting[-1].pop()
        try:
            entry = Entry(name, cursor.status(name))
            if entry.is_directory:
                admit(cursor, entry)
                cursor.enter(name)
        except OSError as error:
            if failed is None:
                raise
            failed(error)
            continue
        if entry.is_directory:
            entered.append(entry)
            waiting.append(_listing(cursor, failed))
            entry = entry._replace(entered=True)
        yield entry


def remove(path: str) -> None:
    """Delete a directory tree; of a link to a directory, delete only the link.

    Directories of ours are made accessible if necessary. All that can be deleted is deleted, then the first `OSError`
    is raised. Raise `FileNotFoundError` if there is nothing.
    """
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    errors: list[OSError] = []
    _open_up(path)
    with Cursor(path) as cursor:
        for entry in walk(cursor, errors.append, _admit):
            if not entry.entered:
                try:
                    _delete(cursor, entry)
                except OSError as error:
                    errors.append(error)
    if errors:
        raise errors[0]
    os.rmdir(path)


def _delete(cursor: Cursor, entry: Entry) -> None:
    with cursor.explaining(entry.name), suppress(FileNotFoundError):
        if entry.left:
            os.rmdir(entry.name, dir_fd=cursor.fd)
        else:
            os.unlink(entry.name, dir_fd=cursor.fd)


def _admit(cursor: Cursor, entry: Entry) -> None:
    if entry.status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with cursor.explaining(entry.name):
            _open_up(entry.name, cursor.fd)


def _open_up(name: str, dir_fd: int | None = None) -> None:
    """Give the owner all permissions on a directory, if it is ours."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):   # another user's directory: an error follows if this matters
                os.chmod(f'/proc/self/fd/{fd}', mode | stat.S_IRWXU)
    finally:
        os.close(fd)


def _listing(cursor: Cursor, failed: Callable[[OSError], object] | None) -> list[str]:
    """Return the names in the directory in descending order."""
    try:
        with cursor.explaining():
            return sorted(os.listdir(cursor.fd), reverse=True)
    except OSError as error:
        if failed is None:
            raise
        failed(error)
        return []


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
