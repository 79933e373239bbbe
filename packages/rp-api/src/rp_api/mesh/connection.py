"""A ZeroMQ socket that is connected to a bridge, with word of when it is connected and when it is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.mesh.keys import LINGER, KeyPair, Tally, make_client
from rp_api.mesh.loop import Loop

Refused = Callable[[str], object]

_BURST = 64
_EVENT = struct.Struct('=HI')   # number and value of a socket event, as ZeroMQ's monitor frames have them
_UNCLEAR = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH | _UNCLEAR


def arrivals(socket: zmq.Socket[Any]) -> Iterator[list[bytes]]:
    """The messages that can be received without waiting; not too many at once, so that other callbacks have a turn."""
    for _ in range(_BURST):
        if socket.closed:
            return
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


def refuse_loudly(reason: str) -> None:
    """End the loop that calls this with CoordinationError: what cannot connect would wait forever."""
    raise CoordinationError(reason)


class Connection:
    """A CURVE client socket in a loop.

    `connected` is called after each handshake, also when a lost connection came back by itself; `refused` with a
    sentence when the server does not admit these keys, after which no further attempt is made.
    """

    def __init__(self, loop: Loop, kind: int, address: str, keys: KeyPair, server_public: bytes,
                 context: zmq.Context[Any] | None, receive: Callable[[], object] | None,
                 connected: Callable[[], object], refused: Refused) -> None:
        self._loop = loop
        self._address = address
        self._connected = connected
        self._refused = refused
        self._failures = Tally(f'cannot connect to {address} (other keys there, or no gate yet)')
        self.socket: zmq.Socket[bytes] = (context or zmq.Context.instance()).socket(kind)
        make_client(self.socket, keys, server_public)
        self.socket.reconnect_ivl = 50
        self.socket.reconnect_ivl_max = 2000
        self._monitor = self.socket.get_monitor_socket(_WATCHED)
        loop.add_socket(self._monitor, self._on_event)
        if receive:
            loop.add_socket(self.socket, receive)

    def open(self) -> None:
        """Start to connect, after the last option was set."""
        try:
            self.socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close(0)
            raise CoordinationError(f'cannot connect to {self._address!r}: {error}') from error

    def close(self, linger: float = LINGER) -> None:
        """Close the socket; what it holds is sent within `linger` seconds, in the background."""
        for socket in (self._monitor, self.socket):
            self._loop.remove_socket(socket)
        self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close(linger=int(linger * 1000))

    def _on_event(self) -> None:
        number, _ = _EVENT.unpack(self._monitor.recv_multipart()[0])
        if number == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._connected()
        elif number == zmq.Event.HANDSHAKE_FAILED_AUTH:
            self._refused(f'{self._address} does not admit the key of this process')
        elif number & _UNCLEAR:
            self._failures.add('the handshake failed')
