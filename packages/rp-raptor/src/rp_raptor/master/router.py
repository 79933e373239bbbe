"""Which worker gets which call, and what becomes of calls whose worker is gone: decisions only, no sockets, no clock.

A call is in one place at a time: it waits in the queue of its source (or, if it needs several ranks, among the wide
ones), or a worker has it. What takes it out of its place gives its source the one result: the worker's answer, or an
error if it was cancelled, or died once too often, or nobody is left who could run it. Answers of a worker for calls
that it does not have (any more) are dropped.

Workers pull: they get calls as far as they have asked for some. Sources take turns. When nothing waits while ranks are
idle, the worker with the most calls beyond its ranks is asked to give some back.

The number of a call is that of its source, shifted, plus the number that the source has given it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError
from itertools import compress
from operator import not_

from rp_raptor.errors import CallLost
from rp_raptor.master.sources import Attributes, Call, CallOwner, CallSource, Worker, load, surplus_of
from rp_raptor.wire.ids import hold, release, source_of, with_source, without_source
from rp_raptor.wire.payload import discard, encode_error
from rp_raptor.wire.protocol import BULK, CALLS, Message

WORKER_TIMEOUT = 30.0
"""Seconds that calls wait when the last worker that could run them has failed, before they do: another may come."""

LARGE = 16 << 20
"""Bytes above which calls travel one by one."""

_SHIFT = CALLS.bit_length() - 1


class CallRouter:
    """Deals calls out to workers and results to sources; `send(address, message)` reaches a worker.

    `retries` is how often a call is repeated whose worker or rank has died.
    """

    def __init__(self, send: Callable[[bytes, Message], object], retries: int = 1) -> None:
        self._send = send
        self._retries = retries
        self._sources: dict[int, CallSource] = {}
        self._turns: deque[CallSource] = deque()   # sources with calls in their queues
        self._wide: dict[int, deque[Call]] = {}   # by ranks
        self._deaths: dict[int, int] = {}
        self._functions: dict[bytes, bytes] = {}
        self._expected: dict[str, int] = {}   # ranks of workers that are to come
        self._failure = ''   # how the last worker has failed
        self._lacking: dict[int, float] = {}   # since when nobody can run calls over so many ranks
        self._made = 0
        self.workers: dict[bytes, Worker] = {}

    # sources

    def open(self, owner: CallOwner) -> CallSource:
        """A new source."""
        self._made += 1
        source = self._sources[self._made] = CallSource(self._made, owner)
        return source

    def close(self, source: CallSource) -> None:
        """Forget a source: its calls are dropped where they wait, and cancelled where they run."""
        if self._sources.pop(source.number, None) is None:
            return
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
        """Make a function known to all workers, also to those to come, until no source needs it any more."""
        source.functions.add(fid)
        if fid not in self._functions:
            self._functions[fid] = blob
            for address in self.workers:
                self._send(address, ['define', fid, blob])

    def forget(self, source: CallSource, fid: bytes) -> None:
        """The source makes no further calls of a function, and all that it has made have results."""
        source.functions.discard(fid)
        if not any(fid in other.functions for other in self._sources.values()) and self._functions.pop(fid, b''):
            for address in self.workers:
                self._send(address, ['forget', fid])

    def calls(self, source: CallSource, ids: array[int], payloads: list[bytes], attributes: Attributes | None) -> None:
        """Take in calls of a source; `deal` has to follow."""
        source.open += len(ids)
        numbers = with_source(ids, source.number, _SHIFT)
        if attributes:
            base = source.number << _SHIFT
            source.attributes.update((base | number, each) for number, each in attributes.items())
            numbers, payloads = self._sort_out_wide(source, numbers, payloads)
        if numbers:
            if not source.queue:
                self._turns.append(source)
            source.queue.append(numbers, payloads)

    def cancel(self, source: CallSource, ids: Collection[int]) -> None:
        """Cancel calls of a source, as far as they have no result yet."""
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

    # workers

    def expect(self, uid: str, ranks: int) -> None:
        """A worker is to come: calls wait for it."""
        self._expected[uid] = ranks

    def worker_lost(self, uid: str, failure: str) -> None:
        """A worker will not come, or not come back; `failure` tells why if that was not wanted."""
        self._expected.pop(uid, None)
        self._failure = failure or self._failure

    def attach(self, worker: Worker) -> None:
        """A worker has come."""
        self._expected.pop(worker.uid, None)
        self.workers[worker.address] = worker
        for fid, blob in self._functions.items():
            self._send(worker.address, ['define', fid, blob])

    def detach(self, worker: Worker, reason: str, *, died: bool) -> None:
        """A worker is gone; its calls are given to others, those that have `died` too often with it fail."""
        if self.workers.get(worker.address) is not worker:
            return
        del self.workers[worker.address]
        if died:
            self._failure = reason
            self.died(worker, list(worker.calls), reason)
        else:
            self.returned(worker, list(worker.calls))

    def credit(self, worker: Worker, count: int) -> None:
        """A worker takes more calls; `deal` has to follow."""
        worker.free += count

    def results(self, worker: Worker, ids: array[int], payloads: list[bytes]) -> None:
        """Pass the results of a worker on to the sources."""
        expected = release(worker.calls, ids)
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

    def returned(self, worker: Worker, ids: Sequence[int]) -> None:
        """A worker has given calls back; `deal` has to follow."""
        worker.asked, worker.exhausted = 0, not ids
        self._put_back([(number, payload) for number in ids if (payload := worker.calls.pop(number, None))])

    def died(self, worker: Worker, ids: Sequence[int], reason: str) -> None:
        """What ran these calls has died: they are repeated or fail; `deal` has to follow."""
        again, lost = [], []
        for number in ids:
            payload = worker.calls.pop(number, None)
            if payload is None:
                continue
            deaths = self._deaths[number] = self._deaths.get(number, 0) + 1
            if deaths > self._retries:
                lost.append(number)
            else:
                again.append((number, payload))
        self._put_back(again)
        if lost:
            self._conclude(lost, encode_error(CallLost(reason)))

    # dealing

    @property
    def waiting(self) -> int:
        """How many calls no worker has yet."""
        return sum(len(source.queue) for source in self._turns) + sum(map(len, self._wide.values()))

    @property
    def capacity(self) -> int:
        """How many calls the workers have or would take now."""
        return sum(worker.free + len(worker.calls) for worker in self.workers.values())

    def deal(self) -> None:
        """Give waiting calls to workers that have asked for some."""
        ready = [worker for worker in self.workers.values() if worker.free > 0]
        if not ready:
            return
        if self._wide:
            self._deal_wide(ready)
        waiting = sum(len(source.queue) for source in self._turns)
        while waiting and (ready := [worker for worker in ready if worker.free > 0]):
            ready.sort(key=load)
            for left, worker in zip(range(len(ready), 0, -1), ready, strict=True):
                share = min(worker.free, -(-waiting // left))
                self._give(worker, share)
                waiting -= share
        if not waiting:
            self._even_out()

    def check(self, now: float) -> None:
        """Fail the calls that nobody can run any more; to be called every few seconds."""
        narrow = sum(len(source.queue) for source in self._turns)
        wanted = {ranks for ranks, calls in self._wide.items() if calls} | ({1} if narrow else set())
        lacking = {ranks for ranks in wanted if self._lacks(ranks)}
        self._lacking = {ranks: self._lacking.get(ranks, now) for ranks in lacking}
        for ranks, since in self._lacking.items():
            if now - since >= WORKER_TIMEOUT:
                self._fail_waiting(ranks)

    def fail_all(self, reason: str) -> None:
        """Fail every call that has no result."""
        ids = [number for worker in self.workers.values() for number in worker.calls]
        for worker in self.workers.values():
            worker.calls.clear()
        ids += [number for calls in self._wide.values() for number, _ in calls]
        self._wide.clear()
        ids += self._clear_sources()
        self._conclude(ids, encode_error(CallLost(reason)))

    def _lacks(self, ranks: int) -> bool:
        """Whether there is no worker for calls over so many ranks, and none to be expected."""
        if any(worker.fits(ranks) for worker in self.workers.values()):
            return False
        if any(expected >= ranks for expected in self._expected.values()):
            return False
        return bool(self._failure or self.workers)

    def _fail_waiting(self, ranks: int) -> None:
        if self.workers:
            largest = max((worker.ranks for worker in self.workers.values() if worker.mpi), default=0)
            reason = f'no worker can run a call over {ranks} ranks: ' + (
                f'the largest one has {largest}' if largest else 'none of them uses MPI')
        else:
            reason = f'no worker is left: {self._failure}'
        ids = [number for number, _ in self._wide.pop(ranks, ())]
        if ranks == 1:
            ids += self._clear_sources()
        self._conclude(ids, encode_error(CallLost(reason)))

    def _clear_sources(self) -> list[int]:
        ids = [number for source in self._turns for number in source.queue.clear()]
        self._turns.clear()
        return ids

    def _give(self, worker: Worker, count: int) -> None:
        """Send a worker so many of the calls that wait."""
        while count:
            source = self._turns[0]
            ids, payloads = source.queue.take(min(count, BULK), LARGE)
            self._hand_over(worker, source, ids, payloads)
            count -= len(ids)
            if source.queue:
                self._turns.rotate(-1)
            else:
                self._turns.popleft()

    def _hand_over(self, worker: Worker, source: CallSource, ids: array[int], payloads: list[bytes]) -> None:
        hold(worker.calls, ids, payloads)
        worker.free -= len(ids)
        worker.exhausted = False
        attributes = None
        if source.attributes:
            attributes = {number: each for number in ids if (each := source.attributes.get(number))}
        self._send(worker.address, ['calls', ids.tobytes(), payloads, attributes or None])
        source.owner.started(without_source(ids, _SHIFT))

    def _deal_wide(self, ready: Iterable[Worker]) -> None:
        for ranks, calls in self._wide.items():
            for worker in ready:
                while calls and worker.free > 0 and worker.fits(ranks):
                    number, payload = calls.popleft()
                    self._hand_over(worker, self._sources[number >> _SHIFT], array('Q', [number]), [payload])

    def _even_out(self) -> None:
        """Have a worker give calls back when others have idle ranks and nothing else to do."""
        workers = self.workers.values()
        lacking = sum(worker.ranks - len(worker.calls) for worker in workers
                      if worker.free > 0 and len(worker.calls) < worker.ranks)
        lacking -= sum(worker.asked for worker in workers)
        while lacking > 0:
            richest = max(workers, key=surplus_of)
            surplus = surplus_of(richest)
            if surplus <= 0:
                return
            richest.asked = min(surplus, max(lacking, surplus // 2))
            self._send(richest.address, ['give_back', richest.asked])
            lacking -= richest.asked

    # what becomes of calls

    def _sort_out_wide(self, source: CallSource, ids: array[int],
                       payloads: list[bytes]) -> tuple[array[int], list[bytes]]:
        """Put the calls that need several ranks aside; gives the others."""
        narrow = [_ranks(source, number) == 1 for number in ids]
        if not all(narrow):
            for number, payload in compress(zip(ids, payloads, strict=True), map(not_, narrow)):
                self._wide.setdefault(_ranks(source, number), deque()).append((number, payload))
            ids, payloads = array('Q', compress(ids, narrow)), list(compress(payloads, narrow))
        return ids, payloads

    def _put_back(self, calls: list[Call]) -> None:
        """Let calls wait again, before all others of their source; those of a source that is gone are dropped."""
        narrow: dict[int, list[Call]] = {}
        for number, payload in reversed(calls):
            source = self._sources.get(number >> _SHIFT)
            if source is None:
                self._deaths.pop(number, None)
            elif (ranks := _ranks(source, number)) > 1:
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
        """The same result for calls that are in no place any more."""
        for source in {number >> _SHIFT for number in ids}:
            mine = array('Q', [number for number in ids if number >> _SHIFT == source])
            self._deliver(source, mine, [payload] * len(mine))

    def _deliver(self, number: int, ids: array[int], payloads: list[bytes]) -> None:
        """Give results to the source that they are all for."""
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

    def _tell_cancel(self, worker: Worker, ids: list[int]) -> None:
        if ids:
            self._send(worker.address, ['cancel', array('Q', ids).tobytes()])


def _ranks(source: CallSource, number: int) -> int:
    """How many ranks a call needs."""
    attributes = source.attributes.get(number)
    return max(1, int(attributes.get('ranks', 1))) if attributes else 1


def _remove(calls: deque[Call], wanted: Callable[[int], bool]) -> list[Call]:
    """Take the calls with the numbers that are wanted out of a queue."""
    found = [call for call in calls if wanted(call[0])]
    if found:
        kept = [call for call in calls if not wanted(call[0])]
        calls.clear()
        calls.extend(kept)
    return found
