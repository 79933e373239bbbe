"""Dealing bulks out to the instances of a component."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rp_agent.components.pool import InstancePool, all_of
from rp_agent.task import AgentTask


class Instance:
    def __init__(self) -> None:
        self.got: list[AgentTask] = []
        self.bulks = 0

    def put(self, tasks: list[AgentTask]) -> None:
        self.got += tasks
        self.bulks += 1


def some(count: int) -> list[AgentTask]:
    return [AgentTask(f'task.{number}', {}, 'pilot', '/') for number in range(count)]


@given(st.integers(1, 5), st.lists(st.integers(0, 30), max_size=10))
def test_even_shares(members: int, bulks: list[int]) -> None:
    pool = InstancePool([Instance() for _ in range(members)])
    tasks = []
    for size in bulks:
        bulk = some(size)
        tasks += bulk
        pool.put(bulk)
    assert Counter(map(id, tasks)) == Counter(id(task) for each in pool.members for task in each.got)
    for each in pool.members:
        assert each.bulks <= len(bulks)


def test_single_tasks_take_turns() -> None:
    pool = InstancePool([Instance(), Instance(), Instance()])
    for task in some(9):
        pool.put([task])
    assert [len(each.got) for each in pool.members] == [3, 3, 3]


def test_dismissed_members_get_nothing_more() -> None:
    first, second = Instance(), Instance()
    pool = InstancePool([first, second])
    pool.dismiss(first)
    pool.put(some(4))
    assert (len(first.got), len(second.got)) == (0, 4)
    assert pool.all_members() == [second, first]
    pool.remove(first)
    assert pool.all_members() == [second]


def test_what_nobody_is_left_for_is_kept() -> None:
    only = Instance()
    pool = InstancePool([only])
    pool.dismiss(only)
    tasks = some(2)
    pool.put(tasks)
    assert (pool.unassigned, only.got) == (tasks, [])


def test_all_of() -> None:
    calls: list[int] = []
    one = all_of(3, lambda: calls.append(1))
    for expected in (0, 0, 1, 1):
        one()
        assert len(calls) == expected


class Placed:
    """A placement on these nodes."""

    def __init__(self, *nodes: int) -> None:
        self._nodes = nodes

    def nodes(self) -> list[int]:
        return list(self._nodes)


def placed(*places: tuple[int, ...]) -> list[AgentTask]:
    tasks = some(len(places))
    for task, nodes in zip(tasks, places, strict=True):
        task.placement = Placed(*nodes)
    return tasks


def test_a_task_goes_to_the_member_of_its_node() -> None:
    home, one, two = Instance(), Instance(), Instance()
    pool = InstancePool([home], {1: one, 2: two})
    tasks = placed((0,), (1,), (2,), (1,), (0, 1))
    pool.put(tasks)
    assert (home.got, one.got, two.got) == ([tasks[0], tasks[4]], [tasks[1], tasks[3]], [tasks[2]])
    assert one.bulks == 1
    assert pool.all_members() == [home, one, two]
    assert pool.that_have([tasks[2]]) == [home, two]
    assert pool.that_have(some(1)) == [home]
    assert [pool.on_node(position) for position in range(3)] == [None, one, two]
    assert InstancePool([home]).on_node(0) is None


def test_tasks_over_several_nodes_are_known_while_they_run() -> None:
    pool = InstancePool([Instance()], {1: Instance()})
    tasks = placed((0, 1), (1,))
    pool.put(tasks)
    assert pool.spread == {tasks[0].uid: tasks[0]}
    pool.left(tasks)
    assert pool.spread == {}


def test_a_member_of_a_node_can_be_lost() -> None:
    home, one = Instance(), Instance()
    pool = InstancePool([home], {1: one})
    (task,) = placed((1,))
    pool.put([task])
    pool.dismiss(one)
    assert pool.all_members() == [home, one]
    assert pool.that_have([task]) == [home, one]   # what it still says is taken in
    pool.remove(one)
    assert pool.all_members() == [home]
