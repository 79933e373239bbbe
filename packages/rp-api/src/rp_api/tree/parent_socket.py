"""The upper end of connections in a tree: a socket for any number of children, each a node or a relay for several.

All envelopes to one child in a turn of the loop are sent together.
"""

from __future__ import annotations

from collections.abc import Callable

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.loop.soon import Soon
from rp_api.transport.connection import Listener, arrivals, send_to
from rp_api.transport.keys import DOMAIN, LINGER, Gate, KeyPair, Tally
from rp_api.tree.stream import ALIVE, Envelope, encode, pack_envelopes, unpack_envelopes

SETTLING = 0.05
"""Seconds after which ZeroMQ has updated its routing for a lost connection."""

UNREAD = 16384
"""Maximum number of packets that wait for a child that does not read; others are far below that."""

Receive = Callable[[bytes, list[Envelope]], None]


class ParentSocket:
    """Children, and the nodes that are reached through each of them.

    `receive(child, envelopes)` is called with their messages; `gone(names)` with nodes whose connection is lost.
    """

    def __init__(self, loop: Loop, keys: KeyPair, gate: Gate, address: str | None, receive: Receive,
                 gone: Callable[[list[str]], None]) -> None:
        self._loop = loop
        self._receive = receive
        self._gone = gone
        self._children: dict[bytes, set[str]] = {}
        self._way: dict[str, bytes] = {}
        self._outbox: dict[bytes, list[Envelope]] = {}
        self._full: set[bytes] = set()   # children for which packets had to be dropped
        self._flush_soon = Soon(loop, self._flush)
        self._probing = False
        self._closed = False
        self._listener = Listener(loop, zmq.ROUTER, keys, gate, address, DOMAIN, UNREAD, self._arrived,
                                  gone=self._connection_lost)
        self._malformed = Tally(f'malformed message at {self.address}')

    @property
    def address(self) -> str:
        """The address that children connect to."""
        return self._listener.address

    @property
    def malformed(self) -> int:
        """The number of malformed messages, which were dropped."""
        return self._malformed.count

    @property
    def strangers(self) -> int:
        """The number of connections with invalid keys."""
        return self._listener.strangers

    def way(self, name: str) -> bytes | None:
        """Return the child through which a node is reached, or None."""
        return self._way.get(name)

    def names_here(self) -> list[str]:
        """Return the names of all reachable nodes."""
        return list(self._way)

    def names(self, child: bytes) -> set[str]:
        """Return the names of the nodes that are reached through a child."""
        return self._children.get(child, set())

    def learn(self, name: str, child: bytes) -> None:
        """Route envelopes for this node through this child from now on."""
        self.unlearn(name)
        self._way[name] = child
        self._children.setdefault(child, set()).add(name)

    def unlearn(self, name: str) -> None:
        """Remove the route to a node."""
        child = self._way.pop(name, None)
        if child is not None:
            names = self._children[child]
            names.discard(name)
            if not names:
                del self._children[child]

    def send(self, name: str, message: bytes) -> None:
        """Send an envelope to a node; it is dropped if the node is not reachable."""
        child = self._way.get(name)
        if child is not None:
            self.answer(child, name, message)

    def answer(self, child: bytes, name: str, message: bytes) -> None:
        """Send an envelope to a node through this child."""
        self._outbox.setdefault(child, []).append((name, message))
        self._flush_soon()

    def beat(self) -> None:
        """Send a heartbeat to all children; report those that are not reachable any more."""
        self._probing = False
        if self._closed:
            return
        beat = next(pack_envelopes([('', ALIVE)]))
        self._tell_of_dropped()
        lost = [child for child in self._children if not self._send(child, beat)]
        names = [name for child in lost for name in self._children[child]]
        for name in names:
            self.unlearn(name)
        if names:
            self._gone(names)

    def close(self, linger: float = LINGER) -> None:
        """Close the socket, after sending waiting messages if possible."""
        if not self._closed:
            self._flush()
            self._closed = True
            self._listener.close(linger)

    def _arrived(self) -> None:
        for frames in arrivals(self._listener.socket):
            try:
                self._receive(frames[0], unpack_envelopes(b''.join(frames[1:])))
            except CoordinationError as error:
                self._malformed.add(error)

    def _connection_lost(self) -> None:
        """Probe all children after the loss of a connection: only a failing send shows which one it was."""
        if not self._probing:
            self._probing = True
            self._loop.call_later(SETTLING, self.beat)

    def _tell_of_dropped(self) -> None:
        """Request a hello of the nodes for which packets were dropped, so that these are resent."""
        full, self._full = self._full, set()
        for child in full:
            for name in self.names(child):
                self.answer(child, name, encode('again'))

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for child, envelopes in outbox.items():
            for packet in pack_envelopes(envelopes):
                self._send(child, packet)

    def _send(self, child: bytes, packet: bytes) -> bool:
        """Send a packet, and return whether the child is connected."""
        try:
            send_to(self._listener.socket, child, packet)
        except zmq.Again:
            self._full.add(child)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True
