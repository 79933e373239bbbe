"""The bridges that ZeroMQ channels meet at: one for a queue, one for publish/subscribe. They run in any loop.

A bridge forwards packed items without looking into them. What a peer sends that is no message of the protocol
is dropped, counted (`malformed`) and logged. Peers are those whose keys the gate knows, on ipc and on TCP
alike.
"""

from __future__ import annotations

from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.mesh.connection import Listener, arrivals, send_to
from rp_api.mesh.flow import VERSION, Backlog, Inflow, Outflow, deal, decode
from rp_api.mesh.keys import DOMAIN, LINGER, Gate, KeyPair, Tally
from rp_api.mesh.loop import Loop
from rp_api.mesh.message import encode
from rp_api.mesh.pubsub import PUBLICATIONS, READY

HIGH_WATER = 16384
"""Items in a bridge above which putters get no new credit."""

WINDOW = 4096
"""Credit of one putter: so many items may come from it on top of the high-water mark."""

UNREAD = 8192
"""Messages that may wait for a peer; credit keeps proper ones far below."""

PEERS = 65536
"""Most peers that are known at a time."""


class Getter(Outflow):
    """A getter that is connected."""

    __slots__ = ('name',)

    def __init__(self, name: str, base: int) -> None:
        super().__init__(base)
        self.name = name


class QueueBridge:
    """A queue: takes items from putters and gives each of them to one getter with credit, in even shares."""

    def __init__(self, loop: Loop, keys: KeyPair, gate: Gate, address: str | None = None, *,
                 domain: str = DOMAIN, high_water: int = HIGH_WATER, window: int = WINDOW) -> None:
        self._backlog = Backlog()
        self._putters: dict[bytes, Inflow] = {}
        self._getters: dict[bytes, Getter] = {}
        self._high_water = high_water
        self._window = window
        self._listener = Listener(loop, zmq.ROUTER, keys, gate, address, domain, UNREAD, self._receive)
        self._malformed = Tally(f'malformed message at {self.address}')

    @property
    def address(self) -> str:
        """Where putters and getters connect to."""
        return self._listener.address

    @property
    def pending(self) -> int:
        """How many items no getter had room for yet."""
        return len(self._backlog)

    @property
    def malformed(self) -> int:
        """How many messages were dropped because they were broken."""
        return self._malformed.count

    @property
    def strangers(self) -> int:
        """How many have connected without knowing the keys."""
        return self._listener.strangers

    def forget(self, name: str) -> None:
        """Give items to others that the getters of that name have not done; the caller knows they died."""
        for peer in [peer for peer, getter in self._getters.items() if getter.name == name]:
            self._take_back(peer)
        self._turn()

    def close(self, linger: float = LINGER) -> None:
        """Serve no more; items that no getter has are lost with the bridge."""
        self._listener.close(linger)

    def _receive(self) -> None:
        for frames in arrivals(self._listener.socket):
            try:
                kind, fields = decode(b''.join(frames[1:]))
                self._handle(frames[0], kind, fields)
            except CoordinationError as error:
                self._malformed.add(error)
        self._turn()

    def _handle(self, peer: bytes, kind: str, fields: list[Any]) -> None:
        getter = self._getters.get(peer)
        if kind == 'hello':
            self._hello(peer, *fields)
        elif kind == 'items' and not getter:
            self._items(peer, *fields)
        elif kind == 'bye':
            self._putters.pop(peer, None)
            if getter:
                getter.grant(fields[0], 0)
                self._take_back(peer)
        elif kind in ('grant', 'sync') and getter:
            getter.grant(*fields[-2:])
            if kind == 'sync':
                self._send_missing(peer, getter, fields[0])
        else:
            raise CoordinationError(f'malformed message: {kind!r} from a peer that has no part in it')

    def _hello(self, peer: bytes, version: int, role: str, name: str,
               received: int, done: int, allowed: int) -> None:
        if self._no_place_for(peer):
            self._send(peer, 'refuse', f'the bridge at {self.address} has {PEERS} peers already')
        elif version != VERSION or role not in ('put', 'get'):
            self._send(peer, 'refuse', f'the bridge at {self.address} speaks version {VERSION} of the queue '
                       f'protocol, not {version} as {role!r}: install the same release of rp-api')
        elif role == 'put':
            putter = self._putters.setdefault(peer, Inflow(self._window, done))
            self._send(peer, 'sync', putter.received, putter.done, putter.allowed)
        elif done > received:
            raise CoordinationError(f'malformed message: {done} items done of {received} that were received')
        else:
            # a getter that is new here, but has received something, had another bridge at this address before
            getter = self._getters.setdefault(peer, Getter(name, received))
            getter.grant(done, allowed)
            self._send_missing(peer, getter, received)

    def _items(self, peer: bytes, first: int, shared: bytes, bodies: list[bytes]) -> None:
        if (first and peer not in self._putters) or self._no_place_for(peer):
            return   # meant for a bridge that was here before; after its hello the putter repeats it
        putter = self._putters.setdefault(peer, Inflow(self._window))
        fresh = putter.accept(first, bodies)
        if fresh is None:
            self._send(peer, 'sync', putter.received, putter.done, putter.allowed)
        else:
            self._take_in(putter, shared, fresh)

    def _no_place_for(self, peer: bytes) -> bool:
        """Whether this would be one peer too many: nothing tells that one is gone which says no goodbye."""
        known = peer in self._putters or peer in self._getters
        return not known and len(self._putters) + len(self._getters) >= PEERS

    def _take_in(self, putter: Inflow, shared: bytes, bodies: list[bytes]) -> None:
        """Take new items over from a putter."""
        self._backlog.add(shared, bodies)
        putter.finish(len(bodies))

    def _lane(self, getter: Getter) -> Backlog:
        """What waits for a getter; here all of them draw from the same."""
        return self._backlog

    def _send_missing(self, peer: bytes, getter: Getter, received: int) -> None:
        for first, shared, bodies in getter.missing(received):
            self._send(peer, 'items', first, shared, bodies)

    def _take_back(self, peer: bytes) -> None:
        getter = self._getters.pop(peer)
        self._lane(getter).put_back(getter.given)

    def _turn(self) -> None:
        """Give out what there is, then let putters go on if that made room."""
        self._deal()
        room = len(self._backlog) < self._high_water
        for peer, putter in self._putters.items():
            if room:
                putter.renew()
            if putter.has_news():
                self._send(peer, 'grant', putter.done, putter.allowed)

    def _deal(self) -> None:
        """Give out what there is to those that have room."""
        deal(self._getters, self._backlog.__len__, self._give)

    def _give(self, peer: bytes, getter: Getter, count: int) -> None:
        lane = self._lane(getter)
        shared, bodies = lane.take(count)
        if not self._send(peer, 'items', getter.send(shared, bodies), shared, bodies):
            # it is gone or away: others may have these, and it gets no more until it says something again
            returned = Backlog()
            returned.add(*getter.unsend())
            lane.put_back(returned)

    def _send(self, peer: bytes, kind: str, *fields: Any) -> bool:
        """Whether the peer is connected, so that it will get the message unless the connection breaks."""
        try:
            send_to(self._listener.socket, peer, encode(kind, *fields))
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):   # gone, or it does not read
                raise
            return False
        return True


class PubSubBridge:
    """Hands what publishers say to the subscribers of its topic; they connect to an address each.

    A subscriber that does not keep up loses publications, and sees how many; it holds up nobody.
    """

    def __init__(self, loop: Loop, keys: KeyPair, gate: Gate, publish: str | None = None,
                 subscribe: str | None = None, *, domain: str = DOMAIN) -> None:
        self._inlet = Listener(loop, zmq.PULL, keys, gate, publish, domain, PUBLICATIONS, self._forward)
        try:
            self._outlet = Listener(loop, zmq.XPUB, keys, gate, subscribe, domain, PUBLICATIONS, self._answer)
        except BaseException:
            self._inlet.close(0)
            raise
        self._malformed = Tally(f'malformed publication at {self.publish_address}')

    @property
    def publish_address(self) -> str:
        """Where publishers connect to."""
        return self._inlet.address

    @property
    def subscribe_address(self) -> str:
        """Where subscribers connect to."""
        return self._outlet.address

    @property
    def malformed(self) -> int:
        """How many publications were dropped because they were broken."""
        return self._malformed.count

    @property
    def strangers(self) -> int:
        """How many have connected without knowing the keys."""
        return self._inlet.strangers + self._outlet.strangers

    def close(self, linger: float = LINGER) -> None:
        """Serve no more."""
        self._inlet.close(linger)
        self._outlet.close(linger)

    def _forward(self) -> None:
        for frames in arrivals(self._inlet.socket):
            if len(frames) == 3 and frames[0].endswith(b'\0') and not frames[0].startswith(READY):
                self._outlet.socket.send_multipart(frames)
            else:
                self._malformed.add(f'{len(frames)} frames')

    def _answer(self) -> None:
        """Tell a subscriber that its subscriptions are in force: the last one of them asks for this."""
        for frames in arrivals(self._outlet.socket):
            if frames[0].startswith(b'\1' + READY):
                self._outlet.socket.send(frames[0][1:])
            elif frames[0][:1] not in (b'\0', b'\1'):   # which begin and end subscriptions
                self._malformed.add('a subscriber that publishes')
