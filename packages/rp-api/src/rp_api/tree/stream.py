"""Two-way streams between one process, the root, and many others, the nodes: what travels, as plain objects.

A stream carries items both ways. Those of each direction are numbered from 0; whoever sends keeps an item until the
other side has said that it is there, and sends it again if it turns out not to be. So what lies in between may lose
messages, as long as each side learns of it by and by: after each new connection a node says hello, and a number that
comes too early shows a gap. There is no credit: who uses a stream has no more on its way than it has asked for.

An *envelope* is the name of a node, which it comes from or goes to, and a message; an empty one is a sign of life. What
travels over a connection is a packet of envelopes. A message is one msgpack list, a kind and the fields of `_FORMS`:

`hello` a node has (re)connected: version, and how many items it has received
`welcome` the answer: how many items the root has received, and where to connect to instead, or nothing
`items` how many items the sender has received, the number of the first item, and a bulk (see `codec.pack_bulk`)
`sync`  how many items the sender has received, when some after that were lost
`relay` a node lets others connect to this address, and passes their envelopes on
`again` what was sent may have been lost on the way: say hello
`gone`  the node, which is not the sender, has lost its connection
`forgotten` the root has no more to do with the node
`clock` a node on another host asks for the time, and says what time it has; the answer is `time`: that, and the root's
`moment` a moment that the node has recorded in its profile: how it is called, and when it was for the root
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.transport.resend import ResendQueue
from rp_api.wire import form
from rp_api.wire.codec import pack, pack_bulk, unpack, unpack_bulk
from rp_api.wire.form import is_bytes, is_number, is_text

VERSION = 1   # of the messages between root and nodes

Envelope = tuple[str, bytes]

ALIVE = b''
"""The message that is only a sign of life."""

INTERVAL = 10.0
"""Seconds between two signs of life."""

HEARTBEAT_TIMEOUT = 60.0
"""Seconds without a sign of life after which a node is lost."""

BULK = 1024
"""Items of the largest bulk that travels in one message."""

BULK_BYTES = 8 << 20
"""Bytes of items from which on a bulk takes no further one."""

_PACKET = 8 << 20   # bytes of messages after which a packet takes no further one


def _is_bulk(value: Any) -> bool:
    return type(value) is list and {*map(type, value)} == {bytes}


_FORMS: form.Table = {
    'hello': (is_number, is_number), 'welcome': (is_number, is_text),
    'items': (is_number, is_number, is_bytes, _is_bulk), 'sync': (is_number,), 'relay': (is_text,), 'again': (),
    'gone': (), 'forgotten': (), 'clock': (is_number,), 'time': (is_number, is_number), 'moment': (is_text, is_number)}


def encode(kind: str, *fields: Any) -> bytes:
    """A message as bytes."""
    return pack([kind, *fields])


def decode(data: bytes) -> tuple[str, list[Any]]:
    """Kind and fields of a message; CoordinationError if it is not one of those listed above."""
    return form.parse(data, _FORMS, 'the other end')


def pack_envelopes(envelopes: Iterable[Envelope]) -> Iterator[bytes]:
    """Envelopes as packets, of which none is too large."""
    packet: list[str | bytes] = []
    size = 0
    for envelope in envelopes:
        packet += envelope
        size += len(envelope[1])
        if size >= _PACKET:
            yield pack(packet)
            packet, size = [], 0
    if packet:
        yield pack(packet)


def unpack_envelopes(data: bytes) -> list[Envelope]:
    """The envelopes of a packet; CoordinationError if it is none."""
    packet = unpack(data)
    if not isinstance(packet, list) or len(packet) % 2:
        raise CoordinationError('malformed packet: it is no list of names and messages')
    names, messages = packet[::2], packet[1::2]
    if not {*map(type, names)} <= {str} or not {*map(type, messages)} <= {bytes}:
        raise CoordinationError('malformed packet: it is no list of names and messages')
    return list(zip(names, messages, strict=True))


class Stream:
    """One end of a stream."""

    __slots__ = ('_sent', 'received')

    def __init__(self) -> None:
        self._sent = ResendQueue[tuple[int, bytes, list[bytes]]]()   # bulks after so many items
        self.received = 0
        """How many items have come."""

    def put(self, items: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """The messages that bring these items; TypeError or ValueError for what cannot travel."""
        packed = [pack_bulk(items[first:first + BULK]) for first in range(0, len(items), BULK)]
        messages = []
        for shared, bodies in packed:
            for part in _parts(bodies):
                messages.append(encode('items', self.received, self._sent.sent, shared, part))
                self._sent.add((self._sent.sent, shared, part), len(part))
        return messages

    def take(self, there: int, first: int, shared: bytes, bodies: list[bytes]) -> list[dict[str, Any]] | None:
        """The new ones of the items that have come; None if some before them are missing."""
        self._acknowledge(there)
        if first > self.received:
            return None
        fresh = bodies[self.received - first:]
        self.received += len(fresh)
        return unpack_bulk(shared, fresh) if fresh else []

    def missing(self, there: int) -> list[bytes]:
        """The messages that bring what the other side, which has received so many items, does not have."""
        self._acknowledge(there)
        messages = []
        for first, shared, bodies in self._sent:
            known = max(0, self._sent.acknowledged - first)
            messages.append(encode('items', self.received, first + known, shared, bodies[known:]))
        return messages

    def _acknowledge(self, there: int) -> None:
        if there > self._sent.sent:
            raise CoordinationError(f'malformed message: {there} items received of {self._sent.sent} that were sent')
        self._sent.acknowledge(there)


def _parts(bodies: list[bytes]) -> Iterator[list[bytes]]:
    """The bodies in order, in parts that end when they have enough bytes."""
    first = size = 0
    for last, body in enumerate(bodies, 1):
        size += len(body)
        if size >= BULK_BYTES or last == len(bodies):
            yield bodies[first:last]
            first, size = last, 0
