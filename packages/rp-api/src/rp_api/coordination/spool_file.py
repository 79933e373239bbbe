"""Updates that an agent could not deliver, in a file: what the agent appends, and the client reads.

The file begins with a line that says what it is, then come records: length and checksum (CRC-32) of what follows, 4
bytes each, most significant first, and msgpack of `[kind, uid, state, info]`, where `kind` is 'task' or 'pilot'. It is
only ever appended to. A writer that dies, or a disk that is full, can leave a last record that is not whole: it is
ignored, and cut off before anything else is written.
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
    """Where in the file the next one begins."""


class SpoolContent(NamedTuple):
    """What a file holds, each in the order in which it was written, and how many bytes at its end are no use."""

    tasks: list[Update]
    pilots: list[Update]
    torn: int


def read(path: str | os.PathLike[str]) -> SpoolContent:
    """Everything in a file; it stays as it is.

    `FileNotFoundError` or another `OSError` if it cannot be read, `CoordinationError` if it is not such a file.
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
    """A file of updates that is written, and read from its beginning, by one process.

    It is made (mode 0600, and its directory, if that has gone) with the first update. What is there already is kept.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._fd = -1
        self.end = 0
        """The length of the file."""
        self.read = len(MAGIC)
        """How much of it was taken."""

    @property
    def waiting(self) -> bool:
        """Whether there is something that has not been read."""
        return self.end > self.read

    def append(self, tasks: Sequence[Update] = (), pilots: Sequence[Update] = ()) -> None:
        """Add updates; `OSError` if that fails, and then none of them is there."""
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
        """The next updates of tasks, at most `count`, that were not taken before; none if there are no more."""
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

    def sync(self) -> None:
        """Return when what was written survives a failure of the machine, too."""
        if self._fd >= 0:
            os.fsync(self._fd)

    def remove(self) -> None:
        """Remove the file; a next update makes a new one. Harmless if there is none."""
        if self._fd >= 0:
            self.close()
            with suppress(FileNotFoundError):
                os.unlink(self.path)

    def close(self) -> None:
        """Leave the file as it is; harmless if there is none."""
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
    """Make a file, new or not, ready for what is appended; gives its length."""
    os.fchmod(fd, 0o600)   # it may have been there with other bits
    size = os.fstat(fd).st_size
    if size < len(MAGIC):   # not even that could be written
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
    """The records from here on, up to the first one that is not whole."""
    end = file.tell()
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        if not 0 < length <= codec.MAX_BYTES:   # a file that grew before its content came has zeros there
            return
        body = file.read(length)
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        end += _HEAD.size + length
        yield _Record(*_parsed(body, path), end)


def _parsed(body: bytes, path: str | os.PathLike[str]) -> tuple[str, Update]:
    """Kind and update in a record."""
    match codec.unpack(body):
        case [('task' | 'pilot') as kind, str(uid), str(state), (None | dict()) as info]:
            return kind, Update(uid, state, info)
    raise CoordinationError(f'{os.fspath(path)} holds something else than updates: was it written by another version?')


def _check_magic(file: IO[bytes], path: str | os.PathLike[str]) -> None:
    """Go past the first line, if it is the right one; a file that is too short for it is an empty one."""
    start = file.read(len(MAGIC))
    if not MAGIC.startswith(start):
        raise CoordinationError(f'{os.fspath(path)} is not a file of updates: it does not begin with {MAGIC!r}')
