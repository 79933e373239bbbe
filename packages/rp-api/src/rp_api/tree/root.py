"""The root of a tree (a bridge): a process that exchanges items with any number of nodes over few connections.

Nodes connect to the root first. If there are many, some of them are *relays*: they accept connections of others, to
which the root redirects these, and forward envelopes without reading them. A node that loses its relay returns to the
root, and continues where it was. A node is lost when it has not returned `RETURN` seconds after the loss of its
connection, or when it sends no heartbeat for `timeout` seconds. While a relay sends no heartbeats, the state of its
children is unknown; when it is lost, they get additional time to notice it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.soon import Soon
from rp_api.transport.keys import LINGER, Gate, KeyPair, Tally
from rp_api.tree.parent_socket import ParentSocket
from rp_api.tree.stream import HEARTBEAT_TIMEOUT, INTERVAL, VERSION, Envelope, Stream, decode, encode
from rp_api.wire.codec import pack

RETURN = 8.0
"""Seconds for the return of a node that has lost its connection."""

FAN_OUT = 64
"""Maximum number of nodes without relays."""

Item = dict[str, Any]
Receive = Callable[[str, list[Item]], object]
Lost = Callable[[str, str], object]


def relays_for(nodes: int) -> int:
    """Return the number of relays among that many nodes, so that connections are distributed evenly."""
    return 0 if nodes <= FAN_OUT else max(FAN_OUT, round(nodes ** 0.5))


class _Node:
    """The state of a node at the root."""

    __slots__ = ('away', 'heard', 'put', 'stream')

    def __init__(self) -> None:
        self.stream = Stream()
        self.put: list[Mapping[str, Any]] = []
        """Items to send at the end of this turn of the loop."""
        self.heard = 0.0
        """Time of the last heartbeat; 0.0 before the first one."""
        self.away: Timer | None = None
        """The timer for the loss of the node, while it has no connection."""

    def came_back(self) -> None:
        """Cancel the timer for the loss of the node."""
        if self.away is not None:
            self.away.cancel()
            self.away = None


class Root:
    """The root, which calls `receive(name, items)` with nodes' items, and `lost(name, why)` for lost nodes.

    Besides the others, `nodes` nodes are expected, of which `relays` are relays. `greeted(name)` is called when a node
    connects. `clock()` returns the time for nodes that request it, in nanoseconds since the epoch, or None if it is
    unknown; `moment(name, message, when)` is called with moments that nodes have recorded, by that clock.
    """

    def __init__(self, loop: Loop, keys: KeyPair, gate: Gate, address: str | None, receive: Receive,
                 lost: Lost = lambda name, why: None, *, nodes: int = 0, relays: int = 0, interval: float = INTERVAL,
                 timeout: float = HEARTBEAT_TIMEOUT, greeted: Callable[[str], object] = lambda name: None,
                 clock: Callable[[], int | None] = time.time_ns,
                 moment: Callable[[str, str, int], object] = lambda name, message, when: None) -> None:
        self._loop = loop
        self._receive = receive
        self._greeted = greeted
        self._clock = clock
        self._moment = moment
        self._lost = lost
        self._interval, self._timeout = interval, timeout
        self._nodes: dict[str, _Node] = {}
        self._unsent: dict[str, _Node] = {}
        self._flush_soon = Soon(loop, self._flush)
        self._assignment = RelayAssignment(nodes, relays)
        self._socket = ParentSocket(loop, keys, gate, address, self._arrived, self._gone)
        self._malformed = Tally(f'malformed message at {self.address}')
        self._timer = loop.call_later(interval, self._tick)

    @property
    def address(self) -> str:
        """The address that nodes connect to."""
        return self._socket.address

    @property
    def malformed(self) -> int:
        """The number of malformed messages, which were dropped."""
        return self._malformed.count + self._socket.malformed

    @property
    def strangers(self) -> int:
        """The number of connections with invalid keys."""
        return self._socket.strangers

    def put(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Send items to a node, which may connect later; ignored for a node that was removed."""
        node = self._nodes.get(name)
        if node is not None and items:
            node.put += items
            self._unsent[name] = node
            self._flush_soon()

    def spread(self, names: Iterable[str], item: Mapping[str, Any]) -> None:
        """Send an item to several nodes at once: one message for all that a relay reaches.

        It is lost if a connection breaks, and may overtake items of `put`.
        """
        message = encode('loose', pack(item))
        reached: dict[bytes, list[str]] = {}
        for name in names:
            child = self._socket.way(name)
            if child is not None:
                reached.setdefault(child, []).append(name)
        for child, members in reached.items():
            if len(members) == 1:
                self._socket.answer(child, members[0], message)
            else:   # only relays reach several
                relay = next(name for name in self._socket.names(child) if name in self._assignment)
                self._socket.answer(child, relay, encode('spread', members, message))

    def expect(self, name: str) -> None:
        """Accept the node of that name."""
        self._nodes.setdefault(name, _Node())

    def forget(self, name: str) -> None:
        """Remove a node."""
        node = self._nodes.pop(name, None)
        if node is not None:
            node.came_back()
        self._unsent.pop(name, None)
        self._socket.unlearn(name)
        self._assignment.remove(name)

    def close(self, linger: float = LINGER) -> None:
        """Close the root."""
        self._timer.cancel()
        self._flush()
        self._socket.close(linger)

    def _arrived(self, child: bytes, envelopes: list[Envelope]) -> None:
        now = time.monotonic()
        for name, message in envelopes:
            node = self._nodes.get(name)
            if node is None:
                self._socket.answer(child, name, encode('forgotten'))
                continue
            node.heard = now
            if message:
                try:
                    self._handle(child, name, node, *decode(message))
                except CoordinationError as error:
                    self._malformed.add(error)

    def _handle(self, child: bytes, name: str, node: _Node, kind: str, fields: list[Any]) -> None:
        if kind == 'items':
            items = node.stream.take(*fields)
            if items is None:
                self._socket.answer(child, name, encode('sync', node.stream.received))
            elif items:
                self._receive(name, items)
        elif kind == 'hello':
            self._hello(child, name, node, *fields)
        elif kind == 'sync':
            self._send(name, node.stream.missing(*fields))
        elif kind == 'clock':
            now = self._clock()
            if now is not None:
                self._socket.answer(child, name, encode('time', fields[0], now))
        elif kind == 'moment':
            self._moment(name, *fields)
        elif kind == 'relay':
            self._socket.learn(name, child)
            self._assignment.add(name, fields[0])
            self._settle()
        elif kind == 'gone':
            self._gone([name] if self._socket.way(name) == child else [])
        else:
            raise CoordinationError(f'malformed message: {kind!r} is not for the root')

    def _hello(self, child: bytes, name: str, node: _Node, version: int, received: int) -> None:
        if version != VERSION:
            raise CoordinationError(f'{name} uses version {version} of the protocol of trees, not {VERSION}: install '
                                    'the same release of rp-api')
        missing = node.stream.missing(received)
        node.came_back()
        self._socket.learn(name, child)
        came_itself = self._socket.names(child) == {name} and name not in self._assignment
        parent = self._assignment.find(name) if came_itself else ''
        self._socket.send(name, encode('welcome', node.stream.received, parent))
        if not parent:
            self._send(name, missing)
        self._greeted(name)

    def _settle(self) -> None:
        """Redirect nodes that are connected to the root to relays, as far as there are places."""
        for name, parent in self._assignment.settle().items():
            if name in self._nodes:
                self._socket.send(name, encode('welcome', self._nodes[name].stream.received, parent))

    def _send(self, name: str, messages: list[bytes]) -> None:
        for message in messages:
            self._socket.send(name, message)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for name, node in unsent.items():
            items, node.put = node.put, []
            self._send(name, node.stream.put(items))

    # lost nodes

    def _gone(self, names: list[str]) -> None:
        """Handle the loss of nodes' connections: to the root, or to their relay, or that of the relay."""
        relays = {name for name in names if name in self._assignment}
        notice = self._timeout + 2 * self._interval   # if children notice it only by missing heartbeats
        for name in names:
            self._socket.unlearn(name)
            self._assignment.remove(name)
            node = self._nodes.get(name)
            if node is not None and node.away is None:
                seconds = RETURN if name in relays or not relays else notice + RETURN
                node.away = self._loop.call_later(seconds, self._lost, name, 'its connection is lost')
        self._settle()

    def _tick(self) -> None:
        """Send a heartbeat, and find nodes without one."""
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._socket.beat()
        now = time.monotonic()
        silent = self._silent(now)
        for name in silent:
            for each in self._children(name) | {name}:
                if each in self._nodes:
                    self._nodes[each].heard = now   # children need time to find another relay
        for name in silent:
            self._lost(name, f'no heartbeat for {self._timeout:g} s')

    def _silent(self, now: float) -> list[str]:
        """Return the nodes without a heartbeat for too long; for children, until the last one of their relay.

        The heartbeat of a child may arrive later than that of its relay, and again after a pause of the relay.
        """
        last = dict.fromkeys(self._nodes, now)
        for relay in filter(self._assignment.__contains__, self._nodes):
            last |= dict.fromkeys(self._children(relay), self._nodes[relay].heard - 2 * self._interval)
        return [name for name, node in self._nodes.items()
                if 0 < node.heard < last[name] - self._timeout and node.away is None]

    def _children(self, name: str) -> set[str]:
        """Return the nodes that are reached through a relay; of other nodes, none."""
        way = self._socket.way(name)
        return set() if way is None or name not in self._assignment else self._socket.names(way) - {name}


class RelayAssignment:
    """The connected relays, of the expected number, and their children."""

    def __init__(self, nodes: int, relays: int) -> None:
        self._others = max(0, nodes - relays)
        self._relays = relays
        self._addresses: dict[str, str] = {}
        self._children: dict[str, set[str]] = {}
        self._last: dict[str, str] = {}
        self._gone: set[str] = set()
        self._waiting: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether this is a relay."""
        return name in self._addresses

    def add(self, relay: str, address: str) -> None:
        """Add a relay."""
        self._waiting.pop(relay, None)
        self._gone.discard(relay)
        self._addresses[relay] = address
        self._children.setdefault(relay, set())

    def find(self, name: str) -> str:
        """Return the address that a node must connect to; empty to stay with the root, at least for now.

        A node that returns from a relay is not sent there again, because the relay may have died. For such nodes each
        relay has an additional place, because all others may be taken.
        """
        if not self._relays:
            return ''
        self.remove(name)
        there = [relay for relay in self._children if relay != self._last.get(name)]
        relay = min(there, key=lambda each: len(self._children[each]), default=None)
        if relay is None or len(self._children[relay]) >= self._capacity() + (name in self._last):
            self._waiting[name] = None
            return ''
        self._children[relay].add(name)
        self._last[name] = relay
        return self._addresses[relay]

    def settle(self) -> dict[str, str]:
        """Return the addresses of relays for waiting nodes, as far as there are places now."""
        if not self._waiting:
            return {}
        found = {name: self.find(name) for name in list(self._waiting)[:self._capacity() * len(self._children)]}
        return {name: parent for name, parent in found.items() if parent}

    def remove(self, name: str) -> None:
        """Remove a node or a relay."""
        self._waiting.pop(name, None)
        if self._addresses.pop(name, None) is not None:
            del self._children[name]
            self._gone.add(name)
        for children in self._children.values():
            children.discard(name)

    def _capacity(self) -> int:
        return -(-self._others // max(1, self._relays - len(self._gone)))
