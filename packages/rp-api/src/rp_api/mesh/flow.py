"""The flow of items over one link, as plain objects: what waits, what is under way, how much may be sent.

The items of a link are numbered from 0 in the order in which they are sent. The receiving side says how far
it is: `received` (how many items arrived), `done` (how many of them it took over for good) and `allowed` (up
to which number it takes items at all: that is the credit). These are totals, not differences, so that saying
them twice does no harm and a lost message is made good by the next one. The sending side keeps what is not
done, and sends it again when the other side turns out not to have it: a connection that breaks and comes
back loses nothing and doubles nothing.

A message is one msgpack list, a kind and the fields that `_SHAPES` gives for it:
`hello` a peer (re)connected: protocol version, role ('put' or 'get'), name, and its received, done, allowed
`items` the number of the first item, and a bulk (see `codec.pack_bulk`)
`grant` done and allowed of the receiving side
`sync`  the same after received, when that may be news: the sending side sends the items from there on again
`bye`   a peer leaves; done of the receiving side
`refuse` a peer cannot be served, and why
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from rp_api.errors import CoordinationError
from rp_api.mesh import message
from rp_api.mesh.loop import Loop

VERSION = 1               # of the messages between queue ends and bridges
BULK = 1024               # items of the largest bulk that travels in one message
BULK_BYTES = 8 << 20      # bytes of items after which a bulk takes no further one
MAX_ITEM = 64 << 20       # bytes of the largest item: shared part, bulk and its last item fit a message

_SHAPES: message.Shapes = {
    'hello': (int, str, str, int, int, int), 'items': (int, bytes, list), 'grant': (int, int),
    'sync': (int, int, int), 'bye': (int,), 'refuse': (str,)}

Segment = tuple[bytes, list[bytes]]
"""Items as they travel: their shared part, and one body for each."""


def decode(data: bytes) -> tuple[str, list[Any]]:
    """Kind and fields of a message; CoordinationError if it is not one of those listed above."""
    return message.decode(data, _SHAPES)


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

    def put_back(self, other: Backlog) -> None:
        """Insert the items of another backlog before all others."""
        self._segments.extendleft(reversed(other._segments))
        self._count += len(other)

    def take(self, limit: int) -> Segment:
        """Remove and give the first items: at least one, at most `limit` and about the bytes of a bulk."""
        shared, bodies = self._segments.popleft()
        count = _fitting(bodies, limit)
        if count < len(bodies):
            self._segments.appendleft((shared, bodies[count:]))
        self._count -= count
        return shared, bodies[:count]

    def take_last(self) -> Segment:
        """Remove and give the items that were added last."""
        segment = self._segments.pop()
        self._count -= len(segment[1])
        return segment

    def drop(self, count: int) -> None:
        """Remove the first `count` items."""
        while count > 0:
            count -= len(self.take(count)[1])


class Outflow:
    """The sending side of a link: what was sent and is not done yet, and how much more may be sent."""

    __slots__ = ('allowed', 'done', 'given', 'sent')

    def __init__(self, base: int = 0) -> None:
        self.sent = self.done = self.allowed = base
        self.given = Backlog()

    @property
    def free(self) -> int:
        """How many more items may be sent now."""
        return self.allowed - self.sent

    def send(self, shared: bytes, bodies: list[bytes]) -> int:
        """Note that these items are sent; gives the number of the first one."""
        first = self.sent
        self.sent += len(bodies)
        self.given.add(shared, bodies)
        return first

    def unsend(self) -> Segment:
        """Take back what was sent last, because it did not leave; nothing more may be sent until a grant."""
        segment = self.given.take_last()
        self.sent -= len(segment[1])
        self.allowed = self.sent
        return segment

    def grant(self, done: int, allowed: int) -> None:
        """Take the word of the receiving side; CoordinationError if it cannot be true."""
        if done > self.sent:
            raise CoordinationError(f'malformed message: {done} items done of {self.sent} that were sent')
        if done > self.done:
            self.given.drop(done - self.done)
            self.done = done
        self.allowed = allowed

    def missing(self, received: int) -> Iterator[tuple[int, bytes, list[bytes]]]:
        """The items that the receiving side does not have, with the number of the first one of each bulk."""
        first = self.done
        for shared, bodies in self.given:
            skip = max(0, received - first)
            if skip < len(bodies):
                yield first + skip, shared, bodies[skip:]
            first += len(bodies)


class Inflow:
    """The receiving side of a link: how far it is, and up to which number it was announced to take items."""

    __slots__ = ('_credit', '_told', 'allowed', 'done', 'received')

    def __init__(self, credit: int, base: int = 0) -> None:
        self._credit = credit
        self.received = self.done = base
        self.allowed = base + credit
        self._told = (self.done, self.allowed)

    def accept(self, first: int, bodies: list[bytes]) -> list[bytes] | None:
        """Those of the items that are new; None if some before them did not arrive, so that a sync is due."""
        if first > self.received:
            return None
        fresh = bodies[self.received - first:]
        self.received += len(fresh)
        return fresh

    def finish(self, count: int) -> None:
        """Take `count` received items over for good."""
        if not 0 <= count <= self.received - self.done:
            raise ValueError(f'{count} items cannot be done: {self.received - self.done} are under way')
        self.done += count

    def renew(self) -> None:
        """Allow the full credit again; to be announced."""
        self.allowed = self.done + self._credit

    def has_news(self) -> bool:
        """Whether done or allowed are others than at the last time that this was asked."""
        told, self._told = self._told, (self.done, self.allowed)
        return told != self._told


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


class Taker(Protocol):
    """Something that has room for items."""

    @property
    def free(self) -> int: ...


Key = TypeVar('Key')
AnyTaker = TypeVar('AnyTaker', bound=Taker)


def deal(takers: dict[Key, AnyTaker], waiting: Callable[[], int],
         give: Callable[[Key, AnyTaker, int], None]) -> None:
    """Give out what waits in even shares to those that have room, in turns that go on with the next call."""
    while waiting():
        ready = [key for key, taker in takers.items() if taker.free > 0]
        if not ready:
            return
        for served, key in enumerate(ready):
            count = waiting()
            if not count:
                return
            taker = takers[key] = takers.pop(key)   # who was served moves to the end
            give(key, taker, min(taker.free, BULK, -(-count // (len(ready) - served))))


def _fitting(bodies: list[bytes], limit: int) -> int:
    """How many of the first bodies make a bulk of at most `limit` items; the last may go over the bytes."""
    limit = min(limit, len(bodies))
    size = 0
    for count, body in enumerate(bodies[:limit], 1):
        size += len(body)
        if size >= BULK_BYTES:
            return count
    return limit
