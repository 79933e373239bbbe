"""Files for the large results of one caller's calls."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pickle import PickleBuffer

from rp_api import blobs
from rp_api.system import heap, private
from rp_api.system.shared_directory import Room, place
from rp_raptor.wire import reused_files

_LARGEST_SENT = 64 << 20
"""Bytes of a result at most that is sent in a message to a caller on another host."""

_MAX_FREE_BYTES = 32 << 20   # bytes of files that are written again when they were read

_SMALLEST_CARRIED = 256 << 10   # bytes of a result that is worth a message of its own

Written = tuple[str, int, int | str]
"""Path and size of a result, and its version in a file that is written again when it was read, else 0.

If carriers take the file, it has `results` instead of a version, see `rp_raptor.wire.carried_results`.
"""


class ResultFiles:
    """Writes results to files, which the caller releases when it has read them.

    `results` is `Store.results` of the caller. If it is of this host, files are in the caller's directory, so that all
    of them are removed with the caller; those that have no room in memory are in `directory`, as are the largest ones
    for callers on other hosts, who share this file system. Carriers take those in the directory `carried` of the
    manager, if there is one, to callers elsewhere. `output` tells whether the caller wants the output of calls.
    """

    def __init__(self, results: str, directory: str, carried: str = '', *, output: bool = False) -> None:
        self.output = output
        where, _, shared = results.partition('\n')
        self._results = results
        self._shared = shared if where == place() else ''
        self._carried = '' if self._shared else carried
        self._nested = ResultFiles(results, directory, output=output) if self._carried else None
        self._room = Room(self._shared or self._carried)
        heap.keep(blobs.COPIED)   # the arguments are read to it
        self._directory = directory
        self._kept: deque[tuple[str, int]] = deque()   # files to be written again, with their sizes
        self._kept_bytes = 0
        self._version = 0

    @property
    def nested(self) -> ResultFiles:
        """For results within others, of which no file is carried."""
        return self._nested or self

    def write(self, kind: bytes, body: bytes, buffers: Sequence[PickleBuffer], size: int) -> Written | None:
        """Write a result of about this size; None if it is to be sent. Raise OSError on failure."""
        if self._shared:
            try:
                written = self._write_here(kind, body, buffers, size)
            except FileNotFoundError:   # the caller has left
                return None
            if written:
                return written
        if self._carried and _SMALLEST_CARRIED <= size <= _LARGEST_SENT and self._room.take(size):
            path = f'{self._carried}/{os.urandom(12).hex()}'
            with suppress(FileNotFoundError):   # the manager has ended
                return path, blobs.write(path, kind, body, buffers), self._results
        if size <= (blobs.LIMIT if self._shared else _LARGEST_SENT):
            return None
        private.make_directory(self._directory, readable=True)
        path = f'{self._directory}/{os.urandom(12).hex()}'
        return path, blobs.write(path, kind, body, buffers), 0

    def _write_here(self, kind: bytes, body: bytes, buffers: Sequence[PickleBuffer], size: int) -> Written | None:
        """Write a result to the caller's directory; None if there is no room."""
        path = self._take_read() if size <= blobs.COPIED // 2 else ''   # the caller may map a larger one
        if not path and not self._room.take(size):
            return None
        self._version += 1
        if path:
            try:
                written = reused_files.write_again(path, kind, body, buffers, self._version)
            except BaseException:   # no room, or the call is interrupted
                reused_files.discard(path)
                raise
        else:
            path = f'{self._shared}/{os.urandom(12).hex()}'
            kept = size <= blobs.COPIED // 2 and self._kept_bytes + size <= _MAX_FREE_BYTES
            written = blobs.write(path, kind, body, buffers, self._version if kept else 0)
            if not kept:
                return path, written, 0
        self._kept.append((path, written))
        self._kept_bytes += written
        return path, written, self._version

    def _take_read(self) -> str:
        """Return the path of the oldest file if it was read, else an empty one."""
        if not self._kept:
            return ''
        path, size = self._kept[0]
        try:
            if reused_files.version_of(path):
                return ''
        except FileNotFoundError:   # it was removed
            path = ''
        self._kept.popleft()
        self._kept_bytes -= size
        return path


def release(path: str, version: int) -> None:
    """Give back a file that was read, to be written again, or remove it."""
    if version:
        with suppress(FileNotFoundError):   # the caller is about to leave
            reused_files.release(path, version)
    else:
        reused_files.discard(path)
