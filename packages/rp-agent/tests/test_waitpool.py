"""Waiting items are tried by priority and arrival, and no more often than they have a chance."""

from __future__ import annotations

import random
import sys
from collections import namedtuple
from collections.abc import Callable

import pytest
from waitpool_support import Job, Machine, Within, a_map

from rp_agent.scheduler.slotmap import Shape
from rp_agent.scheduler.waitpool import WaitPool
from rp_api.errors import ResourceError

pytestmark = pytest.mark.timeout(60)

ONE, TWO, THREE, FOUR = (Shape(cores=cores) for cores in (1, 2, 3, 4))
Keyed = namedtuple('Keyed', 'label shape')


@pytest.fixture
def pool() -> WaitPool[str]:
    """A pool on a machine that is never full, so that only the tests say what fits."""
    return WaitPool(a_map())


def fill(pool: WaitPool[str], *items: tuple[str, int, str]) -> dict[str, int]:
    tickets = {item: pool.add(item, key, priority, 0.0) for item, priority, key in items}
    pool.check()
    return tickets


def counting(calls: list[str], fits: Callable[[str], bool]) -> Callable[[str], bool]:
    def counted(item: str) -> bool:
        calls.append(item)
        return fits(item)
    return counted


def all_fit(item: object) -> bool:
    return True


def none_fit(item: object) -> bool:
    return False


# -- order

def test_all_are_placed_in_the_order_of_their_coming_whatever_they_ask_for(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 'small'), ('b', 0, 'large'), ('c', 0, 'small'), ('d', 0, 'large'))
    assert pool.place(all_fit, 0.0) == ['a', 'b', 'c', 'd']
    assert len(pool) == 0
    pool.check()


def test_higher_priorities_go_first(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 7, 's'), ('c', -1, 's'), ('d', 7, 't'), ('e', 0, 't'), ('f', 3, 's'))
    assert pool.place(all_fit, 0.0) == ['b', 'd', 'f', 'a', 'e', 'c']


def test_priorities_may_come_in_any_order_and_in_any_number(pool: WaitPool[str]) -> None:
    priorities = [number * 37 % 101 - 50 for number in range(101)]
    fill(pool, *((str(priority), priority, 's') for priority in priorities))
    assert pool.place(all_fit, 0.0) == [str(priority) for priority in sorted(priorities, reverse=True)]
    pool.check()


def test_what_does_not_fit_is_tried_once_and_holds_up_nobody_else(pool: WaitPool[str]) -> None:
    calls: list[str] = []
    fill(pool, ('a', 0, 'large'), ('b', 0, 'large'), ('c', 0, 'small'), ('d', 5, 'large'))
    assert pool.place(counting(calls, lambda item: item == 'c'), 0.0) == ['c']
    assert calls == ['d', 'c']
    assert len(pool) == 3
    pool.check()


def test_a_stuck_group_is_not_tried_again_before_something_was_freed(pool: WaitPool[str]) -> None:
    calls: list[str] = []
    fill(pool, ('a', 0, 'large'))
    pool.place(none_fit, 0.0)
    fill(pool, ('b', 0, 'large'), ('c', 3, 'large'), ('d', 0, 'small'))
    assert pool.place(counting(calls, all_fit), 0.0) == ['d']
    assert calls == ['d']
    pool.wake()
    assert pool.place(all_fit, 0.0) == ['c', 'a', 'b']


def test_the_rest_of_a_group_waits_when_one_of_it_does_not_fit_any_more(pool: WaitPool[str]) -> None:
    fill(pool, *((f't{number}', 0, 's') for number in range(5)))
    room = iter([True, True, False])
    assert pool.place(lambda item: next(room), 0.0) == ['t0', 't1']
    assert len(pool) == 3
    pool.check()


# -- what is asked for is known

def test_there_is_no_try_when_the_machine_is_full() -> None:
    machine = Machine(cores=4)
    first, *others = (Job(name, FOUR) for name in 'abc')
    machine.submit(first, *others)
    assert machine.place() == [first]
    assert machine.tried == [first]
    machine.finish(first)
    assert machine.place() == others[:1]
    assert machine.tried == others[:1]


def test_the_shape_may_be_an_attribute_of_the_key() -> None:
    machine = Machine(cores=4)
    jobs = [Job('a', Keyed('x', THREE)), Job('b', Keyed('y', THREE)), Job('c', Keyed('y', THREE))]
    machine.submit(*jobs)
    assert machine.place() == jobs[:1]
    assert machine.tried == jobs[:1]


def test_an_attribute_of_the_key_that_is_no_shape_says_nothing(pool: WaitPool[str]) -> None:
    pool.add('a', Keyed('x', (3, 4)), 0, 0.0)
    assert pool.place(all_fit, 0.0) == ['a']


def test_without_a_shape_everything_that_is_freed_wakes() -> None:
    machine = Machine(nodes=2, cores=4)
    job = Job('job', ONE)
    machine.submit(job)
    machine.place()
    ticket = machine.pool.add(Job('other', 'gate'), 'gate', 0, 0.0)
    assert machine.pool.place(none_fit, 0.0) == []
    machine.finish(job)
    assert [each.name for each in machine.pool.place(all_fit, 0.0)] == ['other']
    with pytest.raises(ResourceError):
        machine.pool.remove(ticket)


def test_a_free_wakes_those_that_have_room_on_that_node() -> None:
    machine = Machine(nodes=2, cores=4)
    running = [Job('r0', FOUR), Job('r1', ONE), Job('r2', THREE)]
    machine.submit(*running)
    machine.place()
    # two ranks have a chance as far as the totals say, so they are tried, and are stuck then
    pair, small, four = Job('pair', Shape(ranks=2, cores=3)), Job('small', ONE), Job('four', FOUR)
    machine.submit(pair, small, four)
    assert machine.place() == []
    machine.finish(running[1])
    assert machine.place() == [small]
    assert pair not in machine.tried
    machine.finish(running[0])
    assert machine.place() == [four]


def test_what_is_freed_elsewhere_is_no_reason_for_a_try() -> None:
    machine = Machine(nodes=4)
    front, back = range(2), range(2, 4)
    running = [Job(f'r{number}', FOUR) for number in range(4)]
    machine.submit(*running)
    machine.place()
    pair = Shape(ranks=2, cores=4)
    jobs = {name: Job(name, Within(shape, part)) for name, shape, part in (
        ('pair in front', pair, front), ('in front', TWO, front), ('behind', TWO, back), ('pair behind', pair, back))}
    machine.submit(*jobs.values())
    assert machine.place() == []
    assert machine.tried == []
    machine.finish(running[2])
    assert machine.place() == [jobs['behind']]
    assert machine.tried == [jobs['behind']]
    machine.finish(running[0])
    assert machine.place() == [jobs['in front']]
    assert machine.tried == [jobs['in front']], 'a pair has room on nodes of both parts together, but of none'
    machine.finish(running[1], jobs['in front'])
    assert machine.place() == [jobs['pair in front']]
    assert machine.tried == [jobs['pair in front']]


def test_a_range_counts_when_all_are_looked_at() -> None:
    machine = Machine(nodes=2)
    running = Job('running', Shape(ranks=2, cores=4))
    machine.submit(running)
    machine.place()
    here, there = Job('here', Within(FOUR, range(1))), Job('there', Within(FOUR, range(1, 2)))
    machine.submit(here, there)
    machine.finish(running)
    machine.slots.set_down(0)
    machine.pool.wake()
    assert machine.place() == machine.tried == [there]


def test_many_small_ones_take_the_place_of_a_large_one_in_their_order() -> None:
    machine = Machine(cores=64)
    large = Job('large', Shape(cores=64))
    machine.submit(large)
    machine.place()
    jobs = [Job(f'j{number}', Keyed(number % 40, Shape(cores=1 + number % 3)), priority=number % 2)
            for number in range(60)]
    machine.submit(*jobs)
    assert machine.place() == []
    assert machine.tried == []
    machine.finish(large)
    placed = machine.place()
    assert sum(job.shape.cores for job in placed) == 64
    in_order = sorted(jobs, key=lambda job: (-job.priority, jobs.index(job)))
    expected, room = [], 64
    for job in in_order:
        if job.shape.cores <= room:
            expected.append(job)
            room -= job.shape.cores
    assert placed == expected
    assert machine.tried == placed


def test_what_is_freed_on_many_nodes_at_once_is_used() -> None:
    machine = Machine(nodes=40, cores=4)
    running = [Job(f'r{number}', FOUR) for number in range(40)]
    waiting = [Job(f'w{number}', Shape(cores=3 + number % 2)) for number in range(41)]
    machine.submit(*running, *waiting)
    assert machine.place() == running
    machine.finish(*running)
    assert machine.place() == waiting[:40]
    assert machine.tried == waiting[:40]


def test_groups_that_cannot_fit_any_more_are_passed_over_without_a_try() -> None:
    machine = Machine(cores=100)
    blocker = Job('blocker', Shape(cores=100))
    machine.submit(blocker)
    machine.place()
    wide = [Job(f'w{cores}', Shape(cores=cores)) for cores in range(100, 49, -1)]
    narrow = [Job('n0', Shape(cores=49)), Job('n1', Shape(cores=1))]
    machine.submit(*wide[1:], *narrow)
    machine.finish(blocker)
    assert [job.name for job in machine.place()] == ['w99', 'n1']
    assert [job.name for job in machine.tried] == ['w99', 'n1']
    machine.finish(machine.running[0])
    assert [job.name for job in machine.place()] == ['w98']


def test_several_ranks_wait_until_all_of_them_could_have_room() -> None:
    machine = Machine(nodes=4, cores=4)
    running = [Job(f'r{number}', THREE) for number in range(4)]
    machine.submit(*running)
    machine.place()
    job = Job('job', Shape(ranks=3, cores=3))
    machine.submit(job)
    for number in range(2):
        machine.finish(running[number])
        assert machine.place() == []
    assert machine.tried == []
    machine.finish(running[2])
    assert machine.place() == [job]


def test_what_was_missing_is_forgotten_when_all_are_woken() -> None:
    machine = Machine(nodes=6, cores=4)
    slots, job = machine.slots, Job('job', Shape(ranks=3, cores=4))
    for position in (4, 5):
        slots.hide(position)
    for position, cores in enumerate((1, 1, 2), start=1):
        slots.place_on(Shape(cores=cores), [position])
    machine.submit(job)
    assert machine.place() == []   # two ranks are missing
    first, *_ = [slots.place_on(Shape(cores=cores), [position]) for position, cores in enumerate((4, 3, 3, 2))]
    assert first is not None
    for position in (4, 5):
        slots.show(position)
    machine.pool.wake()
    assert machine.place() == []   # one rank is missing
    slots.release(first)
    machine.pool.freed(first)
    assert machine.place() == [job]


# -- leaving in other ways

def test_items_can_be_taken_out(pool: WaitPool[str]) -> None:
    tickets = fill(pool, ('a', 0, 's'), ('b', 0, 's'), ('c', 0, 's'), ('d', 1, 't'))
    assert [pool.remove(tickets[item]) for item in 'db'] == ['d', 'b']
    pool.check()
    assert pool.place(all_fit, 0.0) == ['a', 'c']


def test_items_can_be_taken_out_in_any_order(pool: WaitPool[str]) -> None:
    chance = random.Random(4)
    waiting = [str(number) for number in range(200)]
    tickets = fill(pool, *((item, chance.randrange(1000), item) for item in waiting))
    chance.shuffle(waiting)
    for item in waiting:
        assert pool.remove(tickets[item]) == item
        pool.check()


def test_all_can_be_taken_out_in_their_order(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 0, 't'))
    pool.place(none_fit, 0.0)
    fill(pool, ('c', 1, 's'), ('d', 0, 'u'), ('e', 0, 's'))
    assert pool.clear() == ['c', 'a', 'b', 'd', 'e']
    assert pool.clear() == []
    assert pool.place(all_fit, 0.0) == []
    pool.check()


@pytest.mark.parametrize('ticket', [-1, 0, 1, 1000])
def test_a_ticket_without_an_item_is_refused(pool: WaitPool[str], ticket: int) -> None:
    pool.remove(pool.add('a', 's', 0, 0.0))
    with pytest.raises(ResourceError, match=f'nothing waits with the ticket {ticket}'):
        pool.remove(ticket)


def test_a_key_that_cannot_be_hashed_is_refused_and_leaves_the_pool_whole(pool: WaitPool[str]) -> None:
    with pytest.raises(TypeError, match='unhashable'):
        pool.add('a', [], 0, 0.0)   # type: ignore[arg-type]
    pool.check()
    assert len(pool) == 0


def test_one_off_shapes_leave_nothing_behind(pool: WaitPool[str]) -> None:
    pool.add('b', 's', 0, 0.0)
    for number in range(500):
        assert pool.add('a', Shape(cores=1 + number), number, 0.0) == 1
        pool.check()
        pool.remove(1)
    assert pool.place(all_fit, 0.0) == ['b']
    pool.check()


def test_the_pool_holds_one_reference_to_an_item_while_it_waits() -> None:
    pool: WaitPool[object] = WaitPool(a_map())
    item, key = object(), Keyed('x', ONE)
    before = sys.getrefcount(item), sys.getrefcount(key)
    ticket = pool.add(item, key, 0, 0.0)
    assert sys.getrefcount(item) == before[0] + 1
    assert pool.remove(ticket) is item
    assert (sys.getrefcount(item), sys.getrefcount(key)) == before
    pool.add(item, key, 0, 0.0)
    pool.place(all_fit, 0.0)
    assert (sys.getrefcount(item), sys.getrefcount(key)) == before
    pool.add(item, key, 0, 0.0)
    del pool
    assert (sys.getrefcount(item), sys.getrefcount(key)) == before


# -- what a try may do

def test_an_error_in_a_try_leaves_the_pool_whole(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 0, 's'), ('c', 0, 't'))

    def fail(item: str) -> bool:
        if item == 'b':
            raise ZeroDivisionError
        return True

    with pytest.raises(ZeroDivisionError):
        pool.place(fail, 0.0)
    pool.check()
    assert pool.place(all_fit, 0.0) == ['b', 'c']


def test_after_an_error_what_was_freed_is_not_forgotten() -> None:
    machine = Machine(cores=4)
    running = Job('running', FOUR)
    first, second = Job('first', THREE), Job('second', ONE)
    machine.submit(running)
    machine.place()
    machine.submit(first, second)
    machine.place()
    machine.finish(running)

    def fail(job: Job) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        machine.pool.place(fail, 0.0)
    assert machine.place() == [first, second]


def test_a_try_may_add_and_remove_items(pool: WaitPool[str]) -> None:
    tickets = fill(pool, ('a', 0, 's'), ('b', 0, 's'), ('c', 0, 't'))
    calls: list[str] = []

    def fits(item: str) -> bool:
        if item == 'a':
            assert pool.remove(tickets['b']) == 'b'
            fill(pool, *((f'n{number}', 1, f'key {number}') for number in range(500)))
        return True

    assert pool.place(counting(calls, fits), 0.0) == ['a', *(f'n{number}' for number in range(500)), 'c']
    assert len(calls) == 502
    pool.check()


def test_a_try_may_replace_groups_that_are_to_be_tried_after_it() -> None:
    machine = Machine(cores=64)
    large = Job('large', Shape(cores=64))
    jobs, new = ([Job(f'{name}{number}', Keyed(f'{name}{number}', ONE)) for number in range(30)] for name in 'jn')
    machine.submit(large)
    machine.place()
    machine.submit(*jobs)
    machine.place()
    machine.finish(large)

    def fits(job: Job) -> bool:
        if job is jobs[0]:
            for other in jobs[10:20]:
                machine.pool.remove(other.ticket)
            machine.submit(*new)
        return machine.fits(job)

    assert machine.pool.place(fits, 0.0) == [*jobs[:10], *jobs[20:], *new]
    machine.check()


@pytest.mark.parametrize('answer', [True, False])
def test_an_item_that_is_removed_while_it_is_tried_is_out(pool: WaitPool[str], answer: bool) -> None:
    tickets = fill(pool, ('a', 0, 's'), ('b', 0, 't'))

    def fits(item: str) -> bool:
        if item == 'a':
            pool.remove(tickets['a'])
            fill(pool, ('c', 0, 'u'))   # gets the same ticket
            return answer
        return True

    assert pool.place(fits, 0.0) == ['b', 'c']
    pool.check()


def test_what_a_try_frees_counts_from_the_next_call_on(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 0, 't'))

    def frees(item: str) -> bool:
        pool.wake()
        return item == 'b'

    assert pool.place(frees, 0.0) == ['b']
    assert pool.place(all_fit, 0.0) == ['a']


def test_a_try_cannot_place_others(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'))
    with pytest.raises(RuntimeError, match=r'place\(\) was called by'):
        pool.place(lambda item: bool(pool.place(all_fit, 0.0)), 0.0)
    assert pool.place(all_fit, 0.0) == ['a']


# -- who has waited too long

def test_those_that_wait_too_long_are_found_in_their_order(pool: WaitPool[str]) -> None:
    assert pool.waiting_since() is None
    for now, (item, priority) in enumerate([('a', 0), ('b', 5), ('c', 0), ('d', 0)]):
        pool.add(item, item, priority, float(now))
    assert list(pool.starving(100.0, 1.0)) == []   # nobody was tried so far
    pool.place(none_fit, 4.0)
    assert pool.waiting_since() == 0.0
    assert list(pool.starving(12.0, 10.0)) == ['b', 'a', 'c']
    assert list(pool.starving(9.5, 10.0)) == []
    assert list(pool.starving(10.0, 10.0)) == ['a']


def test_a_group_of_which_one_is_placed_begins_to_wait_anew(pool: WaitPool[str]) -> None:
    pool.add('a', 's', 0, 0.0)
    pool.add('b', 's', 0, 1.0)
    pool.place(lambda item: item == 'a', 50.0)
    assert pool.waiting_since() == 50.0
    assert list(pool.starving(59.0, 10.0)) == []
    assert list(pool.starving(60.0, 10.0)) == ['b']


def test_an_item_is_not_starving_because_a_cancelled_one_was(pool: WaitPool[str]) -> None:
    ticket = pool.add('a', 's', 0, 0.0)
    pool.add('b', 's', 0, 50.0)
    pool.place(none_fit, 51.0)
    pool.remove(ticket)
    assert list(pool.starving(55.0, 10.0)) == []


def test_those_refused_without_a_try_can_starve() -> None:
    machine = Machine(cores=4)
    small, large = Job('small', ONE), Job('large', FOUR)
    machine.submit(small, large)
    assert machine.place() == [small]
    assert machine.tried == [small]
    assert list(machine.pool.starving(10.0, 10.0)) == [large]


# -- forecast

def test_upcoming_are_the_first_of_the_group_that_was_placed_last(pool: WaitPool[str]) -> None:
    fill(pool, ('a', 0, 's'), ('b', 0, 's'), ('c', 0, 't'), ('d', 0, 's'), ('e', 5, 's'), ('f', 0, 's'))
    assert pool.upcoming(9) == [], 'nothing was placed yet'
    assert pool.place(lambda item: item == 'e', 0.0) == ['e']
    assert pool.upcoming(9) == ['a', 'b', 'd', 'f']
    assert pool.upcoming(2) == ['a', 'b']
    assert pool.upcoming(0) == []
    fill(pool, ('g', 1, 's'))
    assert pool.upcoming(2) == ['g', 'a']
    pool.wake()
    assert pool.place(lambda item: item == 'c', 0.0) == ['c']
    assert pool.upcoming(9) == [], 'nothing is left of that group'


def test_a_forecast_survives_that_its_group_leaves(pool: WaitPool[str]) -> None:
    tickets = fill(pool, ('a', 0, 's'), ('b', 0, 's'))
    pool.place(lambda item: item == 'a', 0.0)
    assert pool.upcoming(1) == ['b']
    pool.remove(tickets['b'])
    assert pool.upcoming(1) == []
    for number in range(200):   # more than there was room for
        pool.add(number, f'key {number}', 0, 0.0)   # type: ignore[arg-type]
    assert len(pool.upcoming(9)) <= 1
    pool.check()
