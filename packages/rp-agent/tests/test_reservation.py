"""A large task starts within a bound although small ones never stop coming; nodes are set aside for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from waitpool_support import Job, Machine

from rp_agent.scheduler.reservation import Reservation
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap

pytestmark = pytest.mark.timeout(60)

ONE, FOUR = Shape(cores=1), Shape(cores=4)


class Anywhere:
    """A policy that places on the slot map as it is; reserves nothing for jobs that are not to have a reservation."""

    def __init__(self, slots: SlotMap) -> None:
        self.slots = slots
        self.without: set[Job] = set()

    def candidates(self, job: Job) -> Sequence[int]:
        return [] if job in self.without else self.slots.candidates(job.shape)

    def place_on(self, job: Job, positions: Sequence[int]) -> Placement | None:
        return self.slots.place_on(job.shape, positions)


class Reserving(Machine):
    """A machine whose waiting jobs get reservations, and which does all that a scheduler does at an event."""

    def __init__(self, nodes: int = 1, cores: int = 4, patience: float = 10.0) -> None:
        super().__init__(nodes, cores)
        self.policy = Anywhere(self.slots)
        self.reservation: Reservation[Job] = Reservation(self.slots, self.pool, self.policy, patience)
        self.deadline: float | None = None

    def turn(self, now: float) -> list[Job]:
        """What the scheduler does after each event; gives the jobs that start."""
        started = []
        if (offered := self.reservation.offer()) is not None:
            job, placement = offered
            job.placement = placement
            assert self.pool.remove(job.ticket) is job
            self.running.append(job)
            started.append(job)
        for job in self.place(now):
            self.reservation.dropped(job)
            started.append(job)
        self.deadline = self.reservation.update(now)
        self.reservation.check()
        return started

    def first(self) -> Job | None:
        """The job that has the reservation."""
        return self.reservation.item

    def next_look(self) -> float | None:
        """When the reservation is to be looked at again."""
        return self.deadline

    def cancel(self, job: Job) -> None:
        assert self.pool.remove(job.ticket) is job
        self.reservation.dropped(job)


def starved(machine: Reserving, *jobs: Job) -> None:
    """One-core jobs fill all of the machine at time 0, when `jobs` come; then it is time 10."""
    fill = [Job(f'small{number}', ONE) for number in range(len(machine.slots) * 4)]
    machine.submit(*fill)
    assert machine.turn(0.0) == fill
    machine.submit(*jobs)
    assert machine.turn(0.0) == []
    assert machine.next_look() == 10.0
    assert machine.turn(10.0) == []


# -- the bound

def start_of(large: Job, machine: Reserving, turns: int) -> int | None:
    """Small jobs come for ever, one each second, and one ends each second; gives when the large job starts."""
    first = [Job(f'first{number}', ONE) for number in range(12)]
    machine.submit(*first)
    running = machine.turn(0.0)
    assert running == first
    machine.submit(large)
    for now in range(turns):
        machine.submit(Job(f'small{now}', ONE), now=float(now))
        if running:
            machine.finish(running.pop(0))
        started = machine.turn(float(now))
        if large in started:
            return now
        running += started
    return None


@pytest.mark.parametrize('shape', [FOUR, Shape(cores=2), Shape(ranks=2, cores=4), Shape(ranks=12, cores=1)])
def test_a_large_job_starts_within_patience_and_the_longest_run_of_others(shape: Shape) -> None:
    large, longest = Job('large', shape), 12
    start = start_of(large, Reserving(nodes=3, patience=10.0), 1000)
    assert start is not None
    assert 10 <= start <= 10 + longest


@pytest.mark.parametrize('shape', [FOUR, Shape(cores=2), Shape(ranks=2, cores=4), Shape(ranks=12, cores=1)])
def test_without_a_reservation_it_never_starts(shape: Shape) -> None:
    machine = Reserving(nodes=3, patience=math.inf)
    assert start_of(Job('large', shape), machine, 1000) is None
    assert machine.next_look() is None


# -- one reservation

def test_small_jobs_go_on_on_the_other_nodes() -> None:
    machine = Reserving(nodes=2)
    large, more = Job('large', FOUR), [Job(f'more{number}', ONE) for number in range(8)]
    starved(machine, large)
    machine.submit(*more)
    (reserved,) = machine.reservation.positions
    assert machine.first() is large
    here = [job for job in machine.running if job.placement and job.placement.nodes() == [reserved]]
    there = [job for job in machine.running if job not in here]
    machine.finish(*here[:3])
    assert machine.turn(11.0) == []
    machine.finish(there[0])
    assert machine.turn(12.0) == more[:1]
    machine.finish(here[3])
    assert machine.turn(13.0) == [large]
    assert machine.first() is None
    machine.finish(large)
    assert machine.turn(14.0) == more[1:5]


def test_it_is_to_be_looked_at_when_the_first_has_waited_long_enough() -> None:
    machine = Reserving()
    machine.submit(Job('running', FOUR))
    machine.turn(0.0)
    assert machine.next_look() is None
    large, larger = Job('large', Shape(cores=3)), Job('larger', FOUR)
    machine.submit(large, now=2.0)
    machine.turn(2.0)
    assert machine.next_look() == 12.0
    machine.submit(larger, now=3.0)
    machine.turn(3.0)
    assert machine.next_look() == 12.0
    machine.turn(12.0)
    assert machine.first() is large
    # there might be room already
    assert machine.next_look() == 12.0
    machine.turn(12.0)
    assert machine.next_look() is None


def test_when_it_was_placed_the_next_one_is_looked_for() -> None:
    machine = Reserving(nodes=2)
    first, second = Job('first', FOUR), Job('second', Shape(ranks=2, cores=3))
    starved(machine, first, second)
    assert machine.first() is first
    machine.finish(*machine.running[:4])
    assert machine.turn(11.0) == [first]
    assert machine.first() is second
    assert sorted(machine.reservation.positions) == [0, 1]


def test_higher_priorities_get_a_reservation_first() -> None:
    machine = Reserving()
    early, urgent = Job('early', FOUR), Job('urgent', Shape(cores=3), priority=1)
    starved(machine, early, urgent)
    assert machine.first() is urgent


def test_a_cancelled_job_gives_its_nodes_back() -> None:
    machine = Reserving()
    large, waiting = Job('large', FOUR), Job('waiting', ONE)
    starved(machine, large)
    machine.submit(waiting, now=10.0)
    machine.finish(machine.running[0])
    assert machine.turn(11.0) == []
    machine.cancel(large)
    assert machine.first() is None
    assert machine.turn(12.0) == [waiting]


def test_a_job_that_finds_room_elsewhere_gives_its_nodes_back() -> None:
    machine = Reserving(nodes=2)
    large, waiting = Job('large', FOUR), Job('waiting', ONE)
    starved(machine, large)
    (reserved,) = machine.reservation.positions
    here = [job for job in machine.running if job.placement and job.placement.nodes() == [reserved]]
    machine.submit(waiting, now=10.0)
    machine.finish(here[0])
    machine.finish(*[job for job in machine.running if job not in here])
    machine.reservation.dropped(waiting)   # another one
    assert machine.first() is large
    assert machine.turn(11.0) == [large]
    assert machine.first() is None
    assert machine.turn(11.0) == [waiting]


def test_when_a_node_is_lost_others_are_chosen() -> None:
    machine = Reserving(nodes=3)
    large = Job('large', Shape(ranks=2, cores=4))
    starved(machine, large)
    lost, kept = machine.reservation.positions
    machine.reservation.node_down(({0, 1, 2} - {lost, kept}).pop())
    assert machine.first() is large
    machine.slots.set_down(lost)
    machine.reservation.node_down(lost)
    assert machine.first() is None
    machine.turn(11.0)
    assert machine.first() is large
    assert set(machine.reservation.positions) == {0, 1, 2} - {lost}
    machine.finish(*machine.running)
    assert machine.turn(12.0) == [large]


def test_jobs_that_cannot_have_one_do_not_keep_others_from_it() -> None:
    machine = Reserving(nodes=2)
    lost, plain, large = Job('lost', Shape(ranks=2, cores=4)), Job('plain', Shape(cores=3)), Job('large', FOUR)
    machine.policy.without.add(plain)
    machine.slots.set_down(1)
    machine.submit(*(Job(f'small{number}', ONE) for number in range(4)), lost, plain)
    machine.turn(0.0)
    machine.turn(10.0)
    assert machine.first() is None
    assert machine.next_look() == 20.0
    machine.submit(large, now=10.0)
    machine.turn(11.0)
    assert machine.next_look() == 20.0
    machine.turn(20.0)
    assert machine.first() is large


@pytest.mark.parametrize('patience', [0.0, -1.0, math.nan])
def test_patience_must_be_a_time(patience: float) -> None:
    with pytest.raises(ValueError, match='patience must be'):
        Reserving(patience=patience)


# -- at random

class ReservationUnderLoad(RuleBasedStateMachine):
    """Whatever happens, the hidden nodes are those of the reservation, for the first that waits too long."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Reserving(nodes=3, patience=5.0)
        self.now = 0.0
        self.count = 0
        self.waiting: list[Job] = []
        self.down: set[int] = set()

    def turn(self) -> None:
        for job in self.machine.turn(self.now):
            self.waiting.remove(job)

    @rule(ranks=st.integers(1, 3), cores=st.integers(1, 4), copies=st.integers(1, 5), priority=st.integers(0, 1))
    def submit(self, ranks: int, cores: int, copies: int, priority: int) -> None:
        for _ in range(copies):
            job = Job(f'j{self.count}', Shape(ranks=ranks, cores=cores), priority)
            self.count += 1
            self.machine.submit(job, now=self.now)
            self.waiting.append(job)
        self.turn()

    @rule(seconds=st.sampled_from([0.5, 1.0, 6.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.machine.deadline is not None and self.machine.deadline <= end:
            self.now = max(self.now, self.machine.deadline)
            self.turn()
        self.now = end

    @rule(data=st.data(), count=st.integers(1, 4))
    def finish(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.machine.running))):
            self.machine.finish(data.draw(st.sampled_from(self.machine.running)))
        self.turn()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(job)
        self.machine.cancel(job)
        self.turn()

    @rule(position=st.integers(0, 2))
    def lose_or_regain(self, position: int) -> None:
        if position in self.down:
            self.machine.slots.set_up(position)
            self.machine.pool.wake()
        else:
            self.machine.slots.set_down(position)
            self.machine.reservation.node_down(position)
        self.down ^= {position}
        self.turn()

    @rule()
    def drain(self) -> None:
        """When all that runs ends again and again, all that can run runs."""
        up = 3 - len(self.down)
        for _ in range(len(self.waiting) + 1):
            self.machine.finish(*list(self.machine.running))
            self.turn()
        assert not [job for job in self.waiting if job.shape.ranks * job.shape.cores <= 4 and up]

    @invariant()
    def whole(self) -> None:
        reservation = self.machine.reservation
        self.machine.check()
        reservation.check()
        assert reservation.item is None or reservation.item in self.waiting
        assert not set(reservation.positions) & self.down


TestReservationUnderLoad = ReservationUnderLoad.TestCase
TestReservationUnderLoad.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
