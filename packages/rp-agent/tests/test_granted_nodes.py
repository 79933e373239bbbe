"""From granted nodes to what tasks may use: host lists, shapes of nodes, which nodes are taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resource_manager_support import allocate

from rp_agent.resource_manager import binding, machine
from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.batch import choose
from rp_agent.resource_manager.granted import Node, expand, indices, megabytes, repeated
from rp_agent.resource_manager.shape import Shape
from rp_agent.scheduler.slotmap import SlotMap
from rp_api.errors import PlatformError, ResourceError
from rp_api.resources import NodeList


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, two GPUs, 8 GB, nothing to bind to."""
    monkeypatch.setattr(machine, 'usable_cores', lambda: 4)
    monkeypatch.setattr(machine, 'usable_gpus', lambda environ: 2)
    monkeypatch.setattr(machine, 'usable_memory', lambda: 8192)
    monkeypatch.setattr(binding, 'of_this_host', lambda *args: ((), ()))


# lists of hosts


@pytest.mark.parametrize(('text', 'names'), [
    ('', []), ('a', ['a']), ('a,b', ['a', 'b']), ('n[1-3]', ['n1', 'n2', 'n3']), ('n[09-10]', ['n09', 'n10']),
    ('n[1,3-4,7]x', ['n1x', 'n3x', 'n4x', 'n7x']), ('r[1-2]n[0-1]', ['r1n0', 'r1n1', 'r2n0', 'r2n1']),
    ('a[1-2],b,c-d[3]', ['a1', 'a2', 'b', 'c-d3']), ('[5-6]', ['5', '6']), (' a , b ', ['a', 'b']),
    ('n[0-6:3]', ['n0', 'n3', 'n6']), ('nid[009998-010001]', ['nid009998', 'nid009999', 'nid010000', 'nid010001']),
    ('n[1-2].site.edu', ['n1.site.edu', 'n2.site.edu'])])
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(('text', 'why'), [
    ('n[1-2', 'brackets'), ('n1]', 'brackets'), ('n[[1]]', 'brackets'), ('n[a-b]', "'a-b' is not a range"),
    ('n[3-1]', "'3-1' is not a range"), ('n[]', "'' is not a range"), ('n[1-9:0]', 'is not a range'),
    ('n[1-999999999]', 'is not a range'), ('r[1-9999]n[1-9999]', 'stands for 99980001 hosts')])
def test_broken_lists_of_hosts(text: str, why: str) -> None:
    with pytest.raises(PlatformError, match=why):
        expand(text)


@given(st.lists(st.tuples(st.sampled_from('abc'), st.lists(st.integers(0, 999), min_size=1, max_size=5)), max_size=5))
def test_what_is_compressed_is_expanded(groups: list[tuple[str, list[int]]]) -> None:
    text = ','.join(f'{prefix}[{",".join(map(str, numbers))}]' for prefix, numbers in groups)
    assert expand(text) == [f'{prefix}{number}' for prefix, numbers in groups for number in numbers]


def test_other_notations() -> None:
    assert repeated('8(x2), 4', 'X') == [8, 8, 4]
    assert indices('0-2,5,gpu7,') == ['0', '1', '2', '5', 'gpu7']
    assert [megabytes(text, 'X') for text in ('1gb', '2048kb', '1tb', '3MB', '1048576', '10g', '4gw')] == [
        1024, 2, 1024**2, 3, 1, 10240, 4096]


# what tasks may use of a node


def shaped(node: Node, platform: dict[str, Any] | None = None, *, counts_threads: bool = True) -> Allocation:
    return Shape(platform or {}, {}, counts_threads).allocation([node], node)


@pytest.mark.parametrize(('platform', 'granted', 'cores'), [
    ({}, 8, 8), ({}, 0, 4), ({'cores_per_node': 64}, 0, 64), ({'cores_per_node': 64}, 128, 64),
    ({'cores_per_node': 64}, 64, 64), ({'cores_per_node': 64}, 8, 8),
    ({'cores_per_node': 64, 'system_architecture': {'smt': 2}}, 128, 128),
    ({'cores_per_node': 64, 'system_architecture': {'smt': 2}}, 16, 16)])
def test_cores_are_those_of_the_definition_but_no_more_than_granted(platform: dict[str, Any], granted: int,
                                                                    cores: int) -> None:
    assert shaped(Node('n', granted), platform).cores_per_node == cores


def test_a_batch_system_may_count_cores() -> None:
    platform = {'cores_per_node': 42, 'system_architecture': {'smt': 4}}
    assert shaped(Node('n', 42), platform, counts_threads=False).cores_per_node == 168
    assert shaped(Node('n', 10), platform, counts_threads=False).cores_per_node == 40


@pytest.mark.parametrize(('platform', 'granted', 'gpus'), [
    ({}, 3, 3), ({}, None, 2), ({}, 0, 0), ({'gpus_per_node': 4}, None, 4), ({'gpus_per_node': 4}, 1, 1),
    ({'gpus_per_node': 4}, 8, 4)])
def test_gpus(platform: dict[str, Any], granted: int | None, gpus: int) -> None:
    assert shaped(Node('n', 8, granted), platform).gpus_per_node == gpus


def test_a_part_of_a_node_has_no_gpus_unless_the_batch_system_says_so() -> None:
    platform = {'cores_per_node': 8, 'gpus_per_node': 4}
    assert shaped(Node('n', 2, None), platform).gpus_per_node == 0
    assert shaped(Node('n', 2, 1), platform).gpus_per_node == 1


@pytest.mark.parametrize(('platform', 'granted', 'mem'), [
    ({}, 0, 8192), ({}, 500, 500), ({'mem_per_node': 600}, 0, 600), ({'mem_per_node': 600}, 500, 500),
    ({'mem_per_node': 400}, 500, 400)])
def test_memory(platform: dict[str, Any], granted: int, mem: int) -> None:
    assert shaped(Node('n', 8, None, granted), platform).mem_per_node == mem


FRONTIER = {'cores_per_node': 64, 'system_architecture': {
    'smt': 2, 'blocked_cores': [*range(0, 64, 8), *range(64, 128, 8)], 'blocked_gpus': []}}


@pytest.mark.parametrize('granted', [128, 112, 0])
def test_blocked_cores_are_not_counted_whether_the_batch_system_does_or_not(granted: int) -> None:
    allocation = shaped(Node('n', granted), FRONTIER)
    assert (allocation.cores_per_node, len(allocation.blocked_cores)) == (112, 16)
    cores = allocation.node(0)['cores']
    assert len(cores) == 128
    assert [core['index'] for core in cores if core['occupation'] is None] == [*range(0, 128, 8)]


def test_in_a_part_of_a_node_nothing_is_blocked() -> None:
    allocation = shaped(Node('n', 16), FRONTIER)
    assert (allocation.cores_per_node, allocation.blocked_cores) == (16, ())


def test_a_node_of_which_all_is_blocked_is_refused() -> None:
    with pytest.raises(PlatformError, match='blocked_cores leaves no core of n'):
        shaped(Node('n', 2), {'system_architecture': {'blocked_cores': [0, 1]}})


def test_nodes_may_differ() -> None:
    platform = {'system_architecture': {'blocked_cores': [0]}}
    allocation = Shape(platform, {}, True).allocation([Node('a', 8, 0), Node('b', 32, 4), Node('c', 4, 4)], None)
    assert (allocation.cores_per_node, allocation.gpus_per_node) == (31, 4)
    assert allocation.smaller == {0: (7, 0), 2: (3, 4)}
    assert (allocation.cores, allocation.gpus, str(allocation)[:60]) == (
        41, 8, '3 node(s), each with at most 31 cores, 4 GPUs, 8192 MB mem a')
    listed = NodeList(nodes=allocation.node_list())
    listed.check()
    assert [len(node['cores']) for node in allocation.node_list()] == [8, 32, 4]
    assert allocation.details()['cores'] == 41
    assert len(SlotMap(allocation.node_list(), allocation.domains)) == 3


def test_what_the_own_node_is_called_when_others_have_more() -> None:
    nodes = [Node('a', 8, 2), Node('b', 8, 4), Node('c', 8, 2)]
    allocation = Shape({}, {'CUDA_VISIBLE_DEVICES': '2,3'}, True).allocation(nodes, nodes[0])
    assert (allocation.gpus_per_node, allocation.gpu_ids) == (4, ('2', '3'))
    assert (allocation.unlike, allocation.domains) == ((1,), ())
    assert Shape({}, {}, True).allocation(nodes, None).unlike == ()   # nothing is known of a node


@pytest.mark.parametrize(('granted', 'platform', 'gpus'), [
    (None, {'gpus_per_node': 4}, (2, 2)), (4, {'gpus_per_node': 4}, (2, 4)), (4, {}, (2, 4)), (1, {}, (1, 1)),
    (4, {'gpus_per_node': 4, 'system_architecture': {'blocked_gpus': [3]}}, (2, 3))])
def test_gpus_that_the_environment_of_the_job_hides(
        granted: int | None, platform: dict[str, Any], gpus: tuple[int, int]) -> None:
    """On the agent's node, or on all if the batch system does not say how many GPUs they have."""
    nodes = [Node('a', 8, granted), Node('b', 8, granted)]
    shape = Shape(platform, {'ROCR_VISIBLE_DEVICES': '5,7'}, True, nodes[0])
    assert tuple(shape.devices(node)[1] for node in nodes) == gpus
    assert shape.allocation(nodes[:1], nodes[0]).gpu_ids == ('5', '7')[:gpus[0]]


def test_all_devices_of_nodes_that_differ() -> None:
    platform = {'system_architecture': {'blocked_cores': [0, 20]}}
    allocation = Shape(platform, {}, True).allocation([Node('a', 8, 0), Node('b', 32, 4)], None)
    assert allocation.all_devices(0) == (8, (0,), 0)
    assert allocation.all_devices(1) == (32, (0, 20), 4)


def test_domains_are_those_of_the_definition() -> None:
    platform = {'numa_domain_map': {'0': {'cores': [0, 1], 'gpus': [0]}, '1': {'cores': [2, 3]}}}
    assert shaped(Node('n', 4, 1), platform).domains == (((0, 1), (0,)), ((2, 3), ()))


# which nodes are taken


NODES = [Node(f'n{number}', 8, 2) for number in range(4)]


def chosen(own: Node | None = None, sick: dict[str, str] | None = None, **wanted: int) -> list[str]:
    request = Request(**{'nodes': 0, 'cores': 0, 'gpus': 0, **wanted})
    found = choose(NODES, own, request, lambda node: (node.cores, node.gpus or 0), 'job 1', sick or {})
    return [node.name for node in found]


@pytest.mark.parametrize(('wanted', 'names'), [
    ({'nodes': 1}, ['n0']), ({'nodes': 3}, ['n0', 'n1', 'n2']), ({'cores': 1}, ['n0']), ({'cores': 8}, ['n0']),
    ({'cores': 9}, ['n0', 'n1']), ({'gpus': 5}, ['n0', 'n1', 'n2']), ({'cores': 2, 'gpus': 3}, ['n0', 'n1'])])
def test_as_many_nodes_as_are_needed(wanted: dict[str, Any], names: list[str]) -> None:
    assert chosen(**wanted) == names


def test_the_own_node_is_the_first() -> None:
    assert chosen(own=NODES[2], nodes=3) == ['n2', 'n0', 'n1']


def test_nodes_that_are_out_of_order_are_left_out() -> None:
    assert chosen(sick={'n0': 'no answer', 'n2': 'no answer'}, nodes=2) == ['n1', 'n3']
    with pytest.raises(ResourceError, match=r'nodes=4 .* the 3 that job 1 has; out of order are n1 \(no route'):
        chosen(sick={'n1': 'no route'}, nodes=4)
    with pytest.raises(ResourceError, match='gpus=9 of the pilot description is more than the 8'):
        chosen(gpus=9)


def test_nodes_are_asked_for_their_health_only_if_there_are_backup_nodes() -> None:
    environ = {'JOB_ID': '1', 'PE_HOSTFILE': '/h'}
    host: dict[str, Any] = {'files': {'/h': 'a 4 q U\nb 4 q U\nc 4 q U\n'}, 'sick': {'a': 'mute', 'c': 'mute'}}
    assert allocate('SGE', environ, nodes=2, here=['b'], **host).names == ('b', 'a')
    with pytest.raises(ResourceError, match=r'nodes=2 .* the 1 that job 1 of SGE has; out of order are a \(mute\), c'):
        allocate('SGE', environ, nodes=2, backup_nodes=1, here=['b'], **host)
    assert allocate('SGE', environ, nodes=1, backup_nodes=1, here=['b'], **host).names == ('b',)
