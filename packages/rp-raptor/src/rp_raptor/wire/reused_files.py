"""Files of values that are written again: each content has a version, and a reader that expects another one fails.

New memory for a file costs more than writing to it, so a file that its readers copy (see `rp_api.blobs`) is used again.
A process keeps the files in shared memory mapped that it writes or reads again and again: a copy of memory takes half
the time of one by a system call. The maps have a limit, and a file that is removed gives back its memory at once,
whoever has mapped it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pickle import PickleBuffer

from rp_api import blobs
from rp_api.blobs import Bytes
from rp_api.errors import DeserializationError
from rp_api.system import private
from rp_raptor.wire.file_maps import FileMap, FileMaps

_MAX_MAPPED_BYTES = 160 << 20   # the arguments in flight of a stream, the free files of a store, and its results

_maps = FileMaps(_MAX_MAPPED_BYTES)


def write_again(path: str, kind: bytes, body: Bytes, buffers: Sequence[PickleBuffer], version: int) -> int:
    """Replace the content of a file in shared memory, and return its size. Raise OSError on failure."""
    return _mapped(path, blobs.size_of(body, buffers)).write(kind, body, buffers, version)


def read(path: str, size: int, version: int) -> tuple[bytes, Bytes, list[Bytes]]:
    """Return kind, body and buffers of a file, as `blobs.read` does; version 0 is that of a file not written again."""
    if not version or not _maps.uses(path):   # a map for one use costs more than it saves
        return blobs.read(path, size, version)
    try:
        return _mapped(path, size).read(size, version)
    except (OSError, ValueError) as error:
        raise DeserializationError(f'cannot read the value in {path}: {error}', error) from error


def release(path: str, version: int) -> None:
    """Give the content of a file the version 0 if it has this one, which says that it was read."""
    _mapped(path).release(version)


def version_of(path: str) -> int:
    """Return the version of the content of a file. Raise OSError on failure."""
    return _mapped(path).version


def discard(path: str) -> None:
    """Remove a file if it exists, and free its memory."""
    mapped = _maps.take(path)
    if mapped is not None:
        mapped.free()
    blobs.discard(path)


def unmap() -> None:
    """Keep no file mapped: the memory of a file that was removed is free with its last map."""
    _maps.clear()


def _mapped(path: str, size: int = 0) -> FileMap:
    """Return the map of a file of at least `size` bytes. Its pages exist, so that writing succeeds."""
    found = _maps.find(path)
    if found is None or found.size < size:
        file = private.open_file(path, os.O_RDWR)
        try:
            length = os.fstat(file).st_size
            if size > length:
                os.posix_fallocate(file, 0, size)
            found = FileMap(file, max(size, length))
        finally:
            os.close(file)
        _maps.add(path, found)
    return found
