"""Whatever comes, under each policy: nothing is given twice, nothing leaks, and every task ends in some way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduler_support import Bench, a_slot, a_task

from rp_api import states

pytestmark = pytest.mark.timeout(120)

NODES, CORES, GPUS, MEM = 4, 4, 2, 1000

TAGS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    'CONTINUOUS': st.fixed_dictionaries({}, optional={'colocate': st.integers(0, 3), 'exclusive': st.booleans()}),
    'TAGGED': st.just({}) | st.fixed_dictionaries({'nodes': st.lists(st.integers(0, NODES), max_size=3)}),
    'CONTINUOUS_COLO': st.just({}) | st.builds(lambda bag, size: {'colocate': {'bag': bag, 'size': size}},
                                               st.sampled_from('ab'), st.integers(1, 3)),
    'CONTINUOUS_ORDERED': st.just({}) | st.builds(
        lambda ns, order: {'order': {'ns': ns, 'order': order, 'size': 2}}, st.sampled_from('ab'), st.integers(0, 2)),
}
WANTED = {
    'ranks': st.integers(1, 9), 'cores_per_rank': st.integers(1, 5), 'ranks_per_node': st.none() | st.integers(1, 3),
    'gpus_per_rank': st.sampled_from([0, 0, 0.3, 0.5, 1, 2]), 'mem_per_rank': st.sampled_from([0, 400, 1100]),
    'priority': st.integers(0, 2), 'use_mpi': st.sampled_from([None, None, False])}
SLOTS = st.lists(st.builds(a_slot, st.integers(0, NODES),
                           st.lists(st.integers(0, CORES) | st.builds(lambda index: {'index': index, 'occupation': 0.5},
                                                                      st.integers(0, CORES - 1)), max_size=3)),
                 min_size=1, max_size=2)


def steps(name: str) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """What happens: tasks come, end, are cancelled, nodes are lost and come back, and time passes."""
    tasks = st.fixed_dictionaries({'tags': TAGS.get(name, st.just({}))}, optional=WANTED)
    placed = SLOTS.map(lambda slots: {'slots': slots, 'ranks': len(slots)})
    number = st.integers(0, 1000)
    return st.lists(st.one_of(
        st.tuples(st.just('submit'), st.lists(tasks | tasks | tasks | placed, min_size=1, max_size=4)),
        st.tuples(st.sampled_from(['finish', 'finish', 'cancel']), number),
        st.tuples(st.just('lose'), st.integers(0, NODES - 1)), st.tuples(st.just('find'), st.integers(0, NODES - 1)),
        st.tuples(st.just('wait'), st.integers(1, 100))), max_size=25)


class World:
    """A scheduler to which things happen."""

    def __init__(self, name: str) -> None:
        self.bench = Bench(nodes=NODES, cores=CORES, gpus=GPUS, agent_scheduler=name,
                           system_architecture={'torus': [2, 2]})
        self.places = name != 'NOOP'
        self.uids: list[str] = []
        self.lost: set[int] = set()
        self.ended: set[str] = set()

    def submit(self, descriptions: list[dict[str, Any]]) -> None:
        tasks = [a_task(f't{len(self.uids) + number}', **each) for number, each in enumerate(descriptions)]
        self.uids += [task.uid for task in tasks]
        self.bench.put(*tasks)

    def finish(self, number: int) -> None:
        if running := self.bench.running():
            uid = running[number % len(running)]
            self.ended.add(uid)
            self.bench.finish(uid)

    def cancel(self, number: int) -> None:
        if self.uids:
            self.bench.cancel(self.uids[number % len(self.uids)])

    def lose(self, node: int) -> None:
        self.lost.add(node)
        self.bench.scheduler.nodes_down([node], 'it is lost')

    def find(self, node: int) -> None:
        self.lost.discard(node)
        self.bench.scheduler.node_up(node)

    def wait(self, seconds: int) -> None:
        self.bench.wait(seconds)

    def check(self) -> None:
        """Nothing is given twice; no task is in two places, or in none."""
        bench = self.bench
        bench.scheduler.check()
        shares: dict[tuple[int, str, int], float] = {}
        memory = [0] * NODES
        for task in bench.placed:
            assert (task.slots is not None) == (self.places or bool(task.description['slots']))
            for slot in task.slots or []:
                memory[slot['node_index']] += slot['mem']
                for kind in ('cores', 'gpus'):
                    for device in slot[kind]:
                        key = slot['node_index'], kind, device['index']
                        shares[key] = shares.get(key, 0) + device['occupation']
        assert all(share <= 1 + 1e-9 for share in shares.values())
        assert max(memory) <= MEM
        failed = [task.uid for task in bench.failed]
        assert sorted([*bench.running(), *failed, *self.ended, *bench.scheduler._waiting]) == sorted(self.uids)

    def end(self) -> None:
        """All nodes come back and all tasks end: what still waits then is held back by its policy."""
        for node in list(self.lost):
            self.find(node)
        while self.bench.placed:
            self.finish(0)
            self.check()
        assert len(self.bench.scheduler._pool) == 0
        self.bench.scheduler.cancel_all('the end')
        self.check()
        assert not self.bench.scheduler._waiting
        assert {task.target_state for task in self.bench.failed} <= {states.FAILED, states.CANCELED}
        assert all(self.bench.reasons().values())
        assert [self.bench.free(node) for node in range(NODES)] == [Bench(cores=CORES, gpus=GPUS).free(0)] * NODES


@pytest.mark.parametrize('name', ['CONTINUOUS', 'TAGGED', 'CONTINUOUS_DVM', 'CONTINUOUS_JSRUN', 'CONTINUOUS_COLO',
                                  'CONTINUOUS_ORDERED', 'CONTINUOUS_RECONFIG', 'HOMBRE', 'NOOP', 'TORUS'])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_task_ends(name: str, data: st.DataObject) -> None:
    world = World(name)
    for what, argument in data.draw(steps(name)):
        getattr(world, what)(argument)
        world.check()
    world.end()
