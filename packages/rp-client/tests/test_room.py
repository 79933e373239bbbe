"""A model of a pilot's nodes: tasks get what is free, wait within the oversubscription, and give all of it back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rp_client.scheduler.places import Need
from rp_client.scheduler.room import Node, Room, nodes_of


def fill(room: Room, need: Need, name: str = 't') -> int:
    """Take as much as there is, and return how many tasks got something."""
    count = 0
    while room.take(f'{name}{count}', need):
        count += 1
    return count


@pytest.mark.parametrize(('nodes', 'need', 'count'), [
    ([Node(4)], Need(), 4),
    ([Node(4), Node(2)], Need(cores=2), 3),
    ([Node(4), Node(4)], Need(cores=3), 2),                               # the cores that are left are on two nodes
    ([Node(4), Node(4)], Need(cores=5), 0),
    ([Node(4), Node(4)], Need(ranks=8), 1),
    ([Node(4), Node(4)], Need(ranks=3), 2),                               # the second one spans nodes
    ([Node(4), Node(4)], Need(ranks=6, one_node=True), 0),
    ([Node(4), Node(4)], Need(ranks=3, one_node=True), 2),
    ([Node(4), Node(4)], Need(ranks=4, per_node=2), 2),
    ([Node(4), Node(4)], Need(ranks=5, per_node=2), 0),
    ([Node(8, 2)], Need(gpus=1), 2),
    ([Node(8, 2)], Need(gpus=0.3), 6),
    ([Node(8, 2)], Need(gpus=0.6), 2),                                    # the rests of two GPUs are no GPU
    ([Node(20, 1)], Need(gpus=0.1), 10),
    ([Node(8, 4), Node(8, 4)], Need(ranks=2, gpus=3), 1),
    ([Node(8, mem=1000)], Need(mem=300), 3),
    ([Node(8, lfs=1000), Node(8, lfs=500)], Need(lfs=500), 3),
    ([Node(8)], Need(mem=1), 0),
])
def test_as_many_tasks_as_fit(nodes: list[Node], need: Need, count: int) -> None:
    room = Room(nodes)
    assert fill(room, need) == count
    assert bool(room.capacity(need)) == bool(count)
    assert room.capacity(need) >= count
    room.check()
    room.give([f't{number}' for number in range(count)])
    assert fill(room, need) == count
    room.check()


def test_several_kinds_share_nodes() -> None:
    room = Room([Node(4, 1), Node(4, 1)])
    assert fill(room, Need(cores=3, gpus=1), 'gpu') == 2
    assert fill(room, Need(), 'core') == 2
    was_full = room.full
    room.give(['gpu1', 'unknown'])
    assert (was_full, room.full) == (True, False)
    assert fill(room, Need(cores=2), 'two') == 1
    assert fill(room, Need(gpus=0.5), 'half') == 1
    room.check()


@pytest.mark.parametrize(('percent', 'need', 'count'), [
    (0, Need(), 0), (50, Need(), 2), (100, Need(), 4), (110, Need(), 4), (100, Need(gpus=1), 2),
    (100, Need(ranks=3), 1), (99, Need(ranks=3), 0), (200, Need(cores=4), 2)])
def test_oversubscription_is_a_percentage_of_the_tasks_that_run(percent: int, need: Need, count: int) -> None:
    room = Room([Node(4, 2)], percent)
    fill(room, need)
    waiting = 0
    while room.queue(f'w{waiting}', need):
        waiting += 1
    assert waiting == room.waiting == count
    room.check()


def test_tasks_that_wait_in_the_agent_run_when_others_have_ended() -> None:
    room = Room([Node(2)], 100)
    assert fill(room, Need()) == 2
    assert [room.queue(uid, Need()) for uid in 'abc'] == [True, True, False]
    room.give(['t0'])
    assert (room.running, room.waiting) == (2, 1)
    room.give(['b'])   # the agent has taken it before the other one
    assert (room.running, room.waiting) == (2, 0)
    room.give(['t1', 'a'])
    assert (room.running, room.waiting) == (0, 0)
    room.check()


def test_tasks_that_are_there_already_are_counted() -> None:
    room = Room([Node(2)])
    for uid in 'abc':
        room.hold(uid, Need())
    room.hold('call', Need(counted=False))
    room.hold('impossible', Need(cores=9))
    assert (room.running, room.waiting) == (2, 1)
    assert not room.take('d', Need())
    room.give(['a'])
    assert not room.take('d', Need())
    room.give(['b'])
    assert room.take('d', Need())
    room.check()


def test_devices_that_are_blocked_or_lost_do_not_count() -> None:
    free, gone = {'index': 0, 'occupation': 0.0}, {'index': 1, 'occupation': None}
    assert nodes_of({'node_list': [
        {'cores': [free, gone, free], 'gpus': [free], 'mem': 100, 'lfs': 0},
        {'cores': [gone], 'gpus': [], 'mem': None, 'lfs': 5}]}) == [Node(2, 1, 100, 0), Node(0, 0, 0, 5)]


NEEDS = st.tuples(st.integers(1, 5), st.integers(1, 4), st.sampled_from([0, 0, 0.25, 0.7, 1, 2]),
                  st.sampled_from([0, 0, 300]), st.sampled_from([0, 0, 1, 2]), st.booleans()).map(
    lambda drawn: Need(ranks=drawn[0], cores=drawn[1], gpus=drawn[2], mem=drawn[3], per_node=drawn[4],
                       one_node=drawn[5]))
NODES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.sampled_from([0, 1000])).map(
    lambda drawn: Node(*drawn)), min_size=1, max_size=4)


@given(nodes=NODES, need=NEEDS)
def test_a_need_fits_in_the_empty_place_or_never(nodes: list[Node], need: Need) -> None:
    assert (fill(Room(nodes), need) > 0) == (Room(nodes).capacity(need) > 0)


class GiveAndTake(RuleBasedStateMachine):
    """Nothing is given twice, nothing is lost, and a task that finds no room does not find it a moment later either."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room([Node(4, 1, 1000), Node(6, 2, 1000), Node(2)], 50)
        self.here: list[str] = []
        self.count = 0

    @rule(need=NEEDS)
    def come(self, need: Need) -> None:
        self.count += 1
        uid = f't{self.count}'
        taken = self.room.take(uid, need) or (self.room.capacity(need) > 0 and self.room.queue(uid, need))
        if taken:
            self.here.append(uid)
        else:
            assert not self.room.take(uid, need)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.here), unique=True)) if self.here else []
        self.room.give(gone)
        self.here = [uid for uid in self.here if uid not in gone]

    @invariant()
    def in_order(self) -> None:
        self.room.check()
        assert self.room.running + self.room.waiting == len(self.here)

    def teardown(self) -> None:
        self.room.give(self.here)
        assert fill(self.room, Need()) == 12


TestGiveAndTake = GiveAndTake.TestCase
TestGiveAndTake.settings = settings(max_examples=40, stateful_step_count=30)
