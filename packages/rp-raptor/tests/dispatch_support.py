"""A dispatcher whose ranks, master and clock are in the test's hands."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rp_api.loop.event_loop import Timer
from rp_raptor.wire import cursor
from rp_raptor.wire.parts import Part
from rp_raptor.wire.payload import encode_value
from rp_raptor.wire.rank_protocol import interrupted
from rp_raptor.worker.call_queue import RankResources
from rp_raptor.worker.dispatcher import Dispatcher
from rp_raptor.worker.spanning import Tell

RESULT = encode_value(None)


class SimulatedRank:
    """Takes calls as a real one does, but only when it is told to."""

    def __init__(self, bench: Bench, rank: int) -> None:
        self.bench = bench
        self.rank = rank
        self.inbox: deque[list[Any]] = deque()
        self.pending: deque[tuple[int, int, bool]] = deque()   # position, id, whether it is a part
        self.running: tuple[int, int, bool] | None = None
        self.finished: list[int] = []
        self.parked: list[int] = []

    def take(self) -> int | None:
        """Start the next call; gives its id."""
        while self.running is None and (self.pending or self.inbox):
            if not self.pending:
                self._open(self.inbox.popleft())
                continue
            call = self.pending.popleft()
            if self.bench.cursors.take(self.rank, call[0]):
                self.running = call
            else:
                self.pending.clear()
        return self.running[1] if self.running else None

    def finish(self, seconds: float = 0.0, payload: bytes = RESULT) -> None:
        """End the running call, and tell."""
        assert self.running
        _, id, part = self.running
        self.running = None
        if part:
            self.bench.dispatcher.part(self.rank, id, payload, seconds)
        else:
            self.bench.dispatcher.results(self.rank, array('Q', [id]), [payload], seconds)

    def park(self) -> int:
        """Let the running call go on beside others."""
        assert self.running
        id = self.running[1]
        self.running = None
        self.parked.append(id)
        self.bench.dispatcher.parked(self.rank, array('Q', [id]))
        return id

    def end_parked(self) -> None:
        """End a call that is parked."""
        self.bench.dispatcher.results(self.rank, array('Q', [self.parked.pop()]), [RESULT], 0.0)

    def clear(self) -> None:
        """Be a new process."""
        self.inbox.clear()
        self.pending.clear()
        self.parked.clear()
        self.running = None

    def _open(self, message: list[Any]) -> None:
        kind, *arguments = message
        if kind == 'calls':
            ids = arguments[1]
            self.pending.extend((position, id, False) for position, id in enumerate(ids, arguments[0]))
        elif kind in ('alone', 'mpi'):
            self.pending.append((arguments[0], arguments[1], kind == 'mpi'))


class Bench:
    """The port of a dispatcher; keeps what it says, and lets time pass on demand."""

    def __init__(self, path: Path, ranks: int = 2, mpi: bool = False, devices: list[list[str]] | None = None,
                 cores: int = 1, cpus: list[list[int]] | None = None,
                 part: Part | None = None, tell: Tell | None = None) -> None:
        cursor.create(path / 'cursors', ranks)
        self.cursors = cursor.Cursors(path / 'cursors')
        self.time = 0.0
        self.timers: list[Timer] = []
        self.signals: list[int] = []
        self.killed: list[int] = []
        self.results: dict[int, bytes] = {}
        self.returned: list[int] = []
        self.died: list[int] = []
        self.credit = 0
        self.ranks = [SimulatedRank(self, rank) for rank in range(ranks)]
        resources = RankResources(part or Part.whole(ranks), cores, devices or [], cpus or [], mpi)
        self.dispatcher = Dispatcher(resources, self.cursors, self, tell or self._tell)
        for rank in range(ranks):
            self.dispatcher.ready(rank)

    def add(self, *ids: int, **attributes: Any) -> None:
        """Have the master send calls, all with these attributes."""
        each = {id: dict(attributes) for id in ids} if attributes else None
        self.dispatcher.add(array('Q', ids), [b'x'] * len(ids), each)

    def left(self) -> list[int]:
        """The ids of the calls that have left, as often as they have."""
        return [*self.results, *self.returned, *self.died]

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, and what is due happen."""
        end = self.time + seconds
        while due := [timer for timer in self.timers if timer.deadline <= end and timer.callback]:
            timer = min(due)
            self.timers.remove(timer)
            self.time = max(self.time, timer.deadline)
            callback, args = timer.callback, timer.args
            assert callback
            callback(*args)
        self.time = end

    def marked(self, rank: int) -> int:
        """The position of the call that the rank is to interrupt."""
        return interrupted(self.cursors.mark(rank))[0]

    def _tell(self, part: int, message: list[Any]) -> None:
        raise AssertionError(f'{message} to part {part}: there is one part only')

    # the port

    def to_master(self, message: list[Any]) -> None:
        kind, *arguments = message
        if kind == 'results':
            for id, payload in zip(arguments[0], arguments[1], strict=True):
                assert id not in self.left(), f'{id} has left twice'
                self.results[id] = payload
        elif kind == 'returned':
            self.returned += arguments[0]
        elif kind == 'died':
            self.died += arguments[0]
        elif kind == 'credit':
            self.credit += arguments[0]

    def to_rank(self, rank: int, message: list[Any]) -> None:
        self.ranks[rank].inbox.append(message)

    def signal(self, rank: int) -> None:
        self.signals.append(rank)

    def kill(self, rank: int, reason: str) -> None:
        self.killed.append(rank)

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(self.time + delay, len(self.timers), callback, args)
        self.timers.append(timer)
        return timer

    def now(self) -> float:
        return self.time
