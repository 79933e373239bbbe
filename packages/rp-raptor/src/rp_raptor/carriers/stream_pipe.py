"""Pipes over carriers: a stream socket, over which descriptors of files travel, too.

Each message is a header and bytes. The header has the number of the bytes, the kind, the number of files, whose
descriptors come with the bytes, and whether the last of them has the bytes: large messages travel in files in memory,
which carriers map.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence

from rp_api.loop.event_loop import Loop, Timer
from rp_raptor.carriers.channel import End, OpenFile, content_of, file_with

LARGE_BYTES = 256 << 10
"""Size of a message above which its bytes travel in a file."""

_HEADER = struct.Struct('=IB?H')
_RETRY_INTERVAL_S = 0.001   # until a carrier that is behind takes more
_FLUSH_TIMEOUT = 1.0        # seconds for a carrier to take what is left
_CHUNK = 64 << 10           # bytes that are read at a time: larger memory comes from the kernel each time
_MAX_FILES = 253            # of the kernel, at a time


def framed(kind: int, data: bytes, files: int, *, large: bool = False) -> bytes:
    """Return a message with its header."""
    return _HEADER.pack(len(data), kind, large, files) + data


class Frames:
    """Takes apart what arrives over a stream."""

    def __init__(self) -> None:
        self._data = bytearray()   # of the next messages, and their files
        self._files: deque[OpenFile] = deque()

    def add(self, data: bytes, fds: Sequence[int]) -> Iterator[tuple[int, bytes, list[OpenFile]]]:
        """Yield the messages that are complete: kind, data and files."""
        self._files.extend(map(OpenFile, fds))
        self._data += data
        start = 0
        while len(self._data) - start >= _HEADER.size:
            size, kind, large, count = _HEADER.unpack_from(self._data, start)
            first = start + _HEADER.size
            if len(self._data) < first + size:
                break
            start = first + size
            content = bytes(memoryview(self._data)[first:start])
            files = [self._files.popleft() for _ in range(count)]
            yield kind, content_of(files.pop()) if large else content, files
        del self._data[:start]


class StreamPipe:
    """A pipe over a connection to the carrier of this node."""

    def __init__(self, loop: Loop, carrier: socket.socket, end: End) -> None:
        self._loop = loop
        self._carrier = carrier
        self._end = end
        self._frames = Frames()
        self._unsent: deque[tuple[bytes | memoryview, Sequence[OpenFile]]] = deque()
        self._retry: Timer | None = None
        carrier.setblocking(False)
        loop.add_fd(carrier.fileno(), self._receive)

    def write(self, kind: int, data: bytes, files: Sequence[OpenFile]) -> None:
        """Send a message."""
        large = len(data) > LARGE_BYTES
        if large:
            data, files = b'', [*files, file_with(data)]
        self._unsent.append((framed(kind, data, len(files), large=large), files))
        if self._retry is None:
            self._send()

    def flush(self) -> None:
        """Wait until the carrier has taken everything, for a limited time."""
        self._carrier.settimeout(_FLUSH_TIMEOUT)
        self._send()

    def close(self) -> None:
        """Close the connection."""
        if self._carrier.fileno() >= 0:
            self._loop.remove_fd(self._carrier.fileno())
            self._carrier.close()
        if self._retry is not None:
            self._retry.cancel()
        self._unsent.clear()

    def _send(self) -> None:
        self._retry = None
        try:
            while self._unsent:
                data, files = self._unsent[0]
                sent = socket.send_fds(self._carrier, [data], [file.fd for file in files])
                if sent < len(data):
                    self._unsent[0] = memoryview(data)[sent:], ()
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._retry = self._loop.call_later(_RETRY_INTERVAL_S, self._send)
        except OSError:   # as will be read, too
            self._unsent.clear()

    def _receive(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._carrier, _CHUNK, _MAX_FILES)
        except BlockingIOError:
            return
        except ConnectionError:
            data, fds = b'', []
        messages = self._frames.add(data, fds)
        if not data:
            self.close()
            self._end.lost()
            return
        for message in messages:
            self._end.take(*message)
