"""Pipes over ZeroMQ between the first manager of a worker and the others, for the time without carriers.

A message is the number of the part, the kind, and the bytes, with the content of files in further frames.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress

import zmq

from rp_api.loop.event_loop import Loop
from rp_api.system.network import address_towards
from rp_api.transport.access import Access, AccessPoint
from rp_api.transport.connection import PeerConnection, arrivals
from rp_api.transport.keys import Tally
from rp_raptor.carriers.channel import HELLO, Channel, OpenFile, Pipe, PipeEnd, content_of, file_with

_HEADER = struct.Struct('=HB')
_DOMAIN = 'detour'
_LINGER = 1.0   # seconds for the last messages


class Detour:
    """The pipe of a manager that is not the first one; `path` is the file with the address of that."""

    def __init__(self, loop: Loop, path: str, part: int, channel: Channel) -> None:
        access = Access.load(path)
        self._part = part
        self._channel = channel
        self._end: PipeEnd | None = None
        self._connection: PeerConnection | None = PeerConnection(
            loop, zmq.DEALER, access.address, access.keys, access.server_key, None, self._receive, self._connected,
            self._refused, self._lost)
        self._connection.socket.sndhwm = 0
        self._connection.open()

    def write(self, kind: int, data: bytes, files: Sequence[OpenFile]) -> None:
        """Send a message."""
        if self._connection is not None:
            self._connection.socket.send_multipart([_HEADER.pack(self._part, kind) + data, *map(content_of, files)])

    def flush(self) -> None:
        """Leave it to ZeroMQ."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close(_LINGER)
            self._connection = None

    def _connected(self) -> None:
        self._end = self._channel.attach(lambda end: self, yields=True)

    def _refused(self, reason: str) -> None:
        self._lost()

    def _lost(self) -> None:
        if self._end is not None:
            self._end.lost()
            self._end = None

    def _receive(self) -> None:
        assert self._connection is not None
        for frames in arrivals(self._connection.socket):
            if self._end is not None:
                data, *contents = frames
                self._end.take(_HEADER.unpack_from(data)[1], data[_HEADER.size:], [*map(file_with, contents)])


class _Answers:
    """The pipe of the first manager to another one."""

    def __init__(self, socket: zmq.Socket[bytes], peer: bytes, part: int) -> None:
        self._socket = socket
        self._part = part
        self.peer = peer

    def of(self, _end: PipeEnd) -> Pipe:
        """Return this pipe."""
        return self

    def write(self, kind: int, data: bytes, files: Sequence[OpenFile]) -> None:
        """Send a message."""
        with suppress(zmq.ZMQError):   # the peer is gone, or will say hello again
            self._socket.send_multipart([self.peer, _HEADER.pack(self._part, kind) + data, *map(content_of, files)],
                                        zmq.NOBLOCK)

    def flush(self) -> None:
        """Leave it to ZeroMQ."""

    def close(self) -> None:
        """Hear no more of the peer."""
        self.peer = b''


class DetourListener:
    """Listens for managers of other parts, and attaches them to the channels.

    Its address is in the file at `path`. It listens on the interface towards the master, whose address is at
    `master_path`. CoordinationError if it cannot.
    """

    def __init__(self, loop: Loop, path: str, master_path: str, base: str, channels: Mapping[int, Channel]) -> None:
        self._path = path
        self._channels = channels
        self._ends: dict[int, tuple[_Answers, PipeEnd]] = {}
        self._malformed = Tally('malformed message of a manager')
        self._point = AccessPoint(loop, domain=_DOMAIN)
        address = Access.load(master_path).address
        interface = address_towards(address) if address.startswith('tcp://') else None
        self._listener = self._point.listen(zmq.ROUTER, interface, 0, self._receive, base)
        self._point.admit(self._listener.address).save(path)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close(_LINGER)
        self._point.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _receive(self) -> None:
        for peer, data, *contents in arrivals(self._listener.socket):
            try:
                part, kind = _HEADER.unpack_from(data)
                channel = self._channels[part]
            except (struct.error, KeyError) as error:
                self._malformed.add(error)
                continue
            if kind == HELLO:
                answers = _Answers(self._listener.socket, peer, part)
                end = channel.attach(answers.of, yields=True)
                if end is not None:
                    self._ends[part] = answers, end
            if part in self._ends and self._ends[part][0].peer == peer:
                self._ends[part][1].take(kind, data[_HEADER.size:], [*map(file_with, contents)])
