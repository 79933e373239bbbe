"""Large values as files: written once by the producer, read or mapped by consumers, without further copies.

A file holds a kind (one byte, as in RAPTOR's payloads), a body, and the out-of-band buffers of pickle protocol 5, each
aligned to 64 bytes. A reader copies a small file to its memory and maps a large one; the arrays are views of that
private, writable memory, which is released with the last of them. A buffer that was of a `bytes` is read from a small
file into a new one. Only processes of one user on one (shared) file system use such files.

A content may have a version, by which readers notice that it was replaced: it is 0 in between.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from collections.abc import Sequence

from rp_api.errors import DeserializationError
from rp_api.system import private

LIMIT = 1 << 20
"""Size in bytes above which a value is written to a file, if it could also be part of a message."""

COPIED = 4 << 20
"""Size in bytes up to which a file is copied by its readers; a larger one is mapped."""

_MAGIC = b'rpblob3'
_HEAD = struct.Struct('<Q7scQQ')   # version, magic, kind, length of the body, number of buffers
_VERSION = struct.Struct('<Q')
_ALIGNMENT = 64
_PIECES = 1000   # of one writev, which are limited to 1024
_FIRST_BYTES = 1024   # of a file, read at once: all but the contents, in most cases
_OF_BYTES = 1 << 63   # in the size of a buffer that was of a `bytes`

Bytes = bytes | memoryview


def write(path: str, kind: bytes, body: Bytes, buffers: Sequence[pickle.PickleBuffer] = (), version: int = 0) -> int:
    """Write a new file in an existing directory, and return its size. Raise OSError on failure."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        pieces, size = _pieces(kind, body, buffers, version)
        _write(file, pieces)
    except BaseException:
        discard(path)
        raise
    finally:
        os.close(file)
    return size


def size_of(body: Bytes, buffers: Sequence[pickle.PickleBuffer] = ()) -> int:
    """Return the size of a file with this content."""
    end = _HEAD.size + 8 * len(buffers) + len(body)
    for buffer in buffers:
        end += -end % _ALIGNMENT + buffer.raw().nbytes
    return end


def read(path: str, size: int = 0, version: int = 0, *, shared: bool = False) -> tuple[bytes, Bytes, list[Bytes]]:
    """Return kind, body and buffers of a file.

    `size` is that of the content, if it is known; the file may be longer. With `shared`, the file is mapped whatever
    its size, and read-only, so that all its readers have the same memory. Raise DeserializationError if the file is
    missing, truncated, not ours, or has another version.
    """
    try:
        file = private.open_file(path)
        try:
            size = size or os.fstat(file).st_size
            mapped = memoryview(mmap.mmap(file, size, access=mmap.ACCESS_READ if shared else mmap.ACCESS_COPY)) \
                if shared or size > COPIED else None
            head = os.pread(file, _FIRST_BYTES, 0)
            found, magic, kind, length, count = _HEAD.unpack_from(head)
            if magic != _MAGIC:
                raise ValueError('it has another format')
            start = _HEAD.size + 8 * count
            if start > len(head):
                head = os.pread(file, start, 0)
            sizes = struct.unpack_from(f'<{count}Q', head, _HEAD.size)
            body, *buffers = _parts(file, mapped, size, _ranges(start, (length, *sizes)), sizes)
            if not found == version == _VERSION.unpack(os.pread(file, _VERSION.size, 0))[0]:
                raise ValueError('its content was replaced')
            return kind, body, buffers
        finally:
            os.close(file)
    except (OSError, ValueError, struct.error) as error:
        raise DeserializationError(f'cannot read the value in {path}: {error}', error) from error


def discard(path: str) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def parsed(content: memoryview) -> tuple[bytes, Bytes, list[Bytes]]:
    """Return kind, body and buffers of the content of a file, as views of it; DeserializationError if it is not one."""
    try:
        _, magic, kind, length, count = _HEAD.unpack_from(content)
        if magic != _MAGIC:
            raise ValueError('it has another format')
        sizes = struct.unpack_from(f'<{count}Q', content, _HEAD.size)
        ranges = _ranges(_HEAD.size + 8 * count, (length, *sizes))
        body, *buffers = _parts(-1, content, len(content), ranges, sizes)
        return kind, body, buffers
    except (ValueError, struct.error) as error:
        raise DeserializationError(f'cannot read a value: {error}', error) from error


def _pieces(kind: bytes, body: Bytes, buffers: Sequence[pickle.PickleBuffer], version: int) -> tuple[list[Bytes], int]:
    """Return the pieces of a file, and their size."""
    views = [buffer.raw() for buffer in buffers]
    sizes = [view.nbytes | (_OF_BYTES if type(view.obj) is bytes else 0) for view in views]
    pieces: list[Bytes] = [_HEAD.pack(version, _MAGIC, kind, len(body), len(views)) +
                           struct.pack(f'<{len(sizes)}Q', *sizes), body]
    end = sum(map(len, pieces))
    for view in views:
        padding = -end % _ALIGNMENT
        if padding:
            pieces.append(bytes(padding))
        pieces.append(view)
        end += padding + view.nbytes
    return pieces, end


def _write(file: int, pieces: list[Bytes]) -> None:
    while pieces:
        written = os.writev(file, pieces[:_PIECES])
        while pieces and written >= len(pieces[0]):
            written -= len(pieces[0])
            del pieces[0]
        if written:
            pieces[0] = memoryview(pieces[0])[written:]


def _ranges(start: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return where body and buffers, of these sizes, begin and end."""
    found = []
    for size in sizes:
        end = start + (size & ~_OF_BYTES)
        found.append((start, end))
        start = end + -end % _ALIGNMENT
    return found


def _parts(file: int, content: memoryview | None, size: int, ranges: Sequence[tuple[int, int]],
           sizes: Sequence[int]) -> list[Bytes]:
    """Return body and buffers, of the content if the file is mapped; ValueError if the file is too short."""
    if ranges[-1][1] > size:
        raise ValueError('the file is truncated')
    if content is None and 0 < sum(sizes) < _OF_BYTES:
        content = _copied(file, size, 0)
    if content is not None:
        return [content[start:end] for start, end in ranges]
    return [_read(file, end - start, start) if each & _OF_BYTES else _copied(file, end - start, start)
            for (start, end), each in zip(ranges, (_OF_BYTES, *sizes), strict=True)]


def _copied(file: int, size: int, start: int) -> memoryview:
    content = bytearray(size)
    if os.preadv(file, [content], start) < size:
        raise ValueError('the file is truncated')
    return memoryview(content)


def _read(file: int, size: int, start: int) -> bytes:
    content = os.pread(file, size, start)
    if len(content) < size:
        raise ValueError('the file is truncated')
    return content
