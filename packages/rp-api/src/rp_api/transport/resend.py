"""Messages that outlast their connection: each has a number, is kept until the other side has it, and is sent again.

Both sides of a connection have a `Lasting`. It says what is to be sent and what counts; it has no socket. A connection
may lose messages when it breaks, those that were sent last, so a message that follows on a gap is dropped: it comes
again. Messages without a number are taken as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rp_api.errors import CoordinationError

OFTEN = 16
"""Messages after which the other side is told that they have come."""

_NUMBER = 8   # bytes of a number


class Lasting:
    """What was said and heard on one side."""

    def __init__(self) -> None:
        self.heard = 0
        """The number of the last message that has come."""
        self._said = self._told = 0
        self._kept: deque[tuple[int, list[bytes]]] = deque()

    def say(self, data: bytes) -> list[bytes]:
        """The frames of a message, which is kept."""
        self._said += 1
        frames = [self._said.to_bytes(_NUMBER, 'big'), data]
        self._kept.append((self._said, frames))
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
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()

    def again(self, number: int) -> list[list[bytes]]:
        """The frames of all messages after this one, the last that has come: they are to be sent again."""
        self.has_come(number)
        return [frames for _, frames in self._kept]
