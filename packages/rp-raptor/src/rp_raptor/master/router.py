"""Distributes calls to workers, and redistributes those of lost workers: decisions only, without sockets or a clock.

A call is in one place at a time: in the queue of its source (a call over several ranks: in the queue of wide calls), or
with a worker. When it leaves its place, its source gets the one result: that of the worker, or an error if the call was
cancelled, its process died more often than allowed, or no worker can run it. Results of calls that a worker does not
have are dropped.

Workers pull calls: they get as many as they have granted credit for. Sources take turns. Waiting calls are shared out
evenly, but very short ones in bulks (`PooledWorker.bulk`): otherwise, the more workers there were, the fewer calls a
message would have. When no call waits while ranks are idle, the worker with the most calls beyond its ranks is asked to
give some back.

A call's number is the number of its source, shifted, plus the number that the source has assigned.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError
from itertools import compress
from operator import not_

from rp_raptor.errors import CallLost
from rp_raptor.master.sources import Answer, Attributes, Call, CallOwner, CallSource, Reclaim
from rp_raptor.master.worker_pool import PooledWorker, WorkerPool
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.ids import hold, release, source_of, with_source, without_source
from rp_raptor.wire.payload import discard, encode_error
from rp_raptor.wire.protocol import BULK, CALLS, Message

WORKER_TIMEOUT = 30.0
"""Seconds that calls wait for another worker after the last one that could run them has failed."""

ALONE_BYTES = 16 << 20
"""Payload bytes above which calls are sent one by one."""

_SHIFT = CALLS.bit_length() - 1


class CallRouter:
    """Distributes calls to workers and results to sources; `send(address, message)` sends to a worker.

    `retries` is the number of repetitions of a call whose worker or rank has died.
    """

    def __init__(self, send: Callable[[bytes, Message], object], retries: int = 1) -> None:
        self._send = send
        self._retries = retries
        self._sources: dict[int, CallSource] = {}
        self._turns: deque[CallSource] = deque()   # sources with calls in their queues
        self._wide: dict[int, deque[Call]] = {}   # by number of ranks
        self._deaths: dict[int, int] = {}
        self._functions: dict[bytes, bytes] = {}
        self._lacking: dict[int, float] = {}   # ranks for which there is no worker: time since when
        self._made = 0
        self._reclaims: list[Reclaim] = []
        self.pool = WorkerPool()
        self.workers = self.pool.workers

    # sources

    def open(self, owner: CallOwner) -> CallSource:
        """Return a new source."""
        self._made += 1
        source = self._sources[self._made] = CallSource(self._made, owner)
        return source

    def close(self, source: CallSource) -> None:
        """Remove a source: its waiting calls are dropped, its running ones cancelled."""
        if self._sources.pop(source.number, None) is None:
            return
        self._reclaims = [reclaim for reclaim in self._reclaims if reclaim.source is not source]
        if source.open:
            source.queue.clear()
            if source in self._turns:
                self._turns.remove(source)
            for calls in self._wide.values():
                _remove(calls, lambda number: number >> _SHIFT == source.number)
            for worker in self.workers.values():
                self._tell_cancel(worker, [number for number in worker.calls if number >> _SHIFT == source.number])
            for number in [number for number in self._deaths if number >> _SHIFT == source.number]:
                del self._deaths[number]
        for fid in list(source.functions):
            self.forget(source, fid)

    def define(self, source: CallSource, fid: bytes, blob: bytes) -> None:
        """Define a function at all workers, present and future, until no source needs it."""
        source.functions.add(fid)
        if fid not in self._functions:
            self._functions[fid] = blob
            for address in self.workers:
                self._send(address, ['define', fid, blob])

    def forget(self, source: CallSource, fid: bytes) -> None:
        """Remove a function that the source makes no further calls of."""
        source.functions.discard(fid)
        if not any(fid in other.functions for other in self._sources.values()) and self._functions.pop(fid, b''):
            for address in self.workers:
                self._send(address, ['forget', fid])

    def calls(self, source: CallSource, ids: array[int], payloads: Sequence[bytes],
              attributes: Attributes | None) -> None:
        """Queue calls of a source; `deal` has to follow."""
        source.open += len(ids)
        numbers = with_source(ids, source.number, _SHIFT)
        if attributes:
            base = source.number << _SHIFT
            source.attributes.update((base | number, each) for number, each in attributes.items())
            narrow = [source.ranks_of(number) == 1 for number in numbers]
            if not all(narrow):
                for number, payload in compress(zip(numbers, payloads, strict=True), map(not_, narrow)):
                    self._wide.setdefault(source.ranks_of(number), deque()).append((number, payload))
                numbers, payloads = array('Q', compress(numbers, narrow)), list(compress(payloads, narrow))
        if numbers:
            if not source.queue:
                self._turns.append(source)
            source.queue.append(numbers, payloads)

    def cancel(self, source: CallSource, ids: Collection[int]) -> None:
        """Cancel those of the calls that have no result yet."""
        base = source.number << _SHIFT
        wanted = {base | number for number in ids}
        for worker in self.workers.values():
            self._tell_cancel(worker, list(wanted & worker.calls.keys()))
        found = source.queue.remove(wanted)
        if found and not source.queue:
            self._turns.remove(source)
        for calls in self._wide.values():
            found.extend(number for number, _ in _remove(calls, wanted.__contains__))
        self._conclude(found, encode_error(CancelledError('the call was cancelled')))

    def give_back(self, source: CallSource, count: int, answer: Answer) -> None:
        """Take up to `count` calls of a source away that no rank has started; `answer` gets their numbers, or none."""
        reclaim = Reclaim(source, answer, self._withdraw(source, count), count)
        while reclaim.missing > 0 and (worker := self.pool.pop_richest()):
            worker.asked = reclaim.asked[worker.address] = min(worker.surplus, reclaim.missing)
            self.pool.changed(worker)
            self._send(worker.address, ['give_back', worker.asked])
        if reclaim.asked:
            self._reclaims.append(reclaim)
        else:
            answer(reclaim.found)

    # workers

    def attach(self, worker: PooledWorker) -> None:
        """Add a worker."""
        self.pool.add(worker)
        for fid, blob in self._functions.items():
            self._send(worker.address, ['define', fid, blob])

    def detach(self, worker: PooledWorker, reason: str, *, died: bool) -> None:
        """Remove a worker; its calls are repeated, or fail if their processes have `died` too often."""
        if self.workers.get(worker.address) is not worker:
            return
        self.pool.remove(worker)
        if died:
            self.pool.lost(worker.uid, reason)
            self.died(worker, list(worker.calls), reason)
            self._settle_reclaims(worker)
        else:
            self.returned(worker, list(worker.calls))

    def credit(self, worker: PooledWorker, count: int) -> None:
        """Give a worker room for more calls; `deal` has to follow."""
        worker.free += count
        self.pool.changed(worker)

    def results(self, worker: PooledWorker, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Deliver the results of a worker to the sources."""
        expected = release(worker.calls, ids)
        self.pool.changed(worker)
        if expected is not None:
            for payload in compress(payloads, map(not_, expected)):
                discard(payload)
            ids, payloads = array('Q', compress(ids, expected)), list(compress(payloads, expected))
        if not ids:
            return
        source = source_of(ids, _SHIFT)
        if source is not None:
            self._deliver(source, ids, payloads)
            return
        for source in {number >> _SHIFT for number in ids}:
            mine = [number >> _SHIFT == source for number in ids]
            self._deliver(source, array('Q', compress(ids, mine)), list(compress(payloads, mine)))

    def returned(self, worker: PooledWorker, ids: Sequence[int]) -> None:
        """Queue calls that a worker has given back; `deal` has to follow."""
        worker.asked, worker.exhausted = 0, not ids
        self.pool.changed(worker)
        self._put_back([(number, held.of(number)) for number in ids if (held := worker.calls.pop(number, None))])
        self._settle_reclaims(worker)

    def died(self, worker: PooledWorker, ids: Sequence[int], reason: str) -> None:
        """Repeat or fail calls whose process has died; `deal` has to follow."""
        again, lost = [], []
        self.pool.changed(worker)
        for number in ids:
            held = worker.calls.pop(number, None)
            if held is None:
                continue
            deaths = self._deaths[number] = self._deaths.get(number, 0) + 1
            if deaths > self._retries:
                lost.append(number)
            else:
                again.append((number, held.of(number)))
        self._put_back(again)
        if lost:
            self._conclude(lost, encode_error(CallLost(reason)))

    def _settle_reclaims(self, worker: PooledWorker) -> None:
        """Answer those who wait for calls that the worker was asked to give back."""
        for reclaim in list(self._reclaims):
            if reclaim.asked.pop(worker.address, 0):
                reclaim.found.extend(self._withdraw(reclaim.source, reclaim.count - len(reclaim.found)))
                if not reclaim.asked:
                    self._reclaims.remove(reclaim)
                    reclaim.answer(reclaim.found)

    def _withdraw(self, source: CallSource, count: int) -> array[int]:
        """Take the last waiting calls of a source away, except those that have died, and return their numbers."""
        queue, deaths = source.queue, self._deaths
        if deaths:
            found = queue.remove(set([number for number in queue.first(len(queue)) if number not in deaths][-count:]))
        else:
            found = queue.take_last(count)
        if found and not queue:
            self._turns.remove(source)
        for calls in self._wide.values():
            mine = [number for number, _ in calls if number >> _SHIFT == source.number and number not in deaths]
            last = set(mine[len(found) - count:] if len(found) < count else ())
            found.extend(number for number, _ in _remove(calls, last.__contains__))
        source.open -= len(found)
        for number in found:
            source.attributes.pop(number, None)
        return without_source(found, _SHIFT)

    # distribution

    @property
    def waiting(self) -> int:
        """The number of calls that no worker has."""
        return sum(len(source.queue) for source in self._turns) + sum(map(len, self._wide.values()))

    def deal(self) -> None:
        """Send waiting calls to workers with credit, those with the least load first."""
        pool = self.pool
        if not pool.ready:
            return
        if any(self._wide.values()):
            self._deal_wide()
        waiting = sum(len(source.queue) for source in self._turns)
        while waiting and (left := pool.ready):
            while waiting and left and (worker := pool.pop_ready()):
                share = min(worker.free, waiting, max(-(-waiting // left), worker.bulk))
                self._give(worker, share)
                waiting -= share
                left -= 1
        if not waiting:
            self._even_out()

    def check(self, now: float) -> None:
        """Fail calls that no worker has been able to run for `WORKER_TIMEOUT`, or ever; called every few seconds."""
        timeout = 0.0 if self.pool.vain else WORKER_TIMEOUT
        lacking = {ranks for ranks in self._widths if self.pool.hopeless and self.pool.lacks(ranks)}
        self._lacking = {ranks: self._lacking.get(ranks, now) for ranks in lacking}
        for ranks, since in self._lacking.items():
            if now - since >= timeout:
                ids = [number for number, _ in self._wide.pop(ranks, ())]
                ids += self._clear_sources() if ranks == 1 else []
                self._conclude(ids, encode_error(CallLost(self.pool.lack(ranks))))

    def shortage(self) -> str:
        """Return the workers that calls wait for, with the reason; empty if present or expected ones can run them."""
        return next((f'workers ({self.pool.lack(ranks)})' for ranks in self._widths if self.pool.lacks(ranks)), '')

    def fail_all(self, reason: str) -> None:
        """Fail all calls without a result."""
        ids = [number for worker in self.workers.values() for number in worker.calls]
        for worker in self.workers.values():
            worker.calls.clear()
            self.pool.changed(worker)
        ids += [number for calls in self._wide.values() for number, _ in calls]
        self._wide.clear()
        ids += self._clear_sources()
        self._conclude(ids, encode_error(CallLost(reason)))

    @property
    def _widths(self) -> list[int]:
        """The numbers of ranks of waiting calls."""
        narrow = [1] if any(source.queue for source in self._turns) else []
        return narrow + sorted(ranks for ranks, calls in self._wide.items() if calls)

    def _clear_sources(self) -> list[int]:
        ids = [number for source in self._turns for number in source.queue.clear()]
        self._turns.clear()
        return ids

    def _give(self, worker: PooledWorker, count: int) -> None:
        """Send `count` waiting calls to a worker."""
        while count:
            source = self._turns[0]
            ids, payloads = source.queue.take(min(count, BULK), ALONE_BYTES)
            self._hand_over(worker, source, ids, payloads)
            count -= len(ids)
            if source.queue:
                self._turns.rotate(-1)
            else:
                self._turns.popleft()

    def _hand_over(self, worker: PooledWorker, source: CallSource, ids: array[int], payloads: Payloads) -> None:
        hold(worker.calls, ids, payloads)
        worker.free -= len(ids)
        worker.exhausted = False
        self.pool.changed(worker)
        attributes = None
        if source.attributes:
            attributes = {number: each for number in ids if (each := source.attributes.get(number))}
        self._send(worker.address, ['calls', ids, payloads, attributes or None])
        source.owner.started(without_source(ids, _SHIFT))

    def _deal_wide(self) -> None:
        ready = self.pool.ready_mpi()
        for ranks, calls in self._wide.items():
            for worker in ready:
                while calls and worker.free > 0 and worker.fits(ranks):
                    number, payload = calls.popleft()
                    self._hand_over(worker, self._sources[number >> _SHIFT], array('Q', [number]), Payloads([payload]))

    def _even_out(self) -> None:
        """Ask workers to give calls back when ranks of others are idle and no call waits."""
        lacking = self.pool.lacking
        while lacking > 0 and (richest := self.pool.pop_richest()):
            surplus = richest.surplus
            richest.asked = min(surplus, max(lacking, surplus // 2))
            self.pool.changed(richest)
            self._send(richest.address, ['give_back', richest.asked])
            lacking -= richest.asked

    # results and repetitions

    def _put_back(self, calls: list[Call]) -> None:
        """Queue calls again, before all others of their source; drop those of a source that is closed."""
        narrow: dict[int, list[Call]] = {}
        for number, payload in reversed(calls):
            source = self._sources.get(number >> _SHIFT)
            if source is None:
                self._deaths.pop(number, None)
            elif (ranks := source.ranks_of(number)) > 1:
                self._wide.setdefault(ranks, deque()).appendleft((number, payload))
            else:
                narrow.setdefault(source.number, []).append((number, payload))
        for each, found in narrow.items():
            queue = self._sources[each].queue
            if not queue:
                self._turns.appendleft(self._sources[each])
            found.reverse()
            queue.prepend(array('Q', [number for number, _ in found]), [payload for _, payload in found])

    def _conclude(self, ids: Collection[int], payload: bytes) -> None:
        """Deliver the same result for calls that are in no place any more."""
        for source in {number >> _SHIFT for number in ids}:
            mine = array('Q', [number for number in ids if number >> _SHIFT == source])
            self._deliver(source, mine, [payload] * len(mine))

    def _deliver(self, number: int, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Deliver results to one source."""
        if self._deaths:
            for each in ids:
                self._deaths.pop(each, None)
        source = self._sources.get(number)
        if source is None:
            for payload in payloads:
                discard(payload)
            return
        if source.attributes:
            for each in ids:
                source.attributes.pop(each, None)
        source.open -= len(ids)
        source.owner.results(without_source(ids, _SHIFT), payloads)

    def _tell_cancel(self, worker: PooledWorker, ids: list[int]) -> None:
        if ids:
            self._send(worker.address, ['cancel', array('Q', ids)])


def _remove(calls: deque[Call], wanted: Callable[[int], bool]) -> list[Call]:
    """Remove and return the calls whose numbers are wanted."""
    found = [call for call in calls if wanted(call[0])]
    if found:
        kept = [call for call in calls if not wanted(call[0])]
        calls.clear()
        calls.extend(kept)
    return found
