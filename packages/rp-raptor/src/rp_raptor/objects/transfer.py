"""Transfers of objects between hosts: a listener that gives pieces of files, and the connection that gets them.

A piece is requested with `[get, id, offset, length]` and comes as `[piece, id, offset, data]`, or `[gone, id]` if the
file is not there. Both sides use a ZeroMQ context of their own, so that large transfers do not delay calls.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access, AccessPoint
from rp_api.transport.connection import PeerConnection, arrivals, send_to
from rp_api.transport.keys import Tally
from rp_api.wire import codec, form

PIECE_BYTES = 1 << 20
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
        if offset != self.received or len(data) != min(PIECE_BYTES, self.size - offset):
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
            length = min(PIECE_BYTES, self.size - self._asked)
            offset, self._asked = self._asked, self._asked + length
            self._ask(offset, length)


def read_piece(path: str, offset: int, length: int) -> bytes:
    """Return a piece of a file; OSError if it cannot be read."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(file, min(length, PIECE_BYTES), offset)
    finally:
        os.close(file)


def _nothing(*_: object) -> None:
    """Request nothing."""


STALL = 30.0
"""Seconds without a piece after which a transfer has failed."""

_RETRY = 0.2   # seconds
_DOMAIN = 'objects'
_WAITING = 4 * AHEAD   # pieces that wait for a peer that does not read

_ASKED: form.Table = {'get': (form.is_bytes, form.is_number, form.is_number)}
_GIVEN: form.Table = {'piece': (form.is_bytes, form.is_number, form.is_bytes), 'gone': (form.is_bytes,)}


class ObjectServer:
    """Gives pieces of objects to peers with the keys in `access`; `path(id)` returns the file of an object, or None."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], interface: str | None, base: str | None,
                 path: Callable[[bytes], str | None]) -> None:
        self._loop = loop
        self._path = path
        self._malformed = Tally('malformed request for an object')
        self._point = AccessPoint(loop, context, _DOMAIN)
        self._listener = self._point.listen(zmq.ROUTER, interface, _WAITING, self._receive, base)
        self.access = self._point.admit(self._listener.address)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close(0)
        self._point.close()

    def _receive(self) -> None:
        for frames in arrivals(self._listener.socket):
            try:
                arguments = form.parse(frames[-1], _ASKED, 'a peer')[1]
            except CoordinationError as error:
                self._malformed.add(error)
            else:
                self._give(frames[0], *arguments)

    def _give(self, peer: bytes, id: bytes, offset: int, length: int) -> None:
        path = self._path(id)
        try:
            message = ['piece', id, offset, read_piece(path, offset, length)] if path else ['gone', id]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):   # others have all descriptors, for the moment
                self._loop.call_later(_RETRY, self._give, peer, id, offset, length)
                return
            message = ['gone', id]
        if not self._listener.socket.closed:
            with suppress(zmq.ZMQError):   # the peer is gone, or asks for more than it reads: its transfer fails
                send_to(self._listener.socket, peer, codec.pack(message))


class Transfer:
    """Gets the missing part of a download from a holder; `ended(fault)` is called once, with '' for success."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], access: Access, id: bytes, download: Download,
                 ended: Callable[[str], object]) -> None:
        self._loop = loop
        self._id = id
        self._download = download
        self._ended = ended
        self._open = True
        self._heard = time.monotonic()
        self._address = access.address
        self._connection = PeerConnection(loop, zmq.DEALER, access.address, access.keys, access.server_key, context,
                                      self._receive, self._connected, self._fail, self._lost)
        self._timer = loop.call_later(STALL, self._watch)
        self._connection.open()

    def close(self) -> None:
        """End without a report."""
        if self._open:
            self._open = False
            self._timer.cancel()
            self._connection.close(0)

    def _connected(self) -> None:
        self._download.start(lambda offset, length: self._connection.socket.send(
            codec.pack(['get', self._id, offset, length])))

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            try:
                operation, arguments = form.parse(frames[-1], _GIVEN, 'a holder')
                if operation == 'gone':
                    raise CoordinationError('it does not have the object any more')
                self._heard = time.monotonic()
                self._download.take(*arguments[1:])
            except (CoordinationError, OSError) as error:
                self._fail(str(error))
                return
            if self._download.done:
                self._end('')
                return

    def _lost(self) -> None:
        self._fail('the connection was lost')

    def _watch(self) -> None:
        left = self._heard + STALL - time.monotonic()
        if left <= 0:
            self._fail(f'it has sent nothing for {STALL:.0f} s')
        else:
            self._timer = self._loop.call_later(left, self._watch)

    def _fail(self, reason: str) -> None:
        self._end(f'{self._address}: {reason}')

    def _end(self, fault: str) -> None:
        if self._open:
            self.close()
            self._ended(fault)
