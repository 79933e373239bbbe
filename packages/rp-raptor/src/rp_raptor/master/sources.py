"""Where calls are before they have a result: they wait in the queue of their source, or a worker has them."""

from __future__ import annotations

from array import array
from typing import Any, Protocol

from rp_raptor.wire.call_buffer import CallBuffer

Attributes = dict[int, dict[str, Any]]
Call = tuple[int, bytes]
"""The router's number of a call, and its payload."""


class CallOwner(Protocol):
    """Who has calls made; both methods get the source's own numbers."""

    def started(self, ids: array[int]) -> None:
        """These calls are with a worker now; may be said again for a call that has to be repeated."""

    def results(self, ids: array[int], payloads: list[bytes]) -> None:
        """The results of these calls; there is one for each."""


class CallSource:
    """The calls of one source that no worker has yet; `open` counts all calls without a result."""

    __slots__ = ('attributes', 'functions', 'number', 'open', 'owner', 'queue')

    def __init__(self, number: int, owner: CallOwner) -> None:
        self.number = number
        self.owner = owner
        self.queue = CallBuffer()
        self.attributes: Attributes = {}   # of calls without a result, by the router's number
        self.functions: set[bytes] = set()
        self.open = 0


class Worker:
    """A worker, the calls that it has, and how many more it takes (`free`)."""

    __slots__ = ('address', 'asked', 'calls', 'exhausted', 'free', 'mpi', 'ranks', 'uid')

    def __init__(self, address: bytes, uid: str, ranks: int, mpi: bool) -> None:
        self.address = address
        self.uid = uid
        self.ranks = ranks
        self.mpi = mpi
        self.free = 0
        self.calls: dict[int, bytes] = {}
        self.asked = 0        # for so many calls back
        self.exhausted = False   # it had none to give back, and has got none since

    def fits(self, ranks: int) -> bool:
        """Whether it can run a call over so many ranks."""
        return ranks <= 1 or (self.mpi and ranks <= self.ranks)


def load(worker: Worker) -> float:
    """Calls that a worker has, per rank."""
    return len(worker.calls) / worker.ranks


def surplus_of(worker: Worker) -> int:
    """Calls that a worker might give back."""
    return 0 if worker.exhausted or worker.asked else len(worker.calls) - worker.ranks
