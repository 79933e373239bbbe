"""A file that is written from pieces, which are requested from a process that has them."""

from __future__ import annotations

import os
from collections.abc import Callable

from rp_api.errors import CoordinationError

PIECE = 1 << 20
"""Bytes of a piece."""

AHEAD = 8
"""Pieces that are requested before they are needed; this bounds the memory of both sides."""


class Download:
    """Writes the file at `path`; `ask(offset, length)` requests a piece, and the answers come in the same order."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self.received = 0
        self._asked = 0
        self._ask: Callable[[int, int], object] = _nothing
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    @property
    def done(self) -> bool:
        """Return whether the file is complete."""
        return self.received >= self.size

    def start(self, ask: Callable[[int, int], object]) -> None:
        """Request what is missing from a new sender."""
        self._ask = ask
        self._asked = self.received
        for _ in range(AHEAD):
            self._ask_next()

    def take(self, offset: int, data: bytes) -> None:
        """Write a piece and request another one; CoordinationError for the wrong piece, OSError without room."""
        if offset != self.received or len(data) != min(PIECE, self.size - offset):
            raise CoordinationError(f'a piece of {len(data)} bytes at {offset} instead of the one at {self.received}')
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, self.received)
            view = view[written:]
            self.received += written
        self._ask_next()

    def close(self) -> None:
        """Close the file."""
        self._ask = _nothing
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _ask_next(self) -> None:
        if self._asked < self.size:
            length = min(PIECE, self.size - self._asked)
            offset, self._asked = self._asked, self._asked + length
            self._ask(offset, length)


def read_piece(path: str, offset: int, length: int) -> bytes:
    """Return a piece of a file; OSError if it cannot be read."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(file, min(length, PIECE), offset)
    finally:
        os.close(file)


def _nothing(*_: object) -> None:
    """Request nothing."""
