"""Channels between two managers of a worker, over carriers that may end and be started again.

A channel carries numbered messages, each with a kind, bytes and perhaps open files. A sender keeps a message until the
other side has acknowledged it, and sends it again over a new connection. So a message arrives once, whatever becomes of
the carriers. Large messages travel in files in memory, which carriers map.

On a connection, each message is a header and the bytes: their number, the kind, flags, and the number of files, whose
descriptors come with the bytes. Two kinds have no number: `_HELLO`, the first one, and `_RECEIVED`, with the number of
the last message that was received.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence

from rp_api.loop.event_loop import Loop, Timer
from rp_api.transport.resend import ResendQueue

LARGE_BYTES = 256 << 10
"""Size of a message above which its bytes travel in a file."""

_HELLO, _RECEIVED = 0, 1   # kinds; those of users begin at FIRST_KIND
FIRST_KIND = 2
"""The first kind that users of a channel may take."""

_HEADER = struct.Struct('=IBBH')
_NUMBER = struct.Struct('=Q')
_LARGE = 1   # flag: the bytes are in the last file
_OFTEN = 16                    # messages after which an acknowledgement is sent at once
_ACKNOWLEDGE_INTERVAL_S = 0.1  # and seconds otherwise
_RETRY_INTERVAL_S = 0.001      # until a carrier that is behind takes more
_FLUSH_TIMEOUT = 1.0           # seconds for a carrier to take what is left
_CHUNK = 1 << 20


class OpenFile:
    """A descriptor that is closed with this object."""

    __slots__ = ('fd',)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


Message = tuple[int, bytes, Sequence[OpenFile]]
Heard = Callable[[int, bytes, list[OpenFile]], object]


class Channel:
    """One end of a channel.

    `heard(kind, data, files)` is called with each message, `changed()` when the connection is ready or lost.
    """

    def __init__(self, loop: Loop, heard: Heard, changed: Callable[[], object]) -> None:
        self._loop = loop
        self._heard = heard
        self._changed = changed
        self._sent = ResendQueue[Message]()
        self._received = self._told = 0
        self._carrier: socket.socket | None = None
        self.ready = False
        """True while there is a connection to the other side."""
        self._data = bytearray()   # what has arrived of the next messages, and their files
        self._files: deque[OpenFile] = deque()
        self._unsent: deque[tuple[memoryview, Sequence[OpenFile]]] = deque()
        self._retry: Timer | None = None
        self._acknowledge: Timer | None = None

    def attach(self, carrier: socket.socket) -> None:
        """Use a new connection to a carrier instead of the one before."""
        self.detach()
        carrier.setblocking(False)
        self._carrier = carrier
        self._loop.add_fd(carrier.fileno(), self._receive)
        self._told = self._received
        self._write(_HELLO, _NUMBER.pack(self._received))

    def detach(self) -> None:
        """Close the connection."""
        if self._carrier is None:
            return
        self._loop.remove_fd(self._carrier.fileno())
        self._carrier.close()
        self._carrier = None
        for timer in (self._retry, self._acknowledge):
            if timer is not None:
                timer.cancel()
        self._retry = self._acknowledge = None
        self._data.clear()
        self._files.clear()
        self._unsent.clear()
        if self.ready:
            self.ready = False
            self._changed()

    def send(self, kind: int, data: bytes = b'', files: Sequence[OpenFile] = ()) -> None:
        """Send a message."""
        message = kind, data, files
        if len(data) > LARGE_BYTES:
            message = kind | _IN_FILE, b'', [*files, _file_with(data)]
        self._sent.add(message)
        if self.ready:
            self._write(*message)

    def flush(self) -> None:
        """Wait until the carrier has taken everything, for a limited time."""
        if self._carrier is not None:
            self._carrier.settimeout(_FLUSH_TIMEOUT)
            self._flush()

    def _write(self, kind: int, data: bytes, files: Sequence[OpenFile] = ()) -> None:
        self._unsent.append((memoryview(_HEADER.pack(len(data), kind & 0xff, kind >> 8, len(files)) + data), files))
        if self._retry is None:
            self._flush()

    def _flush(self) -> None:
        self._retry = None
        try:
            while self._unsent and self._carrier is not None:
                data, files = self._unsent[0]
                sent = socket.send_fds(self._carrier, [data], [file.fd for file in files])
                if sent < len(data):
                    self._unsent[0] = data[sent:], ()
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._retry = self._loop.call_later(_RETRY_INTERVAL_S, self._flush)
        except OSError:   # as will be read, too
            self._unsent.clear()

    def _receive(self) -> None:
        assert self._carrier is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._carrier, _CHUNK, 253)
        except BlockingIOError:
            return
        except ConnectionError:
            data, fds = b'', []
        if not data:
            self.detach()
            return
        self._data += data
        self._files.extend(map(OpenFile, fds))
        carrier, start = self._carrier, 0
        while self._carrier is carrier and len(self._data) - start >= _HEADER.size:
            size, kind, flags, count = _HEADER.unpack_from(self._data, start)
            first = start + _HEADER.size
            if len(self._data) < first + size:
                break
            start = first + size
            body = bytes(memoryview(self._data)[first:start])
            self._take(kind, body, flags, [self._files.popleft() for _ in range(count)])
        if self._carrier is carrier:
            del self._data[:start]

    def _take(self, kind: int, data: bytes, flags: int, files: list[OpenFile]) -> None:
        if kind in (_HELLO, _RECEIVED):
            self._sent.acknowledge(_NUMBER.unpack(data)[0])
            if kind == _HELLO:
                for message in self._sent:
                    self._write(*message)
                self.ready = True
                self._changed()
            return
        self._received += 1
        if self._received - self._told >= _OFTEN or files:
            self._tell()
        elif self._acknowledge is None:
            self._acknowledge = self._loop.call_later(_ACKNOWLEDGE_INTERVAL_S, self._tell)
        self._heard(kind, _content(files.pop()) if flags else data, files)

    def _tell(self) -> None:
        if self._acknowledge is not None:
            self._acknowledge.cancel()
            self._acknowledge = None
        if self._told < self._received:
            self._told = self._received
            self._write(_RECEIVED, _NUMBER.pack(self._received))


_IN_FILE = _LARGE << 8


def _file_with(data: bytes) -> OpenFile:
    """Return a file in memory with this content."""
    file = OpenFile(os.memfd_create('message', os.MFD_CLOEXEC))
    view = memoryview(data)
    while view:
        view = view[os.write(file.fd, view):]
    return file


def _content(file: OpenFile) -> bytes:
    size = os.fstat(file.fd).st_size
    with mmap.mmap(file.fd, size, access=mmap.ACCESS_READ) as content:
        return content[:]
