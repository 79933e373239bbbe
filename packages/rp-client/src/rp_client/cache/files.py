"""Digests of files and directories: of their content, and of the state that every write to them changes.

A file is read once as long as its size, times, inode and device stay the same, unless it changed so recently that a
further write may not show in them. Symbolic links in a directory count by their text and by what they lead to.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar('T')

SIZE = 20
"""Bytes of a digest."""

SETTLED = 2.0
"""Seconds after its last change from which on the times and the size of a file tell whether it has changed."""

_CHUNK = 1 << 20
_KNOWN_FILES = 10_000


class Content(NamedTuple):
    """The digests of a file or a directory: `state` differs after a write even if that brought the same content.

    `entries` is the number of files and directories that were looked at.
    """

    digest: bytes
    state: bytes
    entries: int = 1


def joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    """Return the digest of a kind of value with these parts."""
    found = [kind]
    for part in parts:
        found += b'%d:' % len(part), part if len(part) < _CHUNK else blake2b(part).digest()
    return blake2b(b''.join(found), digest_size=SIZE).digest()


def look(path: str, most: float = float('inf')) -> Content:
    """Return the digests of a file, or of a directory with all that it contains.

    Raises:
        OSError: It cannot be read, has an entry that is neither a file nor a directory, such as a FIFO, or has more
            than `most` entries.
    """
    walk = _Walk(most)
    return walk.look(path)._replace(entries=1 + walk.entries)


def read_digest(path: str) -> bytes:
    """Return the digest of the content of a file, which is read in any case."""
    return _read(path)[0]


def of_status(status: os.stat_result) -> tuple[int, ...]:
    """Return what differs in the status of a file after it was written or replaced."""
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def state_of(status: os.stat_result) -> bytes:
    """Return `of_status` as bytes."""
    return repr(of_status(status)).encode()


class _Walk:
    """Looks at a file or at a directory; one that is reached again, such as by a link in it, counts once."""

    def __init__(self, most: float) -> None:
        self._most = most
        self.entries = 0
        self._seen: set[tuple[int, int]] = set()

    def look(self, path: str) -> Content:
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            found = _content(path, status)
            return Content(found, joined(b'state', [found, state_of(status)]))
        place = status.st_dev, status.st_ino
        if place in self._seen:
            return Content(b'seen', b'')
        self._seen.add(place)
        parts, states = [], [state_of(status)]
        entries = sorted(os.listdir(path))
        self.entries += len(entries)
        if self.entries > self._most:
            raise OSError(errno.E2BIG, 'It has too many entries', path)
        for name in entries:
            entry = self._entry(os.path.join(path, name))
            parts += [os.fsencode(name), entry.digest]
            states.append(entry.state)
        found = joined(b'directory', parts)
        return Content(found, joined(b'state', [found, *states]))

    def _entry(self, path: str) -> Content:
        if not os.path.islink(path):
            return self.look(path)
        behind = self.look(path) if os.path.exists(path) else Content(b'nothing', b'')
        return Content(joined(b'link', [os.fsencode(os.readlink(path)), behind.digest]),
                       joined(b'state', [state_of(os.lstat(path)), behind.state]))


_known: dict[tuple[int, ...], bytes] = {}   # digests by `of_status`


def _content(path: str, status: os.stat_result) -> bytes:
    _require_file(path, status)
    key = of_status(status)
    if key in _known:
        return _known[key]
    found, key = _read(path)
    if _is_settled(key):
        if len(_known) >= _KNOWN_FILES:
            _known.clear()
        _known[key] = found
    return found


def _read(path: str) -> tuple[bytes, tuple[int, ...]]:
    """Return the digest of a file, and its status before it was read."""
    content = blake2b(digest_size=SIZE)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), 'rb') as file:
        status = os.fstat(file.fileno())
        _require_file(path, status)
        while chunk := file.read(_CHUNK):
            content.update(chunk)
    return joined(b'file', [b'x' if status.st_mode & 0o111 else b'', content.digest()]), of_status(status)


def _require_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, 'Neither a file nor a directory', path)


class Memo(Generic[T]):
    """Values that are computed from files, again when one of these has changed.

    `compute` returns the value, and adds the status of each file and directory that it has read, by path.
    """

    def __init__(self, compute: Callable[[str, dict[str, tuple[int, ...]]], T]) -> None:
        self._compute = compute
        self._known: dict[str, tuple[dict[str, tuple[int, ...]], T]] = {}

    def get(self, key: str) -> T:
        """Return the value of a key."""
        known, checked = self._known.get(key), _checked.get()
        if known and ((self, key) in checked or all(status_of(path) == each for path, each in known[0].items())):
            value = known[1]
        else:
            read: dict[str, tuple[int, ...]] = {}
            value = self._compute(key, read)
            self._known.pop(key, None)
            if all(map(_is_settled, read.values())):
                self._known[key] = read, value
        _checked.set(checked | {(self, key)} if checked else checked)
        return value


_checked: ContextVar[frozenset[tuple[Any, str]]] = ContextVar('checked', default=frozenset())


@contextmanager
def at_once() -> Iterator[None]:
    """Look at each module and package only once for all that is done within the context."""
    token = _checked.set(frozenset({(None, '')}))
    try:
        yield
    finally:
        _checked.reset(token)


def status_of(path: str) -> tuple[int, ...]:
    """Return `of_status` of a path; empty if there is nothing."""
    try:
        return of_status(os.stat(path))
    except OSError:
        return ()


def _is_settled(status: tuple[int, ...]) -> bool:
    return not status or time.time() - max(status[-1], status[-2]) / 1e9 > SETTLED


class Seen:
    """Everything outside of its process that an identity depends on, as it was when it was looked at.

    `parts` are the digests of all that was noted, by what it is, for people. `entries` is the number of files and
    directories.
    """

    __slots__ = ('_looks', 'entries', 'parts')

    def __init__(self) -> None:
        self.entries = 0
        self.parts: dict[str, bytes] = {}
        self._looks: dict[str, tuple[Callable[[], Content], bytes]] = {}

    def note(self, what: str, look: Callable[[], Content]) -> bytes:
        """Return the digest of the content of something, which is looked at once."""
        if what not in self.parts:
            found = look()
            self.parts[what] = found.digest
            self._looks[what] = look, found.state
            self.entries += found.entries
        return self.parts[what]

    def file(self, path: str, most: float = float('inf')) -> bytes:
        """Return the digest of the content of a file or directory; raise OSError as `look` does."""
        return self.note(f'file {path}', partial(look, path, most))

    @property
    def state(self) -> bytes:
        """The state of everything together."""
        return joined(b'states', [state for _, state in self._looks.values()])

    def changed(self) -> str:
        """Return what has changed since; empty if nothing has."""
        for what, (again, state) in self._looks.items():
            try:
                if again().state != state:
                    return what
            except (OSError, ValueError):   # it is gone, or cannot be judged any more
                return what
        return ''
