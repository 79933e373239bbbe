"""The ends of publish/subscribe over ZeroMQ: a PUSH socket to the bridge, a SUB socket from it.

A publication has three frames: topic, publisher with running number per topic, message. The publisher pushes
instead of matching subscriptions itself, so that what it says before it is connected waits instead of being
dropped. The numbers tell a subscriber what it missed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.mesh.codec import pack, unpack
from rp_api.mesh.connection import Connection, Refused, arrivals, refuse_loudly
from rp_api.mesh.flow import Soon
from rp_api.mesh.inproc import TopicReceiver, check_open, checked_topic
from rp_api.mesh.keys import LINGER, KeyPair, Tally
from rp_api.mesh.loop import Loop

PUBLICATIONS = 65536
"""Publications that wait for a slow or absent peer; further ones are dropped and counted."""

KNOWN = 4096
"""Publishers and topics of which a subscriber remembers the last number; the oldest ones are forgotten first."""

READY = b'\0'
"""First byte of the topics on which a bridge tells a subscriber that its subscriptions are in force."""


class Publisher:
    """Publishes to the subscribers of a bridge; `dropped` counts what was lost while the bridge was away."""

    def __init__(self, loop: Loop, address: str, keys: KeyPair, server_public: bytes, *,
                 context: zmq.Context[Any] | None = None, refused: Refused = refuse_loudly) -> None:
        self._uid = os.urandom(8)
        self._numbers: dict[bytes, int] = {}
        self._outbox: deque[tuple[bytes, bytes]] = deque()
        self._dropped = Tally(f'dropped a publication to {address}')
        self._closed = False
        self._flush_soon = Soon(loop, self._flush)
        self._connection = Connection(loop, zmq.PUSH, address, keys, server_public, context,
                                      None, _nothing, refused)
        self._connection.socket.sndhwm = PUBLICATIONS
        self._connection.open()

    @property
    def dropped(self) -> int:
        """How many publications were dropped."""
        return self._dropped.count

    def publish(self, topic: str, message: Any) -> None:
        """Tell all subscribers of the topic. TypeError and ValueError for what cannot travel."""
        check_open(self._closed, 'publisher')
        self._outbox.append((_topic_frame(topic), pack(message)))
        self._flush_soon()

    def close(self, linger: float = LINGER) -> None:
        """Leave; what was published still goes to the bridge."""
        if not self._closed:
            self._closed = True
            self._flush()
            self._connection.close(linger)

    def _flush(self) -> None:
        while self._outbox:
            topic, body = self._outbox.popleft()
            number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
            try:
                self._connection.socket.send_multipart([topic, pack([self._uid, number]), body], zmq.NOBLOCK)
            except zmq.Again:
                self._dropped.add('too many wait already')


class Subscriber:
    """Hears what is published on some topics of a bridge; `lost` counts what did not arrive."""

    def __init__(self, loop: Loop, address: str, keys: KeyPair, server_public: bytes, topics: Iterable[str],
                 receiver: TopicReceiver, *, live: Callable[[], object] | None = None,
                 context: zmq.Context[Any] | None = None, refused: Refused = refuse_loudly) -> None:
        """`live` is called by the loop once the bridge has the subscriptions: nothing more can be missed."""
        self.lost = 0
        self._live = live
        self._receiver = receiver
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._malformed = Tally(f'malformed or missing publication from {address}')
        self._closed = False
        frames = [_topic_frame(topic) for topic in topics]
        self._connection = Connection(loop, zmq.SUB, address, keys, server_public, context,
                                      self._receive, _nothing, refused)
        self._connection.socket.rcvhwm = PUBLICATIONS
        for frame in (*frames, READY + os.urandom(16)):   # the last one, so that its answer speaks for all
            self._connection.socket.subscribe(frame)
        self._connection.open()

    def close(self, linger: float = LINGER) -> None:
        """Hear no more."""
        if not self._closed:
            self._closed = True
            self._connection.close(linger)

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            if frames[0].startswith(READY):
                live, self._live = self._live, None
                if live:
                    live()
                continue
            try:
                topic, message = self._opened(frames)
            except (CoordinationError, ValueError, TypeError) as error:
                self._malformed.add(error)
            else:
                self._receiver(topic, message)

    def _opened(self, frames: list[bytes]) -> tuple[str, Any]:
        """Topic and message of a publication; also counts those that are missing before it."""
        topic, head, body = frames
        uid, number = unpack(head)
        if type(uid) is not bytes or type(number) is not int or number < 1:
            raise CoordinationError('malformed message: a publisher and its running number are needed')
        publication = topic[:-1].decode(), unpack(body)
        expected = self._numbers.pop((uid, topic), number - 1) + 1
        self._numbers[uid, topic] = max(number, expected - 1)
        if len(self._numbers) > KNOWN:
            del self._numbers[next(iter(self._numbers))]
        if number < expected:
            raise CoordinationError(f'publication {number} has been here before')
        if number > expected:
            self.lost += number - expected
            self._malformed.add(f'{number - expected} missing')
        return publication


def _topic_frame(topic: str) -> bytes:
    """The topic as it travels; subscriptions are prefixes, the zero byte keeps them to this very topic."""
    return checked_topic(topic).encode() + b'\0'


def _nothing() -> None:
    """Being connected is no news to those who only send or only listen."""
