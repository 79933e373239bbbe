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
from rp_api.system.shared_directory import shared_memory
from rp_raptor.wire.file_maps import FileMap, FileMaps

_MAX_MAPPED_BYTES = 160 << 20   # the arguments in flight of a stream, the free files of a store, and its results

_maps = FileMaps(_MAX_MAPPED_BYTES)


def write_again(path: str, kind: bytes, body: Bytes, buffers: Sequence[PickleBuffer], version: int) -> int:
    """Replace the content of a file, and return its size. Raise OSError on failure."""
    mapped = _mapped(path, blobs.size_of(body, buffers))
    if mapped is not None:
        return blobs.write_to(mapped, kind, body, buffers, version)
    file = private.open_file(path, os.O_WRONLY)
    try:
        return blobs.write_over(file, kind, body, buffers, version)
    finally:
        os.close(file)


def read(path: str, size: int, version: int) -> tuple[bytes, Bytes, list[Bytes]]:
    """Return kind, body and buffers of a file, as `blobs.read` does; version 0 is that of a file not written again."""
    try:
        mapped = _mapped(path, size) if version and size <= blobs.COPIED else None
        if mapped is not None:
            return blobs.read_from(mapped, size, version)
    except (OSError, ValueError) as error:
        raise DeserializationError(f'cannot read the value in {path}: {error}', error) from error
    return blobs.read(path, size, version)


def release(path: str, version: int) -> None:
    """Give the content of a file the version 0 if it has this one, which says that it was read."""
    mapped, _ = _maps.find(path)
    if mapped is not None:
        blobs.release_in(memoryview(mapped), version)
        return
    file = private.open_file(path, os.O_RDWR)
    try:
        if blobs.version_in(os.pread(file, 8, 0)) == version:
            os.pwrite(file, bytes(8), 0)
    finally:
        os.close(file)


def version_of(path: str) -> int:
    """Return the version of the content of a file. Raise OSError on failure."""
    mapped, _ = _maps.find(path)
    if mapped is not None:
        return blobs.version_in(memoryview(mapped))
    file = private.open_file(path)
    try:
        return blobs.version_in(os.pread(file, 8, 0))
    finally:
        os.close(file)


def discard(path: str) -> None:
    """Remove a file if it exists, and free its memory."""
    mapped = _maps.take(path)
    if mapped is not None:
        mapped.free()
    blobs.discard(path)


def unmap() -> None:
    """Keep no file mapped: the memory of a file that was removed is free with its last map."""
    _maps.clear()


def _mapped(path: str, size: int) -> memoryview | None:
    """Return the map of a file of at least `size` bytes; None at the first use, and if it cannot be mapped.

    The pages of the file exist, so that writing succeeds.
    """
    found, known = _maps.find(path)
    if known and (found is None or len(found) < size) and path.startswith(shared_memory()):
        file = private.open_file(path, os.O_RDWR)
        try:
            length = os.fstat(file).st_size
            found = FileMap(file, length) if size <= length else None
        finally:
            os.close(file)
        if found is not None:
            _maps.add(path, found)
    return memoryview(found) if found is not None and len(found) >= size else None
