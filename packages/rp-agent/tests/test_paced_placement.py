"""The scheduler of a simulated pilot takes its time, and decides as the real one does."""

from __future__ import annotations

import pytest
from scheduler_support import a_task
from waitpool_support import Job, Machine

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.slotmap import Shape, SlotMap
from rp_agent.simulation.schedulers import PacedScheduler
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError
from rp_api.simulation.contract import VirtualClock
from rp_api.simulation.model import Cost, Model
from rp_profiling.write.tracer import Tracer


class Paced:
    """A paced scheduler, and when tasks left it."""

    def __init__(self, model: Model, nodes: int = 2, cores: int = 4) -> None:
        self.clock = VirtualClock()
        self.placed: list[tuple[float, str]] = []
        self.tasks: dict[str, AgentTask] = {}
        allocation = Allocation(tuple(f'node{number}' for number in range(nodes)), cores, 0, 0, 0)
        self.scheduler = PacedScheduler('agent_scheduling.0000', Tracer(None, 'agent_scheduling.0000'), allocation, {},
                                        list[AgentTask]().extend, self.leave, self.clock, model)

    def leave(self, tasks: list[AgentTask]) -> None:
        self.placed += [(self.clock.now, task.uid) for task in tasks]
        self.tasks.update((task.uid, task) for task in tasks)

    def end(self, uid: str) -> None:
        self.scheduler.release([self.tasks[uid]])
        self.scheduler.check()


def test_tasks_are_placed_one_after_the_other() -> None:
    paced = Paced(Model(placement=Cost(0.5)))
    paced.scheduler.put([a_task(f'task.{number}') for number in range(4)])
    paced.clock.run()
    assert paced.placed == [(0.0, 'task.0'), (0.5, 'task.1'), (1.0, 'task.2'), (1.5, 'task.3')]


def test_placement_may_take_longer_on_more_nodes() -> None:
    paced = Paced(Model(placement=Cost(per_node=0.25)), nodes=4)
    paced.scheduler.put([a_task('task.0'), a_task('task.1')])
    paced.clock.run()
    assert [when for when, _ in paced.placed] == [0.0, 1.0]


def test_a_search_in_vain_takes_time_as_well() -> None:
    paced = Paced(Model(placement=Cost(0.5), search=Cost(2.0)))
    # there is room on the other node: only a search tells that the tag does not let the second task go there
    paced.scheduler.put([a_task('task.0', tags={'nodes': [0]}, cores_per_rank=4),
                         a_task('task.1', tags={'nodes': [0]}, cores_per_rank=3)])
    paced.clock.call_at(1.0, paced.end, 'task.0')
    paced.clock.run()
    assert paced.placed == [(0.0, 'task.0'), (2.5, 'task.1')]


def test_what_ends_meanwhile_is_used_when_the_time_has_come() -> None:
    paced = Paced(Model(placement=Cost(10.0)), nodes=1)
    paced.scheduler.put([a_task('large', cores_per_rank=4), a_task('next', cores_per_rank=4)])
    paced.clock.call_at(3.0, paced.end, 'large')
    paced.clock.run()
    assert paced.placed == [(0.0, 'large'), (10.0, 'next')]


def test_without_costs_the_virtual_time_stands_still() -> None:
    paced = Paced(Model())
    paced.scheduler.put([a_task(f'task.{number}') for number in range(8)])
    assert len(paced.placed) == 8
    assert paced.clock.now == 0.0


def test_no_more_are_placed_than_are_wanted_and_nobody_is_forgotten() -> None:
    machine = Machine(nodes=20, cores=4)
    kinds = [Shape(cores=cores) for cores in (1, 2, 3, 4)]
    jobs = [Job(f'job{number}', kinds[number % 4]) for number in range(120)]
    machine.submit(*jobs)
    placed: list[Job] = []
    while len(placed) < len(jobs):
        found = machine.pool.place(machine.fits, 0.0, 3)
        assert len(found) <= 3
        placed += found
        machine.running += found
        machine.check()
        if not found:   # as with real tasks, some end; the rest of the room is for those that are stuck
            machine.finish(*machine.running[:7])
    assert {job.name for job in placed} == {job.name for job in jobs}


def test_the_same_is_placed_in_small_steps() -> None:
    kinds = [Shape(cores=3), Shape(cores=2), Shape(2, 4), Shape(cores=1)]
    once, steps = Machine(nodes=8, cores=8), Machine(nodes=8, cores=8)
    for machine in (once, steps):
        machine.submit(*(Job(f'job{number}', kinds[number % 4]) for number in range(60)))
    whole = [job.name for job in once.place()]
    parts: list[str] = []
    while found := steps.pool.place(steps.fits, 0.0, 2):
        parts += [job.name for job in found]
    assert parts == whole


@pytest.mark.parametrize(('first', 'end'), [(-1, 2), (2, 1), (0, 3)])
def test_ranges_of_nodes_that_are_not_there_are_refused(first: int, end: int) -> None:
    slots = SlotMap(Allocation(('one', 'two'), 4, 0, 0, 0).node_list())
    with pytest.raises(ResourceError, match='no positions of nodes: there are 2 nodes'):
        slots.place_in(Shape(), first, end)
