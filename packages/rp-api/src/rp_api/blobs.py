"""Large values as files: written once by the producer and mapped by readers, without copies.

A file holds a kind (one byte, as in RAPTOR's payloads), a body, and the out-of-band buffers of pickle protocol 5, each
aligned to 64 bytes. The reader maps the file; arrays are views of the private, writable map, which is released with
the last of them. Only processes of one user on one (shared) file system use such files.
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
"""Size in bytes above which a value is written to a file."""

_MAGIC = b'rpblob1'
_HEAD = struct.Struct('<7scQI')   # magic, kind, length of the body, number of buffers
_ALIGNMENT = 64


def write(path: str, kind: bytes, body: bytes, buffers: Sequence[pickle.PickleBuffer] = ()) -> int:
    """Write a new file and return its size; its directory is created if needed. Raise OSError on failure."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    views = [buffer.raw() for buffer in buffers]
    try:
        with open(path, 'xb', opener=_private) as file:
            file.write(_HEAD.pack(_MAGIC, kind, len(body), len(views)))
            file.write(struct.pack(f'<{len(views)}Q', *(view.nbytes for view in views)))
            file.write(body)
            for view in views:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                file.write(view)
            return file.tell()
    except BaseException:
        discard(path)
        raise


def read(path: str) -> tuple[bytes, memoryview, list[memoryview]]:
    """Return kind, body and buffers of a file; raise DeserializationError if it is missing, truncated or not ours."""
    try:
        with open(private.open_file(path), 'rb') as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        magic, kind, length, count = _HEAD.unpack_from(content)
        if magic != _MAGIC:
            raise ValueError('it has another format')
        sizes = struct.unpack_from(f'<{count}Q', content, _HEAD.size)
    except (OSError, ValueError, struct.error) as error:
        raise DeserializationError(f'cannot read the value in {path}: {error}', error) from error
    start = _HEAD.size + 8 * count
    end = start + length
    body, buffers = content[start:end], []
    for size in sizes:
        start = end + -end % _ALIGNMENT
        end = start + size
        buffers.append(content[start:end])
    if end > len(content):
        raise DeserializationError(f'cannot read the value in {path}: the file is truncated')
    return kind, body, buffers


def discard(path: str) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
