"""What one rank has in hand: calls that it was sent, in order, and which of them it has taken.

Positions start anew at `epoch << 32` whenever calls are taken back, so that no old one can be confused with a new one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable

from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.ids import hold, release

Call = tuple[int, bytes]
"""Id and payload."""

_EPOCH = 32   # bits of a position below the epoch


class RankQueue:
    """The calls of one rank; `calls` are those without a result that keep it busy, `parked` those that do not."""

    def __init__(self, rank: int, cursors: Cursors) -> None:
        self.rank = rank
        self.ready = False
        self.reserved = False   # for a call of several ranks
        self.slow = False       # its running call takes much longer than others
        self.awaits = 0         # the ranks of the task that its running call waits for, if it does
        self.progress = 0.0     # when it was last heard of or seen to take a call, or got calls while it had none
        self.calls: dict[int, bytes] = {}
        self.parked: dict[int, bytes] = {}
        self._cursors = cursors
        self._bulks: deque[tuple[int, array[int]]] = deque()   # first position, ids that are the rank's
        self._epoch = 0
        self._start = self._next = 0   # of the epoch: the first position, and the next one that is free
        self._seen = 0                 # where the rank was when it was last watched
        self._stopped = 0              # where the rank was when the last epoch in which it took calls ended
        self._worked = False           # whether there was such an epoch
        self._start_epoch()

    @property
    def idle(self) -> bool:
        """Whether it waits for calls."""
        return not self.calls

    @property
    def empty(self) -> bool:
        """Whether it has nothing at all."""
        return not self.calls and not self.parked

    @property
    def has_worked(self) -> bool:
        """Whether it has taken a call since it was last cleared."""
        return self._worked or self._cursors.position(self.rank) != self._start

    @property
    def bulks(self) -> int:
        """How many bulks are on their way or being worked on."""
        return len(self._bulks)

    def give(self, ids: array[int], payloads: list[bytes]) -> int:
        """Add a bulk of calls; gives the position of its first one."""
        first = self._next
        self._next += len(ids)
        self._bulks.append((first, ids))
        hold(self.calls, ids, payloads)
        return first

    def settle(self, ids: array[int]) -> array[int]:
        """Forget calls that have a result; gives the ids that were here."""
        found = release(self.calls, ids)
        if found is not None:
            ids = array('Q', [id for id, busy in zip(ids, found, strict=True)
                              if busy or self.parked.pop(id, None) is not None])
        self._prune()
        return ids

    def park(self, ids: Iterable[int]) -> None:
        """Note that these calls run on while the rank takes others."""
        for id in ids:
            payload = self.calls.pop(id, None)
            if payload is not None:
                self.parked[id] = payload
        self._prune()

    def running(self) -> tuple[int, int] | None:
        """Id and position of the call that the rank is busy with; None if it is not, as far as is known."""
        position = self._last_taken()
        for first, ids in self._bulks:
            if first <= position < first + len(ids):
                id = ids[position - first]
                return (id, position) if id in self.calls else None
        return None

    def watch(self, now: float) -> None:
        """Notice that the rank has gone on with its calls."""
        position = self._cursors.position(self.rank)
        if position != self._seen:
            self._seen = position
            self.progress = now

    def untaken(self) -> int:
        """How many of its calls the rank has not started."""
        return self._next - self._cursors.position(self.rank) if self._bulks else 0

    def next_call(self) -> int | None:
        """The oldest call that keeps it busy, or will next."""
        return next(iter(self.calls), None)

    def take_back(self) -> list[Call]:
        """Calls that the rank has not started, in order; they are not its own any more."""
        if not self.untaken():
            return []
        self._start_epoch()
        taken: deque[tuple[int, array[int]]] = deque()
        back: list[Call] = []
        for first, ids in self._bulks:
            count = max(0, min(len(ids), self._stopped - first))
            back += [(id, self.calls.pop(id)) for id in ids[count:]]
            if count:
                taken.append((first, ids[:count]))
        self._bulks = taken
        self._prune()
        return back

    def clear(self) -> tuple[list[Call], list[Call]]:
        """Give up all calls, as the rank is gone: those that ran, and the others in order."""
        running = self.running()
        ran = list(self.parked.items())
        if running:
            ran.append((running[0], self.calls.pop(running[0])))
        rest = list(self.calls.items())
        self.calls.clear()
        self.parked.clear()
        self._bulks.clear()
        self.ready = self.reserved = self.slow = False
        self.awaits = 0
        self._start_epoch()
        self._worked = False
        return ran, rest

    def _start_epoch(self) -> None:
        """Have the next call at a position where no call was before; what is not taken is taken back."""
        before = self._start
        self._epoch += 1
        self._start = self._next = self._epoch << _EPOCH
        stopped = self._cursors.move(self.rank, self._start)
        if stopped != before:
            self._stopped = stopped
            self._worked = True

    def _last_taken(self) -> int:
        position = self._cursors.position(self.rank)
        return (self._stopped if position == self._start else position) - 1

    def _prune(self) -> None:
        bulks, calls = self._bulks, self.calls
        while bulks and bulks[0][1][-1] not in calls:
            bulks.popleft()
