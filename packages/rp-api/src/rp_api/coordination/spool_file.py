"""The spool file of updates that an agent could not deliver: written by the agent, read by agent and client.

The file begins with a line that identifies its format, followed by records: length and checksum (CRC-32) of the
content, 4 bytes each, most significant first, and msgpack of `[kind, uid, state, info]`, where `kind` is 'task' or
'pilot'. Records are only appended. The last record is incomplete if the writer died or the disk was full: it is ignored
when reading, and cut off before writing.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from rp_api.coordination.contract import Update
from rp_api.errors import CoordinationError
from rp_api.system import private
from rp_api.wire import codec

MAGIC = b'radical.pilot updates 1\n'

_HEAD = struct.Struct('>II')


class _Record(NamedTuple):
    kind: str
    update: Update
    end: int
    """The offset of the next record."""


class SpoolContent(NamedTuple):
    """The updates in a file, in the order of writing, and the number of unusable bytes at its end."""

    tasks: list[Update]
    pilots: list[Update]
    torn: int


def read(path: str | os.PathLike[str]) -> SpoolContent:
    """Return the content of a file without changing it.

    Raise `OSError` if it cannot be read, `CoordinationError` if it has another format.
    """
    with open(private.open_file(path, readable=True), 'rb') as file:
        _check_magic(file, path)
        found = SpoolContent([], [], 0)
        end = file.tell()
        for record in _records(file, path):
            (found.tasks if record.kind == 'task' else found.pilots).append(record.update)
            end = record.end
        return found._replace(torn=file.seek(0, os.SEEK_END) - end)


class SpoolFile:
    """A file of updates that one process writes, and reads from its beginning.

    The file (mode 0600) and its directory are created with the first update. Existing content is kept.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._fd = -1
        self.end = 0
        """Length of the file in bytes."""
        self.read = len(MAGIC)
        """Number of bytes that have been read."""

    @property
    def waiting(self) -> bool:
        """True if there are unread updates."""
        return self.end > self.read

    def append(self, tasks: Sequence[Update] = (), pilots: Sequence[Update] = ()) -> None:
        """Append updates; raise `OSError` if that fails, and then append none of them."""
        if self._fd < 0:
            self._open()
        data = b''.join([*[_record('task', update) for update in tasks],
                         *[_record('pilot', update) for update in pilots]])
        try:
            _write(self._fd, data, self.end)
        except OSError:
            os.ftruncate(self._fd, self.end)
            raise
        self.end += len(data)

    def take(self, count: int) -> list[Update]:
        """Return the next unread updates of tasks, at most `count`."""
        found: list[Update] = []
        with open(self._fd, 'rb', closefd=False) as file:
            file.seek(self.read)
            for record in _records(file, self.path):
                self.read = record.end
                if record.kind == 'task':
                    found.append(record.update)
                if len(found) == count:
                    break
        return found

    def skip(self) -> None:
        """Count everything written as read."""
        self.read = max(self.read, self.end)

    def sync(self) -> None:
        """Return when everything written has reached the disk."""
        if self._fd >= 0:
            os.fsync(self._fd)

    def remove(self) -> None:
        """Remove the file, if there is one; the next update creates a new one."""
        if self._fd >= 0:
            self.close()
            with suppress(FileNotFoundError):
                os.unlink(self.path)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.end, self.read = 0, len(MAGIC)

    def _open(self) -> None:
        private.make_directory(os.path.dirname(self.path) or '.', readable=True)
        fd = private.open_file(self.path, os.O_RDWR | os.O_CREAT, readable=True)
        try:
            self.end = _prepare(fd, self.path)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd


def _prepare(fd: int, path: str) -> int:
    """Prepare a file, new or not, for appending, and return its length."""
    os.fchmod(fd, 0o600)   # an existing file may have another mode
    size = os.fstat(fd).st_size
    if size < len(MAGIC):   # new, or its writer died early
        os.ftruncate(fd, 0)
        _write(fd, MAGIC, 0)
        return len(MAGIC)
    with open(fd, 'rb', closefd=False) as file:
        _check_magic(file, path)
        end = file.tell()
        for record in _records(file, path):
            end = record.end
    os.ftruncate(fd, end)
    return end


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def _record(kind: str, update: Update) -> bytes:
    body = codec.pack((kind, *update))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _records(file: IO[bytes], path: str | os.PathLike[str]) -> Iterator[_Record]:
    """Yield the records from the current position up to the first incomplete one."""
    end = file.tell()
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        if not 0 < length <= codec.MAX_BYTES:   # zeros, where a file grew before its content was written
            return
        body = file.read(length)
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        end += _HEAD.size + length
        yield _Record(*_parsed(body, path), end)


def _parsed(body: bytes, path: str | os.PathLike[str]) -> tuple[str, Update]:
    """Return kind and update of a record."""
    match codec.unpack(body):
        case [('task' | 'pilot') as kind, str(uid), str(state), (None | dict()) as info]:
            return kind, Update(uid, state, info)
    raise CoordinationError(f'{os.fspath(path)} has records that are not updates: was it written by another version?')


def _check_magic(file: IO[bytes], path: str | os.PathLike[str]) -> None:
    """Skip the first line, and raise if it is another one; a shorter file counts as empty."""
    start = file.read(len(MAGIC))
    if not MAGIC.startswith(start):
        raise CoordinationError(f'{os.fspath(path)} is not a spool file of updates: it does not start with {MAGIC!r}')
