"""Framing of messages between the launcher and its process: msgpack maps with a length prefix, over a socket pair."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgpack

_LENGTH = struct.Struct('!I')


def pack(message: dict[str, Any]) -> bytes:
    """Return the frame of a message."""
    data: bytes = msgpack.packb(message)
    return _LENGTH.pack(len(data)) + data


class Frames:
    """A decoder of frames."""

    __slots__ = ('_data',)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete with these bytes."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            body = bytes(self._data[_LENGTH.size:end])
            del self._data[:end]
            yield msgpack.unpackb(body)


def received(channel: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield all messages until the peer closes the socket; blocks."""
    frames = Frames()
    while data := channel.recv(1 << 16):
        yield from frames.feed(data)
