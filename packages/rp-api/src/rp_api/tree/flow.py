"""One direction of a stream as plain objects: the items that wait, and those that may have to be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop

BULK = 1024               # items of the largest bulk that travels in one message
BULK_BYTES = 8 << 20      # bytes of items after which a bulk takes no further one

Segment = tuple[bytes, list[bytes]]
"""Items as they travel: their shared part, and one body for each."""


class Backlog:
    """Items in order, each with the shared part it came with."""

    __slots__ = ('_count', '_segments')

    def __init__(self) -> None:
        self._segments: deque[Segment] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def add(self, shared: bytes, bodies: list[bytes]) -> None:
        """Append items."""
        if bodies:
            self._segments.append((shared, bodies))
            self._count += len(bodies)

    def take(self, limit: int) -> Segment:
        """Remove and give the first items: at least one, at most `limit` and about the bytes of a bulk."""
        shared, bodies = self._segments.popleft()
        count = _fitting(bodies, limit)
        if count < len(bodies):
            self._segments.appendleft((shared, bodies[count:]))
        self._count -= count
        return shared, bodies[:count]

    def drop(self, count: int) -> None:
        """Remove the first `count` items."""
        while count > 0:
            count -= len(self.take(count)[1])


class Outflow:
    """The items that were sent: how many there were, and those that the other side has not received yet."""

    __slots__ = ('_kept', 'received', 'sent')

    def __init__(self) -> None:
        self.sent = self.received = 0
        self._kept = Backlog()

    def send(self, shared: bytes, bodies: list[bytes]) -> int:
        """Note that these items are sent; gives the number of the first one."""
        first = self.sent
        self.sent += len(bodies)
        self._kept.add(shared, bodies)
        return first

    def acknowledge(self, received: int) -> None:
        """Forget what the other side has received; CoordinationError if it was not sent."""
        if received > self.sent:
            raise CoordinationError(f'malformed message: {received} items received of {self.sent} that were sent')
        if received > self.received:
            self._kept.drop(received - self.received)
            self.received = received

    def missing(self) -> Iterator[tuple[int, bytes, list[bytes]]]:
        """The items that the other side has not received, with the number of the first one of each bulk."""
        first = self.received
        for shared, bodies in self._kept:
            yield first, shared, bodies
            first += len(bodies)


class Soon:
    """Calls a function once in the loop's thread, however often it is asked to before that; thread-safe."""

    __slots__ = ('_due', '_function', '_loop')

    def __init__(self, loop: Loop, function: Callable[[], object]) -> None:
        self._loop = loop
        self._function = function
        self._due = False

    def __call__(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._due = False   # before the call, so that what comes in meanwhile asks again
        self._function()


def _fitting(bodies: list[bytes], limit: int) -> int:
    """How many of the first bodies make a bulk of at most `limit` items; the last may go over the bytes."""
    limit = min(limit, len(bodies))
    size = 0
    for count, body in enumerate(bodies[:limit], 1):
        size += len(body)
        if size >= BULK_BYTES:
            return count
    return limit
