"""The two kinds of channels that join components, in one process or over ZeroMQ: queue and publish/subscribe.

A *queue* hands each item to one getter. Getters pull by credit: a getter has at most `credit` items that it
has not called `done` for, and what nobody has room for waits in the queue. `done(n)` speaks of the n oldest
items. Items of one putter are handed out in their order. *Publish/subscribe* tells every subscriber of a
topic; who subscribes later misses what was said before.

In process the channel object is the queue (or the topics) itself, see `inproc`; over ZeroMQ the ends, below
and in `pubsub`, connect to a bridge, see `bridge`, and items are mappings of plain data. Both look the same
from outside. `put` and `publish` may be called from any thread, everything else in the thread of the loop or
while the loop does not run. Receivers are always called by the loop.

A broken connection comes back by itself, and a queue loses and doubles nothing by it. A getter that dies
without goodbye keeps what it was given until the bridge is told (`QueueBridge.forget`). Publications that did
not arrive are counted by the subscriber (`lost`).
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import zmq

from rp_api.errors import CoordinationError
from rp_api.mesh.codec import pack_bulk, unpack_bulk
from rp_api.mesh.connection import Connection, Refused, arrivals, refuse_loudly
from rp_api.mesh.flow import BULK, MAX_ITEM, VERSION, Backlog, Inflow, Outflow, Soon, decode
from rp_api.mesh.inproc import InprocPubSub, InprocQueue, Receiver, check_open, checked_credit
from rp_api.mesh.keys import LINGER, KeyPair, Tally
from rp_api.mesh.loop import Loop
from rp_api.mesh.message import encode
from rp_api.mesh.pubsub import Publisher, Subscriber

__all__ = ['Getter', 'InprocPubSub', 'InprocQueue', 'Publisher', 'Putter', 'QueueGetter', 'QueuePutter',
           'Subscriber']

class Putter(Protocol):
    """Where items go into a queue."""

    @property
    def pending(self) -> int: ...
    def put(self, items: list[Any]) -> None: ...
    def close(self, linger: float = LINGER) -> None: ...


class Getter(Protocol):
    """Where items come out of a queue."""

    def done(self, count: int) -> None: ...
    def close(self, linger: float = LINGER) -> None: ...


class _QueueEnd(ABC):
    """What putter and getter have in common: a connection to the bridge, and the messages on it."""

    _role = ''

    def __init__(self, loop: Loop, address: str, keys: KeyPair, server_public: bytes, name: str,
                 context: zmq.Context[Any] | None, refused: Refused) -> None:
        self.name = name
        self._refused = refused
        self._malformed = Tally(f'malformed message from {address}')
        self._closed = False
        self._connection = Connection(loop, zmq.DEALER, address, keys, server_public, context,
                                      self._receive, self._greet, refused)
        socket = self._connection.socket
        socket.sndhwm = socket.rcvhwm = 0   # credit bounds what is under way
        # the bridge must know this end again when the connection was lost and came back
        socket.setsockopt(zmq.ROUTING_ID, b'q' + os.urandom(16))
        self._connection.open()

    @abstractmethod
    def _progress(self) -> tuple[int, int, int]:
        """Received, done and allowed of this end."""

    def _greet(self) -> None:
        self._send('hello', VERSION, self._role, self.name, *self._progress())

    def _send(self, kind: str, *fields: Any) -> None:
        # there is no connection to send on only after a refusal, which has been reported
        with suppress(zmq.Again):
            self._connection.socket.send(encode(kind, *fields), zmq.NOBLOCK)

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            try:
                kind, fields = decode(b''.join(frames))
                handler = getattr(self, f'_on_{kind}', None)
                if handler is None:
                    raise CoordinationError(f'malformed message: {kind!r} is not for this side')
            except CoordinationError as error:
                self._malformed.add(error)
            else:
                handler(*fields)

    def _on_refuse(self, reason: str) -> None:
        self._refused(reason)


class QueuePutter(_QueueEnd):
    """Puts items into the queue of a bridge. What the bridge has no room for waits here."""

    _role = 'put'

    def __init__(self, loop: Loop, address: str, keys: KeyPair, server_public: bytes, *, name: str = '',
                 context: zmq.Context[Any] | None = None, refused: Refused = refuse_loudly) -> None:
        self._backlog = Backlog()
        self._lock = threading.Lock()   # for the backlog, which `put` fills from any thread
        self._flow = Outflow()
        self._flush_soon = Soon(loop, self._flush)
        super().__init__(loop, address, keys, server_public, name, context, refused)

    @property
    def pending(self) -> int:
        """How many items the bridge has not taken over yet."""
        return len(self._backlog) + len(self._flow.given)

    def put(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items, which are packed before this returns; TypeError or ValueError for what cannot travel."""
        check_open(self._closed, 'putter')
        segments = [pack_bulk(items[first:first + BULK]) for first in range(0, len(items), BULK)]
        for shared, bodies in segments:
            size = max(len(shared), *map(len, bodies))
            if size > MAX_ITEM:
                raise ValueError(f'an item of {size} bytes is too large for a queue: at most {MAX_ITEM} are '
                                 'allowed')
        with self._lock:
            for segment in segments:
                self._backlog.add(*segment)
        self._flush_soon()

    def close(self, linger: float = LINGER) -> None:
        """Leave; all that is pending goes to the bridge, which takes it even without credit."""
        if self._closed:
            return
        self._closed = True
        self._flow.allowed = self._flow.sent + len(self._backlog)
        self._flush()
        self._send('bye', 0)
        self._connection.close(linger)

    def _progress(self) -> tuple[int, int, int]:
        return self._flow.done, self._flow.done, 0

    def _flush(self) -> None:
        while self._backlog and self._flow.free > 0:
            with self._lock:
                segment = self._backlog.take(min(self._flow.free, BULK))
            self._send('items', self._flow.send(*segment), *segment)

    def _on_grant(self, done: int, allowed: int) -> None:
        try:
            self._flow.grant(done, allowed)
        except CoordinationError as error:
            self._malformed.add(error)
        self._flush_soon()

    def _on_sync(self, received: int, done: int, allowed: int) -> None:
        self._on_grant(done, allowed)
        for first, shared, bodies in self._flow.missing(received):
            self._send('items', first, shared, bodies)


class QueueGetter(_QueueEnd):
    """Gets items from the queue of a bridge, at most `credit` that are not done."""

    _role = 'get'

    def __init__(self, loop: Loop, address: str, keys: KeyPair, server_public: bytes, receiver: Receiver,
                 credit: int, *, name: str = '', context: zmq.Context[Any] | None = None,
                 refused: Refused = refuse_loudly) -> None:
        self._receiver = receiver
        self._flow = Inflow(checked_credit(credit))
        self._grant_soon = Soon(loop, self._grant)
        super().__init__(loop, address, keys, server_public, name, context, refused)

    def done(self, count: int) -> None:
        """Take the `count` oldest items over for good, so that new ones may come; ValueError for too many."""
        self._flow.finish(count)
        self._grant_soon()

    def close(self, linger: float = LINGER) -> None:
        """Leave; the bridge gives the items that are not done to others."""
        if self._closed:
            return
        self._closed = True
        self._send('bye', self._flow.done)
        self._connection.close(linger)

    def _progress(self) -> tuple[int, int, int]:
        self._flow.renew()
        return self._flow.received, self._flow.done, self._flow.allowed

    def _grant(self) -> None:
        if not self._closed:
            _, done, allowed = self._progress()
            self._send('grant', done, allowed)

    def _on_items(self, first: int, shared: bytes, bodies: list[bytes]) -> None:
        fresh = self._flow.accept(first, bodies)
        if fresh is None:
            self._send('sync', *self._progress())
            return
        try:
            items = unpack_bulk(shared, fresh)
        except CoordinationError as error:
            self._malformed.add(f'{error} ({len(fresh)} items are lost)')
            self.done(len(fresh))
        else:
            if items:
                self._receiver(items)
