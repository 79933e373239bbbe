"""A bridge: a process, the root of a tree, exchanges items with any number of others, its leaves, over few connections.

Leaves connect to the root first. If there are many of them, some let others connect, and the root sends others there:
these *relays* pass letters on and know nothing of what is in them. So whoever loses its relay comes back to the root,
and goes on where it was. A leaf is lost when it has not come back `RETURN` seconds after its connection was lost, or
when it has given no sign of life for `patience` seconds. As long as a relay is silent, nothing is known of its guests;
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
from rp_api.tree.parent_socket import Fan
from rp_api.tree.relay_assignment import Homes
from rp_api.tree.stream import INTERVAL, PATIENCE, VERSION, Letter, Stream, decode, encode

RETURN = 8.0
"""Seconds that a leaf has to come back when it has lost its connection."""

FAN_OUT = 64
"""Leaves up to which none of them is a relay."""

Item = dict[str, Any]
Receive = Callable[[str, list[Item]], object]
Lost = Callable[[str, str], object]


def relays_for(leaves: int) -> int:
    """How many of so many leaves have to be relays, so that nobody has many more connections than others."""
    return 0 if leaves <= FAN_OUT else max(FAN_OUT, round(leaves ** 0.5))


class _Leaf:
    """What the root knows of a leaf."""

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
    """Exchanges items with leaves: `receive(name, items)` gets what they put, `lost(name, why)` is told who is lost.

    So many `leaves` are expected beside others, of which `relays` let others connect. `greeted(name)` is told of each
    leaf that comes for the first time. `clock()` tells the time for leaves that ask, in nanoseconds since the epoch, or
    None if it is not known yet; `moment(name, message, when)` is told of moments that leaves have recorded, and when
    they were by that time.
    """

    def __init__(self, loop: Loop, keys: KeyPair, gate: Gate, address: str | None, receive: Receive,
                 lost: Lost = lambda name, why: None, *, leaves: int = 0, relays: int = 0, interval: float = INTERVAL,
                 patience: float = PATIENCE, greeted: Callable[[str], object] = lambda name: None,
                 clock: Callable[[], int | None] = time.time_ns,
                 moment: Callable[[str, str, int], object] = lambda name, message, when: None) -> None:
        self._loop = loop
        self._receive = receive
        self._greeted = greeted
        self._clock = clock
        self._moment = moment
        self._lost = lost
        self._interval, self._patience = interval, patience
        self._leaves: dict[str, _Leaf] = {}
        self._unsent: dict[str, _Leaf] = {}
        self._flush_soon = Soon(loop, self._flush)
        self._homes = Homes(leaves, relays)
        self._fan = Fan(loop, keys, gate, address, self._arrived, self._gone)
        self._malformed = Tally(f'malformed message at {self.address}')
        self._timer = loop.call_later(interval, self._tick)

    @property
    def address(self) -> str:
        """Where leaves connect to."""
        return self._fan.address

    @property
    def malformed(self) -> int:
        """How many messages were dropped because they were broken."""
        return self._malformed.count + self._fan.malformed

    @property
    def strangers(self) -> int:
        """How many have connected without knowing the keys."""
        return self._fan.strangers

    def put(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items for the leaf of that name, which may still have to come; nothing for one that was forgotten."""
        leaf = self._leaves.get(name)
        if leaf is not None and items:
            leaf.put += items
            self._unsent[name] = leaf
            self._flush_soon()

    def expect(self, name: str) -> None:
        """Let the leaf of that name come."""
        self._leaves.setdefault(name, _Leaf())

    def forget(self, name: str) -> None:
        """Have no more to do with a leaf."""
        leaf = self._leaves.pop(name, None)
        if leaf is not None:
            leaf.came_back()
        self._unsent.pop(name, None)
        self._fan.unlearn(name)
        self._homes.remove(name)

    def close(self, linger: float = LINGER) -> None:
        """Serve no more."""
        self._timer.cancel()
        self._flush()
        self._fan.close(linger)

    def _arrived(self, child: bytes, letters: list[Letter]) -> None:
        now = time.monotonic()
        for name, message in letters:
            leaf = self._leaves.get(name)
            if leaf is None:
                self._fan.answer(child, name, encode('forgotten'))
                continue
            leaf.heard = now
            if message:
                try:
                    self._handle(child, name, leaf, *decode(message))
                except CoordinationError as error:
                    self._malformed.add(error)

    def _handle(self, child: bytes, name: str, leaf: _Leaf, kind: str, fields: list[Any]) -> None:
        if kind == 'items':
            items = leaf.stream.take(*fields)
            if items is None:
                self._fan.answer(child, name, encode('sync', leaf.stream.received))
            elif items:
                self._receive(name, items)
        elif kind == 'hello':
            self._hello(child, name, leaf, *fields)
        elif kind == 'sync':
            self._send(name, leaf.stream.missing(*fields))
        elif kind == 'clock':
            now = self._clock()
            if now is not None:
                self._fan.answer(child, name, encode('time', fields[0], now))
        elif kind == 'moment':
            self._moment(name, *fields)
        elif kind == 'relay':
            self._fan.learn(name, child)
            self._homes.add(name, fields[0])
            self._settle()
        elif kind == 'gone':
            self._gone([name] if self._fan.way(name) == child else [])
        else:
            raise CoordinationError(f'malformed message: {kind!r} is not for the root')

    def _hello(self, child: bytes, name: str, leaf: _Leaf, version: int, received: int) -> None:
        if version != VERSION:
            raise CoordinationError(f'{name} speaks version {version} of the protocol of trees, not {VERSION}: install '
                                    'the same release of rp-api')
        missing = leaf.stream.missing(received)
        leaf.came_back()
        self._fan.learn(name, child)
        came_itself = self._fan.names(child) == {name} and name not in self._homes
        home = self._homes.find(name) if came_itself else ''
        self._fan.send(name, encode('welcome', leaf.stream.received, home))
        if not home:
            self._send(name, missing)
        self._greeted(name)

    def _settle(self) -> None:
        """Send leaves that are connected to the root elsewhere, if there is room."""
        for name, home in self._homes.settle().items():
            if name in self._leaves:
                self._fan.send(name, encode('welcome', self._leaves[name].stream.received, home))

    def _send(self, name: str, messages: list[bytes]) -> None:
        for message in messages:
            self._fan.send(name, message)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for name, leaf in unsent.items():
            items, leaf.put = leaf.put, []
            self._send(name, leaf.stream.put(items))

    # who is lost

    def _gone(self, names: list[str]) -> None:
        """Leaves have lost their connection: to us, or their relay has, or they have lost the one to their relay."""
        relays = {name for name in names if name in self._homes}
        notice = self._patience + 2 * self._interval   # if all that guests see of it is that their relay is silent
        for name in names:
            self._fan.unlearn(name)
            self._homes.remove(name)
            leaf = self._leaves.get(name)
            if leaf is not None and leaf.away is None:
                seconds = RETURN if name in relays or not relays else notice + RETURN
                leaf.away = self._loop.call_later(seconds, self._lost, name, 'its connection is lost')
        self._settle()

    def _tick(self) -> None:
        """Give a sign of life, and see who has given none."""
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._fan.beat()
        now = time.monotonic()
        silent = self._silent(now)
        for name in silent:
            for each in self._guests(name) | {name}:
                if each in self._leaves:
                    self._leaves[each].heard = now   # guests have to find another way first
        for name in silent:
            self._lost(name, f'it has given no sign of life for {self._patience:g} s')

    def _silent(self, now: float) -> list[str]:
        """Leaves that have given no sign of life for too long; guests, by the time when their relay gave its last one.

        The sign of life of a guest may miss that of its relay, and so may the first one after a pause of the relay.
        """
        last = dict.fromkeys(self._leaves, now)
        for relay in filter(self._homes.__contains__, self._leaves):
            last |= dict.fromkeys(self._guests(relay), self._leaves[relay].heard - 2 * self._interval)
        return [name for name, leaf in self._leaves.items()
                if 0 < leaf.heard < last[name] - self._patience and leaf.away is None]

    def _guests(self, name: str) -> set[str]:
        """The leaves that a relay speaks for; of other leaves, none."""
        way = self._fan.way(name)
        return set() if way is None or name not in self._homes else self._fan.names(way) - {name}
