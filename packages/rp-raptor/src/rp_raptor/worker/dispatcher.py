"""The dispatcher: decides which rank gets which calls, and when; the core of a worker's manager, without I/O.

Events are method calls; the reactions go out through a `Port`. Idle ranks get calls first, then each rank gets bulks in
advance, so that it never waits for the next one. Calls that wait behind a long call are taken back. Each call ends as
exactly one of: a result, 'returned', 'died'.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from itertools import compress
from typing import Any

from rp_api.loop.event_loop import Timer
from rp_raptor.wire.batch import joined
from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.payload import join_parts
from rp_raptor.worker.call_queue import Attributes, CallQueue, RankResources, ranks_of
from rp_raptor.worker.estimate import Estimate
from rp_raptor.worker.interrupts import Interrupts, Port, error
from rp_raptor.worker.rank_queue import Call, RankQueue
from rp_raptor.worker.spanning import GROUP_GRACE, Group, Groups, SpanningCalls, Tell, has_failed

TAKE_BACK_DELAY = 0.01
"""Seconds that a rank may be in a call before the untaken calls behind it may be taken back."""

SLEEP = 1.0
"""Seconds after which calls are taken back from a rank that has not taken any."""

BULKS = 3
"""Bulks that a rank has: the one that it works on, and the next ones."""

PARKED = 1024
"""Asynchronous calls of a rank at most."""


class Dispatcher:
    """The calls of a worker's ranks on one node; `tell` sends messages to the managers on others."""

    def __init__(self, resources: RankResources, cursors: Cursors, port: Port, tell: Tell) -> None:
        self.queues = [RankQueue(rank, cursors) for rank in range(resources.ranks)]
        self._resources = resources
        self._port = port
        self._queue = CallQueue(resources)
        self._groups = Groups()
        self._interrupts = Interrupts(port, cursors, self._who_has)
        self._estimate = Estimate(resources.ranks)
        self._asked = 0   # credit for calls that have not arrived
        self._check: Timer | None = None
        self.spanning = SpanningCalls(resources.part, tell, self, port)

    # from the master

    def add(self, ids: array[int], payloads: Sequence[bytes], attributes: Attributes | None) -> None:
        """Queue calls."""
        self._asked = max(0, self._asked - len(ids))
        if attributes:
            faults = {id: fault for id in ids if (fault := self._resources.fault(attributes.get(id)))}
            if faults:
                self.answer(list(faults), [error(ValueError(fault)) for fault in faults.values()])
                possible = [id not in faults for id in ids]
                ids, payloads = array('Q', compress(ids, possible)), list(compress(payloads, possible))
                attributes = {id: each for id, each in attributes.items() if id not in faults}
        self._queue.add(ids, payloads, attributes)
        self.deal()

    def cancel(self, ids: array[int]) -> None:
        """Cancel calls; ids of calls that have ended meanwhile are ignored."""
        wanted = set(ids)
        for queue in self.queues:
            if not wanted.isdisjoint(queue.calls):
                self._take_back(queue)
        removed = self._queue.remove(wanted)
        for id in wanted.difference(removed):
            unstarted = self.spanning.cancel(id)
            if unstarted:
                removed.append(id)
            elif unstarted is None and self._who_has(id):
                self._interrupts.cancel(id)
        if removed:
            self.answer(removed, [error(CancelledError('the call was canceled before it started'))] * len(removed))
        self.deal()

    def give_back(self, count: int) -> None:
        """Give calls back to the master, which always gets an answer."""
        back = self._queue.pop_last(count)
        for queue in self.queues:
            if len(back) < count and len(queue.calls) > 1:
                self._take_back(queue)
                back += self._queue.pop_last(count - len(back))
        self._port.to_master(['returned', back])
        self._deal_out()

    def drop(self) -> None:
        """Drop all calls that are not started, and the credit: the connection is a new one."""
        for queue in self.queues:
            self._take_back(queue)
        self._queue.clear()
        self._asked = 0
        call = self.spanning.withdraw()
        if call is not None:
            self._queue.forget([call[0]])
        self.deal()

    # from ranks

    def ready(self, rank: int) -> None:
        """Add an idle rank."""
        self.queues[rank].ready = True
        self.queues[rank].progress = self._port.now()
        self.deal()

    def results(self, rank: int, ids: array[int], payloads: Sequence[bytes], seconds: float) -> None:
        """Take the results of calls."""
        queue = self._heard(rank)
        known = queue.settle(ids)
        if len(known) != len(ids):   # others were given up meanwhile
            wanted = set(known)
            payloads = [payload for id, payload in zip(ids, payloads, strict=True) if id in wanted]
        if known:
            self._estimate.learn(len(ids), seconds)
            for id in self._groups.running.keys() & known if self._groups.running else ():
                self._groups.end(id)
            self.answer(known, payloads)
        self._limit(queue)
        self.deal()

    def part(self, rank: int, id: int, payload: bytes, seconds: float) -> None:
        """Take a rank's part of an MPI call, which counts for no estimate."""
        queue = self._heard(rank)
        group = self._groups.running.get(id)
        if group is None or id not in queue.calls:
            return
        queue.settle(array('Q', [id]))
        group.parts[rank] = payload
        self._groups.release([queue])
        if not group.missing:
            self._groups.end(id)
            if group.numbers:
                if self.spanning.span is None:   # else ranks of other nodes may run on
                    self._interrupts.settle([id])
                self.spanning.done(group)
            else:
                self.answer([id], [join_parts([group.parts[queue.rank] for queue in group.members])])
        elif has_failed(payload) and group.numbers:
            self.spanning.done(group)
        elif has_failed(payload):   # the other ranks may wait for this one for ever
            self._port.later(GROUP_GRACE, self.give_up, group)
        self.deal()

    def parked(self, rank: int, ids: array[int]) -> None:
        """Note that calls run on as asynchronous ones, and give the rank others."""
        queue = self._heard(rank)
        queue.park(ids)
        self._interrupts.parked(rank, ids)
        self._limit(queue)
        self.deal()

    def wait(self, rank: int, requirements: dict[str, Any]) -> str:
        """Note that a rank's call waits for a task of other ranks, or return why it must not, as all might wait.

        Enough ranks stay free at any moment to run each of the awaited tasks.
        """
        awaited = [queue.awaits for queue in self.queues if queue.awaits]
        width = self._resources.width(requirements)
        waiting, widest = len(awaited) + 1, max(width, *awaited, 1)
        if len(self.queues) - waiting < widest:
            return (f'run_task() might wait for ever: with this call, {waiting} of the {len(self.queues)} ranks of the '
                    f'worker wait for tasks, of which one needs {widest} ranks')
        self.queues[rank].awaits = width
        self.deal()
        return ''

    def runs_alone(self, requirements: dict[str, Any]) -> bool:
        """Return whether a rank can run a task with these requirements itself, in the middle of a call."""
        return self._resources.width(requirements) == 1 and not requirements.get('timeout')

    def go_on(self, rank: int) -> None:
        """Note that the call of a rank does not wait for a task any more."""
        self.queues[rank].awaits = 0
        self.deal()

    def gone(self, guilty: Sequence[int], others: Sequence[int], reason: str, numbers: Sequence[int] = ()) -> None:
        """Handle the death of ranks: of guilty ones, as far as known because of their calls, and others with them.

        `numbers` are those of all guilty ranks of a worker that spans nodes.
        """
        died: dict[int, bytes] = {}
        again: dict[int, bytes] = {}
        for rank in (*guilty, *others):
            ran, rest = self.queues[rank].clear()
            (died if rank in guilty else again).update(ran)
            again.update(rest)
        self._end_span(died, again, numbers)
        self._report_dead(died, reason)
        calls = [(id, payload) for id, payload in again.items() if id not in died and not self._end_expired(id)]
        for id, _ in calls:
            self._groups.end(id)
        self._interrupts.settle(id for id, _ in calls)
        self._queue.put_back(calls)
        self.deal()

    # reactions

    def deal(self) -> None:
        """Distribute calls to ranks, request more, and have calls behind long ones taken back."""
        self._deal_out()
        self._ask()

    def _deal_out(self) -> None:
        if self._queue.wide or self._groups.running or self.spanning.wanted:
            self._deal_wide()
        if self._queue.narrow:
            queues = [queue for queue in self.queues
                      if queue.ready and not queue.reserved and len(queue.parked) < PARKED]
            for bulks in range(BULKS):
                takers = [queue for queue in queues if queue.bulks <= bulks and not (bulks and queue.slow)]
                for left, queue in zip(range(len(takers), 0, -1), takers, strict=True):
                    if self._queue.narrow:
                        self._give(queue, -(-self._queue.narrow // left))
        if self._check is None and any(len(queue.calls) > 1 for queue in self.queues):
            self._check = self._port.later(TAKE_BACK_DELAY, self._look)

    def _give(self, queue: RankQueue, share: int) -> None:
        """Send the rank a bulk, at most its share of the waiting calls."""
        ids, payloads = self._queue.bulk(min(self._estimate.bulk, share))
        if queue.idle:
            queue.progress = self._port.now()
        first = queue.give(ids, payloads)
        self._port.to_rank(queue.rank, ['calls', first, ids, payloads])
        self._limit(queue)

    def _deal_wide(self) -> None:
        """Start calls of several ranks that are free; calls that need ranks which await tasks are passed over."""
        waiting = self._queue.wide
        left = sum(not queue.awaits for queue in self.queues)
        if not self._reserve(left):
            return
        while call := next((call for call in waiting if self._queue.width(call[0]) <= left), None):
            group = self._form(call, self._queue.width(call[0]), ranks_of(self._queue.attributes(call[0])) > 1)
            if group is None:
                return
            waiting.remove(call)
            self._start(group)
        self._groups.choose_none()

    def _reserve(self, left: int) -> bool:
        """Reserve ranks for a call over several nodes, which goes before others; return whether it has them all."""
        spanning = self.spanning
        if spanning.open and (call := self._queue.pop_spanning()):
            spanning.begin(call, ranks_of(self._queue.attributes(call[0])), self._queue.timeout(call[0]))
        if spanning.wanted is None or spanning.wanted[1] > left:
            return True
        id, count = spanning.wanted
        group = self._form((id, b''), count, True)
        if group is not None:
            spanning.granted(group)
        return group is not None

    def _form(self, call: Call, width: int, spread: bool) -> Group | None:
        """Return the group for a call; None while its ranks, which get no further calls, have others."""
        for queue in self._groups.choose(self.queues, width):
            self._take_back(queue)
        return self._groups.form(call, width, spread)

    def _end_span(self, died: dict[int, bytes], again: dict[int, bytes], numbers: Sequence[int]) -> None:
        """Sort the call over several nodes, whose job has ended, into calls that died or run again; or forget it."""
        span, group = self.spanning.span, self.spanning.group
        for calls in (died, again):
            for id in {span.id if span else -1, group.id if group else -1}:
                calls.pop(id, None)
        result = (self._interrupts.result(span.id) or span.failed) if span else None
        self.spanning.forget()
        if span is None:
            return
        if result is not None:
            self.answer([span.id], [result])
        elif span.started and not set(numbers).isdisjoint(span.numbers):
            died[span.id] = span.payload
        else:
            again[span.id] = span.payload

    # for calls over several nodes: see `rp_raptor.worker.spanning`

    def start_together(self, group: Group, timeout: float) -> None:
        """Send a call to its group of ranks."""
        self._start(group)
        if timeout:
            self._interrupts.limit(group.id, timeout)

    def disband(self, group: Group) -> None:
        """Release the ranks of a group."""
        self._groups.end(group.id)
        self._interrupts.settle([group.id])

    def interrupt(self, id: int) -> None:
        """Cancel a running call."""
        self._interrupts.cancel(id)

    def give_up(self, group: Group) -> None:
        """Kill the ranks of a group that still run its call."""
        if self._groups.running.get(group.id) is group:
            for queue in group.missing:
                self._port.kill(queue.rank, 'another rank of the call has failed')

    def answer(self, ids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Deliver the results of calls."""
        self._port.to_master(['results', array('Q', ids), joined([payloads])])
        self._queue.forget(ids)
        self._interrupts.settle(ids)

    def _start(self, group: Group) -> None:
        devices = self._resources.devices_of(group.ranks)
        numbers = group.numbers or self.spanning.numbers(group.ranks)
        for queue in group.members:
            position = queue.give(array('Q', [group.id]), [group.payload])
            queue.progress = self._port.now()
            call = [position, group.id, group.payload]
            self._port.to_rank(queue.rank, ['mpi', *call, numbers, group.tag, devices] if group.spread
                               else ['alone', *call, devices, self._resources.cpus_of(group.ranks)])
        self._limit(group.queues[0])

    def _limit(self, queue: RankQueue) -> None:
        """Start the time of the call that the rank begins with now, if it has a timeout."""
        id = queue.next_call()
        seconds = self._queue.timeout(id) if id is not None else 0
        if id is not None and seconds:
            self._interrupts.limit(id, seconds)

    def _take_back(self, queue: RankQueue) -> None:
        """Queue the untaken calls of a rank again; a call of several ranks stays, as others may run it."""
        if self._groups.running.keys() & queue.calls:
            return
        calls = queue.take_back()
        self._interrupts.settle(id for id, _ in calls)
        self._queue.put_back(calls)

    def _heard(self, rank: int) -> RankQueue:
        queue = self.queues[rank]
        queue.progress = self._port.now()
        queue.slow = False
        return queue

    def _report_dead(self, died: Iterable[int], reason: str) -> None:
        """Report calls whose rank has died, or their results if the rank was killed because of them."""
        lost = []
        for id in died:
            group = self._groups.running.get(id)
            failed = next(filter(has_failed, group.parts.values()), None) if group else None
            result = self._interrupts.result(id) or failed
            self._groups.end(id)
            if result:
                self.answer([id], [result])
            else:
                lost.append(id)
        if lost:
            self._port.to_master(['died', array('Q', lost), reason])
            self._queue.forget(lost)
            self._interrupts.settle(lost)

    def _end_expired(self, id: int) -> bool:
        """Return whether the call was to be interrupted anyway, and give it its result."""
        result = self._interrupts.result(id)
        if result:
            self._groups.end(id)
            self.answer([id], [result])
        return result is not None

    def _ask(self) -> None:
        """Request missing calls from the master, unless they are too few for a message."""
        ready = sum(queue.ready for queue in self.queues)
        wanted = ready * self._estimate.stock
        missing = wanted - len(self._queue) - sum(len(queue.calls) for queue in self.queues) - self._asked
        if missing > 0 and missing >= wanted // 4:
            self._asked += missing
            self._port.to_master(['credit', missing])

    def _look(self) -> None:
        """Take back calls that wait behind a long one."""
        self._check = None
        now = self._port.now()
        starving = not self._queue.narrow and any(
            queue.ready and queue.idle and not queue.reserved for queue in self.queues)
        delay = TAKE_BACK_DELAY if starving else max(TAKE_BACK_DELAY, 4 * self._estimate.seconds)
        for queue in self.queues:
            queue.watch(now)
            if (len(queue.calls) > 1 and now - queue.progress >= (delay if queue.running() else SLEEP) and queue.ready):
                self._take_back(queue)
                if len(queue.calls) > 1 and not queue.slow:   # its results would wait for the end of this call
                    self._port.signal(queue.rank)
                queue.slow = True
        self.deal()

    def _who_has(self, id: int) -> list[RankQueue]:
        return [queue for queue in self.queues if id in queue.calls or id in queue.parked]
