"""The exchange of messages between the hub and its peers: order, acknowledgement, and one commit for each turn.

Messages are msgpack lists. A peer sends `[number, operation, arguments...]`; messages that must not be lost are
numbered from 1, all others have the number 0. They are acknowledged (`['ack', number, rev]`) once they are durable. A
peer sends `hello` on each new connection, and when the hub requests it (`['who']`), because it does not know the peer
or a number is missing; the peer then resends unacknowledged messages. So a new hub or a broken connection loses
nothing. The hub sends updates to a peer as `['feed', since, upto, ...]` (two revisions each), at most
`delivery.MAX_IN_FLIGHT` of them before the peer confirms (`seen`); the updates for a slow peer wait in the database,
not in memory.
Peers on other hosts request the time (`clock`), and send moments on both clocks for the traces (`moment`).

Any message may be lost. A peer that receives a feed which does not continue its data sends hello. The loss of the last
message is detected with `ping` and `pong`, which contain the progress of their senders.

All messages of one turn of the event loop share a commit; their effects are sent only after it. When the database
cannot be written (the disk is full), these messages and all later numbered ones are dropped, as if they had been lost.
When writing succeeds again, the hub sends `who` to all peers, which resend them.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from rp_api.coordination import wire
from rp_api.coordination.hub import delivery
from rp_api.coordination.hub.database import is_passing
from rp_api.coordination.hub.peers import Peer, Peers, Watch
from rp_api.coordination.hub.store import Store
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport import keys
from rp_api.transport.connection import signed_arrivals
from rp_api.wire import codec

TURN_S = 0.01
"""Seconds after which a commit takes no further message, so that the senders of the others can continue."""

RETRY_INTERVAL_S = 1.0
"""Seconds between attempts to write while the disk is full."""

_log = logging.getLogger('radical.pilot.hub')


class Exchange(ABC):
    """A ROUTER socket, and the state of the exchange with its peers; `roles` maps public keys to roles."""

    _handlers: Mapping[str, Callable[..., None]]

    def __init__(self, loop: Loop, socket: zmq.Socket[bytes], store: Store, roles: Mapping[str, str], peers: Peers,
                 watch: Watch) -> None:
        self._loop = loop
        self._socket = socket
        self._store = store
        self._roles = roles
        self._peers = peers
        self._watch = watch
        self._followed = delivery.Followed(store)
        self._news = delivery.News(store.rev)
        self._acks: set[Peer] = set()
        self._moved: set[Peer] = set()   # peers whose stored progress must be updated
        self._notes: dict[tuple[str, str], Callable[[], object]] = {}   # writes of the hub itself
        self._durable = store.rev
        self._turn_pending = False
        self._stuck = False
        self._leaving = False
        self._malformed = keys.Tally('malformed message dropped')
        loop.add_socket(socket, self._receive)

    @abstractmethod
    def _on_hello(self, address: bytes, role: str, hello: dict[str, Any]) -> None:
        """Add a peer, or refuse it."""

    @abstractmethod
    def _news_for(self, pilot: str) -> None:
        """Note that there is something for the agents of a pilot."""

    def _receive(self) -> None:
        """Process waiting messages; their effects are handled together at the end of the turn."""
        self._turn_soon()
        end = time.monotonic() + TURN_S
        for address, data, key in signed_arrivals(self._socket, self._malformed):
            self._handle(address, data, self._roles[key])
            if time.monotonic() > end:
                return

    def _handle(self, address: bytes, data: bytes, role: str) -> None:
        try:
            number, operation, arguments = wire.parse(data)
            if operation == 'hello':
                wire.check(role, operation, arguments)
                self._on_hello(address, role, *arguments)
                return
            peer = self._sender(address, number, role)
            if peer is not None:
                wire.check(role, operation, arguments)
                self._handlers[operation](peer, *arguments)
        except (CoordinationError, ValueError) as error:
            self._malformed.add(error)
        except sqlite3.Error as error:
            self._get_stuck(error)

    def _sender(self, address: bytes, number: int, role: str) -> Peer | None:
        """Return the sender of a message if it must be processed: it is new, and no earlier one is missing."""
        peer = self._peers.at(address)
        if peer is not None and peer.role != role:
            raise CoordinationError(f'a message with the key of a {role} comes from the address of {peer}')
        if peer is not None:
            peer.watch.hear()
        if number and self._stuck:
            return None
        if peer is None or peer.stale or number > peer.number + 1:
            self._send(address, ['who'])
            return None
        if not number:
            return peer
        # invalid messages are acknowledged as well: resending would not help
        self._acks.add(peer)
        if number <= peer.number:
            return None
        peer.number = number
        return peer

    def _send(self, address: bytes, message: Sequence[Any]) -> None:
        try:
            self._socket.send_multipart([address, codec.pack(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:   # the peer has ended, or does not read; it sends hello again if it lives
            _log.debug('cannot send to %r: %s', address, error)

    # the end of a turn

    def _turn_soon(self) -> None:
        if not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Commit the messages of this turn, acknowledge them, and send their effects."""
        self._turn_pending = False
        if self._stuck:
            return
        try:
            if moved := self._acks | self._moved:
                self._store.keep_peers([(*peer.key, peer.instance, peer.number, peer.got) for peer in moved])
            written = list(self._notes)
            for note in written:
                self._notes[note]()
            for pilot in self._followed.write(orphaned=self._watch.orphaned):
                self._news_for(pilot)
            messages = delivery.deliveries(self._store, self._peers, self._news)
            self._store.commit()
        except sqlite3.Error as error:
            self._get_stuck(error)
            return
        self._followed.committed()
        self._durable = self._store.rev
        for note in written:
            del self._notes[note]
        for peer in self._acks:
            peer.keep()
            self._send(peer.address, ['ack', peer.number, self._durable])
        self._acks.clear()
        self._moved.clear()
        for address, message in messages:
            self._send(address, message)
        self._watch.turn()
        if self._leaving:
            self._loop.stop()

    def _write(self, kind: str, uid: str, write: Callable[..., object], *arguments: Any) -> None:
        """Schedule a write of the hub itself for the end of this turn, or of the first one when writing succeeds."""
        self._notes[kind, uid] = lambda: write(*arguments)
        self._turn_soon()

    def _get_stuck(self, error: sqlite3.Error) -> None:
        """Drop what cannot be written now, and retry periodically."""
        if not is_passing(error):
            raise error
        self._store.rollback()
        self._followed.rolled_back()
        self._acks.clear()
        self._moved.clear()
        self._news = delivery.News(self._store.rev)
        for peer in self._peers:
            peer.forget_unkept()
        if not self._stuck:
            self._stuck = True
            _log.error('%s cannot be written: %s; nothing is accepted until it can', self._store.path, error)
            self._loop.call_later(RETRY_INTERVAL_S, self._get_going)

    def _get_going(self) -> None:
        """Resume service if the database can be written."""
        try:
            self._store.probe()
        except sqlite3.Error as error:
            if not is_passing(error):
                raise
            self._store.rollback()
            self._loop.call_later(RETRY_INTERVAL_S, self._get_going)
            return
        self._stuck = False
        _log.warning('%s can be written again', self._store.path)
        for peer in self._peers:
            self._send(peer.address, ['who'])
        self._turn_soon()
