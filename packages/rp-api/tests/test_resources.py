"""Nodes, slots and the search for slots: fields, placement, release, errors, threads, and an oracle."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.constants import BUSY, DOWN, FREE
from rp_api.errors import AttributeTypeError, AttributeUnknown, DescriptionError, ResourceError
from rp_api.resources import (
    RO,
    Node,
    NodeList,
    NodesDiffer,
    NumaDomain,
    NumaDomainMap,
    NumaNode,
    NumaNodeList,
    RankRequirements,
    ResourceOccupation,
    Slot,
    SlotConflict,
)
from rp_api.resources.claim import Shape
from rp_api.resources.nodelist import Request
from rp_api.resources.pool import UNITS, to_units

T = TypeVar('T')


def a_node(index: int = 0, cores: int = 4, gpus: int = 2, lfs: int = 0, mem: int = 0) -> Node:
    return Node(index=index, name=f'n{index}', cores=cores, gpus=gpus, lfs=lfs, mem=mem)


def a_list(n_nodes: int = 2, **size: int) -> NodeList:
    return NodeList(nodes=[a_node(index, **size) for index in range(n_nodes)])


def some(slots: T | None) -> T:
    """The slot or slots, which are there."""
    assert slots is not None
    return slots


def cores_of(slots: Sequence[Slot]) -> list[list[int]]:
    return [[core.index for core in slot.cores] for slot in slots]


class TestRecords:
    def test_defaults(self) -> None:
        assert Slot() == {
            'cores': [], 'gpus': [], 'lfs': 0, 'mem': 0, 'node_index': 0, 'node_name': '', 'version': 1}
        assert RankRequirements() == {
            'n_cores': 1, 'core_occupation': 1.0, 'n_gpus': 0, 'gpu_occupation': 1.0, 'lfs': 0, 'mem': 0,
            'numa': False}
        assert Node() == {'index': 0, 'name': '', 'cores': [], 'gpus': [], 'lfs': 0, 'mem': 0}

    def test_slots_do_not_share_lists(self) -> None:
        assert Slot().cores is not Slot().cores

    def test_slot_from_dict_with_attribute_and_item_access(self) -> None:
        cores = [1, {'index': 2, 'occupation': 0.5}]
        slot = Slot({'cores': cores, 'gpus': [RO(index=0, occupation=0.1)]}, mem='5')
        assert slot.cores == slot['cores'] == [RO(index=1, occupation=BUSY), RO(index=2, occupation=0.5)]
        assert slot.gpus[0].occupation == 0.1
        assert slot.mem == 5
        slot.node_name = 'n7'
        assert slot['node_name'] == 'n7'

    def test_str_of_occupation(self) -> None:
        assert str(RO(index=3, occupation=0.5)) == '3:0.5'
        assert RO is ResourceOccupation

    def test_occupation_is_required_at_verify(self) -> None:
        ro = RO(index=3)
        with pytest.raises(DescriptionError, match=r'ResourceOccupation\.occupation'):
            ro.verify()
        with pytest.raises(DescriptionError):
            Slot(cores=[{'index': 3}])

    def test_down_is_an_occupation_of_a_device(self) -> None:
        assert RO(index=0, occupation=DOWN).occupation is None

    @pytest.mark.parametrize('value', [-0.1, 1.1, 'x', float('nan'), [1]])
    def test_bad_occupation(self, value: object) -> None:
        with pytest.raises(AttributeTypeError, match=r'occupation must be a number from 0'):
            RO(index=0, occupation=value)

    def test_bad_values_name_the_field_and_the_value(self) -> None:
        with pytest.raises(AttributeTypeError, match=r"RankRequirements\.n_cores must be an integer.*'many'"):
            RankRequirements(n_cores='many')
        with pytest.raises(AttributeTypeError, match=r'RankRequirements\.n_gpus'):
            RankRequirements(n_gpus=1.5)
        with pytest.raises(AttributeTypeError, match=r'RankRequirements\.mem'):
            RankRequirements(mem=-1)
        with pytest.raises(AttributeTypeError, match=r'gpu_occupation'):
            RankRequirements(gpu_occupation=0)
        with pytest.raises(AttributeTypeError, match=r'takes a dict'):
            Slot([1, 2])  # type: ignore[arg-type]

    def test_unknown_field_names_the_nearest(self) -> None:
        with pytest.raises(AttributeUnknown, match=r'n_core_s.*n_cores'):
            RankRequirements(n_core_s=1)
        with pytest.raises(AttributeError, match='no attribute'):
            _ = Slot().corez

    def test_plain_on_the_wire(self) -> None:
        slot = some(a_list().find_slots(RankRequirements(n_cores=2, n_gpus=1, gpu_occupation=0.25)))[0]
        back = msgpack.unpackb(msgpack.packb(slot))
        assert back == slot.as_dict() == {
            'cores': [{'index': 0, 'occupation': 1.0}, {'index': 1, 'occupation': 1.0}],
            'gpus': [{'index': 0, 'occupation': 0.25}], 'lfs': 0, 'mem': 0,
            'node_index': 0, 'node_name': 'n0', 'version': 1}
        assert type(slot.as_dict()['cores'][0]) is dict
        assert isinstance(Slot(back).cores[0], RO)

    def test_node_list_on_the_wire(self) -> None:
        nodes = a_list(mem=10)
        slots = some(nodes.find_slots(RankRequirements(mem=4)))
        back = NodeList(msgpack.unpackb(msgpack.packb(nodes)))
        assert back == nodes
        assert back.nodes[0].mem == 6
        assert back.uniform is True
        back.check()
        back.release_slots(slots)
        assert back == a_list(mem=10)
        back.check()

    def test_requirements_are_partially_ordered(self) -> None:
        small, large = RankRequirements(n_cores=1), RankRequirements(n_cores=2, mem=5)
        other = RankRequirements(n_gpus=1)
        assert small <= large
        assert small < large
        assert large > small
        assert large >= small
        assert small <= RankRequirements(n_cores=1)
        assert not small < RankRequirements(n_cores=1)
        assert not other <= large
        assert not large <= other

    def test_requirements_as_text(self) -> None:
        rr = RankRequirements(n_cores=2, n_gpus=1, gpu_occupation=0.5, mem=8, numa=True)
        assert str(rr) == '2 cores, 1 GPU (0.5 of each), 8 MB mem in one NUMA domain'


class TestUnits:
    def test_equal_shares_fill_a_device(self) -> None:
        for n in (*range(1, 200), 1000, 2000):
            assert n * to_units(1 / n) <= UNITS

    @given(st.lists(st.integers(1, 999_999), min_size=1, max_size=8))
    def test_six_decimals_are_exact(self, parts: list[int]) -> None:
        assert sum(to_units(part / 1e6) for part in parts) * 10**6 == sum(parts) * UNITS

    @pytest.mark.parametrize('n', [2, 3, 5, 6, 7, 9, 10, 11, 13, 16, 20, 100])
    def test_fractions_of_a_gpu(self, n: int) -> None:
        node = a_node(cores=n, gpus=1)
        rr = RankRequirements(n_gpus=1, gpu_occupation=1 / n)
        slots = [some(node.find_slot(rr)) for _ in range(n)]
        assert all(slots)
        assert node.gpus[0].occupation == BUSY
        assert node.find_slot(rr) is None
        for slot in slots:
            node.deallocate_slot(Slot(slot.as_dict()))
        assert node.gpus[0].occupation == FREE
        node.check()


class TestNode:
    @pytest.mark.parametrize('cores', [3, [0.0, 0, 0], [RO(index=i, occupation=FREE) for i in range(3)],
                                       [{'index': i, 'occupation': 0.0} for i in range(3)]])
    def test_forms_of_cores(self, cores: object) -> None:
        assert Node(cores=cores).cores == [RO(index=i, occupation=FREE) for i in range(3)]

    def test_indices_may_have_gaps_but_not_repeat(self) -> None:
        node = Node(cores=[{'index': 2, 'occupation': 0}, {'index': 5, 'occupation': 0}])
        assert cores_of([some(node.find_slot(RankRequirements(n_cores=2)))]) == [[2, 5]]
        with pytest.raises(AttributeTypeError, match='index 2'):
            Node(cores=[{'index': 2, 'occupation': 0}, {'index': 2, 'occupation': 0}])

    @pytest.mark.parametrize('cores', [-1, True, 'abc', [2], ['x']])
    def test_bad_cores(self, cores: object) -> None:
        with pytest.raises(DescriptionError, match=r'cores'):
            Node(cores=cores)

    def test_find_occupies_the_first_free_cores(self) -> None:
        node = a_node()
        assert cores_of([some(node.find_slot({'n_cores': 3}))]) == [[0, 1, 2]]
        assert [core.occupation for core in node.cores] == [BUSY, BUSY, BUSY, FREE]
        assert node.find_slot(RankRequirements(n_cores=2)) is None
        assert [core.occupation for core in node.cores] == [BUSY, BUSY, BUSY, FREE]

    def test_down_cores_are_never_used(self) -> None:
        node = Node(cores=[FREE, DOWN, FREE])
        assert cores_of([some(node.find_slot(RankRequirements(n_cores=2)))]) == [[0, 2]]
        assert node.cores[1].occupation is DOWN

    def test_core_marked_by_hand(self) -> None:
        node = a_node(cores=2)
        node.cores[0].occupation = DOWN
        assert cores_of([some(node.find_slot(RankRequirements()))]) == [[1]]
        node.cores[0].occupation = FREE
        assert cores_of([some(node.find_slot(RankRequirements()))]) == [[0]]
        node.check()
        with pytest.raises(AttributeTypeError, match='index'):
            node.cores[0].index = 7

    def test_shared_gpu_fills_the_fullest_first(self) -> None:
        node = a_node(cores=8)
        half = RankRequirements(n_gpus=1, gpu_occupation=0.5)
        third = RankRequirements(n_gpus=1, gpu_occupation=0.3)
        found = [some(node.find_slot(rr)).gpus[0].index for rr in (third, half, half, third)]
        assert found == [0, 0, 1, 1]

    def test_several_shared_gpus_are_different_ones(self) -> None:
        node = a_node(cores=3, gpus=3)
        rr = RankRequirements(n_gpus=2, gpu_occupation=0.5)
        slots = [some(node.find_slot(rr)) for _ in range(3)]
        assert all(slots)  # only possible when the emptiest are taken first
        assert all(slot.gpus[0].index != slot.gpus[1].index for slot in slots)

    def test_memory_and_storage(self) -> None:
        node = a_node(lfs=100, mem=10)
        slot = some(node.find_slot(RankRequirements(lfs=60, mem=10)))
        assert (node.lfs, node.mem) == (40, 0)
        assert (slot.lfs, slot.mem) == (60, 10)
        assert node.find_slot(RankRequirements(lfs=60)) is None
        node.deallocate_slot(slot)
        assert (node.lfs, node.mem) == (100, 10)

    def test_slot_without_devices(self) -> None:
        node = a_node(cores=0, gpus=0, mem=10)
        slot = some(node.find_slot(RankRequirements(n_cores=0, mem=6)))
        node.deallocate_slot(slot)
        assert node.mem == 10
        with pytest.raises(SlotConflict):
            node.deallocate_slot(slot)
        assert node.mem == 10

    def test_allocate_a_slot_made_by_hand(self) -> None:
        node = a_node(index=3)
        slot = Slot(cores=[1, 2], gpus=[{'index': 0, 'occupation': 0.5}], node_index=3)
        node.allocate_slot(slot)
        assert [core.occupation for core in node.cores] == [FREE, BUSY, BUSY, FREE]
        assert node.gpus[0].occupation == 0.5
        node.deallocate_slot(slot)
        assert [core.occupation for core in node.cores] == [FREE] * 4

    @pytest.mark.parametrize(('slot', 'message'), [
        ({'cores': [0, 1]}, r'core 1 is in use'),
        ({'cores': [9]}, r'core 9 does not exist'),
        ({'cores': [3]}, r'core 3 is down'),
        ({'gpus': [{'index': 0, 'occupation': 0.6}]}, r'GPU 0 is in use \(0.5 of it, 0.6 asked\)'),
        ({'mem': 11}, r'11 MB mem asked, 10 MB free'),
        ({'cores': [0, 0]}, r'core 0 more than once'),
        ({'cores': [{'index': 0, 'occupation': None}]}, r'occupation None'),
        ({'cores': [0], 'node_index': 1}, r'not for node 0'),
        ({'cores': [0], 'node_name': 'other'}, r'not for node 0'),
    ])
    @pytest.mark.parametrize('check', [True, False])
    def test_conflicts_change_nothing(self, slot: dict[str, Any], message: str, check: bool) -> None:
        node = Node(name='n0', cores=[0, 1, 0, None], gpus=[0.5, 0], mem=10)
        before = node.as_dict()
        with pytest.raises(SlotConflict, match=message):
            node.allocate_slot(slot, _check=check)
        assert node == before
        node.check()

    def test_conflict_is_an_assertion_and_a_value_error(self) -> None:
        with pytest.raises(AssertionError):
            a_node().allocate_slot(Slot(cores=[99]))
        with pytest.raises(ValueError, match='99'):
            a_node().allocate_slot(Slot(cores=[99]))

    def test_second_release_is_refused_and_frees_nothing_of_others(self) -> None:
        node = a_node()
        rr = RankRequirements(core_occupation=0.5)
        mine, other = some(node.find_slot(rr)), some(node.find_slot(RankRequirements(core_occupation=0.25)))
        node.deallocate_slot(mine)
        with pytest.raises(SlotConflict, match=r'\[cores 0\] is not allocated on node 0 .*released before'):
            node.deallocate_slot(mine)
        assert node.cores[0].occupation == 0.25
        node.deallocate_slot(other)
        node.check()

    def test_release_of_a_part_is_refused(self) -> None:
        node = a_node()
        node.find_slot(RankRequirements(n_cores=2))
        with pytest.raises(SlotConflict):
            node.deallocate_slot(Slot(cores=[0]))

    def test_occupation_that_no_slot_holds_can_be_released(self) -> None:
        node = Node(cores=[BUSY, 0.5], mem=5)
        node.deallocate_slot(Slot(cores=[0, {'index': 1, 'occupation': 0.5}], mem=2))
        assert [core.occupation for core in node.cores] == [FREE, FREE]
        assert node.mem == 7
        node.check()

    def test_cores_cannot_be_replaced_while_in_use(self) -> None:
        node = a_node(cores=1)
        slot = some(node.find_slot(RankRequirements()))
        with pytest.raises(SlotConflict, match='cores'):
            node.cores = 8  # type: ignore[assignment]
        node.deallocate_slot(slot)
        node.cores = 8  # type: ignore[assignment]
        assert len(node.cores) == 8
        node.check()

    def test_core_that_goes_down_while_in_use_stays_down(self) -> None:
        node = a_node(cores=1)
        slot = some(node.find_slot(RankRequirements()))
        node.cores[0].occupation = DOWN
        node.deallocate_slot(slot)
        assert node.cores[0].occupation is DOWN
        assert node.find_slot(RankRequirements()) is None

    @pytest.mark.parametrize('duplicate', [copy.deepcopy, lambda node: pickle.loads(pickle.dumps(node))])
    def test_copies_are_independent_and_know_their_slots(self, duplicate: Callable[[Any], Any]) -> None:
        node = a_node(mem=10)
        slot = some(node.find_slot(RankRequirements(mem=4)))
        other = duplicate(node)
        other.deallocate_slot(slot)
        other.check()
        assert other.cores[0].occupation == FREE
        assert other.mem == 10
        assert node.cores[0].occupation == BUSY
        assert type(copy.deepcopy(node.cores)[0]) is RO

    def test_check_finds_a_broken_node(self) -> None:
        node = a_node()
        dict.__setitem__(node.cores[0], 'occupation', 0.5)
        with pytest.raises(AssertionError):
            node.check()


class TestNumaNode:
    def a_numa_node(self) -> NumaNode:
        domains = {'0': NumaDomain(cores=[0, 1, 2, 3], gpus=[0]), 1: {'cores': [4, 5, 6, 7], 'gpus': [1]}}
        return NumaNode({'index': 2, 'name': 'n2', 'cores': 8, 'gpus': 2, 'mem': 100}, domains)

    def test_domain_map_keys_become_integers(self) -> None:
        domains = NumaDomainMap({'3': {'cores': [1]}})
        assert domains == {3: NumaDomain([1])}
        assert domains.as_dict() == {'3': {'cores': [1], 'gpus': []}}
        with pytest.raises(AttributeTypeError, match="'a'"):
            NumaDomainMap({'a': {}})

    def test_domains_are_named_nodes_that_share_occupation(self) -> None:
        node = self.a_numa_node()
        domain = node.numa_domains[1]
        assert (domain.name, domain.index, len(domain.cores), len(domain.gpus)) == ('n2.1', 2, 4, 1)
        slot = some(domain.find_slot(RankRequirements(n_cores=3, n_gpus=1, mem=60)))
        assert (slot.node_index, slot.node_name) == (2, 'n2')
        assert cores_of([slot]) == [[4, 5, 6]]
        assert node.cores[4].occupation == BUSY
        assert domain.mem == node.mem == node.numa_domains[0].mem == 40
        assert domain.find_slot(RankRequirements(n_cores=2)) is None
        node.deallocate_slot(slot)
        assert domain.cores[0].occupation == FREE
        assert domain.mem == 100
        domain.check()

    def test_numa_request_lies_in_one_domain(self) -> None:
        node = self.a_numa_node()
        rr = RankRequirements(n_cores=3, numa=True)
        assert cores_of([some(node.find_slot(rr)), some(node.find_slot(rr))]) == [[0, 1, 2], [4, 5, 6]]
        assert node.find_slot(rr) is None
        assert cores_of([some(node.find_slot(RankRequirements(n_cores=2)))]) == [[3, 7]]
        node.check()

    def test_allocation_through_a_domain_stays_inside(self) -> None:
        domain = self.a_numa_node().numa_domains[1]
        with pytest.raises(SlotConflict, match=r'cores \[0\]'):
            domain.allocate_slot(Slot(cores=[0, 4], node_index=2))
        domain.allocate_slot(Slot(cores=[4], node_index=2, node_name='n2.1'))
        assert domain.cores[0].occupation == BUSY
        assert domain.capacity() == {'cores': 4, 'gpus': 1, 'lfs': 0, 'mem': 100}
        with pytest.raises(SlotConflict, match='domain of node 2'):
            domain.mem = 3
        copied = copy.deepcopy(domain)
        assert copied == domain
        assert copied.find_slot(RankRequirements(n_cores=3))

    def test_bad_domains(self) -> None:
        with pytest.raises(SlotConflict, match=r'no cores \[9\]'):
            NumaNode({'cores': 2}, {0: {'cores': [9]}})
        with pytest.raises(SlotConflict, match='overlap'):
            NumaNode({'cores': 2}, {0: {'cores': [0, 1]}, 1: {'cores': [1]}})
        with pytest.raises(AttributeTypeError, match='NUMA'):
            NumaNode({'cores': 2}, [1])  # type: ignore[arg-type]

    def test_node_without_domains_is_one_domain(self) -> None:
        assert a_node().find_slot(RankRequirements(n_cores=4, numa=True))

    @pytest.mark.parametrize('duplicate', [
        copy.deepcopy, lambda node: pickle.loads(pickle.dumps(node)),
        lambda node: NumaNode(msgpack.unpackb(msgpack.packb(node)))])
    def test_copies_have_domains(self, duplicate: Callable[[Any], Any]) -> None:
        node = duplicate(self.a_numa_node())
        assert cores_of([some(node.find_slot(RankRequirements(n_cores=4, numa=True)))]) == [[0, 1, 2, 3]]
        assert node.numa_domains[0].cores[0].occupation == BUSY

    def test_list_of_numa_nodes(self) -> None:
        nodes = NumaNodeList({'nodes': [{'index': i, 'cores': 4} for i in range(2)]},
                             numa_domain_map={0: {'cores': [0, 1]}, 1: {'cores': [2, 3]}})
        slots = some(nodes.find_slots(RankRequirements(n_cores=2, numa=True), n_slots=4))
        assert cores_of(slots) == [[0, 1], [2, 3]] * 2
        with pytest.raises(ResourceError, match='in one NUMA domain'):
            nodes.find_slots(RankRequirements(n_cores=3, numa=True))
        nodes.release_slots(slots)
        assert nodes.find_slots(RankRequirements(n_cores=3))
        nodes.check()
        assert isinstance(NumaNodeList(nodes.as_dict()).nodes[0], NumaNode)


class TestNodeList:
    def test_sizes(self) -> None:
        nodes = a_list(3, cores=4, gpus=2, lfs=7, mem=9)
        assert nodes.uniform is True
        assert [nodes[f'{name}_per_node'] for name in ('cores', 'gpus', 'lfs', 'mem')] == [4, 2, 7, 9]

    def test_slots_over_nodes_are_all_or_nothing(self) -> None:
        nodes = a_list(2, cores=4)
        rr = RankRequirements(n_cores=3)
        nodes.nodes[0].find_slot(RankRequirements(n_cores=2))
        assert nodes.find_slots(rr, n_slots=2) is None
        assert [core.occupation for core in nodes.nodes[1].cores] == [FREE] * 4
        slots = some(nodes.find_slots(RankRequirements(n_cores=2), n_slots=3))
        assert [(slot.node_index, slot.node_name) for slot in slots] == [(1, 'n1'), (1, 'n1'), (0, 'n0')]
        nodes.check()

    def test_all_on_one_node_if_one_has_room(self) -> None:
        nodes = a_list(3, cores=4)
        nodes.find_slots(RankRequirements(n_cores=2))
        slots = some(nodes.find_slots(RankRequirements(), n_slots=4))
        assert [slot.node_index for slot in slots] == [1] * 4

    def test_else_on_idle_neighbours(self) -> None:
        nodes = a_list(5, cores=4)
        nodes.nodes[1].find_slot(RankRequirements())
        slots = some(nodes.find_slots(RankRequirements(n_cores=2), n_slots=3))
        assert [slot.node_index for slot in slots] == [2, 2, 3]

    def test_else_on_the_nodes_with_the_most_room(self) -> None:
        nodes = a_list(4, cores=4)
        for index, n_cores in enumerate([3, 1, 1, 2]):
            nodes.nodes[index].find_slot(RankRequirements(n_cores=n_cores))
        slots = some(nodes.find_slots(RankRequirements(), n_slots=7))
        assert [slot.node_index for slot in slots] == [1, 1, 1, 2, 2, 2, 0]

    def test_idle_neighbours_that_do_not_hold_it(self) -> None:
        cores = [[0, DOWN], [0, 0], [0, 0]]
        nodes = NodeList(nodes=[Node(index=index, cores=cores[index]) for index in range(3)])
        slots = some(nodes.find_slots(RankRequirements(), n_slots=4))
        assert [slot.node_index for slot in slots] == [1, 1, 2, 2]

    def test_ranks_per_node(self) -> None:
        nodes = a_list(3)
        slots = some(nodes.find_slots(RankRequirements(), n_slots=5, ranks_per_node=2))
        assert [slot.node_index for slot in slots] == [0, 0, 1, 1, 2]
        with pytest.raises(ResourceError, match='at most 2 on a node'):
            nodes.find_slots(RankRequirements(), n_slots=7, ranks_per_node=2)

    @pytest.mark.parametrize('bad', [{'n_slots': 0}, {'ranks_per_node': 0}])
    def test_senseless_numbers(self, bad: dict[str, int]) -> None:
        with pytest.raises(ResourceError, match='at least 1'):
            a_list().find_slots(RankRequirements(), **bad)

    def test_what_can_never_fit_says_what_is_asked_and_what_there_is(self) -> None:
        nodes = a_list(2, cores=4, gpus=1, lfs=5, mem=10)
        with pytest.raises(ValueError, match='never fit') as caught:
            nodes.find_slots(RankRequirements(n_cores=5, n_gpus=2, mem=11))
        assert str(caught.value) == (
            '1 slot(s) of [5 cores, 2 GPUs, 11 MB mem] each can never fit: there are 2 node(s), '
            'with 4 cores, 1 GPUs, 5 MB lfs and 10 MB mem each')
        with pytest.raises(ResourceError):
            nodes.find_slots(RankRequirements(n_cores=4), n_slots=3)
        with pytest.raises(ResourceError):
            nodes.find_slots(RankRequirements(n_gpus=2, gpu_occupation=0.5))
        with pytest.raises(ResourceError):
            NodeList().find_slots(RankRequirements())
        nodes.check()

    def test_what_can_never_fit_is_not_hidden_by_a_failure(self) -> None:
        nodes = a_list(1, cores=2)
        nodes.find_slots(RankRequirements(n_cores=2))
        assert nodes.find_slots(RankRequirements()) is None
        with pytest.raises(ResourceError):
            nodes.find_slots(RankRequirements(n_cores=3))

    def test_nodes_that_differ(self) -> None:
        nodes = NodeList(nodes=[a_node(0, cores=4), a_node(1, cores=5)])
        assert nodes.uniform is False
        assert nodes.cores_per_node is None
        assert nodes.gpus_per_node == 2
        with pytest.raises(NodesDiffer, match=r'\(4, 2, 0, 0\), \(5, 2, 0, 0\)'):
            nodes.find_slots(RankRequirements())
        with pytest.raises(RuntimeError):
            nodes.find_slots(RankRequirements())

    def test_down_cores_do_not_make_nodes_differ(self) -> None:
        nodes = NodeList(nodes=[Node(index=0, cores=[0, None]), Node(index=1, cores=[0, 0])])
        assert len(some(nodes.find_slots(RankRequirements(), n_slots=3))) == 3
        with pytest.raises(ResourceError):
            nodes.find_slots(RankRequirements(), n_slots=4)

    def test_failure_is_forgotten_on_release(self) -> None:
        nodes = a_list(1, cores=1)
        [slot] = some(nodes.find_slots(RankRequirements()))
        assert nodes.find_slots(RankRequirements()) is None
        nodes.release_slots([slot])
        assert nodes.find_slots(RankRequirements()) == [slot]

    def test_failure_is_forgotten_on_release_at_the_node(self) -> None:
        nodes = a_list(2, cores=1)
        slots = some(nodes.find_slots(RankRequirements(), n_slots=2))
        assert nodes.find_slots(RankRequirements()) is None
        nodes.nodes[1].deallocate_slot(slots[1])
        assert nodes.find_slots(RankRequirements()) == [slots[1]]
        assert nodes.find_slots(RankRequirements()) is None
        nodes.nodes[0].cores[0].occupation = FREE
        assert nodes.find_slots(RankRequirements())

    def test_capacity_follows_cores_that_go_down_and_come_back(self) -> None:
        nodes = a_list(1, cores=2)
        nodes.nodes[0].cores[1].occupation = DOWN
        with pytest.raises(ResourceError):
            nodes.find_slots(RankRequirements(n_cores=2))
        nodes.nodes[0].cores[1].occupation = FREE
        assert nodes.find_slots(RankRequirements(n_cores=2))

    def test_smaller_request_is_tried_after_a_failure(self) -> None:
        nodes = a_list(1, cores=3)
        nodes.find_slots(RankRequirements(n_cores=2))
        assert nodes.find_slots(RankRequirements(n_cores=2)) is None
        assert nodes.find_slots(RankRequirements(n_cores=1))

    def test_second_release_names_the_slot_and_releases_the_others(self) -> None:
        nodes = a_list(1, cores=2)
        one, two = some(nodes.find_slots(RankRequirements(), n_slots=2))
        nodes.release_slots(one)
        with pytest.raises(SlotConflict, match=r'\[cores 0\] is not allocated'):
            nodes.release_slots([one, two])
        assert len(some(nodes.find_slots(RankRequirements(), n_slots=2))) == 2
        with pytest.raises(SlotConflict, match='node 5'):
            nodes.release_slots([Slot(node_index=5).as_dict()])

    def test_slots_come_back_as_plain_dicts(self) -> None:
        nodes = a_list()
        slots = some(nodes.find_slots(RankRequirements(n_gpus=1, gpu_occupation=1 / 3), n_slots=4))
        nodes.release_slots(msgpack.unpackb(msgpack.packb(slots)))
        assert nodes == a_list()
        nodes.check()

    def test_nodes_that_are_added_later(self) -> None:
        nodes = NodeList()
        nodes.nodes.append(a_node(0))
        nodes.verify()
        assert nodes.cores_per_node == 4
        nodes.nodes.append(a_node(1))
        assert len(some(nodes.find_slots(RankRequirements(n_cores=4), n_slots=2))) == 2

    def test_bad_nodes(self) -> None:
        with pytest.raises(ResourceError, match='index 3'):
            NodeList(nodes=[a_node(3), a_node(3)])
        with pytest.raises(ResourceError, match='nodes must be'):
            NodeList(nodes=['n0'])

    def test_node_objects_are_shared_with_the_list(self) -> None:
        node = a_node()
        nodes = NodeList(nodes=[node])
        nodes.find_slots(RankRequirements())
        assert node.cores[0].occupation == BUSY

    def test_deepcopy(self) -> None:
        nodes = a_list()
        slots = some(nodes.find_slots(RankRequirements(), n_slots=3))
        other = copy.deepcopy(nodes)
        other.release_slots(slots)
        other.check()
        assert nodes.nodes[0].cores[0].occupation == BUSY

    def test_node_that_is_occupied_between_plan_and_search(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = NodeList._plan

        def overtaken(self: NodeList, request: Request) -> list[tuple[Node, int]] | None:
            found = plan(self, request)
            self.nodes[1].find_slot(RankRequirements(n_cores=2))
            return found

        nodes = a_list(2, cores=2)
        with monkeypatch.context() as patch:
            patch.setattr(NodeList, '_plan', overtaken)
            assert nodes.find_slots(RankRequirements(), n_slots=4) is None
        nodes.check()
        assert len(some(nodes.find_slots(RankRequirements(), n_slots=2))) == 2

    @pytest.mark.parametrize('n_slots', [1, 2])
    def test_full_nodes_are_not_looked_at_again(self, monkeypatch: pytest.MonkeyPatch, n_slots: int) -> None:
        """Those that have cores but no GPUs left as well, which an application that fills the GPUs has thousands of."""
        looked: list[int] = []

        def noting(method: Callable[..., Any]) -> Callable[..., Any]:
            def look(self: Node, *args: Any) -> Any:
                looked.append(self.index)
                return method(self, *args)
            return look

        def looked_at(rr: RankRequirements) -> tuple[list[Slot] | None, list[int]]:
            looked.clear()
            return some(nodes.find_slots(rr, n_slots=n_slots)), list(dict.fromkeys(looked))

        nodes, with_gpu = a_list(6, cores=8, gpus=n_slots), RankRequirements(n_gpus=1)
        taken = [some(nodes.find_slots(with_gpu, n_slots=n_slots)) for _ in range(4)]
        monkeypatch.setattr(Node, 'take', noting(Node.take))
        monkeypatch.setattr(Node, 'room', noting(Node.room))
        assert looked_at(with_gpu)[1] == [3, 4]
        nodes.release_slots(taken[1][0])
        slots, looked_there = looked_at(with_gpu)
        assert looked_there == ([1] if n_slots == 1 else [1, 4, 5])
        assert {slot.node_index for slot in some(slots)} == ({1} if n_slots == 1 else {5})
        assert looked_at(RankRequirements())[1] == [0]
        nodes.check()

    def test_many_shapes_do_not_fill_the_memory(self) -> None:
        nodes = a_list(1, mem=5000)
        for mem in range(1, 1200):
            nodes.release_slots(some(nodes.find_slots(RankRequirements(mem=mem))))
        assert len(nodes._memory.limits) <= 1000
        full = a_list(1, cores=1, mem=5000)
        slot = some(full.find_slots(RankRequirements(mem=4000)))
        for mem in range(1, 120):
            assert full.find_slots(RankRequirements(mem=1200 - mem)) is None
        assert len(full._memory._open) <= 50
        full.check()
        full.release_slots(slot)
        assert full.find_slots(RankRequirements(mem=5000))

    def test_threads_never_share_a_core(self) -> None:
        nodes = a_list(4, cores=8)
        in_use: set[tuple[int, int]] = set()
        clashes: list[tuple[int, int]] = []
        lock = threading.Lock()

        def work() -> None:
            for _ in range(100):
                slots = nodes.find_slots(RankRequirements(n_cores=3), n_slots=2) or []
                mine = {(slot.node_index, core.index) for slot in slots for core in slot.cores}
                with lock:
                    clashes.extend(mine & in_use)
                    in_use.update(mine)
                with lock:
                    in_use.difference_update(mine)
                nodes.release_slots(slots)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clashes == []
        assert nodes == a_list(4, cores=8)
        nodes.check()

    def test_check_finds_a_stale_memory(self) -> None:
        nodes = a_list(1, cores=1)
        slots = some(nodes.find_slots(RankRequirements()))
        assert nodes.find_slots(RankRequirements()) is None
        failed = nodes._memory.failed
        nodes.release_slots(slots)
        nodes._memory.failed = failed
        with pytest.raises(AssertionError, match='taken for impossible'):
            nodes.check()
        nodes._memory.failed = None
        nodes._memory.close(Shape.of(RankRequirements()), 0)
        with pytest.raises(AssertionError, match='taken for full'):
            nodes.check()


class Oracle:
    """A naive model: what is free of each device as a fraction; exhaustive search for how many fit."""

    def __init__(self, n_nodes: int, cores: int, gpus: int, mem: int) -> None:
        self.nodes: list[dict[str, Any]] = [{'cores': [Fraction(1)] * cores, 'gpus': [Fraction(1)] * gpus, 'mem': mem}
                                            for _ in range(n_nodes)]

    def fits(self, rr: RankRequirements, n_slots: int, per_node: int) -> bool:
        return sum(min(self._most(node, rr), per_node) for node in self.nodes) >= n_slots

    def _most(self, node: dict[str, Any], rr: RankRequirements) -> int:
        bounds = [99]
        wanted = [('cores', rr.n_cores, rr.core_occupation), ('gpus', rr.n_gpus, rr.gpu_occupation)]
        for kind, number, part in wanted:
            if number:
                shares = tuple(sorted(free // Fraction(part).limit_denominator(100) for free in node[kind]))
                bounds.append(most_groups(shares, number))
        if rr.mem:
            bounds.append(node['mem'] // rr.mem)
        return min(bounds)

    def change(self, slot: Slot, sign: int) -> None:
        node = self.nodes[slot.node_index]
        for kind in ('cores', 'gpus'):
            assert len({device.index for device in slot[kind]}) == len(slot[kind])
            for device in slot[kind]:
                node[kind][device.index] -= sign * Fraction(device.occupation).limit_denominator(100)
                assert 0 <= node[kind][device.index] <= 1
        node['mem'] -= sign * slot.mem
        assert node['mem'] >= 0


@cache
def most_groups(shares: tuple[int, ...], number: int) -> int:
    """Tries every choice of `number` different devices for the first group."""
    best = 0
    for chosen in itertools.combinations([i for i, share in enumerate(shares) if share > 0], number):
        rest = tuple(sorted(share - (i in chosen) for i, share in enumerate(shares)))
        best = max(best, 1 + most_groups(rest, number))
    return best


REQUESTS = st.builds(
    RankRequirements, n_cores=st.integers(0, 3), core_occupation=st.sampled_from([1.0, 1.0, 0.5]),
    n_gpus=st.integers(0, 2), gpu_occupation=st.sampled_from([1.0, 0.5, 1 / 3]),
    mem=st.sampled_from([0, 0, 3]))
FINDS = st.tuples(REQUESTS, st.integers(1, 4), st.none() | st.integers(1, 2))
Find = tuple[RankRequirements, int, 'int | None']
STEPS = st.lists(FINDS | st.integers(0, 9), max_size=25)


@given(STEPS)
def test_against_the_oracle(steps: list[Find | int]) -> None:
    size = {'cores': 3, 'gpus': 2, 'mem': 7}
    nodes, oracle, empty = a_list(2, **size), Oracle(2, **size), Oracle(2, **size)
    held: list[list[Slot]] = []
    for step in steps:
        if isinstance(step, int):
            if held:
                released = held.pop(step % len(held))
                nodes.release_slots(released)
                for slot in released:
                    oracle.change(slot, -1)
        else:
            rr, n_slots, per_node = step
            possible = empty.fits(rr, n_slots, per_node or 99)
            fits = oracle.fits(rr, n_slots, per_node or 99)
            try:
                slots = nodes.find_slots(rr, n_slots, per_node)
            except ResourceError:
                assert not possible
            else:
                assert possible
                assert (slots is not None) == fits
            if possible and fits:
                assert slots is not None
                check_slots(slots, *step)
                for slot in slots:
                    oracle.change(slot, 1)
                held.append(slots)
        nodes.check()


def check_slots(slots: Sequence[Slot], rr: RankRequirements, n_slots: int, per_node: int | None) -> None:
    """The slots are what was asked for."""
    assert len(slots) == n_slots
    indices = [slot.node_index for slot in slots]
    assert all(indices.count(index) <= (per_node or n_slots) for index in indices)
    for slot in slots:
        assert [core.occupation for core in slot.cores] == [rr.core_occupation] * rr.n_cores
        assert [gpu.occupation for gpu in slot.gpus] == pytest.approx([rr.gpu_occupation] * rr.n_gpus)
        assert slot.mem == rr.mem
