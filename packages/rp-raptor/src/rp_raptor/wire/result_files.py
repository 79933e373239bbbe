"""Files for the large results of one caller's calls."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pickle import PickleBuffer

from rp_api import blobs
from rp_api.system import private
from rp_api.system.shared_directory import Room, place

_LARGEST_SENT = 64 << 20
"""Bytes of a result at most that is sent in a message to a caller on another host."""

_MAX_FREE_BYTES = 32 << 20   # bytes of files that are written again when they were read
_READ = '.read'    # ends the name of such a file

Written = tuple[str, int, bool]
"""Path and size of a result, and whether the file can be written again when it was read."""


class ResultFiles:
    """Writes results to files, which the caller releases when it has read them.

    `results` is `Store.results` of the caller. If it is of this host, files are in the caller's directory, so that all
    of them are removed with the caller; those that have no room in memory are in `directory`, as are the largest ones
    for callers on other hosts, who share this file system.
    """

    def __init__(self, results: str, directory: str) -> None:
        where, _, shared = results.partition('\n')
        self._shared = shared if where == place() else ''
        self._room = Room(self._shared)
        self._directory = directory
        self._kept: deque[tuple[str, int]] = deque()   # files to be written again, with their sizes
        self._kept_bytes = 0

    def write(self, kind: bytes, body: bytes, buffers: Sequence[PickleBuffer], size: int) -> Written | None:
        """Write a result of about this size; None if it is to be sent. Raise OSError on failure."""
        if self._shared:
            try:
                written = self._write_here(f'{self._shared}/{os.urandom(12).hex()}', kind, body, buffers, size)
            except FileNotFoundError:   # the caller has left
                return None
            if written:
                return written
        if size <= (blobs.LIMIT if self._shared else _LARGEST_SENT):
            return None
        private.make_directory(self._directory, readable=True)
        path = f'{self._directory}/{os.urandom(12).hex()}'
        return path, blobs.write(path, kind, body, buffers), False

    def _write_here(self, path: str, kind: bytes, body: bytes, buffers: Sequence[PickleBuffer],
                    size: int) -> Written | None:
        """Write a result to the caller's directory; None if there is no room."""
        if size > blobs.COPIED // 2:   # the caller may map it
            return (path, blobs.write(path, kind, body, buffers), False) if self._room.take(size) else None
        if self._take_read(path):
            try:
                written = blobs.write_again(path, kind, body, buffers, 0)
            except BaseException:   # no room, or the call is interrupted
                blobs.discard(path)
                raise
        elif self._room.take(size):
            written = blobs.write(path, kind, body, buffers)
        else:
            return None
        kept = self._kept_bytes + written <= _MAX_FREE_BYTES
        if kept:
            self._kept.append((path, written))
            self._kept_bytes += written
        return path, written, kept

    def _take_read(self, path: str) -> bool:
        """Give the oldest file this path, if it was read."""
        if not self._kept:
            return False
        oldest, size = self._kept[0]
        try:
            os.rename(oldest + _READ, path)
        except FileNotFoundError:
            if os.path.exists(oldest) or os.path.exists(oldest + _READ):
                return False
            taken = False   # it was discarded
        else:
            taken = True
        self._kept.popleft()
        self._kept_bytes -= size
        return taken


def release(path: str, kept: bool) -> None:
    """Give back a file that was read, to be written again, or remove it."""
    if kept:
        with suppress(FileNotFoundError):   # the caller is about to leave
            os.rename(path, path + _READ)
    else:
        blobs.discard(path)
