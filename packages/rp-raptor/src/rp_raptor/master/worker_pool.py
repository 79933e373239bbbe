"""The workers of a router, ranked: which of them gets the next calls, and which is asked to give some back.

A change of a worker costs the same with one worker and with a thousand: it is only noted, and changed workers are
counted and ranked again, in logarithmic time, when the router asks next.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter

from rp_raptor.wire.ids import Held

_BULK = 256
"""Calls for which a message costs little beside the calls themselves."""

_SPARE = 64
"""Outdated entries of a ranking that are kept in any case."""


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

    @property
    def bulk(self) -> int:
        """The number of calls that it gets at least at a time: what one of its ranks does in about 5 ms.

        Its credit is the work of about 0.1 s for each of its ranks (`rp_raptor.worker.estimate`).
        """
        return min(_BULK, self.free // (16 * self.ranks))

    @property
    def surplus(self) -> int:
        """The number of calls that it may have to give back."""
        return 0 if self.exhausted or self.asked else len(self.calls) - self.ranks

    def fits(self, ranks: int) -> bool:
        """Return whether the worker can run a call over so many ranks."""
        return ranks <= 1 or (self.mpi and ranks <= self.widest)


class Ranking:
    """Workers by a key, lowest first, and equal ones in the order of their places."""

    __slots__ = ('_heap', '_keys')

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, PooledWorker]] = []   # some entries have another key than below
        self._keys: dict[PooledWorker, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, worker: PooledWorker, key: float | None) -> None:
        """Set the key of a worker; with None, the worker is not in the ranking."""
        if self._keys.get(worker) == key:
            return
        if key is None:
            del self._keys[worker]
            return
        self._keys[worker] = key
        heappush(self._heap, (key, worker.place, worker))
        if len(self._heap) > 2 * len(self._keys) + _SPARE:
            self._heap = [(key, worker.place, worker) for worker, key in self._keys.items()]
            heapify(self._heap)

    def pop(self) -> PooledWorker | None:
        """Remove and return the first worker; None if there is none."""
        while self._heap:
            key, _, worker = heappop(self._heap)
            if self._keys.get(worker) == key:
                del self._keys[worker]
                return worker
        return None


class WorkerPool:
    """Ranks workers and adds up their capacity; `changed` has to follow a change of a worker's calls or credit.

    It knows the workers that are expected, and why the last one has failed.
    """

    def __init__(self) -> None:
        self.workers: dict[bytes, PooledWorker] = {}
        self._expected: dict[str, int] = {}   # ranks of workers that were submitted and are not connected
        self._failure = ''   # of the last worker that failed
        self._worked = False   # a worker has had room for calls
        self._changed: set[PooledWorker] = set()
        self._counted: dict[PooledWorker, tuple[int, int]] = {}   # capacity and lacking calls, as in the sums below
        self._capacity = self._lacking = 0
        self._ready = Ranking()   # workers with credit, those with the least load first
        self._rich = Ranking()    # workers with calls to give back, those with the most first
        self._ready_mpi: set[PooledWorker] = set()
        self._places = count(1)

    def expect(self, uid: str, ranks: int) -> None:
        """Expect a worker, which calls wait for."""
        self._expected[uid] = ranks

    def lost(self, uid: str, failure: str) -> None:
        """Stop to expect a worker; `failure` is the reason if it has failed."""
        self._expected.pop(uid, None)
        self._failure = failure or self._failure

    def add(self, worker: PooledWorker) -> None:
        """Add a worker, after all others."""
        self._expected.pop(worker.uid, None)
        self.workers[worker.address] = worker
        worker.place = next(self._places)
        self._counted[worker] = 0, 0
        self._changed.add(worker)

    def remove(self, worker: PooledWorker) -> None:
        """Remove a worker."""
        del self.workers[worker.address]
        self._count(worker, 0, 0)
        del self._counted[worker]
        self._changed.discard(worker)
        self._ready_mpi.discard(worker)
        self._ready.put(worker, None)
        self._rich.put(worker, None)

    def changed(self, worker: PooledWorker) -> None:
        """Note a change of a worker, which may have been removed."""
        if worker in self._counted:
            self._changed.add(worker)

    def ranks_for(self, width: int) -> int:
        """Return the number of calls over so many ranks that the workers can run at a time."""
        return sum(max(1, worker.ranks // width) for worker in self.workers.values() if worker.fits(width))

    def lacks(self, ranks: int) -> bool:
        """Return whether no worker, connected or expected, can run calls over so many ranks."""
        return not (any(worker.fits(ranks) for worker in self.workers.values())
                    or any(expected >= ranks for expected in self._expected.values()))

    @property
    def hopeless(self) -> bool:
        """True if what the workers lack is not expected to come: some are there, or one has failed."""
        return bool(self._failure or self.workers)

    @property
    def vain(self) -> bool:
        """True if a worker has failed, none is connected, and none has ever been ready."""
        return bool(self._failure) and not (self._worked or self.workers)

    def lack(self, ranks: int) -> str:
        """Return why no worker can run calls over so many ranks."""
        if self.workers:
            largest = max((worker.widest for worker in self.workers.values() if worker.mpi), default=0)
            return f'no worker can run a call over {ranks} ranks: ' + (
                f'the largest one has {largest}' if largest else 'none of them uses MPI')
        if self._failure:
            return f'no worker is left: {self._failure}'
        return 'there is none, and none is expected'

    @property
    def capacity(self) -> int:
        """The number of calls that the workers have or have credit for."""
        self._refresh()
        return self._capacity

    @property
    def lacking(self) -> int:
        """The number of ranks without a call, of workers with credit, less the calls that others were asked for."""
        self._refresh()
        return self._lacking

    @property
    def ready(self) -> int:
        """The number of workers with credit that `pop_ready` has not returned since they have changed."""
        self._refresh()
        return len(self._ready)

    def pop_ready(self) -> PooledWorker | None:
        """Return the worker with the least load of those with credit; it comes again after its next change."""
        return self._ready.pop()

    def pop_richest(self) -> PooledWorker | None:
        """Return the worker with the most calls to give back; it comes again after its next change."""
        self._refresh()
        return self._rich.pop()

    def ready_mpi(self) -> list[PooledWorker]:
        """Return the workers with MPI and credit, in the order in which they were added."""
        self._refresh()
        return sorted(self._ready_mpi, key=attrgetter('place'))

    def _refresh(self) -> None:
        for worker in self._changed:
            calls, free, surplus = len(worker.calls), worker.free, worker.surplus
            self._count(worker, calls + free, (max(0, worker.ranks - calls) if free else 0) - worker.asked)
            self._ready.put(worker, calls / worker.ranks if free else None)   # the load
            self._rich.put(worker, -surplus if surplus > 0 else None)
            if worker.mpi:
                (self._ready_mpi.add if free else self._ready_mpi.discard)(worker)
        self._changed.clear()

    def _count(self, worker: PooledWorker, capacity: int, lacking: int) -> None:
        old = self._counted[worker]
        self._capacity += capacity - old[0]
        self._worked |= capacity > 0
        self._lacking += lacking - old[1]
        self._counted[worker] = capacity, lacking
