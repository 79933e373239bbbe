"""Relays: nodes of a tree (see `root`) that forward messages of other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from rp_api.loop.event_loop import Loop
from rp_api.transport.keys import LINGER, Gate, KeyPair
from rp_api.tree.parent_socket import ParentSocket
from rp_api.tree.stream import Envelope, encode


class Relay:
    """Accepts connections of other nodes, and forwards envelopes: up by `up(envelopes)`, down by `deliver`."""

    def __init__(self, loop: Loop, keys: KeyPair, context: zmq.Context[Any], address: str,
                 up: Callable[[list[Envelope]], None]) -> None:
        self._up = up
        self._alive: dict[str, None] = {}
        self._gate = Gate(context, loop)
        self._gate.allow(keys.public)
        self._socket = ParentSocket(loop, keys, self._gate, address, self._arrived, self._gone)

    @property
    def address(self) -> str:
        """The address that other nodes connect to."""
        return self._socket.address

    def deliver(self, name: str, message: bytes) -> None:
        """Forward an envelope to a node; it is dropped if the node is not connected here."""
        self._socket.send(name, message)

    def again(self) -> None:
        """Request a hello of all nodes, because forwarded messages may have been lost."""
        for name in self._socket.names_here():
            self._socket.send(name, encode('again'))

    def beat(self) -> list[str]:
        """Send a heartbeat to the nodes, and return those that have sent one since the last call."""
        self._socket.beat()
        alive, self._alive = self._alive, {}
        return list(alive)

    def close(self, linger: float = LINGER) -> None:
        """Close the relay."""
        self._socket.close(linger)
        self._gate.close()

    def _arrived(self, child: bytes, envelopes: list[Envelope]) -> None:
        for name, message in envelopes:
            if self._socket.way(name) != child:
                self._socket.learn(name, child)
            if not message:
                self._alive[name] = None
        self._up([envelope for envelope in envelopes if envelope[1]])

    def _gone(self, names: list[str]) -> None:
        self._up([(name, encode('gone')) for name in names])
