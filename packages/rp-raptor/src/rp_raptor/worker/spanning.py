"""Calls over more ranks than one node has: the first manager of the worker coordinates them, one at a time.

Such a call needs all ranks of the first nodes, and some of a further one. Each manager reserves the ranks as for its
own calls of several ranks. When all have them, the call starts on all nodes. So calls cannot wait for each other in a
circle. The managers tell each other, through the master:

    reserve, id, count            from the first one: reserve so many ranks
    release, id                   from the first one: the call is not started
    reserved, id, numbers         to the first one: these ranks wait for the call
    start, id, payload, timeout, numbers, tag
                                  from the first one: run it; the numbers are those of all its ranks
    parts, id, {number: payload}  to the first one: results of ranks, all of the node or the first that has failed
    cancel, id                    from the first one: cancel the call
    give_up, id                   from the first one: kill the ranks that still run it, as another one has failed

When the MPI job ends, the first manager repeats the call or reports its death; the others forget it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rp_raptor.wire.large_calls import with_contents
from rp_raptor.wire.parts import Part
from rp_raptor.wire.payload import as_result, is_error, join_parts, kind_of
from rp_raptor.worker.interrupts import Port
from rp_raptor.worker.rank_queue import Call, RankQueue

Tell = Callable[[int, list[Any]], object]
"""Sends a message to the manager of that part."""

MESSAGES = ('reserve', 'release', 'reserved', 'start', 'parts', 'cancel', 'give_up')

GROUP_GRACE = 10.0
"""Seconds that the other ranks of an MPI call have to end after one has failed."""

_TAGS = 1 << 14   # MPI guarantees tags up to 32767


class Ranks(Protocol):
    """The ranks of a node, as calls over several nodes use them."""

    def deal(self) -> None:
        """Distribute calls, and reserve ranks."""

    def start_together(self, group: Group, timeout: float) -> None:
        """Send a call to its group of ranks."""

    def disband(self, group: Group) -> None:
        """Release the ranks of a group."""

    def interrupt(self, id: int) -> None:
        """Cancel a running call."""

    def give_up(self, group: Group) -> None:
        """Kill the ranks of a group that still run its call."""

    def answer(self, ids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Deliver the results of calls."""


class Span:
    """A call over several nodes: `needs` are the numbers of ranks by part, `ranks` those that wait for it."""

    def __init__(self, call: Call, timeout: float, needs: dict[int, int]) -> None:
        self.id, self.payload = call
        self.timeout = timeout
        self.needs = needs
        self.ranks: dict[int, list[int]] = {}
        self.results: dict[int, bytes] = {}
        self.failed: bytes | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers of all ranks, ascending."""
        return sorted(number for numbers in self.ranks.values() for number in numbers)

    @property
    def started(self) -> bool:
        """True if all ranks run the call."""
        return len(self.ranks) == len(self.needs)


class SpanningCalls:
    """The calls over several nodes, in the first manager or another one."""

    def __init__(self, part: Part, tell: Tell, here: Ranks, port: Port) -> None:
        self.span: Span | None = None   # of the first manager
        self.wanted: tuple[int, int] | None = None
        """The call and the number of ranks that are to be reserved here."""
        self.group: Group | None = None
        """The ranks that are reserved here, or run the call."""
        self._part = part
        self._tell = tell
        self._here = here
        self._port = port
        self._sizes: dict[int, int] = {}

    def complete(self, sizes: dict[int, int]) -> None:
        """Note the number of ranks of each part, which are all connected."""
        if self._part.number == 0:
            self._sizes = sizes
            self._here.deal()

    @property
    def open(self) -> bool:
        """True if the next call can be coordinated."""
        return self.span is None and bool(self._sizes)

    def begin(self, call: Call, ranks: int, timeout: float) -> None:
        """Reserve ranks on the nodes for a call."""
        needs: dict[int, int] = {}
        for part, size in sorted(self._sizes.items()):
            if ranks > 0:
                needs[part] = min(size, ranks)
                ranks -= size
        self.span = Span(call, timeout, needs)
        self.wanted = call[0], needs[0]
        for part, count in needs.items():
            if part:
                self._tell(part, ['reserve', call[0], count])

    def granted(self, group: Group) -> None:
        """Note that the ranks of this node are reserved."""
        self.wanted, self.group = None, group
        numbers = self.numbers(group.ranks)
        if self.span is None:
            self._tell(0, ['reserved', group.id, numbers])
        else:
            self._reserved(self.span, 0, numbers)

    def heard(self, part: int, message: list[Any]) -> None:
        """Handle a message of another manager; late ones about other calls are ignored."""
        kind, id, *arguments = message
        span, group = self.span, self.group
        if self._part.number == 0:
            if span is None or span.id != id:
                return
            if kind == 'reserved' and not span.started:
                self._reserved(span, part, *arguments)
            elif kind == 'parts':
                self._collect(span, *arguments)
        elif kind == 'reserve':
            self.wanted = id, arguments[0]
            self._here.deal()
        elif kind == 'release':
            self.forget()
            self._here.deal()
        elif group is not None and group.id == id:
            if kind == 'start':
                self._start(group, *arguments)
            elif kind == 'cancel':
                self._here.interrupt(id)
            elif kind == 'give_up':
                self._here.give_up(group)

    def done(self, group: Group) -> None:
        """Take the results of the ranks of this node: of all of them, or of some of which one has failed."""
        results = {self._part.numbers[rank]: part for rank, part in group.parts.items()}
        if not group.missing:
            self.group = None
        if self.span is None:
            self._tell(0, ['parts', group.id, results])
        else:
            self._collect(self.span, results)

    def cancel(self, id: int) -> bool | None:
        """Cancel a call: return None if it is none of these, True if it was not started."""
        span = self.span
        if span is None or span.id != id:
            return None
        if not span.started:
            self.withdraw()
            return True
        self._here.interrupt(id)
        self._tell_others(span, ['cancel', id])
        return False

    def withdraw(self) -> Call | None:
        """Release the ranks of a call that is not started, and return it."""
        span = self.span
        if span is None or span.started:
            return None
        self._tell_others(span, ['release', span.id])
        self.forget()
        return span.id, span.payload

    def forget(self) -> None:
        """Forget the call, and release the ranks of this node."""
        group, self.group, self.wanted, self.span = self.group, None, None, None
        if group is not None:
            self._here.disband(group)

    def numbers(self, ranks: Sequence[int]) -> list[int]:
        """Return the numbers in the worker of ranks of this node."""
        return [self._part.numbers[rank] for rank in ranks]

    def _reserved(self, span: Span, part: int, numbers: list[int]) -> None:
        span.ranks[part] = numbers
        group = self.group
        if span.started and group is not None:
            ranks = span.numbers
            self._tell_others(span, ['start', span.id, with_contents(span.payload), span.timeout, ranks, group.tag])
            self._start(group, span.payload, span.timeout, ranks, group.tag)

    def _start(self, group: Group, payload: bytes, timeout: float, numbers: Sequence[int], tag: int) -> None:
        group.payload, group.numbers, group.tag = payload, list(numbers), tag
        self._here.start_together(group, timeout)

    def _collect(self, span: Span, results: dict[int, bytes]) -> None:
        span.results |= results
        if len(span.results) == sum(span.needs.values()):
            self.span = None
            self._here.answer([span.id], [join_parts([span.results[number] for number in sorted(span.results)])])
            self._here.deal()
        elif span.failed is None:
            span.failed = next(filter(has_failed, results.values()), None)
            if span.failed is not None:   # the other ranks may wait for this one for ever
                self._port.later(GROUP_GRACE, self._give_up, span)

    def _give_up(self, span: Span) -> None:
        if self.span is span:
            self._tell_others(span, ['give_up', span.id])
            if self.group is not None:
                self._here.give_up(self.group)

    def _tell_others(self, span: Span, message: list[Any]) -> None:
        for part in span.needs:
            if part:
                self._tell(part, message)


class Group:
    """A call and its ranks, in ascending order; `parts` are the results of the ranks that are done."""

    def __init__(self, call: Call, queues: Sequence[RankQueue], spread: bool, tag: int) -> None:
        self.id, self.payload = call
        self.queues = sorted(queues, key=lambda queue: queue.rank)
        self.spread = spread   # over all ranks; otherwise the first one runs it with the resources of all
        self.tag = tag
        self.parts: dict[int, bytes] = {}
        self.numbers: list[int] = []   # of all ranks of a call over several nodes

    @property
    def ranks(self) -> list[int]:
        """The numbers of the ranks."""
        return [queue.rank for queue in self.queues]

    @property
    def members(self) -> list[RankQueue]:
        """The queues of the ranks that run the call."""
        return self.queues if self.spread else self.queues[:1]

    @property
    def missing(self) -> list[RankQueue]:
        """The queues of the ranks without a result."""
        return [queue for queue in self.members if queue.rank not in self.parts]


class Groups:
    """The groups that have a call, by its id, and the ranks reserved for the next group."""

    def __init__(self) -> None:
        self.running: dict[int, Group] = {}
        self._chosen: list[RankQueue] = []
        self._made = 0

    def choose(self, queues: Sequence[RankQueue], width: int) -> list[RankQueue]:
        """Reserve ranks for the next call; return the new ones, whose untaken calls are to be taken back."""
        self._chosen = [queue for queue in self._chosen if queue.ready and queue.reserved and not queue.awaits]
        self.release(self._chosen[width:])
        del self._chosen[width:]
        free = [queue for queue in queues if queue.ready and not queue.reserved and not queue.awaits]
        free.sort(key=lambda queue: len(queue.calls) + len(queue.parked))
        new = free[:width - len(self._chosen)]
        for queue in new:
            queue.reserved = True
        self._chosen += new
        return new

    def form(self, call: Call, width: int, spread: bool) -> Group | None:
        """Return the group for a call; None while its ranks have other calls."""
        if len(self._chosen) < width or not all(queue.empty for queue in self._chosen):
            return None
        self._made += 1
        group = self.running[call[0]] = Group(call, self._chosen, spread, self._made % _TAGS)
        self._chosen = []
        return group

    def choose_none(self) -> None:
        """Release reserved ranks, as no call needs them."""
        self.release(self._chosen)
        self._chosen = []

    def end(self, id: int) -> None:
        """Release the ranks of a call that is done, or will be repeated."""
        group = self.running.pop(id, None)
        if group:
            self.release([queue for queue in group.queues if queue.rank not in group.parts])

    @staticmethod
    def release(queues: Sequence[RankQueue]) -> None:
        """Allow other calls on these ranks."""
        for queue in queues:
            queue.reserved = False


def has_failed(part: bytes) -> bool:
    """Return whether a rank has failed in its part of a call."""
    return is_error(part) or (kind_of(part) == b'D' and bool(as_result(part).get('exception')))
