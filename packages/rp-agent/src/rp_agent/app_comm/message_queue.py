"""The state of one queue: messages, and the peers that wait for messages or for room; without I/O.

Rules of this file:

- A message belongs to the queue from its acceptance until a getter has acknowledged it. If that getter is lost before,
  the message goes back to the head of the queue.
- Peers repeat requests after the loss of a connection. A request keeps its number, which makes repetition harmless.
- A full queue refuses messages. When it has room again, the putters are told whose message fits, and send it again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

MAX_MESSAGES = 16384
"""Messages in a queue at most."""

MAX_BYTES = 64 << 20
"""Bytes of the messages in a queue at most; a larger message is accepted by an empty queue."""

_REMEMBERED = 65536
"""Putters whose last number is remembered."""


class Delivery(NamedTuple):
    """A message for a getter, as the answer to its request of that number."""

    getter: bytes
    number: int
    message: bytes


class MessageQueue:
    """A queue with limits; putters and getters are known by the identities of their sockets."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._accepted: OrderedDict[bytes, int] = OrderedDict()   # last number of each putter, accepted or cancelled
        self._putters: dict[bytes, tuple[int, int]] = {}   # that wait for room: number and size of their message
        self._getters: dict[bytes, int] = {}   # that wait for a message, the longest wait first
        self._unacknowledged: dict[bytes, Delivery] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def peers(self) -> set[bytes]:
        """The peers whose loss matters."""
        return {*self._putters, *self._getters, *self._unacknowledged}

    def put(self, putter: bytes, number: int, message: bytes) -> bool:
        """Accept a message, or return False if the queue is full: the putter is told when it has room."""
        if self._accepted.get(putter, 0) >= number:   # repeated
            return True
        if self._messages and (len(self._messages) >= self._max_messages
                               or self._bytes + len(message) > self._max_bytes):
            self._putters[putter] = number, len(message)
            return False
        self._putters.pop(putter, None)
        self._settle(putter, number)
        self._messages.append(message)
        self._bytes += len(message)
        return True

    def get(self, getter: bytes, number: int) -> Delivery | None:
        """Have a getter wait for a message; a repeated request returns the message that was sent already."""
        sent = self._unacknowledged.get(getter)
        if sent is not None and sent.number == number:
            return sent
        self.got(getter, number - 1)
        self._getters[getter] = number
        return None

    def got(self, getter: bytes, number: int) -> None:
        """Remove the message that a getter has acknowledged."""
        sent = self._unacknowledged.get(getter)
        if sent is not None and sent.number <= number:
            del self._unacknowledged[getter]

    def cancel(self, peer: bytes, number: int) -> bool:
        """Cancel a request; return False if its answer is on its way."""
        sent = self._unacknowledged.get(peer)
        if (sent is not None and sent.number == number) or self._accepted.get(peer, 0) >= number:
            return False
        self._getters.pop(peer, None)
        self._putters.pop(peer, None)
        self._settle(peer, number)   # a repetition may still be on its way
        return True

    def lost(self, peer: bytes) -> None:
        """Forget a peer; the message that it has not acknowledged goes to another one."""
        self._getters.pop(peer, None)
        self._putters.pop(peer, None)
        sent = self._unacknowledged.pop(peer, None)
        if sent is not None:
            self._messages.appendleft(sent.message)
            self._bytes += len(sent.message)

    def deliver(self) -> Delivery | None:
        """Return the next message and the getter to send it to, if there are both."""
        if not self._messages or not self._getters:
            return None
        getter = next(iter(self._getters))
        message = self._messages.popleft()
        self._bytes -= len(message)
        sent = self._unacknowledged[getter] = Delivery(getter, self._getters.pop(getter), message)
        return sent

    def have_room(self) -> list[tuple[bytes, int]]:
        """Return the putters whose message fits, with the number of the request, if a quarter of the queue is free."""
        if not self._putters or (len(self._messages) * 4 > self._max_messages * 3
                                 or (self._messages and self._bytes * 4 > self._max_bytes * 3)):
            return []
        found = [(putter, number) for putter, (number, size) in self._putters.items()
                 if not self._messages or self._bytes + size <= self._max_bytes]
        for putter, _ in found:
            del self._putters[putter]
        return found

    def _settle(self, peer: bytes, number: int) -> None:
        """Ignore further requests of a peer up to this number to put a message."""
        self._accepted[peer] = number
        self._accepted.move_to_end(peer)
        if len(self._accepted) > _REMEMBERED:
            self._accepted.popitem(last=False)
