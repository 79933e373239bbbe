"""The nodes of a tree (see `root`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.soon import Soon
from rp_api.transport.clocks import ClockReader
from rp_api.transport.connection import PeerConnection, arrivals, refuse_loudly
from rp_api.transport.keys import LINGER, Gate, KeyPair, Tally
from rp_api.tree import stream
from rp_api.wire.codec import unpack_dict
from rp_profiling.write.host_clock import Moment, Reading

Receiver = Callable[[list[Any]], object]

FORSAKEN = 20.0
"""Seconds without a connection after which the root is considered lost, for a node that was connected before."""

TRY = 2.5
"""Seconds to connect to a relay: less than the root waits for the return of a node."""


class TreeNode:
    """A node, which exchanges items with the root of its tree.

    `receiver(items)` is called with the root's items, `forsaken(why)` when the root is lost or has removed this node.
    The first connection may take `let_in` seconds, because the root may be busy. `keys` are the node's own, which it
    also uses as a relay; `root` is the public key of the root. All nodes of a tree with relays have the same keys. If
    the root is on another host, `on_clock(reading)` is called with the offset of this clock to the root's.
    """

    def __init__(self, loop: Loop, name: str, address: str, keys: KeyPair, root: bytes, receiver: Receiver,
                 forsaken: Callable[[str], object], *, context: zmq.Context[Any], let_in: float,
                 relay: bool = False, interval: float = stream.INTERVAL, timeout: float = stream.HEARTBEAT_TIMEOUT,
                 on_clock: Callable[[Reading], object] | None = None) -> None:
        self.name = name
        self._loop = loop
        self._root_address = address
        self._keys = keys
        self._root = root
        self._receiver = receiver
        self._forsaken = forsaken
        self._context = context
        self._interval, self._timeout = interval, timeout
        self._let_in = let_in
        self._was_let_in = False
        self._stream = stream.Stream()
        self._put: list[Mapping[str, Any]] = []
        self._outbox: list[stream.Envelope] = []
        self._flush_soon = Soon(loop, self._flush)
        self._closed = False
        self._away: Timer | None = None
        self._heard = 0.0
        self._malformed = Tally(f'malformed message from {address}')
        self._clock = ClockReader(
            lambda sent: self._send([(name, stream.encode('clock', sent))]), on_clock) if on_clock else None
        self._relay = self._open_relay() if relay else None
        self._connect(address, root)
        self._timer = loop.call_later(interval, self._tick)

    @property
    def address(self) -> str:
        """The address that it is connected to."""
        return self._address

    def put(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Send items to the root."""
        self._put += items
        self._flush_soon()

    def tell_moment(self, moment: Moment) -> None:
        """Report a moment that was recorded here to the root."""
        self._send([(self.name, stream.encode('moment', moment.message, moment.there))])

    def close(self, linger: float = LINGER) -> None:
        """Close the connection, after sending queued items if it is established."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        self._timer.cancel()
        if self._away is not None:
            self._away.cancel()
        self._connection.close(linger)
        if self._relay:
            self._relay.close(linger)

    # the connection

    def _open_relay(self) -> Relay:
        from rp_api.system.network import address_towards

        return Relay(self._loop, self._keys, self._context, address_towards(self._root_address), self._pass_on)

    def _connect(self, address: str, server: bytes) -> None:
        self._address = address
        self._connected = False
        self._connection = PeerConnection(self._loop, zmq.DEALER, address, self._keys, server, self._context,
                                          self._arrived, self._greet, refuse_loudly, self._disconnected)
        sock = self._connection.socket
        sock.sndhwm = sock.rcvhwm = 0
        self._connection.open()
        self._wait()

    def _move(self, address: str, server: bytes) -> None:
        self._connection.close(0)
        self._connect(address, server)

    def _wait(self) -> None:
        """Start the timeout for a connection."""
        if self._away is not None:
            self._away.cancel()
        self._away = self._loop.call_later(self._limit(), self._give_up)

    def _limit(self) -> float:
        """Return the timeout for a connection in seconds."""
        if self._address != self._root_address:
            return TRY
        return FORSAKEN if self._was_let_in else self._let_in

    def _greet(self) -> None:
        """Introduce the node on a new connection; messages on a former one may have been lost."""
        self._connected = self._was_let_in = True
        self._heard = time.monotonic()
        if self._away is not None:
            self._away.cancel()
            self._away = None
        envelopes = [(self.name, stream.encode('hello', stream.VERSION, self._stream.received))]
        if self._relay:
            envelopes.insert(0, (self.name, stream.encode('relay', self._relay.address)))
            self._relay.again()
        self._send(envelopes)
        if self._clock:
            self._clock.due()

    def _disconnected(self) -> None:
        if self._closed:
            return
        if self._address != self._root_address:
            self._move(self._root_address, self._root)
        elif self._connected:
            self._connected = False
            self._wait()

    def _give_up(self) -> None:
        self._away = None
        if self._address != self._root_address:
            self._move(self._root_address, self._root)
        elif self._was_let_in:
            self._forsaken(f'the connection to {self._root_address} is lost')
        else:
            self._forsaken(f'no connection to {self._root_address} within {self._let_in:g} s')

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)
        alive = [self.name, *(self._relay.beat() if self._relay else ())]
        if self._connected:
            self._send([(name, stream.ALIVE) for name in alive])
            if self._clock:
                self._clock.due()
            if self._address != self._root_address and self._heard < time.monotonic() - self._timeout:
                self._move(self._root_address, self._root)   # the relay sends no heartbeats

    # messages

    def _pass_on(self, envelopes: list[stream.Envelope]) -> None:
        """Send envelopes of other nodes to the root, with all others of this turn of the loop."""
        self._outbox += envelopes
        self._flush_soon()

    def _flush(self) -> None:
        items, self._put = self._put, []
        envelopes, self._outbox = self._outbox, []
        if items:
            envelopes += [(self.name, message) for message in self._stream.put(items)]
        if envelopes and self._connected:   # otherwise they are sent after the answer to the next hello
            self._send(envelopes)

    def _send(self, envelopes: list[stream.Envelope]) -> None:
        for packet in stream.pack_envelopes(envelopes):
            self._connection.socket.send(packet, zmq.NOBLOCK)

    def _arrived(self) -> None:
        for frames in arrivals(self._connection.socket):
            try:
                for name, message in stream.unpack_envelopes(b''.join(frames)):
                    self._envelope(name, message)
            except CoordinationError as error:
                self._malformed.add(error)

    def _envelope(self, name: str, message: bytes) -> None:
        self._heard = time.monotonic()
        if name == self.name:
            self._handle(*stream.decode(message))
        elif message and self._relay:
            self._relay.deliver(name, message)

    def _handle(self, kind: str, fields: list[Any]) -> None:
        if kind == 'items':
            items = self._stream.take(*fields)
            if items is None:
                self._send([(self.name, stream.encode('sync', self._stream.received))])
            elif items:
                self._receiver(items)
        elif kind == 'loose':
            self._receiver([unpack_dict(*fields)])
        elif kind == 'spread' and self._relay:
            self._spread(self._relay, *fields)
        elif kind == 'welcome':
            self._welcome(*fields)
        elif kind == 'sync':
            self._send_again(*fields)
        elif kind == 'time' and self._clock:
            self._clock.answer(*fields)
        elif kind == 'again':
            self._greet()
        elif kind == 'forgotten':
            self._forsaken(f'{self._root_address} has removed this node')
        else:
            raise CoordinationError(f'malformed message: {kind!r} is not for a node')

    def _spread(self, relay: Relay, names: list[str], message: bytes) -> None:
        for name in names:
            if name == self.name:
                self._handle(*stream.decode(message))
            else:
                relay.deliver(name, message)

    def _welcome(self, received: int, parent: str) -> None:
        if parent and parent != self._address:
            self._move(parent, self._keys.public)
        else:
            self._send_again(received)

    def _send_again(self, received: int) -> None:
        self._send([(self.name, message) for message in self._stream.missing(received)])


class Relay:
    """Accepts connections of other nodes, and forwards envelopes: up by `up(envelopes)`, down by `deliver`."""

    def __init__(self, loop: Loop, keys: KeyPair, context: zmq.Context[Any], address: str,
                 up: Callable[[list[stream.Envelope]], None]) -> None:
        from rp_api.tree.parent_socket import ParentSocket  # few nodes are relays, see decision 0039

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
            self._socket.send(name, stream.encode('again'))

    def beat(self) -> list[str]:
        """Send a heartbeat to the nodes, and return those that have sent one since the last call."""
        self._socket.beat()
        alive, self._alive = self._alive, {}
        return list(alive)

    def close(self, linger: float = LINGER) -> None:
        """Close the relay."""
        self._socket.close(linger)
        self._gate.close()

    def _arrived(self, child: bytes, envelopes: list[stream.Envelope]) -> None:
        for name, message in envelopes:
            if self._socket.way(name) != child:
                self._socket.learn(name, child)
            if not message:
                self._alive[name] = None
        self._up([envelope for envelope in envelopes if envelope[1]])

    def _gone(self, names: list[str]) -> None:
        self._up([(name, stream.encode('gone')) for name in names])
