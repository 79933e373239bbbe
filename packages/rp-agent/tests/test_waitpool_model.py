"""The pool places what a plain list would place that is searched from its beginning for each item."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from waitpool_support import Job, Within, a_map, place

from rp_agent.scheduler.slotmap import Placement, Shape
from rp_agent.scheduler.waitpool import WaitPool

pytestmark = pytest.mark.timeout(60)

NODES, CORES = 20, 4

shapes = st.builds(Shape, ranks=st.integers(1, 6), cores=st.integers(1, CORES), gpus=st.integers(0, 1))
gates = st.integers(0, 3)   # items without a shape: the test opens gates for them
parts = st.sampled_from([range(7), range(7, 14), range(14, NODES), range(14), range(NODES)])
keys: st.SearchStrategy[Hashable] = st.one_of(shapes, st.builds(Within, shapes, parts), gates)
positions = st.integers(0, NODES - 1)


class Room:
    """Nodes and gates, and the jobs that have got some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = a_map(NODES, CORES, gpus=1)
        self.placements: dict[Job, Placement] = {}
        self.gates: dict[Hashable, int] = {}

    def fits(self, job: Job) -> bool:
        if isinstance(job.key, int):
            room = self.gates.get(job.key, 0)
            self.gates[job.key] = max(0, room - 1)
            return room > 0
        placement = place(self.slots, job.key)
        if placement is not None:
            self.placements[job] = placement
        return placement is not None


class Oracle(Room):
    """Waiting jobs in a list, and room of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Job] = []

    def add(self, job: Job) -> None:
        self.waiting.append(job)

    def in_order(self) -> list[Job]:
        return sorted(self.waiting, key=lambda job: -job.priority)

    def place_first(self) -> Job | None:
        for job in self.in_order():
            if self.fits(job):
                self.waiting.remove(job)
                return job
        return None


class Broken(Exception):
    """What a try raises in these tests."""


class PoolAgainstOracle(Room, RuleBasedStateMachine):
    """Both get the same jobs and the same nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self.pool: WaitPool[Job] = WaitPool(self.slots)
        self.count = 0
        self.hidden: set[int] = set()
        self.down: set[int] = set()

    def new(self, key: Hashable, priority: int) -> Job:
        self.count += 1
        return Job(f'j{self.count}', key, priority)

    def submit(self, job: Job) -> None:
        job.ticket = self.pool.add(job, job.key, job.priority, float(self.count))

    def place_and_compare(self) -> None:
        tried: list[Job] = []

        def fits(job: Job) -> bool:
            tried.append(job)
            return self.fits(job)

        placed = self.pool.place(fits, float(self.count))
        for index, job in enumerate(placed):
            assert self.oracle.place_first() is job, f'number {index} of {placed}'
        assert self.oracle.place_first() is None
        assert len(set(tried)) == len(tried), 'a job was tried again in vain'

    @rule(key=keys, priority=st.integers(-1, 2), copies=st.integers(1, 4))
    def add(self, key: Hashable, priority: int, copies: int) -> None:
        for _ in range(copies):
            job = self.new(key, priority)
            self.submit(job)
            self.oracle.add(job)

    @rule(first=st.integers(0, 50), count=st.integers(20, 40))
    def add_many_shapes(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            shape = Shape(ranks=1 + number % 11, cores=1 + number % CORES, gpus=number % 2)
            start = number % 4 * (NODES // 4)
            self.add(shape if number % 5 else Within(shape, range(start, start + NODES // 4)), number % 3, 1)

    @rule()
    def place(self) -> None:
        self.place_and_compare()

    @rule(data=st.data())
    def place_with_an_error(self, data: st.DataObject) -> None:
        """A try raises for one job; those before it are placed."""
        if not self.oracle.waiting:
            return
        broken = data.draw(st.sampled_from(self.oracle.waiting))
        tried: list[Job] = []
        placed: list[Job] = []

        def fits(job: Job) -> bool:
            tried.append(job)
            if job is broken:
                raise Broken
            if self.fits(job):
                placed.append(job)
                return True
            return False

        try:
            self.pool.place(fits, float(self.count))
        except Broken:
            assert broken in tried
        for job in placed:
            assert self.oracle.place_first() is job
        if broken not in tried:
            assert self.oracle.place_first() is None

    @rule(data=st.data(), key=keys, priority=st.integers(-1, 2))
    def place_while_others_come_and_go(self, data: st.DataObject, key: Hashable, priority: int) -> None:
        """While one job is placed, another one leaves and a third one comes."""
        if not self.oracle.waiting:
            return
        trigger, leaving = (data.draw(st.sampled_from(self.oracle.waiting)) for _ in range(2))
        coming = self.new(key, priority)
        happened: list[Job] = []

        def fits(job: Job) -> bool:
            if not self.fits(job):
                return False
            if job is trigger:
                happened.append(job)
                self.submit(coming)
                if leaving is not trigger and leaving not in self.placements and leaving in waiting:
                    self.pool.remove(leaving.ticket)
                    happened.append(leaving)
            waiting.discard(job)
            return True

        waiting = set(self.oracle.waiting)
        placed = self.pool.place(fits, float(self.count))
        for index, job in enumerate(placed):
            assert self.oracle.place_first() is job, f'number {index} of {placed}'
            if job is trigger:
                self.oracle.add(coming)
                if leaving in happened[1:]:
                    self.oracle.waiting.remove(leaving)
        assert self.oracle.place_first() is None

    def finish(self, job: Job) -> None:
        self.oracle.slots.release(self.oracle.placements.pop(job))
        placement = self.placements.pop(job)
        self.slots.release(placement)
        self.pool.freed(placement)

    @rule(data=st.data(), count=st.integers(1, 20))
    def finish_some(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.placements))):
            self.finish(data.draw(st.sampled_from(sorted(self.placements, key=repr))))

    @rule(seed=st.integers(0, 1 << 16), most=st.sampled_from([1, 3, 20]))
    def churn(self, seed: int, most: int) -> None:
        """Jobs end on a full machine, and others take their place."""
        chance = random.Random(seed)
        self.add_many_shapes(chance.randrange(50), 30)
        self.place_and_compare()
        for _ in range(5):
            running = sorted(self.placements, key=repr)
            for job in chance.sample(running, min(most, len(running))):
                self.finish(job)
            self.place_and_compare()

    @rule(gate=gates, room=st.integers(1, 3))
    def open_gate(self, gate: int, room: int) -> None:
        self.gates[gate] = self.oracle.gates[gate] = room
        self.pool.wake()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.oracle.waiting:
            job = data.draw(st.sampled_from(self.oracle.waiting))
            assert self.pool.remove(job.ticket) is job
            self.oracle.waiting.remove(job)

    @rule()
    def cancel_all(self) -> None:
        assert self.pool.clear() == self.oracle.in_order()
        self.oracle.waiting.clear()

    @rule(position=positions)
    def hide_or_show(self, position: int) -> None:
        for slots in (self.slots, self.oracle.slots):
            if position in self.hidden:
                slots.show(position)
            else:
                slots.hide(position)
        self.hidden ^= {position}
        self.pool.wake()

    @rule(position=positions)
    def lose_or_regain(self, position: int) -> None:
        for slots in (self.slots, self.oracle.slots):
            if position in self.down:
                slots.set_up(position)
            else:
                slots.set_down(position)
        self.down ^= {position}
        self.pool.wake()

    @invariant()
    def whole(self) -> None:
        self.pool.check()
        assert len(self.pool) == len(self.oracle.waiting)
        groups: dict[Hashable, list[Job]] = {}
        for job in self.oracle.in_order():
            groups.setdefault(job.key, []).append(job)
        foremost = self.pool.foremost(5)
        assert [(first, count) for first, _, count in foremost] == [
            (jobs[0], len(jobs)) for jobs in list(groups.values())[:5]]


TestPoolAgainstOracle = PoolAgainstOracle.TestCase
TestPoolAgainstOracle.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
