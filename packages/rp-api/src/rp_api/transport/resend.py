"""Messages that outlast their connection: numbered, kept until they are acknowledged, and sent again.

`ResendQueue` is the sending side, whatever the form of the messages: everybody who resends has one. A connection that
breaks loses the messages that were sent last, so the other side drops one that follows on a gap: it comes again.

Both ends of a connection between an agent and a RAPTOR master have a `Resender`, which says what is to be sent and what
counts; it has no socket. The number of a message is a frame of its own there. Messages without a number are taken as
they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from rp_api.errors import CoordinationError

OFTEN = 16
"""Messages after which the other side is told that they have come."""

_NUMBER = 8   # bytes of a number

Message = TypeVar('Message')


class ResendQueue(Generic[Message]):
    """The messages of one direction that may have to be sent again, in the order in which they were sent.

    Messages are numbered from 1. One that brings several items has as many numbers, and is kept until the last of them
    is acknowledged.
    """

    __slots__ = ('_kept', 'acknowledged', 'sent')

    def __init__(self) -> None:
        self.sent = 0
        """The number of the last message."""
        self.acknowledged = 0
        """The number of the last one that the other side has."""
        self._kept: deque[tuple[int, Message]] = deque()

    def __len__(self) -> int:
        """How many messages are kept."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Message]:
        """The messages that are kept."""
        return (message for _, message in self._kept)

    def add(self, message: Message, numbers: int = 1) -> None:
        """Keep a message, which gets the next number or numbers."""
        self.sent += numbers
        self._kept.append((self.sent, message))

    def acknowledge(self, number: int) -> None:
        """The other side has all messages up to this number: forget them. One that was true once changes nothing."""
        self.acknowledged = max(self.acknowledged, min(number, self.sent))
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()


class Resender:
    """What was said and heard on one side."""

    def __init__(self) -> None:
        self.heard = 0
        """The number of the last message that has come."""
        self._told = 0
        self._said = ResendQueue[list[bytes]]()

    def say(self, data: bytes) -> list[bytes]:
        """The frames of a message, which is kept."""
        frames = [(self._said.sent + 1).to_bytes(_NUMBER, 'big'), data]
        self._said.add(frames)
        return frames

    def hear(self, frames: Sequence[bytes]) -> bytes | None:
        """The message in these frames; None if it came before, or one before it did not come."""
        if len(frames) == 1:
            return frames[0]
        if len(frames) != 2 or len(frames[0]) != _NUMBER:
            raise CoordinationError(f'malformed message: {len(frames)} frames')
        if int.from_bytes(frames[0], 'big') != self.heard + 1:
            return None
        self.heard += 1
        return frames[1]

    def to_tell(self) -> int:
        """The number of the last message that has come, if it is time to tell the other side; else 0."""
        if self.heard - self._told < OFTEN:
            return 0
        self._told = self.heard
        return self.heard

    def has_come(self, number: int) -> None:
        """The other side has all messages up to this one."""
        self._said.acknowledge(number)

    def again(self, number: int) -> list[list[bytes]]:
        """The frames of all messages after this one, the last that has come: they are to be sent again."""
        self._said.acknowledge(number)
        return list(self._said)
