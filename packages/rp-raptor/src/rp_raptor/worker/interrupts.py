"""Ends calls that exceed their timeout or are cancelled: by a signal, and after a grace period by killing the rank."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import Any, NamedTuple, Protocol

from rp_api.loop.event_loop import Timer
from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.payload import encode_error
from rp_raptor.wire.rank_protocol import CANCEL, TIMEOUT, interruption
from rp_raptor.worker.rank_queue import RankQueue

GRACE = 2.0
"""Seconds from the signal until the rank is killed."""

SIGNAL_AGAIN_S = 0.05
"""Seconds after which a rank that had not taken the call is signalled again."""


class _Interruption(NamedTuple):
    """The reason of an interruption, as number and text, and the timer that kills the rank."""

    why: int
    reason: str
    killing: Timer


class Interrupts:
    """The calls with a timeout, and those that are being interrupted.

    `who_has(id)` returns the queues of the ranks that have a call without a result.
    """

    def __init__(self, port: Port, cursors: Cursors, who_has: Callable[[int], list[RankQueue]]) -> None:
        self._port = port
        self._cursors = cursors
        self._who_has = who_has
        self._deadlines: dict[int, Timer] = {}
        self._interrupted: dict[int, _Interruption] = {}

    def limit(self, id: int, seconds: float) -> None:
        """Interrupt the call, which starts now, after that many seconds."""
        if id not in self._deadlines and id not in self._interrupted:
            self._deadlines[id] = self._port.later(seconds, self._expire, id, seconds)

    def cancel(self, id: int) -> None:
        """Interrupt the call, which a rank has taken."""
        self._interrupt(id, CANCEL, 'the call was canceled')

    def settle(self, ids: Iterable[int]) -> None:
        """Forget finished calls."""
        if self._deadlines or self._interrupted:
            for id in ids:
                timer = self._deadlines.pop(id, None)
                if timer:
                    timer.cancel()
                interrupted = self._interrupted.pop(id, None)
                if interrupted:
                    interrupted.killing.cancel()

    def parked(self, rank: int, ids: Iterable[int]) -> None:
        """Cancel asynchronous calls that were interrupted before they became such: the signal came too early."""
        for id in self._interrupted.keys() & ids if self._interrupted else ():
            self._port.to_rank(rank, ['cancel', array('Q', [id]), self._interrupted[id].why])

    def result(self, id: int) -> bytes | None:
        """Return the result of a call whose rank was killed because of it; None for others."""
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
        """Interrupt the call on these ranks, and later again on those that have not taken it."""
        interrupted = self._interrupted.get(id)
        if interrupted is None:
            return
        waiting = []
        for queue in queues:
            if id in queue.parked:
                self._port.to_rank(queue.rank, ['cancel', array('Q', [id]), interrupted.why])
                continue
            running = queue.running()
            if running and running[0] == id:
                self._cursors.set_mark(queue.rank, interruption(running[1], interrupted.why))
            else:
                waiting.append(queue)
            self._port.signal(queue.rank)   # a rank that is done with it sends its result
        if waiting:
            self._port.later(SIGNAL_AGAIN_S, self._signal_late, id, waiting)

    def _signal_late(self, id: int, waiting: list[RankQueue]) -> None:
        """Interrupt the call again on those of the ranks that still have it."""
        self._signal(id, [queue for queue in self._who_has(id) if queue in waiting])

    def _kill(self, id: int, reason: str) -> None:
        for queue in self._who_has(id):
            self._port.kill(queue.rank, reason)


def error(what: Exception) -> bytes:
    """Return the result of a call that no rank has a result of."""
    return encode_error(what, f'{type(what).__name__}: {what}\n')


class Port(Protocol):
    """Sends messages and signals, and calls back later."""

    def to_master(self, message: list[Any]) -> None:
        """Send a message of `rp_raptor.wire.protocol`."""

    def to_rank(self, rank: int, message: list[Any]) -> None:
        """Send a message of `rp_raptor.wire.rank_protocol`."""

    def signal(self, rank: int) -> None:
        """Interrupt the rank's call."""

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank; its death is reported as any other."""

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` after that many seconds."""

    def now(self) -> float:
        """Return the time of the monotonic clock in seconds."""
