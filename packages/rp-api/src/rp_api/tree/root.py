"""A bridge: a process, the root of a tree, exchanges items with any number of others, its nodes, over few connections.

Nodes connect to the root first. If there are many of them, some let others connect, and the root sends others there:
these *relays* pass envelopes on and know nothing of what is in them. So whoever loses its relay comes back to the root,
and goes on where it was. A node is lost when it has not come back `RETURN` seconds after its connection was lost, or
when it has given no sign of life for `timeout` seconds. As long as a relay is silent, nothing is known of its children;
and when it is lost, they get the time that it may take them to notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.soon import Soon
from rp_api.transport.keys import LINGER, Gate, KeyPair, Tally
from rp_api.tree.parent_socket import ParentSocket
from rp_api.tree.relay_assignment import RelayAssignment
from rp_api.tree.stream import HEARTBEAT_TIMEOUT, INTERVAL, VERSION, Envelope, Stream, decode, encode

RETURN = 8.0
"""Seconds that a node has to come back when it has lost its connection."""

FAN_OUT = 64
"""Nodes up to which none of them is a relay."""

Item = dict[str, Any]
Receive = Callable[[str, list[Item]], object]
Lost = Callable[[str, str], object]


def relays_for(nodes: int) -> int:
    """How many of so many nodes have to be relays, so that nobody has many more connections than others."""
    return 0 if nodes <= FAN_OUT else max(FAN_OUT, round(nodes ** 0.5))


class _Node:
    """What the root knows of a node."""

    __slots__ = ('away', 'heard', 'put', 'stream')

    def __init__(self) -> None:
        self.stream = Stream()
        self.put: list[Mapping[str, Any]] = []
        """Items that will be sent at the end of this turn of the loop."""
        self.heard = 0.0
        """When it gave a sign of life; 0.0 if it never did."""
        self.away: Timer | None = None
        """When it is lost, while its connection is."""

    def came_back(self) -> None:
        """It has a connection; or nobody asks any more."""
        if self.away is not None:
            self.away.cancel()
            self.away = None


class Root:
    """Exchanges items with nodes: `receive(name, items)` gets what they put, `lost(name, why)` is told who is lost.

    So many `nodes` are expected beside others, of which `relays` let others connect. `greeted(name)` is told of each
    node that comes for the first time. `clock()` tells the time for nodes that ask, in nanoseconds since the epoch, or
    None if it is not known yet; `moment(name, message, when)` is told of moments that nodes have recorded, and when
    they were by that time.
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
        """Where nodes connect to."""
        return self._socket.address

    @property
    def malformed(self) -> int:
        """How many messages were dropped because they were broken."""
        return self._malformed.count + self._socket.malformed

    @property
    def strangers(self) -> int:
        """How many have connected without knowing the keys."""
        return self._socket.strangers

    def put(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items for the node of that name, which may still have to come; nothing for one that was forgotten."""
        node = self._nodes.get(name)
        if node is not None and items:
            node.put += items
            self._unsent[name] = node
            self._flush_soon()

    def expect(self, name: str) -> None:
        """Let the node of that name come."""
        self._nodes.setdefault(name, _Node())

    def forget(self, name: str) -> None:
        """Have no more to do with a node."""
        node = self._nodes.pop(name, None)
        if node is not None:
            node.came_back()
        self._unsent.pop(name, None)
        self._socket.unlearn(name)
        self._assignment.remove(name)

    def close(self, linger: float = LINGER) -> None:
        """Serve no more."""
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
            raise CoordinationError(f'{name} speaks version {version} of the protocol of trees, not {VERSION}: install '
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
        """Send nodes that are connected to the root elsewhere, if there is room."""
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

    # who is lost

    def _gone(self, names: list[str]) -> None:
        """Nodes have lost their connection: to us, or their relay has, or they have lost the one to their relay."""
        relays = {name for name in names if name in self._assignment}
        notice = self._timeout + 2 * self._interval   # if all that children see of it is that their relay is silent
        for name in names:
            self._socket.unlearn(name)
            self._assignment.remove(name)
            node = self._nodes.get(name)
            if node is not None and node.away is None:
                seconds = RETURN if name in relays or not relays else notice + RETURN
                node.away = self._loop.call_later(seconds, self._lost, name, 'its connection is lost')
        self._settle()

    def _tick(self) -> None:
        """Give a sign of life, and see who has given none."""
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._socket.beat()
        now = time.monotonic()
        silent = self._silent(now)
        for name in silent:
            for each in self._children(name) | {name}:
                if each in self._nodes:
                    self._nodes[each].heard = now   # children have to find another way first
        for name in silent:
            self._lost(name, f'it has given no sign of life for {self._timeout:g} s')

    def _silent(self, now: float) -> list[str]:
        """Nodes that have given no sign of life for too long; children, by the time when their relay gave its last one.

        The sign of life of a child may miss that of its relay, and so may the first one after a pause of the relay.
        """
        last = dict.fromkeys(self._nodes, now)
        for relay in filter(self._assignment.__contains__, self._nodes):
            last |= dict.fromkeys(self._children(relay), self._nodes[relay].heard - 2 * self._interval)
        return [name for name, node in self._nodes.items()
                if 0 < node.heard < last[name] - self._timeout and node.away is None]

    def _children(self, name: str) -> set[str]:
        """The nodes that a relay speaks for; of other nodes, none."""
        way = self._socket.way(name)
        return set() if way is None or name not in self._assignment else self._socket.names(way) - {name}
