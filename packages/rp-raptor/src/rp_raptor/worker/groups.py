"""Calls of several ranks: MPI functions, and calls with the cores or GPUs of several ranks.

Ranks are reserved for one such call at a time, in the order of the calls, those with the fewest calls first; the other
ranks run other calls. The call starts when all of its ranks are idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from rp_raptor.wire.payload import as_result, is_error, kind_of
from rp_raptor.worker.rank_queue import Call, RankQueue

_TAGS = 1 << 14   # MPI guarantees tags up to 32767


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
