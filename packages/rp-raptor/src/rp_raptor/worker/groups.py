"""Calls of several ranks: MPI functions, and calls with the cores or GPUs of several ranks.

Ranks are reserved for one such call at a time, in the order of the calls, those with the least to do first; the others
go on with other calls. It starts when all of its ranks have nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from rp_raptor.wire.payload import as_result, is_error, kind_of
from rp_raptor.worker.rank_queue import Call, RankQueue

_TAGS = 1 << 14   # MPI guarantees tags up to 32767


class Group:
    """A call and the ranks that have it, in ascending order; `parts` are the results of those that are done."""

    def __init__(self, call: Call, queues: Sequence[RankQueue], spread: bool, tag: int) -> None:
        self.id, self.payload = call
        self.queues = sorted(queues, key=lambda queue: queue.rank)
        self.spread = spread   # over all ranks; else the first one runs it, and the others lend it their share
        self.tag = tag
        self.parts: dict[int, bytes] = {}

    @property
    def ranks(self) -> list[int]:
        """The numbers of the ranks."""
        return [queue.rank for queue in self.queues]

    @property
    def members(self) -> list[RankQueue]:
        """The queues of the ranks that run it."""
        return self.queues if self.spread else self.queues[:1]

    @property
    def missing(self) -> list[RankQueue]:
        """The queues of the ranks whose part is not there yet."""
        return [queue for queue in self.members if queue.rank not in self.parts]


class Groups:
    """The groups that have a call, by its id, and the ranks that are reserved for the next one."""

    def __init__(self) -> None:
        self.running: dict[int, Group] = {}
        self._chosen: list[RankQueue] = []
        self._made = 0

    def choose(self, queues: Sequence[RankQueue], width: int) -> list[RankQueue]:
        """Reserve ranks for the next call; gives those that are new: what they have not started is to be taken back."""
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
        """The group for a call; None as long as its ranks have other calls."""
        if len(self._chosen) < width or not all(queue.empty for queue in self._chosen):
            return None
        self._made += 1
        group = self.running[call[0]] = Group(call, self._chosen, spread, self._made % _TAGS)
        self._chosen = []
        return group

    def choose_none(self) -> None:
        """Give reserved ranks free: there is no call for them any more."""
        self.release(self._chosen)
        self._chosen = []

    def end(self, id: int) -> None:
        """The call is done, or will be done again: its ranks are free."""
        group = self.running.pop(id, None)
        if group:
            self.release([queue for queue in group.queues if queue.rank not in group.parts])

    @staticmethod
    def release(queues: Sequence[RankQueue]) -> None:
        """Let these ranks have other calls."""
        for queue in queues:
            queue.reserved = False


def has_failed(part: bytes) -> bool:
    """Whether a rank could not do its part of a call."""
    return is_error(part) or (kind_of(part) == b'D' and bool(as_result(part).get('exception')))
