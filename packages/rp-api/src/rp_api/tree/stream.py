"""Two-way streams of plain objects between one process, the root, and many others, the nodes.

A stream carries items in both directions, numbered from 0 in each. The sender keeps an item until the other side has
acknowledged it, and resends it if it was lost. So messages may be lost on the way, as long as each side notices: after
each new connection a node sends hello, and a number that is too large shows a gap. There is no flow control: users of a
stream limit the items in flight themselves.

An *envelope* is the name of a node, its source or destination, and a message; an empty message is a heartbeat. Packets
of envelopes are sent over connections. A message is one msgpack list, a kind and the fields of `_FORMS`:

`hello` a node has (re)connected: version, and number of items it has received
`welcome` the answer: number of items the root has received, and the address of a relay to connect to, or nothing
`items` number of items the sender has received, the number of the first item, and a bulk (see `codec.pack_bulk`)
`sync`  number of items the sender has received, when later ones were lost
`loose` an item without a number, which is not repeated if it is lost
`spread` to a relay: names of nodes that it reaches, perhaps with its own, and a message for each of them
`relay` a node accepts connections of others at this address, and forwards their envelopes
`again` messages may have been lost: send hello
`gone`  the node, which is not the sender, has lost its connection
`forgotten` the root has removed the node
`clock` a node on another host sends its time, and requests the root's; the answer is `time`: both of them
`moment` a moment that the node has recorded in its profile: its name, and its time by the root's clock
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.transport.resend import ResendQueue
from rp_api.wire import form
from rp_api.wire.codec import pack, pack_bulk, unpack, unpack_bulk
from rp_api.wire.form import is_bytes, is_number, is_text

VERSION = 2   # of the messages between root and nodes

Envelope = tuple[str, bytes]

ALIVE = b''
"""The message of a heartbeat."""

INTERVAL = 10.0
"""Seconds between two heartbeats."""

HEARTBEAT_TIMEOUT = 60.0
"""Seconds without a heartbeat after which a node is lost."""

BULK = 1024
"""Maximum number of items in one message."""

BULK_BYTES = 8 << 20
"""Size of a message in bytes after which no item is added."""

_PACKET = 8 << 20   # size of a packet in bytes after which no message is added


def _is_names(value: Any) -> bool:
    return type(value) is list and {*map(type, value)} == {str}


def _is_bulk(value: Any) -> bool:
    return type(value) is list and {*map(type, value)} == {bytes}


_FORMS: form.Table = {
    'hello': (is_number, is_number), 'welcome': (is_number, is_text),
    'items': (is_number, is_number, is_bytes, _is_bulk), 'sync': (is_number,), 'loose': (is_bytes,),
    'spread': (_is_names, is_bytes), 'relay': (is_text,), 'again': (), 'gone': (),
    'forgotten': (), 'clock': (is_number,), 'time': (is_number, is_number), 'moment': (is_text, is_number)}


def encode(kind: str, *fields: Any) -> bytes:
    """Return a message as bytes."""
    return pack([kind, *fields])


def decode(data: bytes) -> tuple[str, list[Any]]:
    """Return kind and fields of a message; raise CoordinationError if it is malformed."""
    return form.parse(data, _FORMS, 'the other end')


def pack_envelopes(envelopes: Iterable[Envelope]) -> Iterator[bytes]:
    """Yield envelopes as packets of limited size."""
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
    """Return the envelopes in a packet; raise CoordinationError if it is malformed."""
    packet = unpack(data)
    if not isinstance(packet, list) or len(packet) % 2:
        raise CoordinationError('malformed packet: it is not a list of names and messages')
    names, messages = packet[::2], packet[1::2]
    if not {*map(type, names)} <= {str} or not {*map(type, messages)} <= {bytes}:
        raise CoordinationError('malformed packet: it is not a list of names and messages')
    return list(zip(names, messages, strict=True))


class Stream:
    """One end of a stream."""

    __slots__ = ('_sent', 'received')

    def __init__(self) -> None:
        self._sent = ResendQueue[tuple[int, bytes, list[bytes]]]()   # number of the first item, and the bulk
        self.received = 0
        """Number of received items."""

    def put(self, items: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """Return the messages with these items; raise TypeError or ValueError if they cannot be packed."""
        packed = [pack_bulk(items[first:first + BULK]) for first in range(0, len(items), BULK)]
        messages = []
        for shared, bodies in packed:
            for part in _parts(bodies):
                messages.append(encode('items', self.received, self._sent.sent, shared, part))
                self._sent.add((self._sent.sent, shared, part), len(part))
        return messages

    def take(self, there: int, first: int, shared: bytes, bodies: list[bytes]) -> list[dict[str, Any]] | None:
        """Return the new ones of received items; None if some before them are missing."""
        self._acknowledge(there)
        if first > self.received:
            return None
        fresh = bodies[self.received - first:]
        self.received += len(fresh)
        return unpack_bulk(shared, fresh) if fresh else []

    def missing(self, there: int) -> list[bytes]:
        """Return the messages with all items after those that the other side has received."""
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
    """Yield the bodies in order, in parts of limited size."""
    first = size = 0
    for last, body in enumerate(bodies, 1):
        size += len(body)
        if size >= BULK_BYTES or last == len(bodies):
            yield bodies[first:last]
            first, size = last, 0
