"""Ranked workers: the router decides as if it looked at all workers each time."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rp_raptor.master.router import CallRouter
from rp_raptor.master.worker_pool import PooledWorker, Ranking, WorkerPool
from rp_raptor.wire.batch import pack_message
from rp_raptor.wire.payload import encode_value


class ScanningPool(WorkerPool):
    """The model: it ranks nothing, and looks at all workers for each answer."""

    def __init__(self) -> None:
        super().__init__()
        self._all: list[PooledWorker] = []
        self._popped: list[PooledWorker] = []   # workers that have not changed since they were returned

    def add(self, worker: PooledWorker) -> None:
        self.workers[worker.address] = worker
        self._all.append(worker)

    def remove(self, worker: PooledWorker) -> None:
        del self.workers[worker.address]
        self._all.remove(worker)

    def changed(self, worker: PooledWorker) -> None:
        # the pool ranks changed workers again when it is asked for their number
        self._changed.add(worker)

    @property
    def capacity(self) -> int:
        return sum(worker.free + len(worker.calls) for worker in self._all)

    @property
    def lacking(self) -> int:
        return (sum(worker.ranks - len(worker.calls) for worker in self._all
                    if worker.free > 0 and len(worker.calls) < worker.ranks)
                - sum(worker.asked for worker in self._all))

    @property
    def ready(self) -> int:
        self._popped = [worker for worker in self._popped if worker not in self._changed]
        self._changed.clear()
        return len(self._free())

    def pop_ready(self) -> PooledWorker | None:
        self._popped.append(min(self._free(), key=lambda worker: len(worker.calls) / worker.ranks))
        return self._popped[-1]

    def pop_richest(self) -> PooledWorker | None:
        return max((worker for worker in self._all if worker.surplus > 0), key=lambda worker: worker.surplus,
                   default=None)

    def ready_mpi(self) -> list[PooledWorker]:
        return [worker for worker in self._all if worker.mpi and worker.free > 0]

    def _free(self) -> list[PooledWorker]:
        return [worker for worker in self._all if worker.free > 0 and worker not in self._popped]


class Owner:
    """The owner of calls; remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []

    def started(self, ids: array[int]) -> None:
        self.heard.append(('started', list(ids)))

    def results(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        self.heard.append(('results', list(ids)))


class Side:
    """A router with its workers, as a list in which lost ones stay."""

    def __init__(self, pool: WorkerPool) -> None:
        self.sent: list[Any] = []
        self.router = CallRouter(lambda address, message: self.sent.append((address, pack_message(message))))
        self.router.pool, self.router.workers = pool, pool.workers
        self.owner = Owner()
        self.sources = [self.router.open(self.owner) for _ in range(2)]
        self.workers: list[PooledWorker] = []
        self.made = 0

    def worker(self, which: int) -> PooledWorker | None:
        return self.workers[which % len(self.workers)] if self.workers else None

    def attach(self, number: int, ranks: int, mpi: bool) -> None:
        worker = PooledWorker(b'w%d' % number, f'w{number}', ranks, mpi)
        self.workers.append(worker)
        self.router.attach(worker)

    def calls(self, which: int, count: int, ranks: int) -> None:
        ids = array('Q', range(self.made, self.made + count))
        self.made += count
        attributes = {number: {'ranks': ranks} for number in ids} if ranks > 1 else None
        self.router.calls(self.sources[which % 2], ids, [b'call'] * count, attributes)

    def end(self, which: int, count: int, how: str) -> None:
        worker = self.worker(which)
        if worker is None:
            return
        ids = array('Q', list(worker.calls)[:count])
        if how == 'results':
            self.router.results(worker, ids, [encode_value(0)] * len(ids))
        elif how == 'returned':
            self.router.returned(worker, ids)
        elif how == 'died':
            self.router.died(worker, ids, 'a rank has died')
        elif how == 'reclaim':
            self.router.give_back(self.sources[which % 2], count, lambda ids: self.sent.append(list(ids)))
        elif how == 'detach':
            self.router.detach(worker, 'it is lost', died=True)
        else:
            self.router.cancel(self.sources[0], [number & 0xffff for number in ids])

    def credit(self, which: int, count: int) -> None:
        if worker := self.worker(which):
            self.router.credit(worker, count)

    @property
    def facts(self) -> Any:
        return self.sent, self.owner.heard, self.router.pool.capacity, [
            (list(worker.calls), worker.free, worker.asked) for worker in self.workers]


def random_step(chance: random.Random, workers: int) -> tuple[str, list[Any]]:
    """The name of a method of `Side`, with arguments."""
    some, which = chance.choice((1, 3, 12, 40)), chance.randrange(max(1, workers))
    operation = chance.choices(('attach', 'calls', 'credit', 'end'), (workers < 8, 3, 3, 5))[0]
    if operation == 'attach':
        return operation, [workers, chance.randint(1, 5), chance.random() < 0.5]
    if operation == 'calls':
        return operation, [which, some, chance.choice((1, 1, 1, 2, 4))]
    if operation == 'credit':
        return operation, [which, some]
    return operation, [which, some, chance.choices(('results', 'returned', 'died', 'detach', 'cancel', 'reclaim'),
                                                   (12, 6, 1, 0.3, 1, 1))[0]]


@given(st.integers(0, 1 << 32))
def test_the_router_decides_as_if_it_looked_at_all_workers(seed: int) -> None:
    chance = random.Random(seed)
    ranked, scanned = Side(WorkerPool()), Side(ScanningPool())
    for _ in range(chance.choice((10, 150))):
        operation, arguments = random_step(chance, len(ranked.workers))
        deals = chance.random() < 0.8   # the master deals after some messages
        for side in (ranked, scanned):
            getattr(side, operation)(*arguments)
            if deals:
                side.router.deal()
        assert ranked.facts == scanned.facts


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=400))
def test_a_ranking_gives_workers_in_order_and_stays_small(changes: list[tuple[int, int | None]]) -> None:
    workers = [PooledWorker(b'', str(place), 1, False) for place in range(6)]
    for place, worker in enumerate(workers):
        worker.place = place
    ranking = Ranking()
    keys: dict[int, int | None] = {}
    for place, key in changes:
        ranking.put(workers[place], key)
        keys[place] = key
        assert len(ranking._heap) <= 2 * len(ranking) + 65
    expected = sorted((key, place) for place, key in keys.items() if key is not None)
    assert len(ranking) == len(expected)
    assert [ranking.pop() for _ in range(len(expected) + 1)] == [workers[place] for _, place in expected] + [None]


def test_a_worker_that_is_gone_counts_no_more() -> None:
    pool, worker = WorkerPool(), PooledWorker(b'w', 'w', 4, True)
    worker.free = 7
    pool.add(worker)
    assert (pool.capacity, pool.lacking, pool.ready, pool.ready_mpi()) == (7, 4, 1, [worker])
    pool.remove(worker)
    pool.changed(worker)
    assert (pool.capacity, pool.lacking, pool.ready, pool.ready_mpi()) == (0, 0, 0, [])
    assert pool.pop_ready() is None
    assert pool.pop_richest() is None
