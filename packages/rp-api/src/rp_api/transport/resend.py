"""Resending of messages after the loss of a connection: they are numbered, and kept until they are acknowledged.

`ResendQueue` is the sending side of all such connections, whatever the form of the messages. A connection that breaks
loses the last messages, so the receiver drops a message after a gap: it is resent.

Both ends of the connection between an agent and a RAPTOR master have a `Resender`, which determines the messages to
send and to accept; it has no socket. The number of a message is a frame of its own there. Messages without a number are
accepted in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from rp_api.errors import CoordinationError

OFTEN = 16
"""Number of messages after which an acknowledgement is sent."""

_NUMBER = 8   # bytes

Message = TypeVar('Message')


class ResendQueue(Generic[Message]):
    """The unacknowledged messages of one direction, in the order of sending.

    Messages are numbered from 1. A message with several items has as many numbers, and is kept until the last of them
    is acknowledged.
    """

    __slots__ = ('_kept', 'acknowledged', 'sent')

    def __init__(self) -> None:
        self.sent = 0
        """The number of the last message."""
        self.acknowledged = 0
        """The number of the last acknowledged message."""
        self._kept: deque[tuple[int, Message]] = deque()

    def __len__(self) -> int:
        """Return the number of kept messages."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the kept messages."""
        return (message for _, message in self._kept)

    def add(self, message: Message, numbers: int = 1) -> None:
        """Keep a message, which gets the next number or numbers."""
        self.sent += numbers
        self._kept.append((self.sent, message))

    def acknowledge(self, number: int) -> None:
        """Drop all messages up to this number, which the other side has; outdated acknowledgements have no effect."""
        self.acknowledged = max(self.acknowledged, min(number, self.sent))
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()


class Resender:
    """The messages of one side: those sent, and the number of those received."""

    def __init__(self) -> None:
        self.heard = 0
        """The number of the last received message."""
        self._told = 0
        self._said = ResendQueue[list[bytes]]()

    def say(self, data: bytes) -> list[bytes]:
        """Keep a message, and return its frames."""
        frames = [(self._said.sent + 1).to_bytes(_NUMBER, 'big'), data]
        self._said.add(frames)
        return frames

    def hear(self, frames: Sequence[bytes]) -> bytes | None:
        """Return the message in these frames; None for a duplicate, and after a gap."""
        if len(frames) == 1:
            return frames[0]
        if len(frames) != 2 or len(frames[0]) != _NUMBER:
            raise CoordinationError(f'malformed message: {len(frames)} frames')
        if int.from_bytes(frames[0], 'big') != self.heard + 1:
            return None
        self.heard += 1
        return frames[1]

    def to_tell(self) -> int:
        """Return the number to acknowledge, if an acknowledgement is due; else 0."""
        if self.heard - self._told < OFTEN:
            return 0
        self._told = self.heard
        return self.heard

    def has_come(self, number: int) -> None:
        """Drop all messages up to this number, which the other side has."""
        self._said.acknowledge(number)

    def again(self, number: int) -> list[list[bytes]]:
        """Return the frames of all messages after this number, to resend them."""
        self._said.acknowledge(number)
        return list(self._said)
