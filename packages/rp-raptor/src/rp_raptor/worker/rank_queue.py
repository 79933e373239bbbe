"""The calls sent to one rank, in order, and which of them it has taken.

Positions start anew at `epoch << 32` whenever calls are taken back, so that no position is ever reused.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence

from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.ids import Held, hold, release

Call = tuple[int, bytes]
"""Id and payload."""

_EPOCH = 32   # bits of a position below the epoch


class RankQueue:
    """The calls of one rank without results: `calls` keep it busy, `parked` are asynchronous ones that do not."""

    def __init__(self, rank: int, cursors: Cursors) -> None:
        self.rank = rank
        self.ready = False
        self.reserved = False   # for a call of several ranks
        self.slow = False       # its running call takes much longer than others
        self.awaits = 0         # the number of ranks of the task that its running call waits for
        self.progress = 0.0     # time of its last message, of the last call seen to be taken, or of new calls when idle
        self.calls: dict[int, Held] = {}
        self.parked: dict[int, bytes] = {}
        self._cursors = cursors
        self._bulks: deque[tuple[int, array[int]]] = deque()   # first position, ids of the rank's calls
        self._epoch = 0
        self._start = self._next = 0   # of the epoch: the first position, and the next free one
        self._seen = 0                 # the cursor when it was last watched
        self._stopped = 0              # the cursor at the end of the last epoch in which it took calls
        self._worked = False           # true if there was such an epoch
        self._start_epoch()

    @property
    def idle(self) -> bool:
        """True if the rank waits for calls."""
        return not self.calls

    @property
    def empty(self) -> bool:
        """True if the rank has no calls, including asynchronous ones."""
        return not self.calls and not self.parked

    @property
    def has_worked(self) -> bool:
        """True if the rank has taken a call since it was last cleared."""
        return self._worked or self._cursors.position(self.rank) != self._start

    @property
    def bulks(self) -> int:
        """The number of bulks in flight or in progress."""
        return len(self._bulks)

    def give(self, ids: array[int], payloads: Sequence[bytes]) -> int:
        """Add a bulk of calls, and return the position of its first one."""
        first = self._next
        self._next += len(ids)
        self._bulks.append((first, ids))
        hold(self.calls, ids, payloads)
        return first

    def settle(self, ids: array[int]) -> array[int]:
        """Remove calls that have a result, and return the ids of those that were here."""
        found = release(self.calls, ids)
        if found is not None:
            ids = array('Q', [id for id, busy in zip(ids, found, strict=True)
                              if busy or self.parked.pop(id, None) is not None])
        self._prune()
        return ids

    def park(self, ids: Iterable[int]) -> None:
        """Note that these calls run on while the rank takes others."""
        for id in ids:
            held = self.calls.pop(id, None)
            if held is not None:
                self.parked[id] = held.of(id)
        self._prune()

    def running(self) -> tuple[int, int] | None:
        """Return id and position of the call that the rank is busy with; None if there is none, as far as is known."""
        position = self._last_taken()
        for first, ids in self._bulks:
            if first <= position < first + len(ids):
                id = ids[position - first]
                return (id, position) if id in self.calls else None
        return None

    def watch(self, now: float) -> None:
        """Note progress if the rank has taken calls since the last watch."""
        position = self._cursors.position(self.rank)
        if position != self._seen:
            self._seen = position
            self.progress = now

    def untaken(self) -> int:
        """Return the number of its calls that the rank has not started."""
        return self._next - self._cursors.position(self.rank) if self._bulks else 0

    def next_call(self) -> int | None:
        """Return the oldest call that keeps the rank busy, or will next."""
        return next(iter(self.calls), None)

    def take_back(self) -> list[Call]:
        """Remove and return the calls that the rank has not started, in order."""
        if not self.untaken():
            return []
        self._start_epoch()
        taken: deque[tuple[int, array[int]]] = deque()
        back: list[Call] = []
        for first, ids in self._bulks:
            count = max(0, min(len(ids), self._stopped - first))
            back += [(id, self.calls.pop(id).of(id)) for id in ids[count:]]
            if count:
                taken.append((first, ids[:count]))
        self._bulks = taken
        self._prune()
        return back

    def clear(self) -> tuple[list[Call], list[Call]]:
        """Remove and return all calls of a dead rank: those that ran, and the others in order."""
        running = self.running()
        ran = list(self.parked.items())
        if running:
            ran.append((running[0], self.calls.pop(running[0]).of(running[0])))
        rest = [(id, held.of(id)) for id, held in self.calls.items()]
        self.calls.clear()
        self.parked.clear()
        self._bulks.clear()
        self.ready = self.reserved = self.slow = False
        self.awaits = 0
        self._start_epoch()
        self._worked = False
        return ran, rest

    def _start_epoch(self) -> None:
        """Put the next call at a position that was never used, which takes back all untaken calls."""
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
