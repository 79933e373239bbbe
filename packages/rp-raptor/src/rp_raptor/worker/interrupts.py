"""Ends calls that take too long or are not wanted any more: first politely, by a signal, then by killing the rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import NamedTuple

from rp_api.loop.event_loop import Timer
from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.payload import encode_error
from rp_raptor.wire.rank_protocol import CANCEL, TIMEOUT, interruption, pack_ids
from rp_raptor.worker.port import Port
from rp_raptor.worker.rank_queue import RankQueue

GRACE = 2.0
"""Seconds from the signal until the rank is killed."""

AGAIN = 0.05
"""Seconds after which a rank that had not yet taken the call is signalled again."""


class _Interruption(NamedTuple):
    """Why a call is ended, as a number and in words, and when its rank is killed."""

    why: int
    reason: str
    killing: Timer


class Interrupts:
    """The calls that have a deadline, and those that are being ended.

    `who_has(id)` gives the queues of the ranks that have a call and no result for it.
    """

    def __init__(self, port: Port, cursors: Cursors, who_has: Callable[[int], list[RankQueue]]) -> None:
        self._port = port
        self._cursors = cursors
        self._who_has = who_has
        self._deadlines: dict[int, Timer] = {}
        self._interrupted: dict[int, _Interruption] = {}

    def limit(self, id: int, seconds: float) -> None:
        """End the call, which starts now, if it takes longer."""
        if id not in self._deadlines and id not in self._interrupted:
            self._deadlines[id] = self._port.later(seconds, self._expire, id, seconds)

    def cancel(self, id: int) -> None:
        """End the call, which a rank has taken."""
        self._interrupt(id, CANCEL, 'the call was canceled')

    def settle(self, ids: Iterable[int]) -> None:
        """Forget calls that have ended."""
        if self._deadlines or self._interrupted:
            for id in ids:
                timer = self._deadlines.pop(id, None)
                if timer:
                    timer.cancel()
                interrupted = self._interrupted.pop(id, None)
                if interrupted:
                    interrupted.killing.cancel()

    def parked(self, rank: int, ids: Iterable[int]) -> None:
        """Say again which calls are to be given up, as the signal came too early for those that are parked now."""
        for id in self._interrupted.keys() & ids if self._interrupted else ():
            self._port.to_rank(rank, ['cancel', pack_ids([id]), self._interrupted[id].why])

    def result(self, id: int) -> bytes | None:
        """The result of a call whose rank was killed because of it; None if it was not."""
        interrupted = self._interrupted.get(id)
        if interrupted is None:
            return None
        return error((CancelledError if interrupted.why == CANCEL else TimeoutError)(interrupted.reason))

    def _expire(self, id: int, seconds: float) -> None:
        del self._deadlines[id]
        self._interrupt(id, TIMEOUT, f'the call took longer than {seconds:g} s')

    def _interrupt(self, id: int, why: int, reason: str) -> None:
        if id in self._interrupted:
            return
        self._interrupted[id] = _Interruption(why, reason, self._port.later(GRACE, self._kill, id, reason))
        self._signal(id, self._who_has(id))

    def _signal(self, id: int, queues: Iterable[RankQueue]) -> None:
        """Interrupt the call on these ranks, and again on those that have yet to take it."""
        interrupted = self._interrupted.get(id)
        if interrupted is None:
            return
        waiting = []
        for queue in queues:
            if id in queue.parked:
                self._port.to_rank(queue.rank, ['cancel', pack_ids([id]), interrupted.why])
                continue
            running = queue.running()
            if running and running[0] == id:
                self._cursors.set_mark(queue.rank, interruption(running[1], interrupted.why))
            else:
                waiting.append(queue)
            self._port.signal(queue.rank)   # one that has done it already sends its result
        if waiting:
            self._port.later(AGAIN, self._signal_late, id, waiting)

    def _signal_late(self, id: int, waiting: list[RankQueue]) -> None:
        """Do so again, as far as these ranks still have the call."""
        self._signal(id, [queue for queue in self._who_has(id) if queue in waiting])

    def _kill(self, id: int, reason: str) -> None:
        for queue in self._who_has(id):
            self._port.kill(queue.rank, reason)


def error(what: Exception) -> bytes:
    """The result of a call that no rank could give one for."""
    return encode_error(what, f'{type(what).__name__}: {what}\n')
