"""The queues of sources and the workers' calls: the places of calls without a result."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rp_raptor.wire.call_buffer import CallBuffer
from rp_raptor.wire.ids import Held

_BULK = 256
"""Calls for which a message costs little beside the calls themselves."""

Attributes = dict[int, dict[str, Any]]
Call = tuple[int, bytes]
"""The router's number of a call, and the payload."""


class CallOwner(Protocol):
    """The owner of a source of calls; both methods get the source's own numbers."""

    def started(self, ids: array[int]) -> None:
        """Take calls that a worker has; repeated for a call that is sent again."""

    def results(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Take results: one for each call."""


class CallSource:
    """A source with a queue of calls that no worker has; `open` counts all calls without a result."""

    __slots__ = ('attributes', 'functions', 'number', 'open', 'owner', 'queue')

    def __init__(self, number: int, owner: CallOwner) -> None:
        self.number = number
        self.owner = owner
        self.queue = CallBuffer()
        self.attributes: Attributes = {}   # of calls without a result, by the router's numbers
        self.functions: set[bytes] = set()
        self.open = 0


@dataclass(slots=True)
class Reclaim:
    """A request of a source for calls that no rank has started; complete when the workers in `asked` have answered."""

    source: CallSource
    answer: Callable[[array[int]], object]
    found: array[int]
    count: int
    asked: dict[bytes, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """The number of calls for which no worker was asked."""
        return self.count - len(self.found) - sum(self.asked.values())


class PooledWorker:
    """A worker with its calls, and its credit for more (`free`)."""

    __slots__ = ('address', 'asked', 'calls', 'exhausted', 'free', 'mpi', 'place', 'ranks', 'uid', 'widest')

    def __init__(self, address: bytes, uid: str, ranks: int, mpi: bool, widest: int = 0) -> None:
        self.address = address
        self.uid = uid
        self.ranks = ranks
        self.mpi = mpi
        self.widest = widest or ranks   # the most ranks of one call
        self.free = 0
        self.calls: dict[int, Held] = {}
        self.asked = 0        # calls that it was asked to give back
        self.exhausted = False   # it had no calls to give back, and has got none since
        self.place = 0        # in the order in which workers were attached

    def fits(self, ranks: int) -> bool:
        """Return whether the worker can run a call over so many ranks."""
        return ranks <= 1 or (self.mpi and ranks <= self.widest)


def load(worker: PooledWorker) -> float:
    """Return the calls of a worker per rank."""
    return len(worker.calls) / worker.ranks


def bulk_of(worker: PooledWorker) -> int:
    """Return how many calls a worker gets at least at a time: what one of its ranks does in about 5 ms.

    A worker's credit is the work of about 0.1 s for each of its ranks (`rp_raptor.worker.estimate`).
    """
    return min(_BULK, worker.free // (16 * worker.ranks))


def surplus_of(worker: PooledWorker) -> int:
    """Return the number of calls that a worker may have to give back."""
    return 0 if worker.exhausted or worker.asked else len(worker.calls) - worker.ranks
