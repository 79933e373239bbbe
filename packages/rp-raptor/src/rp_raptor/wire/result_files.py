"""Files for the large results of one caller's calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pickle import PickleBuffer

from rp_api import blobs
from rp_api.system.shared_directory import Room, place

_LARGEST_SENT = 64 << 20
"""Bytes of a result at most that is sent in a message to a caller on another host."""


class ResultFiles:
    """Writes results to files that the caller removes when it has read them.

    `results` is `Store.results` of the caller. If it is of this host, files are in the caller's directory, so that all
    of them are removed with the caller; those that have no room in memory are in `directory`, as are the largest ones
    for callers on other hosts, who share this file system.
    """

    def __init__(self, results: str, directory: str) -> None:
        where, _, shared = results.partition('\n')
        self._shared = shared if where == place() else ''
        self._room = Room(self._shared)
        self._directory = directory

    def write(self, kind: bytes, body: bytes, buffers: Sequence[PickleBuffer], size: int) -> tuple[str, int] | None:
        """Return path and size of a new file; None if the result is to be sent. Raise OSError on failure."""
        name = os.urandom(12).hex()
        if self._shared and self._room.take(size):
            path = f'{self._shared}/{name}'
            try:
                return path, blobs.write(path, kind, body, buffers)
            except FileNotFoundError:   # the caller has left
                return None
        if size <= (blobs.LIMIT if self._shared else _LARGEST_SENT):
            return None
        os.makedirs(self._directory, 0o700, exist_ok=True)
        path = f'{self._directory}/{name}'
        return path, blobs.write(path, kind, body, buffers)
