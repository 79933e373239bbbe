"""What a pilot has is divided among its partitions, and nothing of it belongs to two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rp_agent.partitions.division import Divider, PartitionShare, Parts, allocation_of, is_part
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.binding import some_gpu_ids
from rp_agent.resource_manager.systems.find import as_plain, from_plain
from rp_api.errors import ResourceError


def an_allocation(nodes: int = 1, cores: int = 8, gpus: int = 0, **values: Any) -> Allocation:
    known: dict[str, Any] = {'mem_per_node': 1000, 'lfs_per_node': 0}
    return Allocation(tuple(f'n{index}' for index in range(nodes)), cores, gpus, **known | values)


def shares(divider: Divider, number: int) -> list[list[tuple[int, int, int]]]:
    """Node, number of cores and number of GPUs of each part of each partition."""
    return [[(part.node, len(part.cores), len(part.gpus)) for part in parts] for parts in divider.divide(number)]


def test_nodes_are_divided_evenly() -> None:
    assert shares(Divider(an_allocation(nodes=5, cores=2)), 2) == [
        [(0, 2, 0), (1, 2, 0), (2, 2, 0)], [(3, 2, 0), (4, 2, 0)]]


def test_one_node_is_divided_by_its_cores_and_gpus() -> None:
    assert shares(Divider(an_allocation(cores=8, gpus=2)), 3) == [[(0, 3, 1)], [(0, 3, 1)], [(0, 2, 0)]]


def test_fewer_nodes_than_partitions() -> None:
    assert shares(Divider(an_allocation(nodes=2, cores=4)), 3) == [[(0, 2, 0)], [(0, 2, 0)], [(1, 4, 0)]]


def test_fewer_cores_than_partitions() -> None:
    with pytest.raises(ResourceError, match=r'partitions=3 .* node n0 has 2 cores for 3 of them'):
        Divider(an_allocation(cores=2)).divide(3)


def test_sizes() -> None:
    divider = Divider(an_allocation(nodes=4, cores=4, gpus=1))
    assert [part.node for part in divider.take({'nodes': 2})] == [0, 1]
    assert divider.take({'cores': 3}) == (PartitionShare(2, (0, 1, 2), (), 750),)
    assert divider.take({'cores': 1, 'gpus': 1}) == (PartitionShare(2, (3,), (0,), 250),)
    assert divider.take({'cores': 4, 'gpus': 1}) == (PartitionShare(3, (0, 1, 2, 3), (0,), 1000),)
    with pytest.raises(ResourceError, match='the pilot has no free resources'):
        divider.take({})


def test_more_cores_than_a_node_has_are_whole_nodes() -> None:
    divider = Divider(an_allocation(nodes=3, cores=4))
    divider.take({'cores': 1})
    assert [part.node for part in divider.take({'cores': 5})] == [1, 2]


def test_what_is_not_free() -> None:
    divider = Divider(an_allocation(nodes=2, cores=4))
    divider.take({'cores': 1})
    with pytest.raises(ResourceError, match='nodes=2 of the partition is more than the 1 free nodes of the pilot'):
        divider.take({'nodes': 2})
    with pytest.raises(ResourceError, match=r'cores=5 and gpus=1 of the partition .* \(4 cores, 0 GPUs, 1000 MB\)'):
        divider.take({'cores': 5, 'gpus': 1})


def test_the_rest() -> None:
    divider = Divider(an_allocation(nodes=3, cores=4))
    first = divider.take({'cores': 3})
    assert [part.node for part in divider.take({})] == [1, 2]
    assert divider.take({}) == (PartitionShare(0, (3,), (), 250),)
    divider.give_back(first)
    assert divider.take({}) == first


def memory(divider: Divider, sizes: list[dict[str, int]]) -> list[list[int]]:
    """The MB of each part of each partition."""
    return [[part.mem for part in parts] for parts in divider.take_all(sizes)]


def test_memory() -> None:
    """Partitions that name none share the rest of the node in proportion to their cores."""
    sizes = [{'cores': 1}, {'cores': 1, 'memory': 700}, {'cores': 2}]
    assert memory(Divider(an_allocation(1, 4)), sizes) == [[100], [700], [200]]
    assert memory(Divider(an_allocation(1, 8)), sizes) == [[42], [700], [85]], 'the rest stays free'
    assert memory(Divider(an_allocation(2, 4)), [{'cores': 1, 'memory': 600}] * 2) == [[600], [600]], 'two nodes'
    assert memory(Divider(an_allocation(3, 4)), [{'cores': 1, 'memory': 1001}]) == [[1000, 1000]], 'whole nodes'
    whole = an_allocation(1, 4)
    (parts,) = Divider(whole).take_all([{'cores': 4, 'memory': 900}])
    assert (is_part(whole, parts), allocation_of(whole, parts).mem_per_node) == (True, 900)


def test_memory_that_is_not_free() -> None:
    divider = Divider(an_allocation(1, 4))
    first = divider.take({'cores': 1, 'memory': 700})
    with pytest.raises(ResourceError, match=r'cores=2 and memory=400 of the partition .*\(3 cores, 0 GPUs, 300 MB'):
        divider.take({'cores': 2, 'memory': 400})
    divider.give_back(first)
    assert [part.mem for part in divider.take({'cores': 2, 'memory': 400})] == [400]
    assert [part.mem for part in divider.take({})] == [600]


def test_a_partition_of_whole_nodes() -> None:
    whole = an_allocation(nodes=3, cores=4, gpus=2, blocked_cores=(0,), cpus=(0, 1, 2, 3, 4), smaller={2: (2, 0)},
                          facts={'net': 'ib'})
    divider = Divider(whole)
    first, second = (allocation_of(whole, divider.take({'nodes': nodes})) for nodes in (1, 2))
    assert first.names == ('n0',)
    assert first == an_allocation(1, 4, 2, blocked_cores=(0,), cpus=(0, 1, 2, 3, 4), facts={'net': 'ib'})
    assert (second.names, second.smaller, second.cores, second.gpus) == (('n1', 'n2'), {1: (2, 0)}, 6, 2)


def test_parts_of_a_node() -> None:
    """Numbers of the operating system, names of GPUs, domains and memory are those of the part."""
    whole = an_allocation(1, 6, 2, blocked_cores=(0, 1), cpus=tuple(range(10, 18)), lfs_per_node=90,
                          gpu_ids=('3', '5'), domains=(((0, 1, 2, 3), (0,)), ((4, 5, 6, 7), (1,))), mem_per_node=600)
    first, second = (allocation_of(whole, parts) for parts in Divider(whole).divide(2))
    assert first == Allocation(('n0',), 3, 1, 300, 45, cpus=(12, 13, 14), gpu_ids=('3',),
                               domains=(((0, 1), (0,)), ((2,), ())))
    assert second == Allocation(('n0',), 3, 1, 300, 45, cpus=(15, 16, 17), gpu_ids=('5',), domains=(((0, 1, 2), (0,)),))


def test_gpus_without_names_get_them() -> None:
    """In its partition it is the first one, but programs have to be told of the second one."""
    whole = an_allocation(1, 2, 2)
    assert [allocation_of(whole, parts).gpu_ids for parts in Divider(whole).divide(2)] == [('0',), ('1',)]


def test_nodes_on_other_hosts() -> None:
    """Names of this host's devices are for partitions with this host."""
    whole = an_allocation(3, 2, 2, elsewhere=(1, 2), cpus=(4, 5), gpu_ids=('7', '8'))
    divider = Divider(whole)
    near, far = allocation_of(whole, divider.take({'nodes': 2})), divider.take({'cores': 1, 'gpus': 1})
    assert (near.names, near.elsewhere, near.cpus, near.gpu_ids) == (('n0', 'n1'), (1,), (4, 5), ('7', '8'))
    rest = divider.take({})
    assert [allocation_of(whole, parts).gpu_ids for parts in (far, rest)] == [('0',), ('1',)]
    assert [(allocation_of(whole, parts).elsewhere, allocation_of(whole, parts).cpus) for parts in (far, rest)] == [
        ((0,), ())] * 2
    assert [is_part(whole, parts) for parts in (far, rest, divider.divide(3)[0])] == [True, True, False]


def test_names_of_some_gpus() -> None:
    assert some_gpu_ids({'CUDA_VISIBLE_DEVICES': '4,5,7'}, [2, 0]) == ('7', '4')
    assert some_gpu_ids({}, [1]) == ('1',)
    assert some_gpu_ids({'CUDA_VISIBLE_DEVICES': '4'}, [1]) == ('1',)   # there are fewer than is pretended
    assert some_gpu_ids({}, []) == ()


@given(st.builds(an_allocation, st.integers(1, 3), st.integers(1, 4), st.integers(0, 2),
                 blocked_cores=st.sampled_from([(), (0, 2)]), cpus=st.sampled_from([(), tuple(range(9))]),
                 domains=st.just((((0, 1), (0,)), ((2,), (1,)))), smaller=st.sampled_from([{}, {0: (1, 0)}]),
                 facts=st.just({'a': 'b'})))
def test_an_allocation_travels_as_json(allocation: Allocation) -> None:
    assert from_plain(json.loads(json.dumps(as_plain(allocation)))) == allocation


class Division(RuleBasedStateMachine):
    """Partitions that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.divider = Divider(an_allocation(3, 4, 2, blocked_cores=(1,), smaller={1: (2, 0)}))
        self.partitions: list[tuple[dict[str, int], Parts]] = []

    @rule(size=st.one_of(st.builds(lambda nodes: {'nodes': nodes}, st.integers(1, 3)),
                         st.builds(lambda cores, gpus, memory: {'cores': cores, 'gpus': gpus, 'memory': memory},
                                   st.integers(1, 9), st.integers(0, 3), st.sampled_from([0, 0, 100, 600, 1500])),
                         st.just({})))
    def take(self, size: dict[str, int]) -> None:
        before = self.free()
        try:
            parts = self.divider.take(size)
        except ResourceError:
            assert self.free() == before
            return
        self.partitions.append((size, parts))
        allocation = allocation_of(self.divider.allocation, parts)
        assert allocation.cores == sum(len(part.cores) for part in parts)
        assert allocation.gpus == sum(len(part.gpus) for part in parts)
        assert allocation.cores >= size.get('cores', 1)
        assert allocation.gpus >= size.get('gpus', 0)
        assert len(parts) * allocation.mem_per_node >= size.get('memory', 0)
        assert len(allocation.names) == size.get('nodes', len(allocation.names))

    @precondition(lambda self: self.partitions)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        _, parts = self.partitions.pop(data.draw(st.integers(0, len(self.partitions) - 1)))
        self.divider.give_back(parts)

    def free(self) -> list[tuple[int, str, int]]:
        return [(node, kind, index) for kind, rows in (('core', self.divider._cores), ('gpu', self.divider._gpus))
                for node, row in enumerate(rows) for index in row]

    @invariant()
    def everything_belongs_to_one(self) -> None:
        taken = [(part.node, kind, index) for _, parts in self.partitions for part in parts
                 for kind, row in (('core', part.cores), ('gpu', part.gpus)) for index in row]
        everything = [(node, kind, index) for node, cores, gpus in ((0, (0, 2, 3, 4), (0, 1)), (1, (0, 2), ()),
                                                                   (2, (0, 2, 3, 4), (0, 1)))
                      for kind, row in (('core', cores), ('gpu', gpus)) for index in row]
        assert sorted(taken + self.free()) == sorted(everything)
        for node, free in enumerate(self.divider._mem):
            assert free >= 0
            assert free + sum(part.mem for _, parts in self.partitions for part in parts if part.node == node) == 1000


TestDivision = Division.TestCase
